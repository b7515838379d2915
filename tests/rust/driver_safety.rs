//! What the crate refuses before a driver is asked, and what it makes of what one says: one case a process.

use std::ffi::{c_int, c_void};

#[path = "support/double.rs"]
mod double;

use double::{fail, run, set, symbol};

use kernels::variants::{
    checked_fp32_1024, damaged_fp32_1024, profiled_fp32_1024, softmax_fp32_1024,
};
use kernels::{Device, DeviceBuffer, DevicePtr, Error, GridError, KernelParams, Library, Stream};

extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

macro_rules! args {
    ($module:ident) => {
        $module::Args {
            output_ptr: DevicePtr::new(0x7000),
            input_ptr: DevicePtr::new(0x8000),
            input_row_stride: 1,
            output_row_stride: 1,
            n_cols: 1000,
            n_rows: 4,
        }
    };
}

fn stream() -> Stream {
    Stream::from_raw(0x51 as *mut c_void)
}

fn launch<P: KernelParams>(library: &Library, args: &P) -> Result<(), Error> {
    unsafe { library.kernel::<P>().launch(args, stream()) }
}

/// 2^66, as the product of this number by itself and by itself again, has 64 bits that are 0.
const WRAPS: i32 = 1 << 22;

/// A division by zero is no 0, and a product does not wrap: not in a condition, a grid, a shape or a stride.
fn arithmetic() {
    let good = args!(checked_fp32_1024);
    let device = Device::nvidia(90, 13000);
    assert!(good.selects());
    assert_eq!(good.grid(), Ok(Some([4, 1, 1])));
    assert_eq!(good.elements().unwrap(), [(4 * 4 * 4 - 1) * 1000 + 1, 1]);

    for (n_cols, n_rows) in [(0, 4), (1000, WRAPS)] {
        let args = checked_fp32_1024::Args {
            n_cols,
            n_rows,
            ..good
        };
        assert!(!args.selects());
        let error = args.launch_config_for(&device).unwrap_err();
        assert!(matches!(error, Error::NotSelected { .. }), "{error:?}");
        let error = args.elements().unwrap_err();
        assert!(matches!(error, Error::TensorSize { .. }), "{error:?}");
    }
    // What is decided before is left alone: the last condition divides by the first one's 0.
    assert!(checked_fp32_1024::Args {
        output_row_stride: 0,
        ..good
    }
    .selects());

    let by_zero = checked_fp32_1024::Args {
        input_row_stride: 0,
        ..good
    };
    let wrapped = checked_fp32_1024::Args {
        output_row_stride: WRAPS,
        ..good
    };
    for (args, axis, letter) in [(by_zero, 0, "x"), (wrapped, 1, "y")] {
        let error = GridError::Arithmetic { axis };
        assert_eq!(args.grid(), Err(error));
        assert_eq!(
            args.launch_config_for(&device).unwrap_err().to_string(),
            format!("checked_fp32_1024: the grid in {letter} divides by zero, or leaves 64 bits, for these arguments")
        );
    }
}

/// Whoever launches by other means is told of scratch memory for profilers as of all other.
fn profile_scratch() {
    let args = args!(profiled_fp32_1024);
    let config = args
        .launch_config_for(&Device::nvidia(90, 13000))
        .unwrap()
        .unwrap();
    let error = args.with_raw_params(config.image, |_| ()).unwrap_err();
    assert!(
        matches!(error, Error::ScratchNeeded { bytes: 12, .. }),
        "{error:?}"
    );
}

/// A copy from memory that is not pinned can go on behind the call: it is waited for.
fn copies() {
    let library = Library::for_device(0).unwrap();
    fail(Some(c"cuCtxSynchronize"), 700);
    let error = DeviceBuffer::from_slice(&library, &[1.5_f32]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Driver {
                call: "cuCtxSynchronize",
                ..
            }
        ),
        "{error:?}"
    );
}

/// In a child nothing is looked at before it is said that it is one: a lock may be held that nobody opens.
fn forked() {
    let library = Library::for_device(0).unwrap();
    let kernel = library.kernel();
    let refused = softmax_fp32_1024::Args {
        n_cols: 5000,
        ..args!(softmax_fp32_1024)
    };
    let child = unsafe { fork() };
    if child == 0 {
        let launched = unsafe { kernel.launch(&refused, stream()) };
        let is_right =
            launched == Err(Error::Forked) && kernel.image(&refused) == Err(Error::Forked);
        unsafe { _exit(if is_right { 0 } else { 1 }) };
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// A launch that was made has not failed because the thread cannot have its own device back.
fn lost_device() {
    set("device_count", 2);
    let library = Library::for_device(0).unwrap();
    let set_device: extern "C" fn(c_int) -> c_int =
        unsafe { std::mem::transmute(symbol(c"hipSetDevice")) };
    assert_eq!(set_device(1), 0);
    set("lost_device", 2);
    launch(&library, &args!(softmax_fp32_1024)).unwrap();
}

/// An hsaco of another GPU is noticed before a driver sees it.
fn other_machine() {
    let library = Library::for_device(0).unwrap();
    let error = launch(&library, &args!(damaged_fp32_1024)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image damaged_fp32_1024@gfx942 is not as it was built: its ELF header says architecture 79; build the crate anew"
    );
}

/// A primary context that was reset has the same handle, and is dead all the same.
fn reset_context() {
    let library = Library::for_device(0).unwrap();
    launch(&library, &args!(softmax_fp32_1024)).unwrap();
    for (resets, code) in [(0, 400), (1, 400), (1, 201), (0, 709)] {
        set("resets", resets);
        fail(Some(c"launch"), code);
        let error = launch(&library, &args!(softmax_fp32_1024)).unwrap_err();
        match error {
            Error::WrongContext { cause: Some(_) } => assert_eq!((resets, code), (0, 400)),
            Error::DeadContext { .. } => assert_ne!((resets, code), (0, 400)),
            other => panic!("{other:?}"),
        }
    }
}

/// The program's own word is not taken for that of the environment.
fn other_target() {
    let library = Library::options().target("sm_70").for_device(0).unwrap();
    let error = launch(&library, &args!(softmax_fp32_1024)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(", of which sm_70 alone is allowed, by the program or by KERNELS_TARGET"),
        "{error}"
    );
}

fn main() {
    run(&[
        ("arithmetic", arithmetic),
        ("copies", copies),
        ("forked", forked),
        ("lost_device", lost_device),
        ("other_machine", other_machine),
        ("other_target", other_target),
        ("profile_scratch", profile_scratch),
        ("reset_context", reset_context),
    ]);
}
