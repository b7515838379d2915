"""What gather_rows must do, in float64."""

import numpy as np
import numpy.typing as npt


def gather_rows(table_ptr: npt.NDArray[np.float64], index_ptr: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The rows of a table of shape (n_rows_table, n_cols) at indices of shape (n_rows,); zeros where there is none."""
    count = len(table_ptr)
    is_inside = (index_ptr >= -count) & (index_ptr < count)
    rows: npt.NDArray[np.float64] = table_ptr[np.where(is_inside, index_ptr, 0)]
    return np.where(is_inside[:, None], rows, 0.0)
