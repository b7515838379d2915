//! What the crate asks of a GPU's driver: opened at the first use, never linked. All that is unsafe about it is here.

mod cuda;
#[cfg(feature = "hip")]
mod hip;
mod load;

use core::ffi::c_void;
#[cfg(feature = "hip")]
use std::format;
#[cfg(feature = "hip")]
use std::string::String;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::vec::Vec;

use crate::device::{Device, Vendor};
use crate::error::{Error, Result};
use crate::image::Image;

pub(crate) use load::is_forked;

/// Where something is loaded: a context of CUDA; a device of HIP, whose handle is 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) ordinal: u32,
    /// Another context has another one, also under the same handle: that of a primary context stays when it is reset. 0
    /// where the driver does not say.
    pub(crate) id: u64,
}

/// What the driver has of an image, as addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Handles {
    pub(crate) module: usize,
    pub(crate) function: usize,
}

/// What launches of a loaded image need of it, side by side: its record is spread over several cache lines.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) image: &'static Image,
    pub(crate) function: usize,
    pub(crate) threads: u32,
    pub(crate) shared_dynamic: u32,
    pub(crate) parameter_bytes: usize,
    /// More than grid, blocks and shared memory is said of a launch: clusters, that it is cooperative, or what may precede
    /// it.
    pub(crate) has_attributes: bool,
    pub(crate) needs_scratch: bool,
}

impl Ready {
    pub(crate) fn new(image: &'static Image, function: usize) -> Self {
        Self {
            image,
            function,
            threads: image.threads,
            shared_dynamic: image.shared_dynamic,
            parameter_bytes: image.parameter_bytes,
            has_attributes: image.cluster != [1; 3] || image.cooperative || image.pdl,
            needs_scratch: (image.global_scratch_bytes | image.profile_scratch_bytes) != 0,
        }
    }
}

/// One launch, without its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) ready: Ready,
    /// In blocks.
    pub(crate) grid: [u32; 3],
    pub(crate) stream: *mut c_void,
}

/// Whose memory lies at an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Memory {
    /// None that the driver knows.
    Unknown,
    OfDevice(u32),
    /// The host's that the driver allocated or registered, or managed: every device reaches it.
    Shared,
}

/// A copy of bytes.
#[derive(Clone, Copy)]
pub(crate) enum Copying {
    ToDevice {
        to: u64,
        from: *const c_void,
        bytes: usize,
    },
    ToHost {
        to: *mut c_void,
        from: u64,
        bytes: usize,
    },
}

