"""A fuzzer: random programs, eager against compiled, cold and hot; eager against PyTorch where that is installed.

    python -m tests.fuzz --programs 50000 --seed 0 --jobs 2      a long run, resumable by --seed; exit status 1 on differences
    python -m tests.fuzz --show 17                               the program of a seed, and what became of it
    python -m tests.fuzz --coverage                              which public functions the programs reached

A program is Python text, written by the seed (`generate.py`), so that capture sees real source: a world of objects, a function, and calls
with changes between them.  Text is written and tried together: a statement is kept if it runs on the values of the first call, so
the generator needs no shape rules, and whatever the tables of `ops/public`, the registry and `nn.functional` hold is drawn from there by
the names of its parameters (`operations.py`, `arguments.py`); a function that is added there is fuzzed without a word here.

In half of the programs something happens beside the program that a call is: prints, loggers, warnings and writes to files (`telling.py`),
draws of Python and NumPy and numbers that are kept (`keeping.py`), arrays of NumPy (`arrays.py`).

Each way to run a program loads its text anew, makes all calls three times, and writes down after every call what can be seen (`facts.py`):
results, arguments, the world, what was printed, gradients, who shares memory with whom.  What docs/equality.md promises bit for
bit must be bit for bit.  For the rest, eager itself is run with roundings of the allowed size put in (`noise.py`): what a compiled program
differs by must be explained by that spread, so amplified roundings and decisions near a threshold are told from defects by measuring,
not by a tolerance (`compare.py`).

A program that differs is shrunk over its syntax tree (`shrink.py`) and printed so that it can be put into a file as a named test.

How much is really replayed is counted by a witness that sees whether Python of the program runs; statistics are not believed.
"""
