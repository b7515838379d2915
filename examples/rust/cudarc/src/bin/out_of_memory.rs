//! Halves a batch until there is memory for it: `OutOfMemory` says how much was asked for and how much there is.

use std::error::Error;

use kernels::adapters::cudarc::{alloc_zeros, context};
use kernels::groups::softmax_fp32::{Args, SliceArgs};
use kernels::Library;

const COLUMNS: usize = 16384;

fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    let stream = context.default_stream();
    let library = Library::from_cudarc(&context)?;

    // More than any GPU has.
    let mut rows = 1usize << 26;
    let mut halved = 0;
    let (mut output, input) = loop {
        let pair = alloc_zeros::<f32>(&stream, rows * COLUMNS)
            .and_then(|output| Ok((output, alloc_zeros::<f32>(&stream, rows * COLUMNS)?)));
        match pair {
            Ok(pair) => break pair,
            Err(kernels::Error::OutOfMemory {
                requested,
                available,
                ..
            }) => {
                let available = available.ok_or("the driver does not say what is available")?;
                println!("{rows} rows: {requested} bytes asked for, {available} available");
                rows /= 2;
                halved += 1;
            }
            Err(error) => return Err(error.into()),
        }
    };
    SliceArgs {
        output_ptr: (&mut output).into(),
        input_ptr: (&input).into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: rows.try_into()?,
    }
    .launch(&library.kernel::<Args>(), &stream)?;
    let last = stream.clone_dtoh(&output.slice((rows - 1) * COLUMNS..))?;
    println!(
        "{rows} rows at once, after {halved} attempts; the last one holds {}",
        last[0]
    );
    if halved > 0 && last.iter().all(|value| *value == 1.0 / COLUMNS as f32) {
        Ok(())
    } else {
        Err("it is wrong".into())
    }
}
