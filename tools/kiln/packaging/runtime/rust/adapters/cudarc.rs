//! cudarc's contexts, streams and slices as they are: launches on them, with or without `unsafe`.
//!
//! [`Library::from_cudarc`] makes a library of a context, and a [`Stream`] comes `from` a stream. A `SliceArgs`, which
//! the modules of variants and groups have beside `Args`, takes slices in place of addresses and checks how long they
//! are; [`address`] and [`address_mut`] give addresses for an `Args`.
//!
//! Which functions of the driver cudarc knows, and how it finds the driver, stays the program's choice: it depends on
//! cudarc itself, and names one of its `cuda-*` features. Where it names no way to the driver, cudarc opens it when the
//! program runs, and nothing of CUDA is needed to build.
#![allow(unsafe_code)]

use core::ffi::CStr;
use core::mem::size_of;
use std::boxed::Box;
use std::string::String;
use std::sync::Arc;

use ::cudarc::driver::result;
use ::cudarc::driver::sys::{CUresult, CUstream};
use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr as _, DevicePtrMut as _,
    DeviceRepr, DeviceSlice as _, DriverError, SyncOnDrop, ValidAsZeroBits,
};

use crate::adapters::SameBits;
use crate::device::Vendor;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::launch::LaunchConfig;
use crate::library::{Library, LibraryOptions, ScratchAllocator};
use crate::pointer::{
    DevicePtr, Element, Stream, BF16, F16, F8E4B15, F8E4B8, F8E4NV, F8E5, F8E5B16,
};

macro_rules! elements_of_slices {
    ($($element:ty)*) => {
        $(
            // SAFETY: it is an integer's bits, and refers to nothing.
            unsafe impl DeviceRepr for $element {}
            // SAFETY: each pattern of bits is a value.
            unsafe impl ValidAsZeroBits for $element {}
        )*
    };
}

elements_of_slices! { F16 BF16 F8E4NV F8E4B8 F8E4B15 F8E5 F8E5B16 }

// SAFETY: it is an address as the driver takes it.
unsafe impl<T> DeviceRepr for DevicePtr<T> {}

impl Library {
    /// A library in a context of cudarc, which it keeps; scratch memory is the context's [`StreamOrdered`].
    ///
    /// # Errors
    ///
    /// As [`Library::for_current_context`].
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        let scratch = StreamOrdered::new(context);
        Self::options().scratch(scratch).for_cudarc(context)
    }
}

impl LibraryOptions {
    /// Opens the library in a context of cudarc, and keeps that.
    ///
    /// # Errors
    ///
    /// As [`Library::for_current_context`].
    pub fn for_cudarc(self, context: &Arc<CudaContext>) -> Result<Library> {
        let handle = context.cu_ctx().cast();
        // SAFETY: the handle is the context's, which destroys or releases it when its last owner is dropped.
        unsafe { self.for_raw_context(handle, Arc::clone(context)) }
    }
}

/// Scratch memory that is allocated and freed in the order of the launch's stream, by `cuMemAllocAsync`.
#[derive(Clone, Debug)]
pub struct StreamOrdered {
    context: Arc<CudaContext>,
}

impl StreamOrdered {
    /// On the device of a context.
    #[must_use]
    pub fn new(context: &Arc<CudaContext>) -> Self {
        let context = Arc::clone(context);
        Self { context }
    }
}

/// What the driver aligns memory to, at least (NVIDIA, "CUDA C++ Programming Guide", "Device Memory Accesses").
const ALIGNMENT: u64 = 256;

// SAFETY: the memory is the driver's, in the order of the stream.
unsafe impl ScratchAllocator for StreamOrdered {
    fn allocate(&self, bytes: u64, align: u64, stream: Stream) -> Option<u64> {
        let bytes = usize::try_from(bytes).ok()?;
        if !self.context.has_async_alloc() || align > ALIGNMENT {
            return None;
        }
        self.context.bind_to_thread().ok()?;
        // SAFETY: the stream is one of the context, as whoever launches on it promises.
        unsafe { result::malloc_async(stream.as_raw() as CUstream, bytes) }.ok()
    }

    fn release(&self, address: u64, stream: Stream) {
        // SAFETY: the address is one of `allocate`, and the stream is the same.
        let freed = unsafe { result::free_async(address, stream.as_raw() as CUstream) };
        self.context.record_err(freed);
    }
}

impl From<&CudaStream> for Stream {
    fn from(stream: &CudaStream) -> Self {
        Self::from_raw(stream.cu_stream().cast())
    }
}

impl From<&Arc<CudaStream>> for Stream {
    fn from(stream: &Arc<CudaStream>) -> Self {
        Self::from(&**stream)
    }
}

