//! What the crate does with a driver that computes nothing: one case a process, named by the first argument.

use std::error::Error as _;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

#[path = "support/double.rs"]
mod double;

use double::{fail, log, point, run, set, symbol};

use kernels::groups::softmax_fp32::Args as GroupArgs;
use kernels::variants::{
    alone_fp32_1024, clustered_fp32_1024, scratched_fp32_1024, softmax_fp32_1024, wide_fp32_1024,
};
use kernels::{
    BadPointer, Checks, Choices, Device, DevicePtr, Error, Flaw, Library, Refusal, Release, Stream,
    Vendor,
};
use kernels::{DeviceBuffer, KernelParams, ScratchAllocator};

extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// A context of the double.
#[repr(C)]
struct Context {
    device: c_int,
    is_destroyed: bool,
}

fn make_current(context: Option<&'static Context>) {
    let set: extern "C" fn(*const Context) -> c_int =
        unsafe { std::mem::transmute(symbol(c"cuCtxSetCurrent")) };
    assert_eq!(set(context.map_or(std::ptr::null(), std::ptr::from_ref)), 0);
}

fn context(device: c_int) -> &'static Context {
    Box::leak(Box::new(Context {
        device,
        is_destroyed: false,
    }))
}

/// What the driver was asked since the last call: the first word of each line, and of launches all but the image's text.
fn asked() -> Vec<String> {
    let text = log();
    let shown = text.lines().filter_map(|line| {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "load" | "drop" => Some(word.to_owned()),
            "launch" => rest
                .split_once(" on ")
                .map(|(_, rest)| format!("launch on {rest}")),
            "retain" | "release" => Some(line.to_owned()),
            _ => None,
        }
    });
    shown.collect()
}

const STREAM: usize = 0x51;

fn stream() -> Stream {
    Stream::from_raw(STREAM as *mut c_void)
}

/// Arguments of four rows of 1000 columns, of variants that take the same.
macro_rules! args {
    ($variant:ident) => {
        $variant::Args {
            output_ptr: DevicePtr::new(0x7000),
            input_ptr: DevicePtr::new(0x8000),
            input_row_stride: 1000,
            output_row_stride: 1001,
            n_cols: 1000,
            n_rows: 4,
        }
    };
}

fn good() -> softmax_fp32_1024::Args {
    args!(softmax_fp32_1024)
}

fn group(columns: i32) -> GroupArgs {
    let args = good();
    GroupArgs {
        output_ptr: args.output_ptr,
        input_ptr: args.input_ptr,
        input_row_stride: args.input_row_stride,
        output_row_stride: args.output_row_stride,
        n_cols: columns,
        n_rows: args.n_rows,
    }
}

/// An error, and everything that lies behind it.
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        text += &format!(" <- {behind}");
        source = behind.source();
    }
    text
}

fn launch<P: KernelParams>(library: &Library, args: &P) -> Result<(), Error> {
    unsafe { library.kernel::<P>().launch(args, stream()) }
}

const PACKED: &str = "[00700000000000000080000000000000e8030000e9030000e80300000000000000000000000000000000000000000000]";

fn first_use() {
    let library = Library::for_device(0).unwrap();
    assert_eq!(asked(), ["retain 0"]);
    assert_eq!(&*library.device().architecture, "sm_90");
    let kernel = library.kernel();
    for _ in 0..2 {
        unsafe { kernel.launch(&good(), stream()).unwrap() };
    }
    let image = kernel.image(&good()).unwrap().unwrap();
    assert_eq!(image.id, "softmax_fp32_1024@sm_90a");
    let line = format!(
        "launch on 0 grid 4,1,1 block {},1,1 shared {} stream 0x51 {PACKED}",
        image.threads, image.shared_dynamic
    );
    assert_eq!(asked(), ["load", &line, &line]);
    // What launches the same image loads it no more, and keeps it when the library is dropped.
    let again = library
        .kernel_of::<GroupArgs>(&softmax_fp32_1024::VARIANT)
        .unwrap();
    drop((library, kernel));
    unsafe { again.launch(&group(1000), stream()).unwrap() };
    assert_eq!(asked(), [line]);
    drop(again);
    assert_eq!(asked(), ["drop", "release 0"]);
}

