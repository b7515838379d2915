"""Finds the statements that change what a kernel needs, off the text: through other names, containers and calls."""
