//! E0560: no field named `n_planes`

use kernels::variants::softmax_fp32_1024::Args;
use kernels::DevicePtr;

fn main() {
    let _ = Args {
        output_ptr: DevicePtr::new(16),
        input_ptr: DevicePtr::new(16),
        input_row_stride: 1,
        output_row_stride: 1,
        n_cols: 1,
        n_rows: 1,
        n_planes: 1,
    };
}
