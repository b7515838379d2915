//! What the crate costs a program, beside the driver alone, in one process and in turns.
//!
//!     cost ROUNDS
//!
//! Prints a line of JSON a figure: `name`, `ours` and `raw` in microseconds (medians of the rounds) and, where there is one,
//! `bar`, which ours / raw should not pass, or `most`, which ours - raw should not pass.

use std::error::Error;
use std::ffi::{c_void, CString};
use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::{
    cuKernelGetFunction, cuLaunchKernel, cuLibraryGetKernel, cuLibraryLoadData, CUfunction,
    CUkernel, CUlibrary,
};
use cudarc::driver::{CudaSlice, CudaStream};
use kernels::adapters::cudarc::{address, address_mut, context};
use kernels::groups::softmax_fp16 as group;
use kernels::variants::softmax_fp16_1024 as variant;
use kernels::{Image, Kernel, Library, Stream, F16};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: usize = 200;
const COLUMNS: usize = 64;

/// A launch by the driver alone, all of it prepared.
struct Prepared {
    function: CUfunction,
    threads: u32,
    shared: u32,
    buffer: Box<[u8]>,
    bytes: Box<usize>,
}

impl Prepared {
    fn new(args: &variant::Args) -> Outcome<Self> {
        let image: &Image = &variant::SM_90A;
        let entry = CString::new(image.entry)?;
        let mut library: CUlibrary = null_mut();
        let mut kernel: CUkernel = null_mut();
        let mut function: CUfunction = null_mut();
        let code = image.as_c_bytes().as_ptr().cast();
        // SAFETY: the image is one, and what is filled in lives here.
        unsafe {
            cuLibraryLoadData(
                &mut library,
                code,
                null_mut(),
                null_mut(),
                0,
                null_mut(),
                null_mut(),
                0,
            )
            .result()?;
            cuLibraryGetKernel(&mut kernel, library, entry.as_ptr()).result()?;
            cuKernelGetFunction(&mut function, kernel).result()?;
        }
        let buffer: Box<[u8]> = variant::pack(args)[..image.parameter_bytes].into();
        let bytes = Box::new(buffer.len());
        Ok(Self {
            function,
            threads: image.threads,
            shared: image.shared_dynamic,
            buffer,
            bytes,
        })
    }

    fn launch(&mut self, stream: &CudaStream) -> Outcome<()> {
        // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE and CU_LAUNCH_PARAM_END.
        let mut extra: [*mut c_void; 5] = [
            without_provenance_mut(1),
            self.buffer.as_mut_ptr().cast(),
            without_provenance_mut(2),
            (&raw mut *self.bytes).cast(),
            null_mut(),
        ];
        let (threads, shared) = (self.threads, self.shared);
        // SAFETY: the buffer is that of the function's parameters, and the addresses in it are those of slices.
        let launched = unsafe {
            cuLaunchKernel(
                self.function,
                1,
                1,
                1,
                threads,
                1,
                1,
                shared,
                stream.cu_stream(),
                null_mut(),
                extra.as_mut_ptr(),
            )
        };
        Ok(launched.result()?)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, ours: Vec<f64>, raw: Vec<f64>, limit: &str) {
    println!(
        "{{\"name\": \"{name}\", \"ours\": {:.3}, \"raw\": {:.3}{limit}}}",
        median(ours),
        median(raw)
    );
}

/// Batches that fit the driver's queue, ours and raw in turns.
fn time_launches(
    name: &str,
    limit: &str,
    rounds: usize,
    stream: &CudaStream,
    prepared: &mut Prepared,
    mut launch: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds + 2 {
        for turn in 0..2 {
            let is_raw = (turn + round) % 2 == 1;
            stream.synchronize()?;
            let begin = Instant::now();
            for _ in 0..BATCH {
                if is_raw {
                    prepared.launch(stream)?;
                } else {
                    launch()?;
                }
            }
            let took = begin.elapsed().as_secs_f64() * 1e6 / BATCH as f64;
            // The first two are for warmth.
            if round >= 2 {
                times[usize::from(is_raw)].push(took);
            }
        }
    }
    stream.synchronize()?;
    let [ours, raw] = times;
    report(name, ours, raw, limit);
    Ok(())
}

struct Tensors {
    stream: Arc<CudaStream>,
    output: CudaSlice<F16>,
    input: CudaSlice<F16>,
}

impl Tensors {
    fn new(stream: Arc<CudaStream>) -> Outcome<Self> {
        let (output, input) = (stream.alloc_zeros(COLUMNS)?, stream.alloc_zeros(COLUMNS)?);
        Ok(Self {
            stream,
            output,
            input,
        })
    }

