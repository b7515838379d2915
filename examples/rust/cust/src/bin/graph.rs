//! Captures launches into a graph, and replays it: by the driver's own functions, which `cust::sys` has, for cust's streams
//! have none that capture.
//!
//! An image is loaded at its first use, which a capture may not do: it is loaded before.

use std::error::Error;
use std::ptr;
use std::time::Instant;

use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use cust::sys;
use kernels::groups::softmax_fp32::Args;
use kernels::Library;

const COLUMNS: usize = 1000;
const LAUNCHES: usize = 15;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn done(code: sys::CUresult) -> Outcome<()> {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(format!("the driver says {other:?}").into()),
    }
}

/// What was launched on a stream, ready to be launched again.
struct Graph {
    captured: sys::CUgraph,
    ready: sys::CUgraphExec,
}

impl Graph {
    /// What `launch` puts on the stream, none of which runs. It waits for nothing, and does not load.
    fn capture(stream: &Stream, launch: impl FnOnce() -> Outcome<()>) -> Outcome<Self> {
        let mut graph = Self {
            captured: ptr::null_mut(),
            ready: ptr::null_mut(),
        };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is open. A capture that has begun is ended, whatever became of the launches; handles are
        // written before the calls return.
        unsafe {
            done(sys::cuStreamBeginCapture_v2(stream.as_inner(), mode))?;
            let launched = launch();
            let ended = sys::cuStreamEndCapture(stream.as_inner(), &mut graph.captured);
            launched?;
            done(ended)?;
            let flags = 0;
            done(sys::cuGraphInstantiateWithFlags(
                &mut graph.ready,
                graph.captured,
                flags,
            ))?;
        }
        Ok(graph)
    }

    /// # Safety
    ///
    /// As for each of the launches: the memory that they were given is still there.
    unsafe fn launch(&self, stream: &Stream) -> Outcome<()> {
        // SAFETY: the graph is ready; the caller keeps what it uses.
        done(unsafe { sys::cuGraphLaunch(self.ready, stream.as_inner()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: each was made once. What is destroyed while it runs goes when it has ended.
        unsafe {
            if !self.ready.is_null() {
                sys::cuGraphExecDestroy(self.ready);
            }
            if !self.captured.is_null() {
                sys::cuGraphDestroy(self.captured);
            }
        }
    }
}

fn main() -> Outcome<()> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;
    let kernel = library.kernel::<Args>();
    kernel.preload()?;

    let values: Vec<f32> = (0..COLUMNS).map(|i| i as f32 / 100.0).collect();
    let mut front = DeviceBuffer::from_slice(&values)?;
    let mut back = DeviceBuffer::<f32>::zeroed(COLUMNS)?;
    let graph = Graph::capture(&stream, || {
        for _ in 0..LAUNCHES {
            let args = Args {
                output_ptr: back.as_device_ptr().into(),
                input_ptr: front.as_device_ptr().into(),
                input_row_stride: COLUMNS as i32,
                output_row_stride: COLUMNS as i32,
                n_cols: COLUMNS as i32,
                n_rows: 1,
            };
            // SAFETY: both buffers have a row of COLUMNS elements, and outlive the graph.
            unsafe { kernel.launch(&args, (&stream).into())? };
            std::mem::swap(&mut front, &mut back);
        }
        Ok(())
    })?;

    // A replay reads what the buffers hold then: after an odd number of swaps, `back` is where the graph begins.
    let begin = Instant::now();
    for _ in 0..3 {
        back.copy_from(&values)?;
        // SAFETY: both buffers are there.
        unsafe { graph.launch(&stream)? };
    }
    stream.synchronize()?;
    let took = begin.elapsed() / 3;
    let mut last = vec![0.0; COLUMNS];
    front.copy_to(&mut last)?;
    let total: f32 = last.iter().sum();
    println!("{LAUNCHES} launches as a graph took {took:?}; the last one's row adds up to {total}");
    if (total - 1.0).abs() < 1e-5 {
        Ok(())
    } else {
        Err("that should be 1".into())
    }
}