fn refused_calls() {
    let library = Library::for_device(0).unwrap();
    asked();
    let cases = [
        (softmax_fp32_1024::Args { n_cols: 1025, ..good() }, "softmax_fp32_1024 serves a call when n_cols <= BLOCK_SIZE, and here n_cols is 1025, BLOCK_SIZE is 1024"),
        (softmax_fp32_1024::Args { n_rows: -1, ..good() }, "softmax_fp32_1024: the grid has -1 blocks in x; a launch takes 0 to 2147483647 <- the grid has -1 blocks in x; a launch takes 0 to 2147483647"),
    ];
    for (args, expected) in cases {
        assert_eq!(told(&launch(&library, &args).unwrap_err()), expected);
    }
    let negative = softmax_fp32_1024::Args {
        n_cols: -3,
        ..good()
    };
    assert_eq!(
        told(&negative.elements().unwrap_err()),
        "the arguments describe no tensor output_ptr: its extent n_cols is -3"
    );
    // Of a group the variant that comes nearest is told.
    let error = launch(&library, &group(5000)).unwrap_err();
    assert_eq!(
        told(&error),
        "no variant of the group softmax_fp32 serves the call; the nearest, softmax_fp32_2048, serves one when n_cols <= BLOCK_SIZE, and here n_cols is 5000, BLOCK_SIZE is 2048"
    );
    assert_eq!(format!("{error:?}"), error.to_string());
    // One of the variants of these arguments promises nothing. Another does, and says so when it is asked for.
    let shifted = softmax_fp32_1024::Args {
        input_ptr: DevicePtr::new(0x8004),
        ..good()
    };
    let kernel = library.kernel::<softmax_fp32_1024::Args>();
    assert_eq!(
        kernel.image(&shifted).unwrap().unwrap().variant,
        "softmax_fp32_1024_any"
    );
    let aligned = library.kernel_of(&softmax_fp32_1024::VARIANT).unwrap();
    let error = unsafe { aligned.launch(&shifted, stream()) }.unwrap_err();
    assert_eq!(
        told(&error),
        "the address input_ptr of softmax_fp32_1024 is 0x8004, which is not a multiple of 16 bytes"
    );
    assert!(matches!(
        error,
        Error::Misaligned {
            argument: "input_ptr",
            need: 16,
            got: 0x8004,
            ..
        }
    ));
    let other = library
        .kernel_of::<softmax_fp32_1024::Args>(&alone_fp32_1024::VARIANT)
        .unwrap_err();
    assert_eq!(
        told(&other),
        "alone_fp32_1024 is none of softmax_fp32_1024, whose arguments were given"
    );
    // An empty grid is no error, and no driver is asked.
    launch(
        &library,
        &softmax_fp32_1024::Args {
            n_rows: 0,
            n_cols: 5000,
            ..good()
        },
    )
    .unwrap();
    assert_eq!(asked(), [""; 0]);
}

fn folded_value() {
    let library = Library::for_device(0).unwrap();
    let args = alone_fp32_1024::Args {
        output_ptr: DevicePtr::new(0x7000),
        input_ptr: DevicePtr::new(0x8000),
        input_row_stride: 2,
        output_row_stride: 3,
        n_cols: 4,
        n_rows: 5,
    };
    let error = launch(&library, &args).unwrap_err();
    assert_eq!(
        told(&error),
        "input_row_stride of alone_fp32_1024 is 2, and has to be 1"
    );
    assert!(matches!(
        error,
        Error::Specialization {
            need: 1,
            got: 2,
            ..
        }
    ));
    launch(
        &library,
        &alone_fp32_1024::Args {
            input_row_stride: 1,
            ..args
        },
    )
    .unwrap();
    let packed = "[0070000000000000008000000000000003000000040000000000000000000000";
    assert!(asked().iter().any(|line| line.contains(packed)));
}

