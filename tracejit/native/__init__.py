"""LLVM text to machine code in this process: compiling, caching in files, linking.  Knows neither Python objects nor programs."""
