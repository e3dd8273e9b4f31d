"""Reports for users: explain(), statistics, TRACEJIT_DEBUG, the warning of a function that stays slow, facts about this machine.

Reports read recordings, graphs and programs, and must not change anything.
Start reading: summary.py (the screen of explain()), then explain.py and debug.py.
"""
