//! E0308: mismatched types

use kernels::variants::softmax_fp32_1024::Args;
use kernels::DevicePtr;

fn main() {
    let (address, n_cols) = (DevicePtr::<f32>::new(16), 1_i32);
    let _ = Args {
        output_ptr: address,
        input_ptr: n_cols,
        input_row_stride: 1,
        output_row_stride: 1,
        n_cols: address,
        n_rows: 1,
    };
}
