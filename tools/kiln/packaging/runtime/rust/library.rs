//! A library of kernels on one device: what is loaded of it, for as long as anybody uses it.

use core::ffi::c_void;
use core::fmt;
use std::any::Any;
use std::boxed::Box;
use std::collections::HashMap;
use std::string::String;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::vec::Vec;

use crate::choices::Choices;
use crate::device::{Device, Vendor};
use crate::driver::{is_forked, Context, Driver, Handles};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::params::{image_for, KernelParams};
use crate::pointer::Stream;
use crate::pointer_checks::Checks;
use crate::select::Selection;
use crate::tables::{TARGETS, TARGET_VARIABLE, VARIANTS};
use crate::variant::Variant;

/// Who gives scratch memory to kernels that want it.
///
/// Both functions are called by the launching thread around the launch: `release` comes right behind it, while the kernel
/// may not have begun, so memory has to go back in the stream's order, as with `cuMemFreeAsync`.
///
/// # Safety
///
/// Kernels write to what `allocate` returns: it is memory on the library's device, of as many bytes, and nobody else's until
/// the stream has passed its `release`.
#[allow(unsafe_code)]
pub unsafe trait ScratchAllocator: Send + Sync {
    /// The address of `bytes` bytes on the library's device, a multiple of `align`; `None` where there are none.
    fn allocate(&self, bytes: u64, align: u64, stream: Stream) -> Option<u64>;

    /// Takes memory back, behind what is on the stream.
    fn release(&self, address: u64, stream: Stream);
}

/// How a library is opened.
#[derive(Default)]
pub struct LibraryOptions {
    verify: bool,
    vendor: Option<Vendor>,
    target: Option<String>,
    scratch: Option<Box<dyn ScratchAllocator>>,
    checks: Checks,
}

impl fmt::Debug for LibraryOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LibraryOptions")
            .field("verify", &self.verify)
            .field("vendor", &self.vendor)
            .field("target", &self.target)
            .field("scratch", &self.scratch.is_some())
            .field("checks", &self.checks)
            .finish()
    }
}

impl LibraryOptions {
    /// Whether each image's SHA-256 is compared with its record before it is loaded: about 4 ms a MiB.
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Whose driver to use; without this, NVIDIA's, and where that finds no GPU, AMD's (feature `hip`).
    #[must_use]
    pub fn vendor(mut self, vendor: Vendor) -> Self {
        self.vendor = Some(vendor);
        self
    }

    /// The target whose images are allowed alone; the environment variable, where it is set, comes first.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Who gives scratch memory. Without one, a launch that needs some fails with [`Error::ScratchNeeded`].
    #[must_use]
    pub fn scratch(mut self, allocator: impl ScratchAllocator + 'static) -> Self {
        self.scratch = Some(Box::new(allocator));
        self
    }

    /// Whether launches ask the driver of each address; [`Library::set_checks`] changes it.
    #[must_use]
    pub fn checks(mut self, checks: Checks) -> Self {
        self.checks = checks;
        self
    }

    /// Opens the library in the primary context of a device, which it keeps.
    ///
    /// # Errors
    ///
    /// As [`Library::for_device`].
    pub fn for_device(self, ordinal: u32) -> Result<Library> {
        let driver = Driver::open(self.vendor)?;
        let count = driver.count();
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let context = driver.retain(ordinal)?;
        // From here on it is given back, also when the device cannot be described.
        let kept = Kept::Primary(Primary { driver, ordinal });
        self.open(driver, context, kept)
    }

    /// Opens the library in the context that is current in this thread.
    ///
    /// # Errors
    ///
    /// As [`Library::for_current_context`].
    ///
    /// # Safety
    ///
    /// As [`Library::for_current_context`].
    #[allow(unsafe_code)]
    pub unsafe fn for_current_context(self) -> Result<Library> {
        let driver = Driver::open(self.vendor)?;
        let context = driver.current()?;
        self.open(driver, context, Kept::Others)
    }

