//! Captures launches into a graph, and replays it.
//!
//! An image is loaded at its first use, which a capture may not do: it is loaded before. A graph keeps neither slices nor
//! images alive, so that no launch that is captured is safe: they are launched on the slices' addresses.

use std::error::Error;
use std::time::Instant;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use kernels::adapters::cudarc::{address, address_mut, context};
use kernels::groups::softmax_fp32::Args;
use kernels::{Library, Stream};

const COLUMNS: usize = 1000;
const LAUNCHES: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    // SAFETY: one stream alone uses the slices, so that no events have to order streams. A capture could not wait for
    // events that were recorded before it.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let library = Library::from_cudarc(&context)?;
    let kernel = library.kernel::<Args>();
    kernel.preload()?;

    let values: Vec<f32> = (0..COLUMNS).map(|i| i as f32 / 100.0).collect();
    let mut front = stream.clone_htod(&values)?;
    let mut back = stream.alloc_zeros::<f32>(COLUMNS)?;
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    for _ in 0..LAUNCHES {
        {
            let (output_ptr, _written) = address_mut(&mut back, &stream);
            let (input_ptr, _read) = address(&front, &stream);
            let args = Args {
                output_ptr,
                input_ptr,
                input_row_stride: COLUMNS as i32,
                output_row_stride: COLUMNS as i32,
                n_cols: COLUMNS as i32,
                n_rows: 1,
            };
            // SAFETY: both slices have a row of COLUMNS numbers. They, the context, library and kernel live until the last
            // replay is done, at the end of `main`, and only this stream uses the slices.
            unsafe { kernel.launch(&args, Stream::from(&stream))? };
        }
        std::mem::swap(&mut front, &mut back);
    }
    let graph = stream
        .end_capture(CUgraphInstantiate_flags(0))?
        .ok_or("nothing was captured")?;

    // A replay reads what the slices hold then: after an odd number of swaps, `back` is where the graph begins.
    let begin = Instant::now();
    for _ in 0..3 {
        stream.memcpy_htod(&values, &mut back)?;
        graph.launch()?;
    }
    stream.synchronize()?;
    let took = begin.elapsed() / 3;
    let total: f32 = stream.clone_dtoh(&front)?.iter().sum();
    println!("{LAUNCHES} launches as a graph took {took:?}; the last one's row adds up to {total}");
    if (total - 1.0).abs() < 1e-5 {
        Ok(())
    } else {
        Err("that should be 1".into())
    }
}
