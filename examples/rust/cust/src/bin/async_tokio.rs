//! Launches from async code: a reactor with one thread goes on while the GPU computes.
//!
//! A launch only puts work into a queue. Two things would block: loading an image, which is done before on a thread for
//! such work; and waiting for a result, which here is asking an event every millisecond.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cust::error::CudaResult;
use cust::event::{Event, EventFlags, EventStatus};
use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use kernels::groups::softmax_fp32::Args;
use kernels::Library;

const ROWS: usize = 2048;
const COLUMNS: usize = 16384;
const LAUNCHES: usize = 400;

/// Ends when all that the stream has to do by now is done.
async fn completion(stream: &Stream) -> CudaResult<()> {
    let event = Event::new(EventFlags::DISABLE_TIMING)?;
    event.record(stream)?;
    while event.query()? == EventStatus::NotReady {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

// A context of cust is current in one thread, in which all of cust's calls have to be: here the reactor's only one.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;
    let kernel = Arc::new(library.kernel::<Args>());
    // The library needs no current context.
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
    let input = DeviceBuffer::<f32>::zeroed(ROWS * COLUMNS)?;
    let output = DeviceBuffer::<f32>::zeroed(ROWS * COLUMNS)?;
    let args = Args {
        output_ptr: output.as_device_ptr().into(),
        input_ptr: input.as_device_ptr().into(),
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    };
    for _ in 0..LAUNCHES {
        // SAFETY: both buffers have ROWS rows of COLUMNS elements, and live until the stream is done.
        unsafe { kernel.launch(&args, (&stream).into())? };
    }
    completion(&stream).await?;
    other.abort();
    let turns = turns.load(Ordering::Relaxed);
    let mut first = [0.0];
    output.index(..1).copy_to(&mut first)?;
    println!(
        "{LAUNCHES} launches are done, and the reactor had {turns} turns; the result holds {}",
        first[0]
    );
    if first[0] == 1.0 / COLUMNS as f32 && turns > 0 {
        Ok(())
    } else {
        Err("it is wrong".into())
    }
}