    fn args(&mut self) -> variant::Args {
        let columns = COLUMNS as i32;
        variant::Args {
            output_ptr: address_mut(&mut self.output, &self.stream).0,
            input_ptr: address(&self.input, &self.stream).0,
            input_row_stride: columns,
            output_row_stride: columns,
            n_cols: columns,
            n_rows: 1,
        }
    }

    fn group_args(&mut self) -> group::Args {
        let variant::Args {
            output_ptr,
            input_ptr,
            input_row_stride,
            output_row_stride,
            n_cols,
            n_rows,
        } = self.args();
        group::Args {
            output_ptr,
            input_ptr,
            input_row_stride,
            output_row_stride,
            n_cols,
            n_rows,
        }
    }

    /// The result has to be 1 / COLUMNS.
    fn check(&self) -> Outcome<()> {
        let bits = self.stream.clone_dtoh(&self.output)?[0].to_bits();
        // 2^-6 as fp16.
        if bits == 0x2400 {
            Ok(())
        } else {
            Err(format!("the result is {bits:#x}").into())
        }
    }
}

/// In a process of its own: from the context to a result on the host, in microseconds.
fn first_result(is_raw: bool) -> Outcome<f64> {
    let mut tensors = Tensors::new(context(0)?.default_stream())?;
    tensors.stream.synchronize()?;
    let args = tensors.args();
    let begin = Instant::now();
    if is_raw {
        Prepared::new(&args)?.launch(&tensors.stream)?;
    } else {
        // SAFETY: the tensors keep their context, and the library is never dropped.
        let library = unsafe { Library::for_current_context() }?;
        // SAFETY: the slices are as large as the arguments say, and live until the end.
        unsafe {
            library
                .kernel()
                .launch(&args, Stream::from(&*tensors.stream))?
        };
        // It would be unloaded, which is no part of this.
        std::mem::forget(library);
    }
    tensors.check()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

fn time_start(rounds: usize) -> Outcome<()> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let is_raw = (turn + round) % 2 == 1;
            let way = if is_raw { "first-raw" } else { "first" };
            let done = Command::new(std::env::current_exe()?).arg(way).output()?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).into_owned().into());
            }
            times[usize::from(is_raw)].push(String::from_utf8(done.stdout)?.trim().parse()?);
        }
    }
    let [ours, raw] = times;
    report(
        "from a context to a first result, in Rust",
        ours,
        raw,
        ", \"most\": 1000",
    );
    Ok(())
}

fn run(rounds: usize) -> Outcome<()> {
    let context = context(0)?;
    let stream = context.default_stream();
    let mut tensors = Tensors::new(stream.clone())?;
    let (args, group_args) = (tensors.args(), tensors.group_args());
    let mut prepared = Prepared::new(&args)?;
    let library = Library::from_cudarc(&context)?;
    let on = Stream::from(&stream);

    let kernel: Kernel<variant::Args> = library.kernel();
    // SAFETY: here and below the slices are as large as the arguments say, and live until the end.
    let launch = || Ok(unsafe { kernel.launch(&args, on) }?);
    time_launches(
        "launch of a variant, in Rust",
        ", \"bar\": 1.05",
        rounds,
        &stream,
        &mut prepared,
        launch,
    )?;
    tensors.check()?;

    let kernel: Kernel<group::Args> = library.kernel();
    let launch = || Ok(unsafe { kernel.launch(&group_args, on) }?);
    let name = "launch of a group that takes its first of 5, in Rust";
    time_launches(
        name,
        ", \"bar\": 1.1",
        rounds,
        &stream,
        &mut prepared,
        launch,
    )?;

    let columns = COLUMNS as i32;
    let (mut output, input) = (stream.alloc_zeros::<F16>(COLUMNS)?, &tensors.input);
    let launch = || {
        let args = group::SliceArgs {
            output_ptr: (&mut output).into(),
            input_ptr: input.into(),
            input_row_stride: columns,
            output_row_stride: columns,
            n_cols: columns,
            n_rows: 1,
        };
        Ok(args.launch(&kernel, &stream)?)
    };
    time_launches(
        "launch of that group on slices of cudarc",
        "",
        rounds,
        &stream,
        &mut prepared,
        launch,
    )?;

    time_start(rounds.min(20))
}

fn main() -> Outcome<()> {
    match std::env::args().nth(1).as_deref() {
        Some("first") => println!("{}", first_result(false)?),
        Some("first-raw") => println!("{}", first_result(true)?),
        Some(rounds) => run(rounds.parse()?)?,
        None => return Err("usage: cost ROUNDS".into()),
    }
    Ok(())
}
