//! Launches variants by the crate's typed arguments, in all the ways that a program has: alone, by group, with arguments
//! that break promises, with empty grids, from two threads, in two contexts, and in a graph.
//!
//!     typed (driver | cudarc) JOBS
//!
//! JOBS and what is printed are as in tests/gpu/typed.c. With `driver` the library is that of the current context, and
//! launches get addresses; with `cudarc` it is that of a context of cudarc, and launches get slices.

// Arguments have the names that the kernels give them.
#![allow(non_snake_case)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream};
use gpu::job::{self, Job, Kind, Task};
use gpu::place::{typed, Expected, Place};
use kernels::adapters::cudarc::StreamOrdered;
use kernels::{KernelParams, LaunchConfig, Library, Variant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A variant's or a group's arguments, as functions over a place.
struct Call {
    name: &'static str,
    variant: fn() -> Option<&'static Variant>,
    config: fn(&Library, &Place<'_>) -> kernels::Result<Option<LaunchConfig>>,
    /// The same of one variant and no other.
    config_of: fn(&Library, &Place<'_>, &'static Variant) -> kernels::Result<Option<LaunchConfig>>,
    launch: fn(&Library, &Place<'_>) -> kernels::Result<()>,
    launch_slices: fn(&Library, &mut Place<'_>) -> kernels::Result<()>,
}

/// Of each kernel which arguments are read, written and no pointers: the field, its name in the source, the elements.
macro_rules! calls {
    ($($kind:ident :: $call:ident {
        $(read $read:ident = $read_name:literal: $read_type:ty;)*
        $(written $written:ident = $written_name:literal: $written_type:ty;)*
        $(scalar $scalar:ident = $scalar_name:literal;)*
    })*) => {
        const CALLS: &[Call] = &[$(Call {
            name: stringify!($call),
            variant: || <kernels::$kind::$call::Args as KernelParams>::variants().next(),
            config: |library, place| {
                library.kernel().launch_config(&kernels::$kind::$call::Args {
                    $($read: place.address($read_name),)*
                    $($written: place.address($written_name),)*
                    $($scalar: place.scalar($scalar_name),)*
                })
            },
            config_of: |library, place, variant| {
                library.kernel_of(variant)?.launch_config(&kernels::$kind::$call::Args {
                    $($read: place.address($read_name),)*
                    $($written: place.address($written_name),)*
                    $($scalar: place.scalar($scalar_name),)*
                })
            },
            launch: |library, place| {
                let args = kernels::$kind::$call::Args {
                    $($read: place.address($read_name),)*
                    $($written: place.address($written_name),)*
                    $($scalar: place.scalar($scalar_name),)*
                };
                // SAFETY: the addresses are those of the job's tensors, which outlive the launch.
                unsafe { library.kernel().launch(&args, (&*place.stream).into()) }
            },
            launch_slices: |library, place| {
                let stream = place.stream.clone();
                $(let $scalar = place.scalar($scalar_name);)*
                let mut slices = place.slices();
                $(let $read = slices.read::<$read_type>($read_name);)*
                $(let mut $written = slices.written($written_name);)*
                $(let mut $written = typed::<$written_type>(&mut $written);)*
                let args = kernels::$kind::$call::SliceArgs {
                    $($read: $read.into(),)*
                    $($written: (&mut $written).into(),)*
                    $($scalar,)*
                };
                // Safe where all that the kernel could touch is declared.
                #[allow(unused_unsafe)]
                // SAFETY: the slices are those of the job, whose values are in range, and outlive the launch.
                unsafe {
                    args.launch(&library.kernel(), &stream)
                }
            },
        },)*];
    };
}

// Made from the plan of launches.
include!(env!("GPU_CALLS"));

fn find(name: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.name == name)
}

/// What launches are made with.
struct Runner {
    by_slices: bool,
    library: Library,
    stream: Arc<CudaStream>,
    /// Of the same device.
    other: Library,
    other_stream: Arc<CudaStream>,
}

impl Runner {
    fn library(by_slices: bool, context: &Arc<CudaContext>) -> Outcome<Library> {
        if by_slices {
            return Ok(Library::from_cudarc(context)?);
        }
        context.bind_to_thread()?;
        let scratch = StreamOrdered::new(context);
        let options = Library::options().scratch(scratch);
        // SAFETY: contexts are dropped behind the libraries.
        Ok(unsafe { options.for_current_context() }?)
    }

    fn new(by_slices: bool) -> Outcome<Self> {
        let (context, other) = (
            kernels::adapters::cudarc::context(0)?,
            CudaContext::new_non_primary(0, 0)?,
        );
        for context in [&context, &other] {
            // SAFETY: memory is used by one stream alone, and freed after that has ended. A graph could not wait for
            // events that were recorded before it.
            unsafe { context.disable_event_tracking() };
        }
        let (library, other_library) = (
            Self::library(by_slices, &context)?,
            Self::library(by_slices, &other)?,
        );
        let (stream, other_stream) = (context.new_stream()?, other.new_stream()?);
        Ok(Self {
            by_slices,
            library,
            stream,
            other: other_library,
            other_stream,
        })
    }

    fn start(&self, call: &Call, place: &mut Place<'_>, library: &Library) -> kernels::Result<()> {
        if self.by_slices {
            (call.launch_slices)(library, place)
        } else {
            (call.launch)(library, place)
        }
    }

    /// A launch that has to succeed, from memory as it is before one, to its end.
    fn launch(&self, call: &Call, place: &mut Place<'_>, library: &Library) -> Outcome<()> {
        place.fill()?;
        self.start(call, place, library)?;
        Ok(place.stream.synchronize()?)
    }
}

/// What is launched: the variant's own arguments, and the variant.
#[derive(Clone, Copy)]
struct Alone<'a> {
    job: &'a Job,
    call: &'static Call,
    variant: &'static Variant,
}

impl<'a> Alone<'a> {
    fn place(self, stream: &Arc<CudaStream>) -> Outcome<Place<'a>> {
        Place::new(self.job, self.variant, stream, true)
    }
}

/// The variant alone; what it writes is what all other ways are held against.
fn launch_alone(runner: &Runner, what: Alone<'_>) -> Outcome<Vec<Vec<u8>>> {
    let mut place = what.place(&runner.stream)?;
    let config = (what.call.config)(&runner.library, &place)?.ok_or("the grid is empty")?;
    if config.image.target != what.job.target {
        return Err(format!("the library chose {}", config.image.id).into());
    }
    let wanted: Vec<u32> = what
        .job
        .grid
        .iter()
        .zip(config.cluster)
        .map(|(blocks, cluster)| blocks * cluster)
        .collect();
    if config.grid[..] != wanted {
        return Err(format!("the library's grid is {:?}", config.grid).into());
    }
    runner.launch(what.call, &mut place, &runner.library)?;
    let written = place.check(Expected::Anything)?;
    write(what.job, &written, "")?;
    Ok(written)
}

fn write(job: &Job, written: &[Vec<u8>], suffix: &str) -> Outcome<()> {
    let outputs = job
        .buffers
        .iter()
        .filter(|buffer| buffer.kind == Kind::Output);
    for (buffer, bytes) in outputs.zip(written) {
        let mut path = buffer.path.clone().into_os_string();
        path.push(suffix);
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

/// By group: the variant that comes first, and so the same bytes where that is this one.
fn launch_group(runner: &Runner, what: Alone<'_>, written: &[Vec<u8>]) -> Outcome<()> {
    let Some(group) = find(what.variant.group) else {
        return Ok(());
    };
    let mut place = what.place(&runner.stream)?;
    let config = (group.config)(&runner.library, &place)?.ok_or("the grid is empty")?;
    runner.launch(group, &mut place, &runner.library)?;
    let is_same = config.variant == what.variant;
    let outputs = place.check(if is_same {
        Expected::Same(written)
    } else {
        Expected::Anything
    })?;
    write(what.job, &outputs, ".group")
}

/// By group with addresses that are multiples of an element and of no more: a variant that promises nothing of addresses
/// serves the call; where there is none, it is refused, an argument named, and nothing touched.
fn launch_unaligned(runner: &Runner, what: Alone<'_>) -> Outcome<()> {
    let Some(group) = find(what.variant.group) else {
        return Ok(());
    };
    let mut place = Place::new(what.job, what.variant, &runner.stream, false)?;
    let is_served = has_fallback(runner, what, group, &place)?;
    let launched = runner.start(group, &mut place, &runner.library);
    place.stream.synchronize()?;
    match launched {
        Ok(()) if is_served => write(what.job, &place.check(Expected::Anything)?, ".unaligned"),
        Err(kernels::Error::Misaligned { argument, .. })
            if !is_served && what.job.is_buffer(argument) =>
        {
            place.check(Expected::Untouched).map(drop)
        }
        other => {
            Err(format!("a variant takes them: {is_served}, and the launch gives {other:?}").into())
        }
    }
}

/// Whether a variant of the group takes any address: one that promises nothing of any, and serves the call otherwise.
fn has_fallback(
    runner: &Runner,
    what: Alone<'_>,
    group: &Call,
    place: &Place<'_>,
) -> Outcome<bool> {
    use kernels::Error::{NotSelected, Specialization};
    let known = kernels::find_group(what.variant.group).ok_or("no group of that name")?;
    let mut plain = known.variants.iter().filter(|variant| {
        let mut promises = variant
            .arguments
            .iter()
            .filter(|each| each.promise.is_some());
        !promises.any(|argument| what.job.is_buffer(argument.name))
    });
    Ok(plain.any(|variant| {
        let config = (group.config_of)(&runner.library, place, variant);
        !matches!(config, Err(NotSelected { .. } | Specialization { .. }))
    }))
}

/// Each promise broken alone: the call is refused, the argument named, and nothing touched.
fn break_promises(runner: &Runner, what: Alone<'_>) -> Outcome<()> {
    for argument in what
        .variant
        .arguments
        .iter()
        .filter(|argument| argument.promise.is_some())
    {
        let mut place = what.place(&runner.stream)?;
        if let Some(bytes) = place.scalars.get_mut(argument.name) {
            bytes[0] += 1;
        } else {
            let buffer = what
                .job
                .buffers
                .iter()
                .find(|buffer| buffer.name == argument.name);
            place.shifts.insert(
                argument.name.to_owned(),
                buffer.ok_or("no such buffer")?.item as u64,
            );
        }
        let refused = runner.start(what.call, &mut place, &runner.library);
        place.stream.synchronize()?;
        match refused {
            Err(
                kernels::Error::Misaligned {
                    argument: named, ..
                }
                | kernels::Error::Specialization {
                    argument: named, ..
                },
            ) if named == argument.name => {}
            // A condition that looks at the same argument comes first, and slices are held against longer rows.
            Err(kernels::Error::NotSelected { .. } | kernels::Error::SliceTooShort { .. }) => {}
            other => {
                return Err(format!(
                    "{} breaks it, and the launch gives {other:?}",
                    argument.name
                )
                .into())
            }
        }
        place.check(Expected::Untouched)?;
    }
    Ok(())
}

/// Each integer that empties the grid when it is 0: success, and nothing touched.
fn empty_the_grid(runner: &Runner, what: Alone<'_>) -> Outcome<()> {
    let mut count = 0;
    for name in what.job.scalars.keys() {
        let mut place = what.place(&runner.stream)?;
        place
            .scalars
            .insert(name.clone(), vec![0; what.job.scalars[name].len()]);
        if !matches!((what.call.config)(&runner.library, &place), Ok(None)) {
            continue;
        }
        count += 1;
        runner.start(what.call, &mut place, &runner.library)?;
        place.stream.synchronize()?;
        place.check(Expected::Untouched)?;
    }
    if count == 0 {
        Err("no integer empties it".into())
    } else {
        Ok(())
    }
}

/// Two threads at once, each with a stream of its own and with a library that has loaded nothing.
fn launch_in_threads(runner: &Runner, what: Alone<'_>, written: &[Vec<u8>]) -> Outcome<()> {
    let context = runner.stream.context();
    let library = Runner::library(runner.by_slices, context)?;
    let barrier = Barrier::new(2);
    let run = || -> Result<(), String> {
        let prepare = || -> Outcome<_> {
            context.bind_to_thread()?;
            what.place(&context.new_stream()?)
        };
        let place = prepare();
        barrier.wait();
        let launch = |mut place: Place<'_>| -> Outcome<()> {
            for _ in 0..3 {
                runner.launch(what.call, &mut place, &library)?;
                place.check(Expected::Same(written))?;
            }
            Ok(())
        };
        place.and_then(launch).map_err(|error| error.to_string())
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        for thread in threads {
            thread.join().map_err(|_| "a thread panics")??;
        }
        Ok(())
    })
}

/// In another context of the same device; and with a stream of another context than the library's, which is refused.
fn launch_in_context(runner: &Runner, what: Alone<'_>, written: &[Vec<u8>]) -> Outcome<()> {
    runner.other_stream.context().bind_to_thread()?;
    let mut place = what.place(&runner.other_stream)?;
    runner.launch(what.call, &mut place, &runner.other)?;
    place.check(Expected::Same(written))?;
    if runner.by_slices {
        place.fill()?;
        match runner.start(what.call, &mut place, &runner.library) {
            Err(kernels::Error::OtherContext { .. }) => {}
            other => {
                return Err(format!(
                    "with the library of another context the launch gives {other:?}"
                )
                .into())
            }
        }
        place.check(Expected::Untouched)?;
    }
    drop(place);
    Ok(runner.stream.context().bind_to_thread()?)
}

/// Captured in the strictest mode, which launches nothing; and replayed twice. What is safe is not captured: it goes by
/// addresses.
fn launch_graph(runner: &Runner, what: Alone<'_>, written: &[Vec<u8>]) -> Outcome<()> {
    let mut place = what.place(&runner.stream)?;
    let stream = place.stream.clone();
    runner.library.preload_variant(what.variant)?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let launched = match runner.start(what.call, &mut place, &runner.library) {
        Err(kernels::Error::UnsafeCapture) if runner.by_slices => {
            (what.call.launch)(&runner.library, &place)
        }
        other => other,
    };
    let graph = stream
        .end_capture(CUgraphInstantiate_flags(0))?
        .ok_or("nothing was captured")?;
    launched?;
    place.check(Expected::Untouched)?;
    for _ in 0..2 {
        place.fill()?;
        graph.launch()?;
        stream.synchronize()?;
        place.check(Expected::Same(written))?;
    }
    Ok(())
}

fn run(runner: &Runner, job: &Job) -> Outcome<()> {
    let call = find(&job.variant).ok_or("no variant of that name")?;
    let variant = (call.variant)().ok_or("it has no variant")?;
    let what = Alone { job, call, variant };
    let told = |way: &'static str| {
        move |error: Box<dyn Error>| -> Box<dyn Error> {
            format!("{way}: {}", chain(&*error)).into()
        }
    };
    let written = launch_alone(runner, what).map_err(told("alone"))?;
    if job.by_group {
        launch_group(runner, what, &written).map_err(told("by group"))?;
        launch_unaligned(runner, what).map_err(told("by group, with unaligned addresses"))?;
    }
    if job.all_ways {
        break_promises(runner, what).map_err(told("a broken promise"))?;
        empty_the_grid(runner, what).map_err(told("an empty grid"))?;
        launch_in_threads(runner, what, &written).map_err(told("in two threads"))?;
        launch_in_context(runner, what, &written).map_err(told("in another context"))?;
        launch_graph(runner, what, &written).map_err(told("in a graph"))?;
    }
    Ok(())
}

