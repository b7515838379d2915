//! Captures launches into a graph, and replays it.
//!
//! An image is loaded at its first use, which a capture may not do: it is loaded before.

use std::error::Error;
use std::time::Instant;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use kernels::adapters::cudarc::context;
use kernels::groups::softmax_fp32::{Args, SliceArgs};
use kernels::Library;

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
        SliceArgs {
            output_ptr: (&mut back).into(),
            input_ptr: (&front).into(),
            input_row_stride: COLUMNS as i32,
            output_row_stride: COLUMNS as i32,
            n_cols: COLUMNS as i32,
            n_rows: 1,
        }
        .launch(&kernel, &stream)?;
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
