//! Softmax of the rows of a matrix, on slices: a launch without `unsafe`.
//!
//! The group takes the first of its variants that fits the columns, or what a tuner has found for the device.

use std::error::Error;

use kernels::adapters::cudarc::context;
use kernels::groups::softmax_fp32::{Args, SliceArgs};
use kernels::Library;

const ROWS: usize = 37;
const COLUMNS: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    let stream = context.new_stream()?;
    let library = Library::from_cudarc(&context)?;
    let kernel = library.kernel::<Args>();

    let values: Vec<f32> = (0..ROWS * COLUMNS)
        .map(|i| (i % 97) as f32 / 10.0)
        .collect();
    let input = stream.clone_htod(&values)?;
    let mut output = stream.alloc_zeros::<f32>(ROWS * COLUMNS)?;
    SliceArgs {
        output_ptr: (&mut output).into(),
        input_ptr: (&input).into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    }
    .launch(&kernel, &stream)?;

    // A slice that is too short is an error before anything is launched.
    let half = input.slice(..input.len() / 2);
    let refused = SliceArgs {
        output_ptr: (&mut output).into(),
        input_ptr: half.into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    }
    .launch(&kernel, &stream);
    println!(
        "half of the input: {}",
        refused.expect_err("it must be refused")
    );

    let got = stream.clone_dtoh(&output)?;
    let largest = reference::softmax_error(&values, &got, COLUMNS);
    println!(
        "softmax of {ROWS} rows of {COLUMNS} on {}: largest error {largest:.1e}",
        library.device().name
    );
    if largest < 1e-5 {
        Ok(())
    } else {
        Err("that is too much".into())
    }
}
