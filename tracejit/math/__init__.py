"""Elementary functions, written once over the expressions of loops/."""
