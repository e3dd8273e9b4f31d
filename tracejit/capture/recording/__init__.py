"""What a recorded call came to: its guards, its effects, the facts about its tensors, and the entry that stands for later calls.

Must not know: how Python's steps were followed, how programs are made: an entry is given the statements that run one.
Start reading: entry.py (the Recording), finish.py (from a run to one), structure.py (guards that words of memory answer for).
"""