/// For whoever launches an image by cudarc's own `launch_builder`. It has no word for clusters, cooperative launches and
/// programmatic dependent launch, for which [`LaunchConfig`] has to be asked.
impl From<LaunchConfig> for ::cudarc::driver::LaunchConfig {
    fn from(config: LaunchConfig) -> Self {
        Self {
            grid_dim: config.grid.into(),
            block_dim: config.block.into(),
            shared_mem_bytes: config.shared_dynamic,
        }
    }
}

impl From<DriverError> for Error {
    /// An error of a call that cudarc made.
    fn from(error: DriverError) -> Self {
        driver_error("cudarc", error)
    }
}

fn driver_error(call: &'static str, error: DriverError) -> Error {
    let said = |text: core::result::Result<&CStr, DriverError>| {
        text.map_or_else(
            |_| String::new(),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    Error::Driver {
        code: error.0 as i32,
        call,
        name: said(error.error_name()),
        text: said(error.error_string()),
    }
}

/// The primary context of a device, as `CudaContext::new` gives it, which panics where there is no driver.
///
/// # Errors
///
/// [`Error::DriverNotFound`] where there is no driver; [`Error::Driver`] for what the driver says.
pub fn context(ordinal: usize) -> Result<Arc<CudaContext>> {
    Driver::open(Some(Vendor::Nvidia))?;
    Ok(CudaContext::new(ordinal)?)
}

/// A slice of zeros, as `CudaStream::alloc_zeros` gives it.
///
/// # Errors
///
/// [`Error::OutOfMemory`] with what was asked for and what there is; [`Error::Driver`] for anything else.
pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    len: usize,
) -> Result<CudaSlice<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    // cudarc multiplies the same, without a look at what comes of it.
    let made = if isize::try_from(bytes).is_ok() {
        stream.alloc_zeros(len)
    } else {
        Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY))
    };
    made.map_err(|error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory {
            requested: bytes as u64,
            available: stream
                .context()
                .mem_get_info()
                .ok()
                .map(|(free, _)| free as u64),
            cause: Box::new(driver_error("cuMemAllocAsync", error)),
        },
        _ => Error::from(error),
    })
}

/// The address of a slice that a launch on `stream` reads, for an `Args`.
///
/// Where cudarc keeps streams in order, the launch waits for what other streams write to the slice; the guard has to be
/// dropped after the launch, and what is written then waits for it.
pub fn address<'a, E: Element, T: SameBits<E>>(
    slice: &'a impl ::cudarc::driver::DevicePtr<T>,
    stream: &'a CudaStream,
) -> (DevicePtr<E>, SyncOnDrop<'a>) {
    let (address, guard) = slice.device_ptr(stream);
    (DevicePtr::new(address), guard)
}

/// The address of a slice that a launch on `stream` writes, for an `Args`: as [`address`], and the launch waits for what
/// other streams read too.
pub fn address_mut<'a, E: Element, T: SameBits<E>>(
    slice: &'a mut impl ::cudarc::driver::DevicePtrMut<T>,
    stream: &'a CudaStream,
) -> (DevicePtr<E>, SyncOnDrop<'a>) {
    let (address, guard) = slice.device_ptr_mut(stream);
    (DevicePtr::new(address), guard)
}

/// A slice for a `SliceArgs`, by `from`: a `&` of what the kernel only reads. Where kernels.yaml does not say under
/// `outputs` what it writes, also a `&mut` of that.
#[derive(Debug)]
pub struct Operand<'a, E> {
    slice: Slice<'a, E>,
}

/// `None` stands for no element: cudarc looks at sizes when it gives a view another type, and these are the same.
#[derive(Debug)]
enum Slice<'a, E> {
    Read(Option<CudaView<'a, E>>),
    Written(Option<CudaViewMut<'a, E>>),
}

impl<'a, E: Element, T: SameBits<E>> From<CudaView<'a, T>> for Operand<'a, E> {
    fn from(view: CudaView<'a, T>) -> Self {
        // SAFETY: the values of both types have the same bits.
        let slice = Slice::Read(unsafe { view.transmute(view.len()) });
        Self { slice }
    }
}

impl<'a, E: Element, T: SameBits<E>> From<&CudaView<'a, T>> for Operand<'a, E> {
    fn from(view: &CudaView<'a, T>) -> Self {
        // SAFETY: the values of both types have the same bits.
        let slice = Slice::Read(unsafe { view.transmute(view.len()) });
        Self { slice }
    }
}