fn missing_library() {
    for _ in 0..2 {
        let error = Library::for_device(0).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::DriverNotFound {
                    library: "libcuda.so.1",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(
            told(&error)
                .ends_with("; install the GPU's driver, or name its folder in LD_LIBRARY_PATH"),
            "{error}"
        );
        for said in [
            ": libcuda.so.1 cannot be opened (",
            "; nor can libamdhip64.so: ",
        ] {
            assert!(told(&error).contains(said), "{error}");
        }
    }
    let error = Library::options()
        .vendor(Vendor::Amd)
        .for_device(0)
        .unwrap_err();
    assert!(matches!(
        error,
        Error::DriverNotFound {
            library: "libamdhip64.so",
            ..
        }
    ));
}

fn missing_symbol() {
    let error = Library::for_device(0).unwrap_err();
    assert_eq!(told(&error), "libcuda.so.1 lacks the function cuModuleLoadDataEx, which drivers have since CUDA 11.0; update the driver");
}

fn no_such_device() {
    let error = Library::for_device(1).unwrap_err();
    assert_eq!(
        error,
        Error::NoDevice {
            ordinal: 1,
            count: 1
        }
    );
    assert_eq!(
        told(&error),
        "there is no device 1: the driver shows 1; see CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES"
    );
    let error = unsafe { Library::for_current_context() }.unwrap_err();
    assert_eq!(error, Error::WrongContext { cause: None });
    assert_eq!(
        told(&error),
        "no context is current in this thread; make one current, or use Library::for_device"
    );
    assert_eq!(asked(), [""; 0]);
}

/// On a device of a later generation only PTX runs, and this driver does not know its ISA.
fn driver_too_old() {
    set("capability", 100);
    set("driver_version", 11080);
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &good()).unwrap_err();
    let Error::DriverTooOld {
        need: Some(need),
        have,
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        (need.to_string(), have),
        (
            "12.0".into(),
            Release {
                major: 11,
                minor: 8
            }
        )
    );
    assert_eq!(told(&error), "softmax_fp32_1024@compute_80 needs a driver of CUDA 12.0, and this one is of CUDA 11.8; update the driver, or build for the device's own architecture");
}

/// What the driver does not know of an ISA that it should, it says itself.
fn driver_too_old_by_its_own_word() {
    set("capability", 100);
    fail(Some(c"cuLibraryLoadData"), 222);
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &good()).unwrap_err();
    assert_eq!(told(&error), "softmax_fp32_1024@compute_80 needs a newer driver than this one of CUDA 13.0; update the driver, or build for the device's own architecture");
}

fn no_image() {
    set("capability", 75);
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &good()).unwrap_err();
    assert_eq!(told(&error), "no image of softmax_fp32_1024 is for a device of sm_75; it is built for sm_80, sm_90a, compute_80, gfx942; turn on the feature of the device's target, or add the target to kernels.yaml");
    assert!(library.preload().is_err());
    let error = library
        .preload_variant(&softmax_fp32_1024::VARIANT)
        .unwrap_err();
    assert!(matches!(
        error,
        Error::NoCompatibleImage {
            variant: "softmax_fp32_1024",
            ..
        }
    ));
    set("capability", 90);
    set("max_threads", 64);
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &good()).unwrap_err();
    let Error::Unsuitable {
        refusal: Refusal::TooManyThreads { have: 64, .. },
        ..
    } = error
    else {
        panic!("{error:?}")
    };
}

fn explained() {
    let library = Library::for_device(0).unwrap();
    println!("{}", library.explain_selection(&softmax_fp32_1024::VARIANT));
    println!(
        "{}",
        library.image(&softmax_fp32_1024::VARIANT).unwrap().target
    );
}

fn two_devices() {
    set("device_count", 2);
    let first = Library::for_device(0).unwrap();
    set("capability", 86);
    let second = Library::for_device(1).unwrap();
    for (library, ordinal, target) in [(&first, 0, "sm_90a"), (&second, 1, "sm_80")] {
        let kernel = library.kernel();
        asked();
        unsafe { kernel.launch(&good(), stream()).unwrap() };
        let lines = asked();
        assert!(
            lines[1].starts_with(&format!("launch on {ordinal} ")),
            "{lines:?}"
        );
        assert_eq!(kernel.image(&good()).unwrap().unwrap().target, target);
    }
    drop(first);
    assert_eq!(asked(), ["drop", "release 0"]);
    drop(second);
    assert_eq!(asked(), ["drop", "release 1"]);
}

