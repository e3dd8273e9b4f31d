"""What a recorded call came to: its guards, its effects, the facts about its tensors, and the entry that stands for later calls.

Must not know: how Python's steps were followed, how programs are made: an entry is given the statements that run one.
Start reading: journal.py (what a run did), finish.py (from there to a Recording), entry.py (what is kept), structure.py (guards in words of
memory).
"""
