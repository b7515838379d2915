//! Launches from async code: a reactor with one thread goes on while the GPU computes.
//!
//! A launch only puts work into a queue. Two things would block: loading an image, which is done before on a thread for
//! such work; and waiting for a result, which here is asking an event every millisecond.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaStream, DriverError};
use kernels::adapters::cudarc::context;
use kernels::groups::softmax_fp32::{Args, SliceArgs};
use kernels::Library;

const ROWS: usize = 2048;
const COLUMNS: usize = 16384;
const LAUNCHES: usize = 400;

/// Ends when all that the stream has to do by now is done.
async fn completion(stream: &CudaStream) -> Result<(), DriverError> {
    let event = stream.record_event(None)?;
    while !event.try_is_complete()? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    let stream = context.new_stream()?;
    let library = Library::from_cudarc(&context)?;
    let kernel = Arc::new(library.kernel::<Args>());
    tokio::task::spawn_blocking({
        let kernel = kernel.clone();
        move || kernel.preload()
    })
    .await??;

    // Whatever else the program has to do.
    let turns = Arc::new(AtomicU32::new(0));
    let other = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                turns.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let input = stream.alloc_zeros::<f32>(ROWS * COLUMNS)?;
    let mut output = stream.alloc_zeros::<f32>(ROWS * COLUMNS)?;
    completion(&stream).await?;
    for _ in 0..LAUNCHES {
        SliceArgs {
            output_ptr: (&mut output).into(),
            input_ptr: (&input).into(),
            input_row_stride: COLUMNS as i32,
            output_row_stride: COLUMNS as i32,
            n_cols: COLUMNS as i32,
            n_rows: ROWS as i32,
        }
        .launch(&kernel, &stream)?;
    }
    completion(&stream).await?;
    other.abort();
    let turns = turns.load(Ordering::Relaxed);
    let first = stream.clone_dtoh(&output.slice(..1))?[0];
    println!(
        "{LAUNCHES} launches are done, and the reactor had {turns} turns; the result holds {first}"
    );
    if first == 1.0 / COLUMNS as f32 && turns > 0 {
        Ok(())
    } else {
        Err("it is wrong".into())
    }
}
