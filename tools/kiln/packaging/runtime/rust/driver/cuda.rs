//! The driver of NVIDIA, as "CUDA Driver API" documents it, without its header.
//!
//! Drivers of CUDA 12.0 and later load a library once for all contexts (`cuLibraryLoadData`); with older ones each context
//! has modules of its own.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::mem;
use core::ptr;
use std::borrow::ToOwned;
use std::boxed::Box;
use std::ffi::CString;
use std::string::String;
use std::vec::Vec;

use super::load::{functions, open};
use super::{Context, Copying, Handles, Launch, Memory};
use crate::device::{Device, Text, Vendor};
use crate::error::{Error, Flaw, Result};
use crate::image::{Image, Kind};
use crate::params::with_addresses;

const LIBRARY: &str = "libcuda.so.1";

const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 1;
const CU_DEVICE_ATTRIBUTE_WARP_SIZE: c_int = 10;
const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: c_int = 88;
const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: c_int = 95;
const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;
const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: c_int = 120;
const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
const CU_JIT_ERROR_LOG_BUFFER: c_int = 5;
const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;
const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: c_int = 2;
const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_int = 4;
const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;
const CU_STREAM_CAPTURE_STATUS_NONE: c_int = 0;
const CU_MEMORYTYPE_HOST: c_int = 1;
const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: c_int = 2;
const CU_POINTER_ATTRIBUTE_IS_MANAGED: c_int = 8;
const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
const CUDA_ERROR_INVALID_VALUE: c_int = 1;
const CUDA_ERROR_OUT_OF_MEMORY: c_int = 2;
const CUDA_ERROR_NO_DEVICE: c_int = 100;
const CUDA_ERROR_INVALID_IMAGE: c_int = 200;
const CUDA_ERROR_INVALID_CONTEXT: c_int = 201;
const CUDA_ERROR_NO_BINARY_FOR_GPU: c_int = 209;
const CUDA_ERROR_INVALID_PTX: c_int = 218;
const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: c_int = 222;
const CUDA_ERROR_INVALID_HANDLE: c_int = 400;
const CUDA_ERROR_CONTEXT_IS_DESTROYED: c_int = 709;

/// Blocks of a cluster that every device with clusters takes; more are asked for.
const PORTABLE_CLUSTER: u32 = 8;

/// Shared memory that a block gets without asking for it, static and dynamic together.
const PLAIN_SHARED: u32 = 48 * 1024;

/// Bytes for what the compiler in the driver says.
const LOG_BYTES: usize = 4096;

#[repr(C)]
#[derive(Clone, Copy)]
struct CUlaunchAttribute {
    id: c_int,
    pad: [u8; 4],
    value: [u32; 16],
}

#[repr(C)]
pub(crate) struct CUlaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_mem_bytes: c_uint,
    stream: *mut c_void,
    attrs: *mut CUlaunchAttribute,
    num_attrs: c_uint,
}

// What cuda.h has, on 64-bit machines.
const _: () = {
    assert!(mem::size_of::<CUlaunchAttribute>() == 72);
    assert!(mem::offset_of!(CUlaunchAttribute, value) == 8);
    assert!(mem::size_of::<CUlaunchConfig>() == 56);
    assert!(mem::offset_of!(CUlaunchConfig, shared_mem_bytes) == 24);
    assert!(mem::offset_of!(CUlaunchConfig, stream) == 32);
    assert!(mem::offset_of!(CUlaunchConfig, attrs) == 40);
    assert!(mem::offset_of!(CUlaunchConfig, num_attrs) == 48);
};

type Handle = *mut c_void;