    /// Opens the library in a `CUcontext`, and keeps `owner` for as long as the library is used. With HIP, whose
    /// libraries belong to devices, use [`LibraryOptions::for_device`].
    ///
    /// # Errors
    ///
    /// As [`Library::for_current_context`].
    ///
    /// # Safety
    ///
    /// The handle is a context of the driver, which lives as long as `owner` does.
    #[allow(unsafe_code)]
    pub unsafe fn for_raw_context(
        self,
        context: *mut c_void,
        owner: impl Any + Send + Sync,
    ) -> Result<Library> {
        let driver = Driver::open(Some(Vendor::Nvidia))?;
        let unknown = Context {
            handle: context as usize,
            ordinal: 0,
            id: 0,
        };
        let context = driver.within(unknown, || driver.current())?;
        self.open(driver, context, Kept::Owner(Box::new(owner)))
    }

    fn open(self, driver: Driver, context: Context, kept: Kept) -> Result<Library> {
        let device = driver.describe(context.ordinal)?;
        let inner = Inner {
            driver,
            context,
            device,
            only: target_of_environment().or_else(|| self.target.map(kept_text)),
            verify: self.verify,
            scratch: self.scratch,
            loaded: Mutex::default(),
            checks: AtomicU8::new(self.checks as u8),
            choices: RwLock::default(),
            generation: AtomicU64::new(0),
            kept,
        };
        Ok(Library {
            inner: Arc::new(inner),
        })
    }
}

/// A target's name for as long as the program runs; one that is no target of this build's is kept anew each time.
fn kept_text(target: String) -> &'static str {
    let known = TARGETS.iter().find(|known| **known == target);
    known.copied().unwrap_or_else(|| target.leak())
}

/// The target that the environment allows alone. It is read once: to read it while another thread sets it is no good.
fn target_of_environment() -> Option<&'static str> {
    static TARGET: OnceLock<Option<String>> = OnceLock::new();
    let read = || std::env::var(TARGET_VARIABLE).ok();
    let found = TARGET.get_or_init(|| read().filter(|target| !target.is_empty()));
    found.as_deref()
}

/// A primary context that was retained.
struct Primary {
    driver: Driver,
    ordinal: u32,
}

impl Drop for Primary {
    fn drop(&mut self) {
        if !is_forked() {
            self.driver.release(self.ordinal);
        }
    }
}

/// What keeps a library's context alive. Nobody looks at it: it is dropped.
#[allow(dead_code)]
enum Kept {
    Primary(Primary),
    Owner(Box<dyn Any + Send + Sync>),
    /// Whoever made it current.
    Others,
}

/// What the driver has of an image, for those who launch themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RawHandles {
    /// `CUlibrary`; `CUmodule` with drivers of CUDA before 12.0; `hipModule_t`.
    pub module: *mut c_void,
    /// `CUfunction`, `hipFunction_t`.
    pub function: *mut c_void,
}

/// An image in the driver.
struct Loaded {
    handles: Handles,
    /// Where the compiler in the driver may write for as long as the module is loaded.
    #[allow(dead_code)]
    log: Vec<u8>,
}

/// The place of an image, empty until it is loaded.
type Cell = Arc<Mutex<Option<Loaded>>>;

/// What all handles of a library share.
pub(crate) struct Inner {
    pub(crate) driver: Driver,
    pub(crate) context: Context,
    pub(crate) device: Device,
    only: Option<&'static str>,
    verify: bool,
    pub(crate) scratch: Option<Box<dyn ScratchAllocator>>,
    /// By the image's name, which is looked up under the outer lock alone. Under an image's own one it is loaded, so that
    /// no load waits for that of another image.
    loaded: Mutex<HashMap<&'static str, Cell>>,
    checks: AtomicU8,
    choices: RwLock<Choices>,
    /// Goes up whenever the choices change; 0 while there are none.
    generation: AtomicU64,
    /// Dropped last, when everything is unloaded.
    #[allow(dead_code)]
    kept: Kept,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a child there is no driver, and nothing to unload.
        if is_forked() {
            return;
        }
        let loaded = self
            .loaded
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let driver = self.driver;
        let mut unload_all = || {
            for (_, cell) in loaded.drain() {
                let image = cell.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(image) = image {
                    driver.unload(image.handles);
                }
            }
            Ok(())
        };
        // Modules belong to a context; one that is gone has unloaded them itself.
        let _: Result<()> = if driver.has_modules() {
            driver.within(self.context, unload_all)
        } else {
            unload_all()
        };
    }
}