/// A driver that is open.
#[derive(Clone, Copy)]
pub(crate) enum Driver {
    Cuda(&'static cuda::Cuda),
    #[cfg(feature = "hip")]
    Hip(&'static hip::Hip),
}

/// Calls the same function of whichever driver it is.
macro_rules! ask {
    ($driver:expr, $open:ident => $call:expr) => {
        match $driver {
            Driver::Cuda($open) => $call,
            #[cfg(feature = "hip")]
            Driver::Hip($open) => $call,
        }
    };
}

/// One thread opens a driver at a time. A failure is not kept: the next one tries again.
static OPENING: Mutex<()> = Mutex::new(());
static CUDA: OnceLock<cuda::Cuda> = OnceLock::new();
#[cfg(feature = "hip")]
static HIP: OnceLock<hip::Hip> = OnceLock::new();

/// Whether a driver is open.
fn has_opened() -> bool {
    #[cfg(feature = "hip")]
    if HIP.get().is_some() {
        return true;
    }
    CUDA.get().is_some()
}

/// What `place` holds, which `open` makes at the first use.
fn opened<T>(place: &'static OnceLock<T>, open: impl FnOnce() -> Result<T>) -> Result<&'static T> {
    if is_forked() {
        return Err(Error::Forked);
    }
    if let Some(found) = place.get() {
        return Ok(found);
    }
    // Nothing is left half done behind this lock.
    let guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = place.get() {
        return Ok(found);
    }
    let made = load::watched(has_opened(), open)?;
    let kept = place.get_or_init(|| made);
    drop(guard);
    Ok(kept)
}

/// Why no driver is open: that of CUDA is not there, for a `reason`, and `other` is wrong with that of HIP.
#[cfg(feature = "hip")]
fn neither(library: &'static str, reason: String, other: Error) -> Error {
    match other {
        Error::DriverNotFound {
            library: second,
            reason: why,
        } => Error::DriverNotFound {
            library,
            reason: format!("{reason}; nor can {second}: {why}"),
        },
        other => other,
    }
}

impl Driver {
    /// The driver of a vendor; without one CUDA, and where that finds no GPU, HIP. Of two failures, that of CUDA, unless
    /// only the other's driver is there.
    pub(crate) fn open(vendor: Option<Vendor>) -> Result<Self> {
        if cfg!(feature = "disabled") {
            return Err(Error::Disabled);
        }
        match vendor {
            Some(Vendor::Nvidia) => Self::cuda(),
            Some(Vendor::Amd) => Self::hip(),
            None => Self::cuda().or_else(|error| match error {
                #[cfg(feature = "hip")]
                Error::DriverNotFound { library, reason } => {
                    Self::hip().map_err(|other| neither(library, reason, other))
                }
                Error::Driver { code, .. } if cuda::Cuda::is_without_device(code) => {
                    Self::hip().map_err(|_| error)
                }
                _ => Err(error),
            }),
        }
    }

    fn cuda() -> Result<Self> {
        opened(&CUDA, cuda::Cuda::open).map(Self::Cuda)
    }

    #[cfg(feature = "hip")]
    fn hip() -> Result<Self> {
        opened(&HIP, hip::Hip::open).map(Self::Hip)
    }

    #[cfg(not(feature = "hip"))]
    fn hip() -> Result<Self> {
        Err(Error::DriverNotFound {
            library: "libamdhip64.so",
            reason: "the crate was built without its feature `hip`".into(),
        })
    }

    pub(crate) fn count(self) -> u32 {
        ask!(self, driver => driver.count())
    }

    pub(crate) fn current(self) -> Result<Context> {
        ask!(self, driver => driver.current())
    }

    pub(crate) fn retain(self, ordinal: u32) -> Result<Context> {
        ask!(self, driver => driver.retain(ordinal))
    }

    pub(crate) fn release(self, ordinal: u32) {
        ask!(self, driver => driver.release(ordinal));
    }

    #[inline]
    pub(crate) fn within<R>(self, context: Context, run: impl FnOnce() -> Result<R>) -> Result<R> {
        if is_forked() {
            return Err(Error::Forked);
        }
        ask!(self, driver => driver.within(context, run))
    }

    pub(crate) fn describe(self, ordinal: u32) -> Result<Device> {
        ask!(self, driver => driver.describe(ordinal))
    }

    pub(crate) fn has_modules(self) -> bool {
        ask!(self, driver => driver.has_modules())
    }

    pub(crate) fn is_capturing(self, stream: *mut c_void) -> Result<bool> {
        ask!(self, driver => driver.is_capturing(stream))
    }

    pub(crate) fn load(self, image: &'static Image) -> Result<(Handles, Vec<u8>)> {
        ask!(self, driver => driver.load(image))
    }

    pub(crate) fn settle(self, handles: Handles) -> Result<()> {
        ask!(self, driver => driver.settle(handles))
    }

    pub(crate) fn unload(self, handles: Handles) {
        ask!(self, driver => driver.unload(handles));
    }

    /// # Safety
    ///
    /// As the `launch` of each driver.
    #[inline]
    pub(crate) unsafe fn launch(self, launch: &Launch, buffer: &mut [u8]) -> Result<()> {
        // SAFETY: the caller keeps the promises of both.
        unsafe { ask!(self, driver => driver.launch(launch, buffer)) }
    }

    pub(crate) fn allocate(self, bytes: usize) -> Result<u64> {
        ask!(self, driver => driver.allocate(bytes))
    }

    pub(crate) fn free(self, address: u64) {
        ask!(self, driver => driver.free(address));
    }

    pub(crate) fn memory_of(self, address: u64) -> Result<Memory> {
        ask!(self, driver => driver.memory_of(address))
    }

    pub(crate) fn copy(self, copy: Copying) -> Result<()> {
        ask!(self, driver => driver.copy(copy))
    }

    pub(crate) fn synchronize(self) -> Result<()> {
        ask!(self, driver => driver.synchronize())
    }
}