functions! {
    /// What is used of the driver.
    struct Api, since "CUDA 11.0";
    needed {
        init = c"cuInit": fn(c_uint) -> c_int;
        driver_get_version = c"cuDriverGetVersion": fn(*mut c_int) -> c_int;
        get_error_name = c"cuGetErrorName": fn(c_int, *mut *const c_char) -> c_int;
        get_error_string = c"cuGetErrorString": fn(c_int, *mut *const c_char) -> c_int;
        device_get_count = c"cuDeviceGetCount": fn(*mut c_int) -> c_int;
        device_get_attribute = c"cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_int;
        primary_retain = c"cuDevicePrimaryCtxRetain": fn(*mut Handle, c_int) -> c_int;
        primary_release = c"cuDevicePrimaryCtxRelease_v2": fn(c_int) -> c_int;
        ctx_get_current = c"cuCtxGetCurrent": fn(*mut Handle) -> c_int;
        ctx_get_device = c"cuCtxGetDevice": fn(*mut c_int) -> c_int;
        ctx_push_current = c"cuCtxPushCurrent_v2": fn(Handle) -> c_int;
        ctx_pop_current = c"cuCtxPopCurrent_v2": fn(*mut Handle) -> c_int;
        module_load_data = c"cuModuleLoadDataEx": fn(*mut Handle, *const c_void, c_uint, *mut c_int, *mut Handle) -> c_int;
        module_unload = c"cuModuleUnload": fn(Handle) -> c_int;
        module_get_function = c"cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char) -> c_int;
        func_set_attribute = c"cuFuncSetAttribute": fn(Handle, c_int, c_int) -> c_int;
        launch_kernel = c"cuLaunchKernel": fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle,
        ) -> c_int;
        stream_is_capturing = c"cuStreamIsCapturing": fn(Handle, *mut c_int) -> c_int;
        mem_get_info = c"cuMemGetInfo_v2": fn(*mut usize, *mut usize) -> c_int;
        mem_alloc = c"cuMemAlloc_v2": fn(*mut u64, usize) -> c_int;
        mem_free = c"cuMemFree_v2": fn(u64) -> c_int;
        memcpy_to_device = c"cuMemcpyHtoD_v2": fn(u64, *const c_void, usize) -> c_int;
        memcpy_to_host = c"cuMemcpyDtoH_v2": fn(*mut c_void, u64, usize) -> c_int;
        pointer_get_attribute = c"cuPointerGetAttribute": fn(*mut c_void, c_int, u64) -> c_int;
        ctx_synchronize = c"cuCtxSynchronize": fn() -> c_int;
    }
    optional {
        ctx_get_id = c"cuCtxGetId": fn(Handle, *mut u64) -> c_int;
        device_get_name = c"cuDeviceGetName": fn(*mut c_char, c_int, c_int) -> c_int;
        func_load = c"cuFuncLoad": fn(Handle) -> c_int;
        library_load_data = c"cuLibraryLoadData": fn(
            *mut Handle, *const c_void, *mut c_int, *mut Handle, c_uint, *mut c_int, *mut Handle, c_uint,
        ) -> c_int;
        library_unload = c"cuLibraryUnload": fn(Handle) -> c_int;
        library_get_kernel = c"cuLibraryGetKernel": fn(*mut Handle, Handle, *const c_char) -> c_int;
        kernel_get_function = c"cuKernelGetFunction": fn(*mut Handle, Handle) -> c_int;
        launch_kernel_ex = c"cuLaunchKernelEx": fn(*const CUlaunchConfig, Handle, *mut Handle, *mut Handle) -> c_int;
    }
}

/// Where what is loaded serves all contexts of a process.
#[derive(Clone, Copy)]
struct Libraries {
    load: unsafe extern "C" fn(
        *mut Handle,
        *const c_void,
        *mut c_int,
        *mut Handle,
        c_uint,
        *mut c_int,
        *mut Handle,
        c_uint,
    ) -> c_int,
    unload: unsafe extern "C" fn(Handle) -> c_int,
    get_kernel: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int,
    get_function: unsafe extern "C" fn(*mut Handle, Handle) -> c_int,
}

/// The driver, ready.
#[derive(Clone, Copy)]
pub(crate) struct Cuda {
    api: Api,
    libraries: Option<Libraries>,
    version: u32,
    count: u32,
}

