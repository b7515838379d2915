//! Softmax of the rows of a matrix, in memory of cust, by a typed launch.

use std::error::Error;

use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use kernels::groups::softmax_fp32::Args;
use kernels::Library;

const ROWS: usize = 37;
const COLUMNS: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;

    let values: Vec<f32> = (0..ROWS * COLUMNS)
        .map(|i| (i % 97) as f32 / 10.0)
        .collect();
    let input = DeviceBuffer::from_slice(&values)?;
    let output = DeviceBuffer::<f32>::zeroed(values.len())?;
    let args = Args {
        output_ptr: output.as_device_ptr().into(),
        input_ptr: input.as_device_ptr().into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    };
    // SAFETY: both buffers have ROWS rows of COLUMNS elements, and live until the stream has been waited for.
    unsafe { library.kernel().launch(&args, (&stream).into())? };
    stream.synchronize()?;

    let mut got = vec![0.0; values.len()];
    output.copy_to(&mut got)?;
    let largest = reference::softmax_error(&values, &got, COLUMNS);
    println!("softmax of {ROWS} rows of {COLUMNS}: largest error {largest:.1e}");
    if largest < 1e-5 {
        Ok(())
    } else {
        Err("that is too much".into())
    }
}
