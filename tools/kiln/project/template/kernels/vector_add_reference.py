"""What vector_add must compute, in float64."""


def vector_add(x_ptr, y_ptr):
    """The sum of two arrays of shape (n_elements,)."""
    return x_ptr + y_ptr
