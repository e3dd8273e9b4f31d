"""Where CPython and NumPy keep what in memory, and machine code that handles their objects.  Nothing else in the library knows it."""
