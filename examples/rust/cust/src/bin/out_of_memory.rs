//! Halves a batch until there is memory for it: `OutOfMemory` says how much was asked for and how much there is.

use std::error::Error;

use cust::memory::CopyDestination as _;
use cust::stream::{Stream, StreamFlags};
use kernels::adapters::cust::zeroed;
use kernels::groups::softmax_fp32::Args;
use kernels::Library;

const COLUMNS: usize = 16384;

fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;

    // More than any GPU has.
    let mut rows = 1usize << 26;
    let mut halved = 0;
    let (output, input) = loop {
        let pair = zeroed::<f32>(rows * COLUMNS)
            .and_then(|output| Ok((output, zeroed::<f32>(rows * COLUMNS)?)));
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
    let args = Args {
        output_ptr: output.as_device_ptr().into(),
        input_ptr: input.as_device_ptr().into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: rows.try_into()?,
    };
    // SAFETY: both buffers have that many rows, and live until the stream has been waited for.
    unsafe { library.kernel().launch(&args, (&stream).into())? };
    stream.synchronize()?;
    let mut last = vec![0.0; COLUMNS];
    output
        .index((rows - 1) * COLUMNS..rows * COLUMNS)
        .copy_to(&mut last)?;
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
