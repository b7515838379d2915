"""The build graph of this project: Kiln's own rules, and below them whatever tasks you add, as plain doit functions."""

from kiln.graph import *  # noqa: F403
