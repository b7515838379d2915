//! What can go wrong: each error says what to do, and `source` leads to what lies behind it.

use core::fmt;
#[cfg(feature = "driver")]
use std::boxed::Box;
#[cfg(feature = "std")]
use std::string::String;

use crate::device::{Architecture, Release};
use crate::extent::SizeError;
use crate::image::Image;
use crate::launch::GridError;
use crate::refused::Values;
use crate::select::Refusal;
use crate::tables::TARGET_VARIABLE;

/// What this crate's functions return.
pub type Result<T> = core::result::Result<T, Error>;

/// Why something did not work. Fields are named; match them with `..`, for more may come.
///
/// It prints with `{:?}` as with `{}`, and what lies behind it on the lines below: so people read what to do when `main`
/// returns it, too.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The feature `disabled` is on: the crate holds no kernel and asks no driver.
    Disabled,
    /// The library of the driver could not be opened.
    #[cfg(feature = "driver")]
    DriverNotFound {
        /// Its file name: `libcuda.so.1`.
        library: &'static str,
        /// What the system's loader says.
        reason: String,
    },
    /// The driver lacks a function that is needed.
    #[cfg(feature = "driver")]
    SymbolMissing {
        /// The driver's library.
        library: &'static str,
        /// The function.
        symbol: &'static str,
        /// What brought it: `CUDA 11.0`.
        since: &'static str,
    },
    /// The driver is older than what it is asked for.
    DriverTooOld {
        /// The image that it cannot take.
        image: &'static str,
        /// The oldest release of CUDA that can; `None`: newer than what it has, and only the driver knows more.
        need: Option<Release>,
        /// The release of CUDA that it is of.
        have: Release,
    },
    /// There is no such device.
    #[cfg(feature = "driver")]
    NoDevice {
        /// What was asked for.
        ordinal: u32,
        /// How many devices the driver shows.
        count: u32,
    },
    /// A function of the driver failed.
    #[cfg(feature = "driver")]
    Driver {
        /// The driver's number.
        code: i32,
        /// The function: `cuCtxGetCurrent`.
        call: &'static str,
        /// The driver's name of the number: `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The driver's sentence.
        text: String,
    },
    /// The device has no memory left for what was asked.
    #[cfg(feature = "driver")]
    OutOfMemory {
        /// Bytes that were asked for; of an image its size, for what the driver makes of it is not known.
        requested: u64,
        /// Bytes that the device had left right after; `None` where the driver does not say.
        available: Option<u64>,
        /// What the driver says.
        cause: Box<Error>,
    },
    /// No image of the variant is for the device.
    NoCompatibleImage {
        /// The variant.
        variant: &'static str,
        /// The device's architecture.
        device: Architecture,
        /// The images that there are, in this build.
        built: &'static [&'static Image],
        /// The target that is allowed alone.
        only: Option<&'static str>,
    },
    /// An image is for the device's architecture, and something else stands against it.
    Unsuitable {
        /// The image.
        image: &'static str,
        /// The device's architecture.
        device: Architecture,
        /// What stands against it.
        refusal: Refusal,
    },
    /// An image is not what it should be: it was changed after it was built, or the driver cannot read it.
    InvalidImage {
        /// The image.
        image: &'static str,
        /// What is wrong.
        flaw: Flaw,
    },
    /// The driver did not load an image, for a reason that is not the image's.
    #[cfg(feature = "driver")]
    Load {
        /// The image.
        image: &'static str,
        /// What the driver says.
        cause: Box<Error>,
    },
    /// The driver did not launch.
    #[cfg(feature = "driver")]
    Launch {
        /// The image.
        image: &'static str,
        /// What the driver says. It may come from earlier work.
        cause: Box<Error>,
    },
    /// The kernel cannot compute what the arguments describe.
    NotSelected {
        /// The group, where it was launched and none of its variants serves the call.
        group: Option<&'static str>,
        /// The variant; of several, the one that comes nearest.
        variant: &'static str,
        /// What has to hold.
        condition: &'static str,
        /// What that depends on, as it is in this call.
        values: Values,
    },
    /// An address breaks a promise of the signature.
    Misaligned {
        /// The variant.
        variant: &'static str,
        /// The argument.
        argument: &'static str,
        /// The address must be a multiple of this.
        need: u32,
        /// The address.
        got: u64,
    },
    /// A value breaks a promise of the signature.
    Specialization {
        /// The variant.
        variant: &'static str,
        /// The argument.
        argument: &'static str,
        /// The value must be a multiple of this, or 1 where this is 1.
        need: u32,
        /// The value.
        got: i128,
    },
    /// The arguments ask for a grid that no launch can have.
    Grid {
        /// The variant.
        variant: &'static str,
        /// What is wrong with it.
        error: GridError,
    },
    /// A slice is shorter than the tensor that the arguments describe.
    SliceTooShort {
        /// The argument.
        argument: &'static str,
        /// Elements that the kernel may touch.
        need: u64,
        /// Elements of the slice.
        got: u64,
    },
    /// The arguments describe a tensor that cannot be: an extent or a stride is negative, or it has too many elements.
    TensorSize {
        /// The tensor; or the argument that is too large for a size.
        argument: &'static str,
        /// What is wrong.
        why: SizeError,
    },
    /// A slice or the stream lies in another context than the library.
    OtherContext {
        /// The argument; `stream` for the stream.
        argument: &'static str,
    },
    /// A launch on slices that is safe, on a stream that is capturing.
    #[cfg(feature = "cudarc")]
    UnsafeCapture,
    /// An image, or a variant, is none of the kernel's.
    NotOfKernel {
        /// The image or the variant.
        name: &'static str,
        /// The group or variants whose arguments were given.
        kernel: &'static str,
    },
    /// The image wants scratch memory, and there is none.
    ScratchNeeded {
        /// The image.
        image: &'static str,
        /// How many bytes.
        bytes: u64,
    },
    /// The allocator of scratch memory gave none.
    ScratchFailed {
        /// The image.
        image: &'static str,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// No context is current, or something belongs to another context than the library.
    #[cfg(feature = "driver")]
    WrongContext {
        /// What the driver says; `None` where it was not asked.
        cause: Option<Box<Error>>,
    },
    /// The context that the library was loaded in has been destroyed.
    #[cfg(feature = "driver")]
    DeadContext {
        /// What the driver says.
        cause: Box<Error>,
    },
    /// This process was forked from one that had used the driver, and cannot use it.
    #[cfg(feature = "driver")]
    Forked,
    /// An image would have to be loaded while a stream is capturing, which this driver cannot.
    #[cfg(feature = "driver")]
    Capturing {
        /// The image.
        image: &'static str,
    },
    /// An address is no memory that the device can reach; it is looked at where [`Checks`](crate::Checks) are on.
    #[cfg(feature = "driver")]
    BadPointer {
        /// The variant.
        variant: &'static str,
        /// The argument.
        argument: &'static str,
        /// The address.
        address: u64,
        /// What is wrong with it.
        why: BadPointer,
    },
    /// A file of choices cannot be read.
    #[cfg(feature = "std")]
    Choices {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
}

/// What is wrong with an address.
#[cfg(feature = "driver")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BadPointer {
    /// It is null.
    Null,
    /// The driver knows no memory there: it is the host's, or was freed.
    Unknown,
    /// It is memory of another device.
    OtherDevice {
        /// The one that it is of.
        device: u32,
        /// The library's.
        own: u32,
    },
}