/// The kernels of this crate on one device. Clones are the same library; it is unloaded when the last of them is gone, and
/// the last [`Kernel`]: that waits for kernels which are running.
///
/// Every library loads images of its own, at their first use.
#[derive(Clone)]
pub struct Library {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Library")
            .field("device", &self.inner.device)
            .finish_non_exhaustive()
    }
}

impl Library {
    /// The library on a device, in its primary context: the one that the CUDA runtime, cudarc and frameworks use. The
    /// context is kept until the library is gone, and need not be current in threads that launch.
    ///
    /// # Errors
    ///
    /// [`Error::DriverNotFound`], [`Error::SymbolMissing`], [`Error::NoDevice`], [`Error::Forked`],
    /// [`Error::Disabled`], or what the driver says.
    pub fn for_device(ordinal: u32) -> Result<Self> {
        Self::options().for_device(ordinal)
    }

    /// The library in the context that is current in this thread; with HIP, on the device that is current. Where that is
    /// a device's primary context, [`Library::for_device`] gives the same, and keeps it.
    ///
    /// # Errors
    ///
    /// As [`Library::for_device`], and [`Error::WrongContext`] when no context is current.
    ///
    /// # Safety
    ///
    /// The context lives until the library is gone, with all its clones, every [`Kernel`] and every
    /// [`DeviceBuffer`](crate::DeviceBuffer) of it. Whoever made the context can destroy it, and nobody can keep them from
    /// that: a driver need not know the handle of a context that is gone from others, and may take it for that of one
    /// that was made since. Where it notices, a launch is [`Error::DeadContext`].
    #[allow(unsafe_code)]
    pub unsafe fn for_current_context() -> Result<Self> {
        // SAFETY: the caller promises it.
        unsafe { Self::options().for_current_context() }
    }

