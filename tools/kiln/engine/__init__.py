"""Steps, state, pool and lock: knows nothing of kernels and nothing of doit."""