/// Two contexts of one device: each has what it loads, whichever is current in the thread that launches or drops.
fn two_contexts() {
    let (one, other) = (context(0), context(0));
    make_current(Some(one));
    // SAFETY: the double knows a context that is destroyed, and keeps its memory.
    let first = unsafe { Library::for_current_context() }.unwrap();
    make_current(Some(other));
    // SAFETY: this one is never destroyed.
    let second = unsafe { Library::for_current_context() }.unwrap();
    make_current(None);
    assert_ne!(first.raw_context(), second.raw_context());
    for library in [&first, &second] {
        launch(library, &good()).unwrap();
        assert_eq!(asked().len(), 2, "a load and a launch");
    }
    // An old driver's modules go with their context; a new one's libraries do not, and are unloaded all the same.
    let destroy: extern "C" fn(*const Context) =
        unsafe { std::mem::transmute(symbol(c"double_destroy")) };
    destroy(one);
    let gone = asked().len();
    let launched = launch(&first, &good());
    assert!(matches!(launched.unwrap_err(), Error::DeadContext { .. }));
    drop(first);
    assert_eq!(gone + asked().len(), 1);
    drop(second);
    assert_eq!(asked(), ["drop"]);
}

fn wrong_context() {
    let library = Library::for_device(0).unwrap();
    fail(Some(c"launch"), 400);
    let error = launch(&library, &good()).unwrap_err();
    assert_eq!(told(&error), "a stream or the library belongs to another context; use streams of the library's own context <- CUDA_ERROR_OTHER (400, something went wrong) of cuLaunchKernel");
    fail(Some(c"launch"), 700);
    let error = launch(&library, &good()).unwrap_err();
    assert_eq!(told(&error), "the driver did not launch softmax_fp32_1024@sm_90a <- CUDA_ERROR_ILLEGAL_ADDRESS (700, something went wrong) of cuLaunchKernel; this may come from earlier work, since such an error stays until the process ends");
    fail(None, 0);
    launch(&library, &good()).unwrap();
}

fn out_of_memory() {
    let library = Library::for_device(0).unwrap();
    fail(Some(c"cuLibraryLoadData"), 2);
    let error = launch(&library, &good()).unwrap_err();
    let Error::OutOfMemory {
        requested,
        available: Some(4096),
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        requested,
        library
            .image(&softmax_fp32_1024::VARIANT)
            .unwrap()
            .bytes
            .len() as u64
    );
    assert_eq!(told(&error), format!("the device has no memory left for {requested} bytes: 4096 are free; free some, or ask for less <- CUDA_ERROR_OUT_OF_MEMORY (2, out of memory) of cuLibraryLoadData"));
    fail(Some(c"cuMemAlloc_v2"), 2);
    let error = DeviceBuffer::<f32>::new(&library, 1000).unwrap_err();
    assert!(matches!(
        error,
        Error::OutOfMemory {
            requested: 4000,
            ..
        }
    ));
    // Nothing is remembered of a failure.
    fail(None, 0);
    launch(&library, &good()).unwrap();
    let buffer = DeviceBuffer::from_slice(&library, &[1.5_f32, -2.0]).unwrap();
    assert_eq!(unsafe { buffer.to_vec() }.unwrap(), [1.5, -2.0]);
    assert_eq!(
        unsafe {
            DeviceBuffer::<u8>::from_slice(&library, &[])
                .unwrap()
                .to_vec()
        }
        .unwrap(),
        [0; 0]
    );
}

fn refused_by_the_driver() {
    set("capability", 100);
    let say: extern "C" fn(*const c_char) = unsafe { std::mem::transmute(symbol(c"double_say")) };
    let library = Library::for_device(0).unwrap();
    say(c"ptxas application ptx input, line 9; fatal   : Parsing error\n".as_ptr());
    fail(Some(c"cuLibraryLoadData"), 218);
    let error = launch(&library, &good()).unwrap_err();
    assert!(matches!(
        &error,
        Error::InvalidImage {
            flaw: Flaw::Refused { .. },
            ..
        }
    ));
    assert!(told(&error).starts_with("the image softmax_fp32_1024@compute_80 is not as it was built: CUDA_ERROR_OTHER (218, something went wrong) of cuLibraryLoadData:\nptxas application ptx input, line 9; fatal   : Parsing error; build the crate anew"), "{}", told(&error));
    fail(Some(c"cuKernelGetFunction"), 999);
    let error = launch(&library, &good()).unwrap_err();
    assert!(told(&error).starts_with("the driver did not load softmax_fp32_1024@compute_80 <- "));
    // What `main` prints when it returns the error.
    assert!(format!("{error:?}")
        .starts_with("the driver did not load softmax_fp32_1024@compute_80\n  caused by: "));
    assert_eq!(asked(), ["retain 0", "load", "drop"]);
}

