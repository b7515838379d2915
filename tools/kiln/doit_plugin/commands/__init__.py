"""Kiln's further commands for doit, one a module; `changes.py` words what `explain` says of inputs."""