    /// To open it with other settings than the defaults.
    #[must_use]
    pub fn options() -> LibraryOptions {
        LibraryOptions::default()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The `CUcontext` that the library is loaded in; null for HIP.
    #[must_use]
    pub fn raw_context(&self) -> *mut c_void {
        self.inner.context.handle as *mut c_void
    }

    /// What can be launched with arguments of one type, which a call of [`Kernel::launch`] infers:
    /// `let softmax = library.kernel();`.
    #[must_use]
    pub fn kernel<P: KernelParams>(&self) -> Kernel<P> {
        Kernel::new(self.clone())
    }

    /// The same, of one variant and no other.
    ///
    /// # Errors
    ///
    /// [`Error::NotOfKernel`] when the variant does not take such arguments.
    pub fn kernel_of<P: KernelParams>(&self, variant: &'static Variant) -> Result<Kernel<P>> {
        Kernel::of(self.clone(), variant)
    }

    /// Each image of a variant: whether the device takes it, why not, and which one is used. It prints as a table.
    #[must_use]
    pub fn explain_selection(&self, variant: &'static Variant) -> Selection {
        Selection::new(variant, self.inner.device).only(self.inner.only)
    }

    /// The image of a variant that this device is launched with.
    ///
    /// # Errors
    ///
    /// [`Error::NoCompatibleImage`], [`Error::Unsuitable`], [`Error::DriverTooOld`].
    pub fn image(&self, variant: &'static Variant) -> Result<&'static Image> {
        image_for(&self.explain_selection(variant))
    }

    /// Loads everything that the device has images for: before a stream is captured, and where no launch is to take longer
    /// than others.
    ///
    /// # Errors
    ///
    /// The first failure to load; [`Error::NoCompatibleImage`] and the like when the device has no image at all.
    pub fn preload(&self) -> Result<()> {
        let mut missing = None;
        let mut count = 0;
        for variant in VARIANTS {
            match self.image(variant) {
                Ok(image) => {
                    self.load_settled(image)?;
                    count += 1;
                }
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        match missing {
            Some(error) if count == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Loads the image of one variant.
    ///
    /// # Errors
    ///
    /// As [`Library::image`], and what loading reports: [`Error::InvalidImage`], [`Error::OutOfMemory`],
    /// [`Error::Load`], [`Error::WrongContext`], [`Error::Forked`].
    pub fn preload_variant(&self, variant: &'static Variant) -> Result<()> {
        self.load_settled(self.image(variant)?)
    }

    /// Loads an image where it is not, and tells the driver's handles of it, which hold as long as the library.
    ///
    /// # Errors
    ///
    /// As [`Library::preload_variant`].
    pub fn handles(&self, image: &'static Image) -> Result<RawHandles> {
        let handles = self.load(image, None)?;
        Ok(RawHandles {
            module: handles.module as *mut c_void,
            function: handles.function as *mut c_void,
        })
    }

    /// Waits until everything in the library's context is done.
    ///
    /// # Errors
    ///
    /// What the driver says, which may come from any earlier launch.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.inner.driver;
        driver.within(self.inner.context, || driver.synchronize())
    }

    /// What the tuner found: from now on, the launches of groups take the variants that were chosen for the device and
    /// the shapes. An empty one goes back to the first variant that serves a call.
    pub fn set_choices(&self, choices: Choices) {
        let choosing = &self.inner.choices;
        let mut place = choosing.write().unwrap_or_else(PoisonError::into_inner);
        *place = choices;
        self.inner.generation.fetch_add(1, Ordering::Release);
    }

    /// From now on, whether launches ask the driver of each address among their arguments if it is memory that the device
    /// can reach: to find a wrong one. What they find is [`Error::BadPointer`].
    pub fn set_checks(&self, checks: Checks) {
        self.inner.checks.store(checks as u8, Ordering::Relaxed);
    }

    pub(crate) fn checks(&self) -> Checks {
        Checks::of(self.inner.checks.load(Ordering::Relaxed))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.inner.generation.load(Ordering::Acquire)
    }

    pub(crate) fn with_choices<R>(&self, run: impl FnOnce(&Choices) -> R) -> R {
        let choosing = &self.inner.choices;
        run(&choosing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads an image where it is not; `stream` is what is about to be launched on.
    pub(crate) fn load(&self, image: &'static Image, stream: Option<Stream>) -> Result<Handles> {
        if is_forked() {
            // Before the lock, which another thread may have held in the parent.
            return Err(Error::Forked);
        }
        let (inner, driver) = (&*self.inner, self.inner.driver);
        let cell = {
            let mut cells = inner.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Cell::clone(cells.entry(image.id).or_default())
        };
        let mut place = cell.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = &*place {
            return Ok(found.handles);
        }
        crate::check::check(image)?;
        if inner.verify && !image.verify() {
            return Err(Error::InvalidImage {
                image: image.id,
                flaw: crate::error::Flaw::Digest,
            });
        }
        let made = driver.within(inner.context, || {
            // A context with modules of its own has to wait for its device when one is loaded, and a capture cannot.
            if let Some(stream) = stream.filter(|_| driver.has_modules()) {
                if driver.is_capturing(stream.as_raw())? {
                    return Err(Error::Capturing { image: image.id });
                }
            }
            driver.load(image)
        })?;
        let (handles, log) = made;
        *place = Some(Loaded { handles, log });
        Ok(handles)
    }

    pub(crate) fn load_settled(&self, image: &'static Image) -> Result<()> {
        let handles = self.load(image, None)?;
        let driver = self.inner.driver;
        driver.within(self.inner.context, || driver.settle(handles))
    }
}