fn threads() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel::<GroupArgs>();
    asked();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for columns in [1000, 2000, 1024] {
                    unsafe { kernel.launch(&group(columns), stream()).unwrap() };
                }
            });
        }
    });
    let lines = asked();
    assert_eq!(lines.iter().filter(|line| *line == "load").count(), 2);
    assert_eq!(lines.len(), 2 + 24);
    let moved = std::thread::spawn(move || drop((library, kernel)));
    moved.join().unwrap();
    assert_eq!(asked(), ["drop", "drop", "release 0"]);
}

/// The double has each load wait for the other: one that had to end before the other begins would fail.
fn loads_of_two_images() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel::<GroupArgs>();
    asked();
    set("loads_together", 2);
    std::thread::scope(|scope| {
        for columns in [1000, 2000] {
            let kernel = &kernel;
            scope.spawn(move || unsafe { kernel.launch(&group(columns), stream()).unwrap() });
        }
    });
    let lines = asked();
    assert_eq!(lines.iter().filter(|line| *line == "load").count(), 2);
    drop((library, kernel));
    assert_eq!(asked(), ["drop", "drop", "release 0"]);
}

/// Numbers of memory of the host and of a device: CUDA's, and HIP's are the same.
const HOST: i32 = 1;
const DEVICE: i32 = 2;

fn at(input: u64) -> softmax_fp32_1024::Args {
    softmax_fp32_1024::Args {
        input_ptr: DevicePtr::new(input),
        ..good()
    }
}

/// What the driver says of addresses, where it is asked.
fn bad_pointers() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel();
    let launch = |input| unsafe { kernel.launch(&at(input), stream()) };
    let refused = |input| {
        asked();
        let error = launch(input).unwrap_err();
        assert!(!asked().iter().any(|line| line.starts_with("launch")));
        assert!(
            matches!(error, Error::BadPointer { variant: "softmax_fp32_1024", argument: "input_ptr", address, .. } if address == input)
        );
        told(&error)
    };
    point(0x7000, DEVICE, false, 0);
    point(0x8000, HOST, false, 0);
    point(0x9000, DEVICE, true, 1);
    point(0xa000, DEVICE, false, 1);
    launch(0xb000).unwrap();
    library.set_checks(Checks::Pointers);
    for input in [0x7000, 0x8000, 0x9000] {
        launch(input).unwrap();
    }
    assert_eq!(refused(0xa000), "input_ptr of softmax_fp32_1024 is 0xa000, memory of device 1, and the launch is on device 0");
    assert_eq!(refused(0xb000), "input_ptr of softmax_fp32_1024 is 0xb000, memory that the driver does not know: the host's, or freed; give memory of the device");
    assert_eq!(
        refused(0),
        "input_ptr of softmax_fp32_1024 is 0x0, null, which these checks refuse"
    );
    library.set_checks(Checks::PointersOrNull);
    launch(0).unwrap();
    refused(0xb000);
    // What the driver fails with is passed on.
    fail(Some(c"cuPointerGetAttribute"), 700);
    let error = launch(0xb000).unwrap_err();
    assert!(
        matches!(&error, Error::Launch { cause, .. } if matches!(**cause, Error::Driver { code: 700, call: "cuPointerGetAttribute", .. })),
        "{error:?}"
    );
    fail(None, 0);
    // An empty grid has no arguments to look at; and scratch memory is the library's own.
    let none = softmax_fp32_1024::Args {
        n_rows: 0,
        ..at(0xb000)
    };
    unsafe { kernel.launch(&none, stream()).unwrap() };
    library.set_checks(Checks::None);
    launch(0xb000).unwrap();
    let strict = Library::options()
        .checks(Checks::Pointers)
        .scratch(Allocator(Arc::default(), 0xabc00))
        .for_device(0)
        .unwrap();
    let args = args!(scratched_fp32_1024);
    unsafe { strict.kernel().launch(&args, stream()).unwrap() };
    // Kernels read what malloc gave.
    set("pageable", 1);
    let library = Library::options()
        .checks(Checks::Pointers)
        .for_device(0)
        .unwrap();
    unsafe { library.kernel().launch(&at(0xb000), stream()).unwrap() };
}

