"""Reports for users: explain(), report(), statistics, TRACEJIT_DEBUG, the warning of a function that stays slow, facts about this machine.

Must not know: how to change anything.  Reports read recordings, graphs and programs.
Start reading: opening.py (what every report begins with), summary.py (the screen of explain()), then explain.py, debug.py, and
page.py (the file of report()).
"""
