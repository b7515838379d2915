//! cust's contexts, streams and memory as they are; its modules of images, and what its `launch!` takes.
//!
//! [`Library::from_cust`] makes a library of a context, a [`Stream`] comes `from` a stream, and a [`DevicePtr`] `from` a
//! pointer. [`module`] hands an image to cust; `launch!` takes a [`LaunchConfig`] as its grid and as its block.
//!
//! cust is linked to the driver's own library: a program with it needs `libcuda.so` to be built, and the driver to
//! start. The SDK of CUDA has one to link with, in `lib64/stubs`; `CUDA_LIBRARY_PATH` names the folder of the SDK.
#![allow(unsafe_code)]

use core::fmt::Write as _;
use core::mem::size_of;
use std::boxed::Box;
use std::format;
use std::string::String;

use ::cust::context::{Context, CurrentContext};
use ::cust::error::CudaError;
use ::cust::function::{BlockSize, GridSize};
use ::cust::memory::{bytemuck, mem_get_info, DeviceBuffer, DeviceCopy, DevicePointer};
use ::cust::module::Module;

use crate::adapters::SameBits;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::launch::LaunchConfig;
use crate::library::Library;
use crate::pointer::{
    DevicePtr, Element, Stream, BF16, F16, F8E4B15, F8E4B8, F8E4NV, F8E5, F8E5B16,
};

impl Library {
    /// A library in a context of cust, which becomes this thread's current one. It is its device's primary one, which
    /// the library keeps too.
    ///
    /// # Errors
    ///
    /// As [`Library::for_device`].
    pub fn from_cust(context: &Context) -> Result<Self> {
        CurrentContext::set_current(context)?;
        let device = CurrentContext::get_device()?;
        Self::for_device(device.as_raw().unsigned_abs())
    }
}

impl From<&::cust::stream::Stream> for Stream {
    fn from(stream: &::cust::stream::Stream) -> Self {
        Self::from_raw(stream.as_inner().cast())
    }
}

impl<E: Element, T: SameBits<E> + DeviceCopy> From<DevicePointer<T>> for DevicePtr<E> {
    fn from(pointer: DevicePointer<T>) -> Self {
        Self::new(pointer.as_raw())
    }
}

impl From<LaunchConfig> for GridSize {
    /// In blocks. A launch by `launch!` has no clusters and is not cooperative, for which [`LaunchConfig`] has to be asked.
    fn from(config: LaunchConfig) -> Self {
        let [x, y, z] = config.grid;
        Self::xyz(x, y, z)
    }
}

impl From<LaunchConfig> for BlockSize {
    fn from(config: LaunchConfig) -> Self {
        let [x, y, z] = config.block;
        Self::xyz(x, y, z)
    }
}

// SAFETY: it is an address as the device has it.
unsafe impl<T> DeviceCopy for DevicePtr<T> {}

macro_rules! elements_of_memory {
    ($($element:ty)*) => {
        $(
            // SAFETY: it is an integer's bits, and refers to nothing.
            unsafe impl DeviceCopy for $element {}
        )*
    };
}

elements_of_memory! { F16 BF16 F8E4NV F8E4B8 F8E4B15 F8E5 F8E5B16 }

impl From<CudaError> for Error {
    /// An error of a call that cust made.
    fn from(error: CudaError) -> Self {
        let mut text = String::new();
        // What the driver has no words for is no text: `to_string` would panic.
        let _ = write!(text, "{error}");
        Self::Driver {
            code: error as i32,
            call: "cust",
            name: format!("{error:?}"),
            text,
        }
    }
}

/// A buffer of zeros in the current context, as `DeviceBuffer::zeroed` gives it.
///
/// # Errors
///
/// [`Error::OutOfMemory`] with what was asked for and what there is; [`Error::Driver`] for anything else.
pub fn zeroed<T: DeviceCopy + bytemuck::Zeroable>(len: usize) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::zeroed(len).map_err(|error| match error {
        // The other one is cust's own, for a size that does not fit into 64 bits.
        CudaError::OutOfMemory | CudaError::InvalidMemoryAllocation => Error::OutOfMemory {
            requested: len.saturating_mul(size_of::<T>()) as u64,
            available: mem_get_info().ok().map(|(free, _)| free as u64),
            cause: Box::new(error.into()),
        },
        _ => Error::from(error),
    })
}

/// An image, PTX or machine code, as a module of the current context.
///
/// # Errors
///
/// [`Error::Load`] with what the driver says.
pub fn module(image: &Image) -> Result<Module> {
    let loaded = match image.ptx() {
        Some(text) => Module::from_ptx_cstr(text, &[]),
        None => Module::from_cubin(image.bytes, &[]),
    };
    loaded.map_err(|error| Error::Load {
        image: image.id,
        cause: Box::new(error.into()),
    })
}
