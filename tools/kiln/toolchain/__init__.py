"""Finds triton, ptxas, objcopy, ar and cc; identifies each by content digest; knows targets and their limits."""
