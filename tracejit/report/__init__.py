"""What people are told: explain(), statistics, TRACEJIT_DEBUG, the warning of a function that stays slow, what was found on this
machine.

Must not know: how to change anything; what it prints is made of recordings, graphs and programs that exist.
Start reading: summary.py (the screen of explain()), then explain.py and debug.py.
"""
