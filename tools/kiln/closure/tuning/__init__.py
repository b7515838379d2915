"""Reads what sources say of how a kernel is built: configurations, function tables, and the values of heuristics."""
