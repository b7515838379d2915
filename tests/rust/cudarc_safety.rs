//! What launches on slices of cudarc refuse, with a driver that computes nothing: one case a process.

use std::sync::Arc;

#[path = "support/double.rs"]
mod double;

use double::{log, run, set};

use cudarc::driver::{CudaSlice, CudaStream};
use kernels::adapters::cudarc::{address, address_mut, context};
use kernels::groups::{softmax_fp32 as safe, untold_fp32 as untold};
use kernels::{Error, Library};

const COLUMNS: usize = 1000;

struct Given {
    stream: Arc<CudaStream>,
    library: Library,
    output: CudaSlice<f32>,
    input: CudaSlice<f32>,
}

impl Given {
    fn new() -> Self {
        let context = context(0).unwrap();
        let stream = context.default_stream();
        let library = Library::from_cudarc(&context).unwrap();
        library.preload().unwrap();
        Self {
            output: stream.alloc_zeros(COLUMNS).unwrap(),
            input: stream.alloc_zeros(COLUMNS).unwrap(),
            stream,
            library,
        }
    }
}

fn launches() -> usize {
    log()
        .lines()
        .filter(|line| line.starts_with("launch "))
        .count()
}

/// A graph does not keep slices alive: what is safe is not captured, and what is not says it.
fn captured() {
    let Given {
        stream,
        library,
        mut output,
        input,
    } = Given::new();
    let kernel = library.kernel::<safe::Args>();
    for (status, expected) in [(0, None), (1, Some(Error::UnsafeCapture))] {
        set("capture_status", status);
        let args = safe::SliceArgs {
            output_ptr: (&mut output).into(),
            input_ptr: (&input).into(),
            input_row_stride: COLUMNS as i32,
            output_row_stride: COLUMNS as i32,
            n_cols: COLUMNS as i32,
            n_rows: 1,
        };
        assert_eq!(args.launch(&kernel, &stream).err(), expected);
        assert_eq!(launches(), usize::from(status == 0));
    }
    let args = safe::Args {
        output_ptr: address_mut(&mut output, &stream).0,
        input_ptr: address(&input, &stream).0,
        input_row_stride: COLUMNS as i32,
        output_row_stride: COLUMNS as i32,
        n_cols: COLUMNS as i32,
        n_rows: 1,
    };
    // SAFETY: both have a row of COLUMNS elements, and there is no graph.
    unsafe { kernel.launch(&args, (&stream).into()).unwrap() };
    assert_eq!(launches(), 1);
    assert_eq!(
        Error::UnsafeCapture.to_string(),
        "the stream is capturing, and a graph does not keep slices and library alive; launch by Kernel::launch, which is unsafe, on the addresses of the slices"
    );
}

/// Where nobody says what a kernel writes, the caller does, by `&mut`, and answers for it.
fn without_outputs() {
    let Given {
        stream,
        library,
        mut output,
        input,
    } = Given::new();
    for status in [0, 1] {
        set("capture_status", status);
        let args = untold::SliceArgs {
            output_ptr: (&mut output).into(),
            input_ptr: (&input).into(),
            input_row_stride: COLUMNS as i32,
            output_row_stride: COLUMNS as i32,
            n_cols: COLUMNS as i32,
            n_rows: 1,
        };
        // SAFETY: the kernel writes its output alone.
        unsafe { args.launch(&library.kernel(), &stream).unwrap() };
        assert_eq!(launches(), 1);
    }
}

fn main() {
    run(&[("captured", captured), ("without_outputs", without_outputs)]);
}