impl Cuda {
    /// Opens the driver and starts it.
    pub(crate) fn open() -> Result<Self> {
        let api = Api::resolve(open(&[(LIBRARY, c"libcuda.so.1")])?)?;
        let libraries = match (
            api.library_load_data,
            api.library_unload,
            api.library_get_kernel,
            api.kernel_get_function,
        ) {
            (Some(load), Some(unload), Some(get_kernel), Some(get_function)) => Some(Libraries {
                load,
                unload,
                get_kernel,
                get_function,
            }),
            _ => None,
        };
        let mut driver = Self {
            api,
            libraries,
            version: 0,
            count: 0,
        };
        let (mut version, mut count) = (0, 0);
        // SAFETY: the flags have to be 0; the numbers are written before the calls return.
        unsafe {
            driver.check((api.init)(0), "cuInit")?;
            driver.check((api.driver_get_version)(&mut version), "cuDriverGetVersion")?;
            driver.check((api.device_get_count)(&mut count), "cuDeviceGetCount")?;
        }
        driver.version = u32::try_from(version).unwrap_or(0);
        driver.count = u32::try_from(count).unwrap_or(0);
        Ok(driver)
    }

    /// Whether an error of `open` says that there is no GPU of this vendor.
    pub(crate) const fn is_without_device(code: i32) -> bool {
        code == CUDA_ERROR_NO_DEVICE
    }

