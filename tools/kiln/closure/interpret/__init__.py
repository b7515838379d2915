"""Evaluates plain Python of project files without importing or executing them: conditions, configurations, tables.

What is computed depends on the files and on a World alone. Code whose value only a run can tell is Undecided; so is
what takes more steps than any kernel's constants need.
"""
