"""cubin, hsaco, PTX, host object: what an image says of itself, and the checks against the declaration."""
