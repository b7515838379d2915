//! What launches on cudarc do with a driver that computes nothing: one case a process, named by the first argument.

use std::sync::Arc;

#[path = "support/double.rs"]
mod double;

use double::{fail, log, run};

use cudarc::driver::{CudaContext, CudaStream};
use kernels::adapters::cudarc::{
    address, address_mut, alloc_zeros, context, Operand, OperandMut, StreamOrdered,
};
use kernels::groups::strided_fp32::{Args, SliceArgs};
use kernels::variants::{loose_fp32_1024, scratched_fp32_1024};
use kernels::{Error, Kernel, Library, Stream, F16};

const ROWS: usize = 3;
const COLUMNS: usize = 1000;
const STRIDE: usize = 1008;
/// From the first element to the last.
const LEN: usize = (ROWS - 1) * STRIDE + COLUMNS;

/// The first words of what the driver was asked since the last call.
fn asked() -> Vec<String> {
    log()
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .filter(|word| ["load", "launch", "wait", "allocate", "free"].contains(&word.as_str()))
        .collect()
}

struct Given {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    library: Library,
    kernel: Kernel<Args>,
}

impl Given {
    fn new() -> Self {
        let context = context(0).unwrap();
        let library = Library::from_cudarc(&context).unwrap();
        let kernel = library.kernel();
        Self {
            stream: context.default_stream(),
            context,
            library,
            kernel,
        }
    }
}

fn args<'a>(
    output: impl Into<OperandMut<'a, f32>>,
    input: impl Into<Operand<'a, f32>>,
) -> SliceArgs<'a> {
    SliceArgs {
        output_ptr: output.into(),
        input_ptr: input.into(),
        input_row_stride: STRIDE as i32,
        output_row_stride: STRIDE as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    }
}

/// Slices, views and views that can be written; the kernel's image is loaded at the first launch.
fn launches() {
    let Given {
        stream,
        library,
        kernel,
        ..
    } = Given::new();
    let mut output = stream.alloc_zeros::<f32>(LEN).unwrap();
    let input = stream.alloc_zeros::<f32>(LEN + 16).unwrap();
    asked();
    args(&mut output, &input).launch(&kernel, &stream).unwrap();
    assert_eq!(asked(), ["load", "launch"]);
    let view = input.slice(16..);
    args(&mut output.slice_mut(..), &view)
        .launch(&kernel, &stream)
        .unwrap();
    args(&mut output, input.slice(..))
        .launch(&kernel, &stream)
        .unwrap();
    assert_eq!(asked(), ["launch", "launch"]);
    // An empty grid is nothing to launch, and slices may be empty with it.
    let empty = SliceArgs {
        n_rows: 0,
        ..args(&mut output, input.slice(..0))
    };
    empty.launch(&kernel, &stream).unwrap();
    assert_eq!(asked(), [""; 0]);
    assert_eq!(library.device().capability, 90);
}

/// Nothing is launched when a slice is an element too short, or when there can be no such tensor.
fn too_short() {
    let Given { stream, kernel, .. } = Given::new();
    let mut output = stream.alloc_zeros::<f32>(LEN).unwrap();
    let input = stream.alloc_zeros::<f32>(LEN).unwrap();
    let longer = stream.alloc_zeros::<f32>(LEN + 1).unwrap();
    asked();
    let error = args(&mut output, input.slice(..LEN - 1))
        .launch(&kernel, &stream)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the slice input_ptr has 3015 elements, and the arguments describe a tensor of 3016"
    );
    for (rows, stride) in [(-1, 1008), (3, -1), (i32::MAX, i32::MAX)] {
        let wrong = SliceArgs {
            n_rows: rows,
            output_row_stride: stride,
            ..args(&mut output, &input)
        };
        let error = wrong.launch(&kernel, &stream).unwrap_err();
        match error {
            Error::TensorSize { argument, why } => {
                assert_eq!((argument, rows == i32::MAX), ("output_ptr", false));
                let negative = [
                    "its extent n_rows is -1",
                    "its stride output_row_stride is -1",
                ];
                assert_eq!(why.to_string(), negative[usize::from(rows > 0)]);
            }
            Error::SliceTooShort { argument, need, .. } => {
                assert_eq!(
                    (argument, need),
                    ("output_ptr", (i32::MAX as u64 - 1) * i32::MAX as u64 + 1000)
                );
            }
            other => panic!("{other:?}"),
        }
    }
    // The address of the second element keeps no promise of 16 bytes.
    let error = args(&mut output, longer.slice(1..))
        .launch(&kernel, &stream)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Misaligned {
                argument: "input_ptr",
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(asked(), [""; 0]);
}

fn other_context() {
    let Given { stream, kernel, .. } = Given::new();
    let mut output = stream.alloc_zeros::<f32>(LEN).unwrap();
    let other = CudaContext::new(1).unwrap().default_stream();
    let input = other.alloc_zeros::<f32>(LEN).unwrap();
    let error = args(&mut output, &input)
        .launch(&kernel, &stream)
        .unwrap_err();
    assert_eq!(
        error,
        Error::OtherContext {
            argument: "input_ptr"
        }
    );
    let error = args(&mut output, &input)
        .launch(&kernel, &other)
        .unwrap_err();
    assert_eq!(error, Error::OtherContext { argument: "stream" });
}

