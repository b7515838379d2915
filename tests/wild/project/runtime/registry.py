"""What the generated kernel needs to know."""

KINDS = ["add", "mul"]
