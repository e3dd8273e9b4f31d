"""The result of a recorded call: guards, effects, facts about tensors, and the entry that serves later calls.

Must not know: how handlers recorded the steps of Python, how programs are compiled (an entry is given the statements that run its
program).
Start reading: journal.py (the log of a run), finish.py (makes a Recording of it), entry.py (the Recording), structure.py (guards
that machine code checks in words of memory).
"""