#[cfg(feature = "driver")]
impl fmt::Display for BadPointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null, which these checks refuse"),
            Self::Unknown => formatter.write_str(
                "memory that the driver does not know: the host's, or freed; give memory of the device",
            ),
            Self::OtherDevice { device, own } => write!(
                formatter,
                "memory of device {device}, and the launch is on device {own}"
            ),
        }
    }
}

/// What is wrong with an image.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Flaw {
    /// It is no ELF file.
    Magic,
    /// It is no ELF file of 64 bits, least significant byte first.
    Class,
    /// It is machine code of something else: the number stands in the ELF header.
    Machine {
        /// The number that it has to be.
        expected: u16,
        /// The number that it is.
        found: u16,
    },
    /// It is built for another architecture than its record says.
    Architecture {
        /// The compute capability, or AMD's number of the machine, that its header says.
        found: u32,
    },
    /// It is PTX without a `.version`, or with another one than its record says.
    PtxVersion,
    /// It is PTX without a `.target`, or with another one than its record says.
    PtxTarget,
    /// Its bytes have another SHA-256 than its record says.
    Digest,
    /// The driver cannot read it.
    #[cfg(feature = "driver")]
    Refused {
        /// What the compiler in the driver says; of machine code nothing.
        log: String,
        /// What the driver says.
        cause: Box<Error>,
    },
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => formatter.write_str("it is no ELF file"),
            Self::Class => formatter.write_str("it is no ELF file of 64 bits, little-endian"),
            Self::Machine { expected, found } => {
                write!(
                    formatter,
                    "its ELF header says machine {found}, not {expected}"
                )
            }
            Self::Architecture { found } => {
                write!(formatter, "its ELF header says architecture {found}")
            }
            Self::PtxVersion => formatter.write_str("its .version is not that of its record"),
            Self::PtxTarget => formatter.write_str("its .target is not that of its record"),
            Self::Digest => formatter.write_str("its bytes do not have the SHA-256 of its record"),
            #[cfg(feature = "driver")]
            Self::Refused { log, cause } if log.is_empty() => write!(formatter, "{cause}"),
            #[cfg(feature = "driver")]
            Self::Refused { log, cause } => write!(formatter, "{cause}:\n{log}"),
        }
    }
}

