"""Elementary functions, written once over the expressions of loops/, so that every rendering has the same bits.

Must not know: renderings, nests, graphs.
Start reading: functions.py (the way in), then exponential.py.
"""