/// An error and what lies behind it, in a line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text.replace('\n', " ")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (way, jobs) = match &arguments[..] {
        [_, way, jobs] if way == "driver" || way == "cudarc" => (way, jobs),
        _ => {
            eprintln!("usage: typed (driver | cudarc) JOBS");
            return ExitCode::from(2);
        }
    };
    let runner = match Runner::new(way == "cudarc") {
        Ok(runner) => runner,
        Err(error) => {
            eprintln!("{}", chain(&*error));
            return ExitCode::from(2);
        }
    };
    let (mut number, mut failed) = (0, false);
    for task in job::read(&std::fs::read_to_string(jobs).expect("the jobs can be read")) {
        match task {
            Task::Absent(name) => {
                let variant = find(&name)
                    .and_then(|call| (call.variant)())
                    .expect("a variant of that name");
                let refused = runner.library.preload_variant(variant);
                let told = matches!(refused, Err(kernels::Error::NoCompatibleImage { .. }));
                println!(
                    "absent {name} {}",
                    if told {
                        "NoCompatibleImage".to_owned()
                    } else {
                        format!("{refused:?}")
                    }
                );
            }
            Task::Launch(job) => {
                match run(&runner, &job) {
                    Ok(()) => println!("ok {number}"),
                    Err(error) => {
                        println!("failed {number} {error}");
                        failed = true;
                    }
                }
                number += 1;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
