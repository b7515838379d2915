"""The slice of a source file that one kernel function needs; what is hashed is what is compiled."""