/// Errors that stay: the context is lost, and each call from then on reports the same. CUDA and HIP share the numbers.
#[cfg(feature = "driver")]
const fn is_lasting(code: i32) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=721 | 999)
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => formatter.write_str(
                "the crate was built with its feature `disabled`, and has no kernels; build it without that feature",
            ),
            #[cfg(feature = "driver")]
            Self::DriverNotFound { library, reason } => write!(
                formatter,
                "no driver of a GPU was found: {library} cannot be opened ({reason}); install the GPU's driver, or name its folder in LD_LIBRARY_PATH"
            ),
            #[cfg(feature = "driver")]
            Self::SymbolMissing {
                library,
                symbol,
                since,
            } => write!(
                formatter,
                "{library} lacks the function {symbol}, which drivers have since {since}; update the driver"
            ),
            Self::DriverTooOld {
                image,
                need: Some(need),
                have,
            } => write!(
                formatter,
                "{image} needs a driver of CUDA {need}, and this one is of CUDA {have}; update the driver, or build for the device's own architecture"
            ),
            Self::DriverTooOld {
                image,
                need: None,
                have,
            } => write!(
                formatter,
                "{image} needs a newer driver than this one of CUDA {have}; update the driver, or build for the device's own architecture"
            ),
            #[cfg(feature = "driver")]
            Self::NoDevice { ordinal, count } => write!(
                formatter,
                "there is no device {ordinal}: the driver shows {count}; see CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES"
            ),
            #[cfg(feature = "driver")]
            Self::Driver {
                code,
                call,
                name,
                text,
            } => {
                write!(formatter, "{name} ({code}, {text}) of {call}")?;
                if is_lasting(*code) {
                    formatter.write_str(
                        "; this may come from earlier work, since such an error stays until the process ends",
                    )?;
                }
                Ok(())
            }
            #[cfg(feature = "driver")]
            Self::OutOfMemory {
                requested,
                available,
                ..
            } => {
                write!(formatter, "the device has no memory left for {requested} bytes")?;
                if let Some(available) = available {
                    write!(formatter, ": {available} are free")?;
                }
                formatter.write_str("; free some, or ask for less")
            }
            Self::NoCompatibleImage {
                variant,
                device,
                built,
                only,
            } => {
                write!(formatter, "no image of {variant} is for a device of {device}; it is built for ")?;
                for (index, image) in built.iter().enumerate() {
                    write!(formatter, "{}{}", if index > 0 { ", " } else { "" }, image.target)?;
                }
                match (built.is_empty(), only) {
                    (true, _) => formatter.write_str("no target in this build: turn on the features of targets"),
                    (_, Some(only)) => write!(
                        formatter,
                        ", of which {only} alone is allowed, by the program or by {TARGET_VARIABLE}"
                    ),
                    _ => formatter.write_str(
                        "; turn on the feature of the device's target, or add the target to kernels.yaml",
                    ),
                }
            }
            Self::Unsuitable {
                image,
                device,
                refusal,
            } => write!(formatter, "{image} on a device of {device}: {refusal}"),
            Self::InvalidImage { image, flaw } => write!(
                formatter,
                "the image {image} is not as it was built: {flaw}; build the crate anew"
            ),
            #[cfg(feature = "driver")]
            Self::Load { image, .. } => write!(formatter, "the driver did not load {image}"),
            #[cfg(feature = "driver")]
            Self::Launch { image, .. } => write!(formatter, "the driver did not launch {image}"),
            Self::NotSelected {
                group: Some(group),
                variant,
                condition,
                values,
            } => write!(
                formatter,
                "no variant of the group {group} serves the call; the nearest, {variant}, serves one when {condition}, and here {values}"
            ),
            Self::NotSelected {
                group: None,
                variant,
                condition,
                values,
            } => write!(
                formatter,
                "{variant} serves a call when {condition}, and here {values}"
            ),
            Self::Misaligned {
                variant,
                argument,
                need,
                got,
            } => write!(
                formatter,
                "the address {argument} of {variant} is {got:#x}, which is not a multiple of {need} bytes"
            ),
            Self::Specialization {
                variant,
                argument,
                need: 1,
                got,
            } => write!(formatter, "{argument} of {variant} is {got}, and has to be 1"),
            Self::Specialization {
                variant,
                argument,
                need,
                got,
            } => write!(
                formatter,
                "{argument} of {variant} is {got}, which is not a multiple of {need}"
            ),
            Self::Grid { variant, error } => write!(formatter, "{variant}: {error}"),
            Self::SliceTooShort {
                argument,
                need,
                got,
            } => write!(
                formatter,
                "the slice {argument} has {got} elements, and the arguments describe a tensor of {need}"
            ),
            Self::TensorSize { argument, why } => {
                write!(formatter, "the arguments describe no tensor {argument}: {why}")
            }
            Self::OtherContext { argument } => write!(
                formatter,
                "{argument} lies in another context than the library; open a library in that context, or use slices and streams of the library's own"
            ),
            #[cfg(feature = "cudarc")]
            Self::UnsafeCapture => formatter.write_str(
                "the stream is capturing, and a graph does not keep slices and library alive; launch by Kernel::launch, which is unsafe, on the addresses of the slices",
            ),
            Self::NotOfKernel { name, kernel } => {
                write!(formatter, "{name} is none of {kernel}, whose arguments were given")
            }
            Self::ScratchNeeded { image, bytes } => write!(
                formatter,
                "{image} needs {bytes} bytes of scratch memory; give the library an allocator of such memory"
            ),
            Self::ScratchFailed { image, bytes } => write!(
                formatter,
                "the allocator of scratch memory gave no {bytes} bytes for {image}"
            ),
            #[cfg(feature = "driver")]
            Self::WrongContext { cause: None } => formatter.write_str(
                "no context is current in this thread; make one current, or use Library::for_device",
            ),
            #[cfg(feature = "driver")]
            Self::WrongContext { cause: Some(_) } => formatter.write_str(
                "a stream or the library belongs to another context; use streams of the library's own context",
            ),
            #[cfg(feature = "driver")]
            Self::DeadContext { .. } => formatter.write_str(
                "the context that the library was loaded in has been destroyed; make the library anew",
            ),
            #[cfg(feature = "driver")]
            Self::Forked => formatter.write_str(
                "this process was forked from one that had used the driver; start it with exec, or fork before the first use",
            ),
            #[cfg(feature = "driver")]
            Self::Capturing { image } => write!(
                formatter,
                "{image} is not loaded yet, and its stream is capturing; preload it before the capture"
            ),
            #[cfg(feature = "driver")]
            Self::BadPointer {
                variant,
                argument,
                address,
                why,
            } => write!(formatter, "{argument} of {variant} is {address:#x}, {why}"),
            #[cfg(feature = "std")]
            Self::Choices { path, reason } => write!(formatter, "{path}: {reason}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)?;
        match self {
            // Their text has that of what lies behind them.
            Self::Grid { .. } | Self::Unsuitable { .. } | Self::InvalidImage { .. } => Ok(()),
            _ => core::error::Error::source(self).map_or(Ok(()), |cause| {
                write!(formatter, "\n  caused by: {cause:?}")
            }),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Grid { error, .. } => Some(error),
            Self::Unsuitable { refusal, .. } => Some(refusal),
            Self::InvalidImage { flaw, .. } => Some(flaw),
            #[cfg(feature = "driver")]
            Self::OutOfMemory { cause, .. }
            | Self::Load { cause, .. }
            | Self::Launch { cause, .. }
            | Self::WrongContext { cause: Some(cause) }
            | Self::DeadContext { cause } => Some(&**cause),
            _ => None,
        }
    }
}

impl core::error::Error for Flaw {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            #[cfg(feature = "driver")]
            Self::Refused { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

impl core::error::Error for Refusal {}

impl core::error::Error for GridError {}
