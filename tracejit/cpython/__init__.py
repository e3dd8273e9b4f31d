"""Where CPython and NumPy keep what in memory, and machine code that handles their objects.  Nothing else in the library knows it
(tests/test_layers_of_imports.py); docs/cpython.md lists the facts, and how each is verified on live objects before its first
use.

Facts: layouts.py (a table with a row for each version), c_api.py, arrays.py.  Machine code: functions.py and expressions.py
(replay as machine code), frame_check.py (a program's check of its arrays), dispatcher.py and size_table.py (from a call to its
entry), words.py and watchers.py (words of memory that show whether objects have changed), call_hook.py (frames that run while a
call is recorded), eager_steps.py (elementwise operations and views of eager mode).

Must not know: what a program computes, what an entry guards, the class Tensor (callers say which classes have slots that
matter).
Start reading: layouts.py, then functions.py.
"""
