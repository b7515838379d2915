//! Device memory for programs that have no other crate for it.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use std::vec::Vec;

use crate::driver::{is_forked, Copying};
use crate::error::Result;
use crate::library::Library;
use crate::pointer::{DevicePtr, Element};

/// `len` elements of device memory in a library's context. Dropping it gives the memory back, when the kernels that use it
/// are done: that waits for the device.
#[derive(Debug)]
pub struct DeviceBuffer<T: Element> {
    library: Library,
    address: u64,
    len: usize,
    elements: PhantomData<fn(T) -> T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Memory for as many elements; what it holds is not known.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or what the driver says.
    pub fn new(library: &Library, len: usize) -> Result<Self> {
        let driver = library.inner.driver;
        // Drivers refuse to allocate nothing.
        let bytes = len.saturating_mul(core::mem::size_of::<T>()).max(1);
        let address = driver.within(library.inner.context, || driver.allocate(bytes))?;
        Ok(Self {
            library: library.clone(),
            address,
            len,
            elements: PhantomData,
        })
    }

    /// Memory that holds a copy of some elements.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::new`].
    pub fn from_slice(library: &Library, elements: &[T]) -> Result<Self> {
        let buffer = Self::new(library, elements.len())?;
        let copy = Copying::ToDevice {
            to: buffer.address,
            from: elements.as_ptr().cast(),
            bytes: core::mem::size_of_val(elements),
        };
        buffer.copy(copy)?;
        // From memory that the driver has not pinned the copy may go on behind the call, and streams that do not wait for
        // the default one would not wait for it.
        library.synchronize()?;
        Ok(buffer)
    }

    /// A copy of what it holds, when everything in the library's context is done.
    ///
    /// # Errors
    ///
    /// What the driver says, which may come from any earlier launch.
    ///
    /// # Safety
    ///
    /// All of it was written, by a kernel or by a copy, and holds values of its type.
    pub unsafe fn to_vec(&self) -> Result<Vec<T>> {
        self.library.synchronize()?;
        let mut elements = Vec::<T>::with_capacity(self.len);
        let copy = Copying::ToHost {
            to: elements.as_mut_ptr().cast(),
            from: self.address,
            bytes: self.len.saturating_mul(core::mem::size_of::<T>()),
        };
        self.copy(copy)?;
        // SAFETY: the driver has written them all, and the caller says that they are of the type.
        unsafe { elements.set_len(self.len) };
        Ok(elements)
    }

    fn copy(&self, copy: Copying) -> Result<()> {
        let driver = self.library.inner.driver;
        if self.len == 0 {
            return Ok(());
        }
        driver.within(self.library.inner.context, || driver.copy(copy))
    }

    /// Its address.
    #[must_use]
    pub const fn device_ptr(&self) -> DevicePtr<T> {
        DevicePtr::new(self.address)
    }

    /// How many elements it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        let driver = self.library.inner.driver;
        let free = || {
            driver.free(self.address);
            Ok(())
        };
        // A context that is gone has freed it.
        let _: Result<()> = driver.within(self.library.inner.context, free);
    }
}
