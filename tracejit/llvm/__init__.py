"""Nests and programs as LLVM text, compiled, cached, loaded."""