impl<'a, E: Element, T: SameBits<E>> From<&'a CudaSlice<T>> for Operand<'a, E> {
    fn from(slice: &'a CudaSlice<T>) -> Self {
        Self::from(slice.as_view())
    }
}

impl<'a, E: Element, T: SameBits<E>> From<&'a mut CudaViewMut<'_, T>> for Operand<'a, E> {
    fn from(view: &'a mut CudaViewMut<'_, T>) -> Self {
        let len = view.len();
        // SAFETY: the values of both types have the same bits.
        let slice = Slice::Written(unsafe { view.transmute_mut(len) });
        Self { slice }
    }
}

impl<'a, E: Element, T: SameBits<E>> From<&'a mut CudaSlice<T>> for Operand<'a, E> {
    fn from(slice: &'a mut CudaSlice<T>) -> Self {
        let len = slice.len();
        // SAFETY: the values of both types have the same bits.
        let slice = Slice::Written(unsafe { slice.transmute_mut(len) });
        Self { slice }
    }
}

// Unused where no kernel declares the shapes of its tensors.
#[allow(dead_code)]
impl<E: Element> Operand<'_, E> {
    /// That it has as many elements as a launch may touch, and lies in the stream's context.
    pub(crate) fn check(&self, argument: &'static str, need: u64, on: &CudaStream) -> Result<()> {
        let (len, stream) = match &self.slice {
            Slice::Read(view) => view.as_ref().map(|view| (view.len(), view.stream())),
            Slice::Written(view) => view.as_ref().map(|view| (view.len(), view.stream())),
        }
        .map_or((0, None), |(len, stream)| (len as u64, Some(stream)));
        if stream.is_some_and(|stream| stream.context() != on.context()) {
            return Err(Error::OtherContext { argument });
        }
        if len < need {
            return Err(Error::SliceTooShort {
                argument,
                need,
                got: len,
            });
        }
        Ok(())
    }

    /// As [`address`] and [`address_mut`].
    pub(crate) fn bind<'b>(
        &'b mut self,
        stream: &'b CudaStream,
    ) -> (DevicePtr<E>, Option<SyncOnDrop<'b>>) {
        let bound = match &mut self.slice {
            Slice::Read(view) => view.as_ref().map(|view| view.device_ptr(stream)),
            Slice::Written(view) => view.as_mut().map(|view| view.device_ptr_mut(stream)),
        };
        bound.map_or((DevicePtr::NULL, None), |(address, guard)| {
            (DevicePtr::new(address), Some(guard))
        })
    }
}

/// A slice for a `SliceArgs` that the kernel writes, by `from` a `&mut`.
#[derive(Debug)]
pub struct OperandMut<'a, E> {
    operand: Operand<'a, E>,
}

impl<'a, E: Element, T: SameBits<E>> From<&'a mut CudaViewMut<'_, T>> for OperandMut<'a, E> {
    fn from(view: &'a mut CudaViewMut<'_, T>) -> Self {
        let operand = Operand::from(view);
        Self { operand }
    }
}

impl<'a, E: Element, T: SameBits<E>> From<&'a mut CudaSlice<T>> for OperandMut<'a, E> {
    fn from(slice: &'a mut CudaSlice<T>) -> Self {
        let operand = Operand::from(slice);
        Self { operand }
    }
}

// Unused where no kernel says what it writes.
#[allow(dead_code)]
impl<E: Element> OperandMut<'_, E> {
    /// As that of [`Operand`].
    pub(crate) fn check(&self, argument: &'static str, need: u64, on: &CudaStream) -> Result<()> {
        self.operand.check(argument, need, on)
    }

    /// As [`address_mut`].
    pub(crate) fn bind<'b>(
        &'b mut self,
        stream: &'b CudaStream,
    ) -> (DevicePtr<E>, Option<SyncOnDrop<'b>>) {
        self.operand.bind(stream)
    }
}

// Unused, as what is below, where no kernel declares the shapes of its tensors.
#[allow(dead_code)]
/// That a library is of a stream's context, which becomes the current one of this thread.
pub(crate) fn enter(library: &Library, stream: &CudaStream) -> Result<()> {
    if library.raw_context() != stream.context().cu_ctx().cast() {
        return Err(Error::OtherContext { argument: "stream" });
    }
    Ok(stream.context().bind_to_thread()?)
}

#[allow(dead_code)]
/// That a stream is not capturing: a graph would keep neither the slices nor the library alive.
pub(crate) fn refuse_capture(library: &Library, stream: &CudaStream) -> Result<()> {
    match library
        .inner
        .driver
        .is_capturing(stream.cu_stream().cast())?
    {
        true => Err(Error::UnsafeCapture),
        false => Ok(()),
    }
}