/// A launch waits for what other streams wrote, and they wait for what it writes.
fn two_streams() {
    let Given {
        context, kernel, ..
    } = Given::new();
    let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut output = first.alloc_zeros::<f32>(LEN).unwrap();
    let input = first.alloc_zeros::<f32>(LEN).unwrap();
    kernel.preload().unwrap();
    asked();
    args(&mut output, &input).launch(&kernel, &second).unwrap();
    // For whoever reads and whoever writes the output, and for whoever writes the input.
    assert_eq!(asked(), ["wait", "wait", "wait", "launch"]);
    first.clone_dtoh(&output).unwrap();
    assert_eq!(asked(), ["wait"]);
}

/// Integers that no shape and no stride uses are for the caller to answer for.
fn loose() {
    let Given {
        stream, library, ..
    } = Given::new();
    let mut output = stream.alloc_zeros::<f32>(LEN).unwrap();
    let input = stream.alloc_zeros::<f32>(LEN).unwrap();
    asked();
    let args = loose_fp32_1024::SliceArgs {
        output_ptr: (&mut output).into(),
        input_ptr: (&input).into(),
        input_row_stride: STRIDE as i32,
        output_row_stride: STRIDE as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    };
    // SAFETY: the strides are those that LEN is made of.
    unsafe { args.launch(&library.kernel(), &stream).unwrap() };
    assert_eq!(asked(), ["load", "launch"]);
}

/// The addresses of an `Args`, on a stream as it is; numbers of half are as good as their bits.
fn addresses() {
    let Given {
        stream, library, ..
    } = Given::new();
    let mut output = stream.alloc_zeros::<half::f16>(COLUMNS).unwrap();
    let input = stream.alloc_zeros::<u16>(COLUMNS).unwrap();
    let halves = stream
        .clone_htod(&[F16::from(half::f16::from_f32(1.5)); COLUMNS])
        .unwrap();
    let (output_ptr, _written) = address_mut(&mut output, &stream);
    for input in [address(&input, &stream), address(&halves, &stream)] {
        let (input_ptr, _read) = input;
        let args = kernels::variants::softmax_fp16_2048::Args {
            output_ptr,
            input_ptr,
            input_row_stride: COLUMNS as i32,
            output_row_stride: COLUMNS as i32,
            n_cols: COLUMNS as i32,
            n_rows: 1,
        };
        // SAFETY: both have a row of COLUMNS elements.
        unsafe {
            library
                .kernel()
                .launch(&args, Stream::from(&stream))
                .unwrap()
        };
    }
    assert_eq!(
        half::f16::from(F16::from_bits(0x3e00)),
        half::f16::from_f32(1.5)
    );
    assert_eq!(
        half::bf16::from(kernels::BF16::from_bits(0x3fc0)).to_f32(),
        1.5
    );
}

/// Scratch memory comes from cudarc's context, in the order of the stream.
fn scratch() {
    let Given {
        context,
        stream,
        library,
        ..
    } = Given::new();
    let mut output = stream.alloc_zeros::<f32>(LEN).unwrap();
    let args = scratched_fp32_1024::Args {
        output_ptr: address_mut(&mut output, &stream).0,
        input_ptr: kernels::DevicePtr::new(0x8000),
        input_row_stride: STRIDE as i32,
        output_row_stride: STRIDE as i32,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    };
    asked();
    // SAFETY: nothing is computed.
    unsafe {
        library
            .kernel()
            .launch(&args, Stream::from(&stream))
            .unwrap()
    };
    assert_eq!(asked(), ["load", "allocate", "launch", "free"]);
    fail(Some(c"cuMemAllocAsync"), 2);
    // SAFETY: as above.
    let error = unsafe { library.kernel().launch(&args, Stream::from(&stream)) }.unwrap_err();
    assert!(
        matches!(error, Error::ScratchFailed { bytes: 72, .. }),
        "{error:?}"
    );
    fail(None, 0);
    let without = Library::options().for_cudarc(&context).unwrap();
    // SAFETY: as above.
    let error = unsafe { without.kernel().launch(&args, Stream::from(&stream)) }.unwrap_err();
    assert!(
        matches!(error, Error::ScratchNeeded { bytes: 72, .. }),
        "{error:?}"
    );
    let _: StreamOrdered = StreamOrdered::new(&context).clone();
}

fn out_of_memory() {
    let stream = Given::new().stream;
    assert_eq!(alloc_zeros::<f32>(&stream, 10).unwrap().len(), 10);
    fail(Some(c"cuMemAllocAsync"), 2);
    for (len, bytes) in [(10, 40), (usize::MAX / 2, u64::MAX)] {
        match alloc_zeros::<f32>(&stream, len) {
            Err(Error::OutOfMemory {
                requested,
                available,
                cause,
            }) => {
                assert_eq!((requested, available), (bytes, Some(4096)));
                assert!(
                    cause.to_string().starts_with("CUDA_ERROR_OUT_OF_MEMORY (2"),
                    "{cause}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    fail(Some(c"cuMemAllocAsync"), 1);
    let error = alloc_zeros::<f32>(&stream, 10).unwrap_err();
    assert!(matches!(error, Error::Driver { code: 1, .. }), "{error:?}");
}

/// cudarc itself would panic.
fn no_driver() {
    assert!(matches!(context(0), Err(Error::DriverNotFound { .. })));
}

fn no_device() {
    fail(Some(c"cuDevicePrimaryCtxRetain"), 101);
    assert!(matches!(context(0), Err(Error::Driver { code: 101, .. })));
}

fn main() {
    let cases: &[(&str, fn())] = &[
        ("addresses", addresses),
        ("launches", launches),
        ("loose", loose),
        ("no_device", no_device),
        ("no_driver", no_driver),
        ("other_context", other_context),
        ("out_of_memory", out_of_memory),
        ("scratch", scratch),
        ("too_short", too_short),
        ("two_streams", two_streams),
    ];
    run(cases);
}