fn bad_pointers_of_hip() {
    let library = Library::options()
        .checks(Checks::Pointers)
        .for_device(0)
        .unwrap();
    point(0x7000, DEVICE, false, 0);
    point(0x8000, HOST, false, 0);
    point(0xa000, DEVICE, false, 1);
    let launch = |input| unsafe { library.kernel().launch(&at(input), stream()) };
    launch(0x7000).unwrap();
    launch(0x8000).unwrap();
    for (input, expected) in [
        (0xa000, BadPointer::OtherDevice { device: 1, own: 0 }),
        (0xb000, BadPointer::Unknown),
        (0, BadPointer::Null),
    ] {
        match launch(input).unwrap_err() {
            Error::BadPointer { why, .. } => assert_eq!(why, expected),
            other => panic!("{other:?}"),
        }
    }
}

/// In a child everything says that it is one, and nothing is asked of the driver, whatever the parent's threads do.
fn forked() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel();
    unsafe { kernel.launch(&good(), stream()).unwrap() };
    asked();
    let child = unsafe { fork() };
    if child == 0 {
        let errors = [
            unsafe { kernel.launch(&good(), stream()) }.unwrap_err(),
            Library::for_device(0).unwrap_err(),
            library.preload().unwrap_err(),
            library.synchronize().unwrap_err(),
        ];
        drop((library, kernel));
        let is_right = errors.iter().all(|error| *error == Error::Forked) && asked().is_empty();
        unsafe { _exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    drop(kernel);
    assert_eq!(told(&Error::Forked), "this process was forked from one that had used the driver; start it with exec, or fork before the first use");
}

/// A child of a process that used no driver, or found none, may use one.
fn forked_before() {
    let child = unsafe { fork() };
    if child == 0 {
        let outcome = Library::for_device(0).and_then(|library| launch(&library, &good()));
        unsafe { _exit(if outcome.is_ok() { 0 } else { 1 }) };
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[derive(Clone, Default)]
struct Allocator(Arc<Mutex<Vec<(u64, u64)>>>, u64);

// SAFETY: nothing is computed with its addresses.
unsafe impl ScratchAllocator for Allocator {
    fn allocate(&self, bytes: u64, align: u64, given: Stream) -> Option<u64> {
        assert_eq!(given, stream());
        self.0.lock().unwrap().push((bytes, align));
        (self.1 != 0).then_some(self.1)
    }

    fn release(&self, address: u64, _: Stream) {
        self.0.lock().unwrap().push((address, 0));
    }
}

fn scratch() {
    let args = args!(scratched_fp32_1024);
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &args).unwrap_err();
    assert_eq!(told(&error), "scratched_fp32_1024@sm_90a needs 96 bytes of scratch memory; give the library an allocator of such memory");
    for (address, asked_for) in [
        (0, vec![(96, 128)]),
        (0xabc00, vec![(96, 128), (0xabc00, 0)]),
    ] {
        let allocator = Allocator(Arc::default(), address);
        let library = Library::options()
            .scratch(allocator.clone())
            .for_device(0)
            .unwrap();
        let launched = launch(&library, &args);
        assert_eq!(launched.is_ok(), address != 0);
        if let Err(error) = launched {
            assert_eq!(
                told(&error),
                "the allocator of scratch memory gave no 96 bytes for scratched_fp32_1024@sm_90a"
            );
        }
        assert_eq!(*allocator.0.lock().unwrap(), asked_for);
    }
    let packed = "[00700000000000000080000000000000e8030000e9030000e80300000000000000bc0a00000000000000000000000000]";
    assert!(asked().iter().any(|line| line.ends_with(packed)));
}

fn attributes() {
    let library = Library::for_device(0).unwrap();
    let args = args!(clustered_fp32_1024);
    let config = args.launch_config(&library).unwrap().unwrap();
    assert_eq!(
        (config.grid, config.cluster, config.pdl),
        ([8, 1, 1], [2, 1, 1], true)
    );
    launch(&library, &args).unwrap();
    let lines = asked();
    assert!(
        lines
            .iter()
            .any(|line| line.contains(" grid 8,1,1 ") && line.contains(" 4:2,1,1 6:1,0,0 ")),
        "{lines:?}"
    );
    let large = clustered_fp32_1024::Args {
        n_rows: i32::MAX,
        ..args
    };
    assert!(told(&launch(&library, &large).unwrap_err())
        .contains("the grid has 4294967294 blocks in x"));
}

/// Clusters of more blocks than every device takes are asked for before the launch, which this driver refuses otherwise.
fn wide_clusters() {
    let library = Library::for_device(0).unwrap();
    let args = args!(wide_fp32_1024);
    launch(&library, &args).unwrap();
    let lines = asked();
    assert!(
        lines
            .iter()
            .any(|line| line.contains(" grid 64,1,1 ") && line.contains(" 4:16,1,1 ")),
        "{lines:?}"
    );
}

fn attributes_of_an_older_driver() {
    set("driver_version", 11070);
    let library = Library::for_device(0).unwrap();
    let selection = library
        .explain_selection(&clustered_fp32_1024::VARIANT)
        .to_string();
    assert!(
        selection
            .contains("sm_90a: it is launched in clusters, which the device or its driver cannot"),
        "{selection}"
    );
}

fn captured() {
    let library = Library::for_device(0).unwrap();
    set("capture_status", 1);
    let launched = launch(&library, &good());
    let loads_then = std::env::args().nth(2).unwrap() == "loads";
    assert_eq!(launched.is_ok(), loads_then, "{launched:?}");
    if let Err(error) = launched {
        assert_eq!(told(&error), "softmax_fp32_1024@sm_90a is not loaded yet, and its stream is capturing; preload it before the capture");
    }
    library.preload().unwrap();
    launch(&library, &good()).unwrap();
}

/// A choice is taken for its bucket alone, while its image is the one that was measured.
fn choices() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel::<GroupArgs>();
    let taken = |columns| kernel.image(&group(columns)).unwrap().unwrap().variant;
    assert_eq!(taken(1000), "softmax_fp32_1024");
    let mut choices = Choices::read(std::env::args().nth(2).unwrap()).unwrap();
    assert_eq!((choices.len(), choices.foreign()), (2, 1));
    assert_eq!(
        choices.bad(),
        [(4, "its word 1 is not library=".to_owned())]
    );
    library.set_choices(choices.clone());
    assert_eq!(taken(1000), "softmax_fp32_2048");
    assert_eq!(taken(512), "softmax_fp32_1024", "another bucket");
    assert_eq!(taken(600), "softmax_fp32_2048");
    // The other file's choice for the same bucket is of an image that there no longer is.
    choices.add(std::env::args().nth(3).unwrap()).unwrap();
    library.set_choices(choices);
    assert_eq!(taken(1000), "softmax_fp32_1024");
    library.set_choices(Choices::new());
    assert_eq!(taken(600), "softmax_fp32_1024");
    let error = Choices::read(std::env::args().nth(4).unwrap()).unwrap_err();
    assert!(
        told(&error).ends_with("line 1: it has schema version 2, and this library reads 1"),
        "{error}"
    );
    assert!(told(&Choices::read("/nowhere/at/all").unwrap_err())
        .starts_with("/nowhere/at/all: it cannot be read: "));
}

fn raw_parameters() {
    let device = Device::nvidia(90, 12040);
    let config = good().launch_config_for(&device).unwrap().unwrap();
    assert_eq!(
        (config.grid, config.block),
        ([4, 1, 1], [config.image.threads, 1, 1])
    );
    let read = good().with_raw_params(config.image, |addresses| {
        assert_eq!(addresses.len(), config.image.parameters.len());
        let word = |place: usize| unsafe { addresses[place].cast::<u64>().read() };
        let half = |place: usize| unsafe { addresses[place].cast::<i32>().read() };
        (
            word(0),
            word(1),
            half(2),
            half(3),
            half(4),
            word(5),
            word(6),
        )
    });
    assert_eq!(read.unwrap(), (0x7000, 0x8000, 1000, 1001, 1000, 0, 0));
    let other = kernels::variants::alone_fp32_1024::IMAGES[0];
    let error = good().with_raw_params(other, |_| ()).unwrap_err();
    assert_eq!(
        told(&error),
        "alone_fp32_1024@sm_80 is none of softmax_fp32_1024, whose arguments were given"
    );
}

fn hip() {
    let library = Library::for_device(0).unwrap();
    assert_eq!(
        (library.device().vendor, &*library.device().name),
        (Vendor::Amd, "AMD Instinct MI300X")
    );
    let kernel = library.kernel();
    unsafe { kernel.launch(&good(), stream()).unwrap() };
    assert_eq!(
        kernel.image(&good()).unwrap().unwrap().id,
        "softmax_fp32_1024@gfx942"
    );
    let lines = asked();
    assert!(
        lines[0] == "load" && lines[1].starts_with("launch on 0 grid 4,1,1 block "),
        "{lines:?}"
    );
    library.preload().unwrap();
    let buffer = DeviceBuffer::from_slice(&library, &[3_u16, 4]).unwrap();
    assert_eq!(unsafe { buffer.to_vec() }.unwrap(), [3, 4]);
    drop((library, kernel, buffer));
    assert!(asked().iter().all(|line| line == "load" || line == "drop"));
}

/// With a driver of CUDA that finds no GPU, AMD's is taken.
fn no_gpu_of_nvidia() {
    fail(Some(c"cuInit"), 100);
    let library = Library::for_device(0).unwrap();
    assert_eq!(library.device().vendor, Vendor::Amd);
    let error = Library::options()
        .vendor(Vendor::Nvidia)
        .for_device(0)
        .unwrap_err();
    assert!(matches!(
        error,
        Error::Driver {
            code: 100,
            call: "cuInit",
            ..
        }
    ));
}

/// Images that were changed behind the crate's back are noticed before any driver sees them.
fn flawed() {
    let verify = std::env::args().nth(2).is_some();
    let targets = kernels::variants::softmax_fp32_1024::IMAGES;
    for image in targets {
        let library = Library::options().verify(verify).target(image.target);
        let vendor = if image.target.starts_with("gfx") {
            Vendor::Amd
        } else {
            Vendor::Nvidia
        };
        set_capability(image.target);
        let library = library.vendor(vendor).for_device(0).unwrap();
        match launch(&library, &good()) {
            Ok(()) => println!("{} is taken", image.target),
            Err(error) => println!("{}", told(&error)),
        }
    }
}

fn set_capability(target: &str) {
    if let Ok(capability) = target
        .trim_start_matches("sm_")
        .trim_end_matches('a')
        .parse()
    {
        set("capability", capability);
    }
}

fn main() {
    let cases: &[(&str, fn())] = &[
        ("attributes", attributes),
        (
            "attributes_of_an_older_driver",
            attributes_of_an_older_driver,
        ),
        ("bad_pointers", bad_pointers),
        ("bad_pointers_of_hip", bad_pointers_of_hip),
        ("captured", captured),
        ("choices", choices),
        ("driver_too_old", driver_too_old),
        (
            "driver_too_old_by_its_own_word",
            driver_too_old_by_its_own_word,
        ),
        ("explained", explained),
        ("first_use", first_use),
        ("flawed", flawed),
        ("folded_value", folded_value),
        ("forked", forked),
        ("forked_before", forked_before),
        ("hip", hip),
        ("loads_of_two_images", loads_of_two_images),
        ("missing_library", missing_library),
        ("missing_symbol", missing_symbol),
        ("no_gpu_of_nvidia", no_gpu_of_nvidia),
        ("no_image", no_image),
        ("no_such_device", no_such_device),
        ("out_of_memory", out_of_memory),
        ("raw_parameters", raw_parameters),
        ("refused_by_the_driver", refused_by_the_driver),
        ("refused_calls", refused_calls),
        ("scratch", scratch),
        ("threads", threads),
        ("two_contexts", two_contexts),
        ("two_devices", two_devices),
        ("wide_clusters", wide_clusters),
        ("wrong_context", wrong_context),
    ];
    run(cases);
}
