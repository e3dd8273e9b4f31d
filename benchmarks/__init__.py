"""`python -m benchmarks`: tracejit eager against compiled, in one process, with the results compared in the same run."""