    /// How many devices there are.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    fn check(&self, code: c_int, call: &'static str) -> Result<()> {
        match code {
            0 => Ok(()),
            _ => Err(self.failure(code, call)),
        }
    }

    #[cold]
    fn failure(&self, code: c_int, call: &'static str) -> Error {
        let said = |ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: the text is written before the call returns, and is the driver's own for as long as it is loaded.
            unsafe {
                if ask(code, &mut text) != 0 || text.is_null() {
                    return String::from("unknown to the driver");
                }
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        Error::Driver {
            code,
            call,
            name: said(self.api.get_error_name),
            text: said(self.api.get_error_string),
        }
    }

    /// An error of the driver as what it means for a caller.
    fn told(&self, error: Error, requested: u64) -> Error {
        let Error::Driver { code, .. } = error else {
            return error;
        };
        let cause = Box::new(error);
        match code {
            CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory {
                requested,
                available: self.free_bytes(),
                cause,
            },
            CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_INVALID_HANDLE => {
                Error::WrongContext { cause: Some(cause) }
            }
            CUDA_ERROR_CONTEXT_IS_DESTROYED => Error::DeadContext { cause },
            _ => *cause,
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written before the call returns.
        let code = unsafe { (self.api.mem_get_info)(&mut free, &mut total) };
        (code == 0).then_some(free as u64)
    }

    /// The context that is current in this thread, and its device.
    pub(crate) fn current(&self) -> Result<Context> {
        let (mut context, mut device) = (ptr::null_mut(), 0);
        // SAFETY: both are written before the calls return.
        unsafe {
            self.check((self.api.ctx_get_current)(&mut context), "cuCtxGetCurrent")?;
            if context.is_null() {
                return Err(Error::WrongContext { cause: None });
            }
            let code = (self.api.ctx_get_device)(&mut device);
            self.check(code, "cuCtxGetDevice")
                .map_err(|error| self.told(error, 0))?;
        }
        Ok(Context {
            handle: context as usize,
            ordinal: u32::try_from(device).unwrap_or(0),
            id: self.id(context).unwrap_or(0),
        })
    }

    /// The primary context of a device, which stays until it is released as often.
    pub(crate) fn retain(&self, ordinal: u32) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the context is written before the call returns. A device's handle is its ordinal.
        let code = unsafe { (self.api.primary_retain)(&mut context, device_of(ordinal)) };
        self.check(code, "cuDevicePrimaryCtxRetain")
            .map_err(|error| self.told(error, 0))?;
        Ok(Context {
            handle: context as usize,
            ordinal,
            id: self.id(context).unwrap_or(0),
        })
    }

    /// What tells a context from all others of the process; 0 where the driver does not say.
    fn id(&self, context: Handle) -> core::result::Result<u64, c_int> {
        let Some(ask) = self.api.ctx_get_id else {
            return Ok(0);
        };
        let mut id = 0;
        // SAFETY: the id is written before the call returns.
        match unsafe { ask(context, &mut id) } {
            0 => Ok(id),
            code => Err(code),
        }
    }

    /// An error that says that a context is not the right one: it is dead where another one has its handle.
    #[cold]
    fn told_within(&self, context: Context, error: Error) -> Error {
        let Error::WrongContext { cause: Some(cause) } = error else {
            return error;
        };
        let is_dead = context.id != 0
            && match self.id(context.handle as Handle) {
                Ok(id) => id != context.id,
                Err(code) => {
                    matches!(
                        code,
                        CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED
                    )
                }
            };
        if is_dead {
            Error::DeadContext { cause }
        } else {
            Error::WrongContext { cause: Some(cause) }
        }
    }

    /// Gives a primary context back. A driver that is gone has none.
    pub(crate) fn release(&self, ordinal: u32) {
        // SAFETY: it was retained once for this call; whoever used it is gone.
        unsafe { (self.api.primary_release)(device_of(ordinal)) };
    }

    /// Runs something with a context current in this thread.
    #[inline]
    pub(crate) fn within<R>(&self, context: Context, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut now = ptr::null_mut();
        // SAFETY: the context is written before the call returns.
        let code = unsafe { (self.api.ctx_get_current)(&mut now) };
        self.check(code, "cuCtxGetCurrent")?;
        if now as usize == context.handle {
            return run().map_err(|error| self.told_within(context, error));
        }
        // SAFETY: the library keeps its context, or its maker promised to. It is popped below.
        let code = unsafe { (self.api.ctx_push_current)(context.handle as Handle) };
        self.check(code, "cuCtxPushCurrent")
            .map_err(|error| self.told_within(context, self.told(error, 0)))?;
        let result = run().map_err(|error| self.told_within(context, error));
        // SAFETY: what was pushed is on top again, for `run` leaves the stack as it was.
        unsafe { (self.api.ctx_pop_current)(&mut now) };
        result
    }

    /// What the driver says of a device.
    pub(crate) fn describe(&self, ordinal: u32) -> Result<Device> {
        let ask = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: the value is written before the call returns.
            let code = unsafe {
                (self.api.device_get_attribute)(&mut value, attribute, device_of(ordinal))
            };
            self.check(code, "cuDeviceGetAttribute")?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let major = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let mut device = Device::nvidia(10 * major + minor, self.version);
        device.ordinal = ordinal;
        device.name = self.name(ordinal);
        device.warp_size = ask(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
        device.max_threads = ask(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        device.max_shared = ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        device.multiprocessors = ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        device.l2_bytes = ask(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        device.cooperative = ask(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        device.pageable_access = ask(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0;
        // A driver that does not know the attribute launches none.
        device.clusters = self.api.launch_kernel_ex.is_some()
            && ask(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH).is_ok_and(|clusters| clusters != 0);
        debug_assert!(matches!(device.vendor, Vendor::Nvidia));
        Ok(device)
    }

    fn name(&self, ordinal: u32) -> Text<127> {
        let mut bytes: [c_char; 128] = [0; 128];
        let Some(ask) = self.api.device_get_name else {
            return Text::new("");
        };
        // SAFETY: the driver writes 128 bytes at most, the last of them NUL.
        let text = unsafe {
            if ask(bytes.as_mut_ptr(), 128, device_of(ordinal)) != 0 {
                return Text::new("");
            }
            CStr::from_ptr(bytes.as_ptr())
        };
        Text::new(&text.to_string_lossy())
    }

    /// Whether what is loaded belongs to a context, which has to wait for its device when something is.
    pub(crate) const fn has_modules(&self) -> bool {
        self.libraries.is_none()
    }

    /// Whether a stream is capturing.
    pub(crate) fn is_capturing(&self, stream: Handle) -> Result<bool> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the status is written before the call returns; the stream is the caller's to vouch for.
        let code = unsafe { (self.api.stream_is_capturing)(stream, &mut status) };
        self.check(code, "cuStreamIsCapturing")
            .map_err(|error| self.told(error, 0))?;
        Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Loads an image into the context that is current, and makes its function fit to be launched there.
    ///
    /// What comes with the handles is the room for what the compiler in the driver says. The driver may keep its address
    /// for as long as the module is loaded.
    pub(crate) fn load(&self, image: &'static Image) -> Result<(Handles, Vec<u8>)> {
        let is_ptx = matches!(image.kind, Kind::Ptx);
        let mut log = std::vec![0_u8; if is_ptx { LOG_BYTES } else { 1 }];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast(), (log.len() - 1) as Handle];
        let count = if is_ptx { 2 } else { 0 };
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        let code = image.as_c_bytes().as_ptr().cast();
        let Ok(entry) = CString::new(image.entry) else {
            return Err(Error::InvalidImage {
                image: image.id,
                flaw: Flaw::Magic,
            });
        };
        let mut handles = Handles {
            module: 0,
            function: 0,
        };
        let loaded = self.load_with(code, &entry, (options, values, count), &mut handles);
        loaded
            .and_then(|()| self.prepare(image, handles))
            .map_err(|error| {
                if handles.module != 0 {
                    self.unload(handles);
                }
                let written = CStr::from_bytes_until_nul(&log);
                let said = written.map_or("".into(), CStr::to_string_lossy);
                self.refused(image, error, said.trim_end().to_owned())
            })?;
        Ok((handles, log))
    }

    fn load_with(
        &self,
        code: *const c_void,
        entry: &CStr,
        (options, values, count): (*mut c_int, *mut Handle, c_uint),
        handles: &mut Handles,
    ) -> Result<()> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the image is whole, and a PTX ends with NUL; options and values are as many as is said, and the log that
        // they name lives as long as the module. Handles are written before the calls return.
        unsafe {
            match self.libraries {
                Some(libraries) => {
                    let none = ptr::null_mut();
                    let status = (libraries.load)(
                        &mut module,
                        code,
                        options,
                        values,
                        count,
                        none,
                        ptr::null_mut(),
                        0,
                    );
                    self.check(status, "cuLibraryLoadData")?;
                    handles.module = module as usize;
                    let mut kernel = ptr::null_mut();
                    let status = (libraries.get_kernel)(&mut kernel, module, entry.as_ptr());
                    self.check(status, "cuLibraryGetKernel")?;
                    let status = (libraries.get_function)(&mut function, kernel);
                    self.check(status, "cuKernelGetFunction")?;
                }
                None => {
                    let load = self.api.module_load_data;
                    let status = load(&mut module, code, count, options, values);
                    self.check(status, "cuModuleLoadDataEx")?;
                    handles.module = module as usize;
                    let get = self.api.module_get_function;
                    let status = get(&mut function, module, entry.as_ptr());
                    self.check(status, "cuModuleGetFunction")?;
                }
            }
        }
        handles.function = function as usize;
        Ok(())
    }

    /// Sets the attributes that launches of an image rely on.
    fn prepare(&self, image: &Image, handles: Handles) -> Result<()> {
        let set = |attribute, value| {
            // SAFETY: the function was just got from the driver.
            let code = unsafe {
                (self.api.func_set_attribute)(handles.function as Handle, attribute, value)
            };
            self.check(code, "cuFuncSetAttribute")
        };
        if image.shared_static + image.shared_dynamic > PLAIN_SHARED {
            let bytes = c_int::try_from(image.shared_dynamic).unwrap_or(c_int::MAX);
            set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
        }
        if image.cluster.iter().product::<u32>() > PORTABLE_CLUSTER {
            set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(())
    }

    fn refused(&self, image: &'static Image, error: Error, log: String) -> Error {
        let image_bytes = image.bytes.len() as u64;
        match self.told(error, image_bytes) {
            Error::Driver {
                code: CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                ..
            } => Error::DriverTooOld {
                image: image.id,
                need: None,
                have: crate::device::Release::of_driver(self.version),
            },
            error @ Error::Driver {
                code:
                    CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_INVALID_PTX | CUDA_ERROR_NO_BINARY_FOR_GPU,
                ..
            } => Error::InvalidImage {
                image: image.id,
                flaw: Flaw::Refused {
                    log,
                    cause: Box::new(error),
                },
            },
            error @ Error::Driver { .. } => Error::Load {
                image: image.id,
                cause: Box::new(error),
            },
            other => other,
        }
    }

    /// Puts a function where it runs, as its first launch would do otherwise.
    pub(crate) fn settle(&self, handles: Handles) -> Result<()> {
        let Some(func_load) = self.api.func_load else {
            return Ok(());
        };
        // SAFETY: the function belongs to the context that is current.
        let code = unsafe { func_load(handles.function as Handle) };
        self.check(code, "cuFuncLoad")
            .map_err(|error| self.told(error, 0))
    }

    /// Unloads a module; where modules belong to contexts, its own has to be current. What fails is left to the driver.
    pub(crate) fn unload(&self, handles: Handles) {
        let module = handles.module as Handle;
        // SAFETY: it was loaded once, and nobody launches from it any more.
        unsafe {
            match self.libraries {
                Some(libraries) => (libraries.unload)(module),
                None => (self.api.module_unload)(module),
            }
        };
    }

    /// Launches in the context that is current.
    ///
    /// # Safety
    ///
    /// The buffer holds what the image's kernel takes, and what its addresses point at is as the kernel needs it. The
    /// stream belongs to the context that is current.
    pub(crate) unsafe fn launch(&self, launch: &Launch, buffer: &mut [u8]) -> Result<()> {
        let ready = &launch.ready;
        let (image, function) = (ready.image, ready.function as Handle);
        let mut bytes = ready.parameter_bytes;
        // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
        let mut extra = [
            1 as Handle,
            buffer.as_mut_ptr().cast(),
            2 as Handle,
            ptr::from_mut(&mut bytes).cast(),
            ptr::null_mut(),
        ];
        let [x, y, z] = launch.grid;
        let (code, call) = if !ready.has_attributes {
            // SAFETY: as the caller promises; the driver copies the buffer before the call returns.
            let code = unsafe {
                (self.api.launch_kernel)(
                    function,
                    x,
                    y,
                    z,
                    ready.threads,
                    1,
                    1,
                    ready.shared_dynamic,
                    launch.stream,
                    ptr::null_mut(),
                    extra.as_mut_ptr(),
                )
            };
            (code, "cuLaunchKernel")
        } else {
            let Some(launch_kernel_ex) = self.api.launch_kernel_ex else {
                return Err(Error::DriverTooOld {
                    image: image.id,
                    need: Some(crate::device::Release {
                        major: 11,
                        minor: 8,
                    }),
                    have: crate::device::Release::of_driver(self.version),
                });
            };
            let (mut attributes, count) = attributes(image);
            let config = CUlaunchConfig {
                grid: launch.grid,
                block: [ready.threads, 1, 1],
                shared_mem_bytes: ready.shared_dynamic,
                stream: launch.stream,
                attrs: attributes.as_mut_ptr(),
                num_attrs: count,
            };
            let code = if image.cooperative {
                // Of a cooperative launch with a buffer no graph can be captured.
                with_addresses(image, buffer, |addresses| {
                    let none = ptr::null_mut();
                    // SAFETY: as above.
                    unsafe { launch_kernel_ex(&config, function, addresses.as_mut_ptr(), none) }
                })
            } else {
                // SAFETY: as above.
                unsafe { launch_kernel_ex(&config, function, ptr::null_mut(), extra.as_mut_ptr()) }
            };
            (code, "cuLaunchKernelEx")
        };
        self.check(code, call).map_err(|error| self.told(error, 0))
    }

    /// Device memory in the context that is current.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: the address is written before the call returns.
        let code = unsafe { (self.api.mem_alloc)(&mut address, bytes) };
        self.check(code, "cuMemAlloc")
            .map_err(|error| self.told(error, bytes as u64))?;
        Ok(address)
    }

    /// Gives memory back; a context that is dead has done so already.
    pub(crate) fn free(&self, address: u64) {
        // SAFETY: it was allocated once, and nobody uses it any more.
        unsafe { (self.api.mem_free)(address) };
    }

    /// Whose memory lies at an address.
    pub(crate) fn memory_of(&self, address: u64) -> Result<Memory> {
        let ask = |attribute| -> core::result::Result<c_int, c_int> {
            let mut value: c_int = 0;
            // SAFETY: the number is written before the call returns; an address is only looked up.
            let code = unsafe {
                (self.api.pointer_get_attribute)(
                    ptr::from_mut(&mut value).cast(),
                    attribute,
                    address,
                )
            };
            if code == 0 {
                Ok(value)
            } else {
                Err(code)
            }
        };
        let call = "cuPointerGetAttribute";
        let failed = |code| self.told(self.failure(code, call), 0);
        let kind = match ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            Ok(kind) => kind,
            Err(CUDA_ERROR_INVALID_VALUE) => return Ok(Memory::Unknown),
            Err(code) => return Err(failed(code)),
        };
        let is_managed = ask(CU_POINTER_ATTRIBUTE_IS_MANAGED).map_err(failed)? != 0;
        let device = ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL).map_err(failed)?;
        Ok(if is_managed || kind == CU_MEMORYTYPE_HOST {
            Memory::Shared
        } else {
            Memory::OfDevice(u32::try_from(device).unwrap_or(0))
        })
    }

    /// Copies between host and device, when everything before is done.
    pub(crate) fn copy(&self, copy: Copying) -> Result<()> {
        // SAFETY: both places have as many bytes: the caller has them from a slice and from an allocation.
        let (code, call) = unsafe {
            match copy {
                Copying::ToDevice { to, from, bytes } => {
                    ((self.api.memcpy_to_device)(to, from, bytes), "cuMemcpyHtoD")
                }
                Copying::ToHost { to, from, bytes } => {
                    ((self.api.memcpy_to_host)(to, from, bytes), "cuMemcpyDtoH")
                }
            }
        };
        self.check(code, call).map_err(|error| self.told(error, 0))
    }

    /// Waits for everything in the context that is current.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: it takes nothing.
        let code = unsafe { (self.api.ctx_synchronize)() };
        self.check(code, "cuCtxSynchronize")
            .map_err(|error| self.told(error, 0))
    }
}

/// A `CUdevice`, which is the device's ordinal.
fn device_of(ordinal: u32) -> c_int {
    c_int::try_from(ordinal).unwrap_or(c_int::MAX)
}

/// The attributes of an image's launch, and how many there are.
fn attributes(image: &Image) -> ([CUlaunchAttribute; 3], c_uint) {
    let mut found = [CUlaunchAttribute {
        id: 0,
        pad: [0; 4],
        value: [0; 16],
    }; 3];
    let [x, y, z] = image.cluster;
    let wanted = [
        (
            image.cluster != [1; 3],
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            [x, y, z],
        ),
        (
            image.cooperative,
            CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            [1, 0, 0],
        ),
        (
            image.pdl,
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            [1, 0, 0],
        ),
    ];
    let mut count = 0;
    let used = wanted.into_iter().filter(|(is_wanted, ..)| *is_wanted);
    for (attribute, (_, id, words)) in found.iter_mut().zip(used) {
        attribute.id = id;
        for (to, from) in attribute.value.iter_mut().zip(words) {
            *to = from;
        }
        count += 1;
    }
    (found, count)
}
