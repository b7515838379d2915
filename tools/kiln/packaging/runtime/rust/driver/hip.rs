//! The driver of AMD: ROCm 6.0 and later, as "HIP Runtime API Reference" documents it, without its headers.
//!
//! A module belongs to the device that is current when it is loaded, and a device is all that a context is.

use core::ffi::{c_char, c_int, c_uint, c_void, CStr};
use core::mem;
use core::ptr;
use std::boxed::Box;
use std::ffi::CString;
use std::string::String;
use std::vec::Vec;

use super::load::{functions, open};
use super::{Context, Copying, Handles, Launch, Memory};
use crate::device::{Device, Text};
use crate::error::{Error, Flaw, Result};
use crate::image::Image;
use crate::params::with_addresses;

const HIP_ERROR_INVALID_VALUE: c_int = 1;
const HIP_ERROR_OUT_OF_MEMORY: c_int = 2;
const HIP_ERROR_INVALID_IMAGE: c_int = 200;
const HIP_ERROR_INVALID_CONTEXT: c_int = 201;
const HIP_ERROR_NO_BINARY_FOR_GPU: c_int = 209;
const HIP_ERROR_INVALID_HANDLE: c_int = 400;
const HIP_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: c_int = 10;
const HIP_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: c_int = 19;
const HIP_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 56;
const HIP_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 63;
const HIP_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: c_int = 65;
const HIP_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: c_int = 74;
const HIP_DEVICE_ATTRIBUTE_WARP_SIZE: c_int = 87;
const HIP_MEMORY_TYPE_HOST: c_int = 1;
const HIP_MEMORY_TYPE_DEVICE: c_int = 2;
const HIP_MEMORY_TYPE_MANAGED: c_int = 3;
const HIP_STREAM_CAPTURE_STATUS_NONE: c_int = 0;

/// `hipDeviceProp_t` of ROCm 6: what is read of it, and room for it to grow.
#[repr(C, align(8))]
pub(crate) struct Properties {
    name: [c_char; 256],
    before: [u8; 904],
    gcn_arch_name: [c_char; 256],
    behind: [u8; 2680],
}

const _: () = {
    assert!(mem::offset_of!(Properties, gcn_arch_name) == 1160);
    assert!(mem::size_of::<Properties>() == 4096);
};

/// `hipPointerAttribute_t`.
#[repr(C)]
pub(crate) struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
    is_managed: c_int,
    flags: c_uint,
}

const _: () = {
    assert!(mem::offset_of!(PointerAttributes, is_managed) == 24);
    assert!(mem::size_of::<PointerAttributes>() == 32);
};

type Handle = *mut c_void;

functions! {
    /// What is used of the driver.
    struct Api, since "ROCm 6.0";
    needed {
        init = c"hipInit": fn(c_uint) -> c_int;
        driver_get_version = c"hipDriverGetVersion": fn(*mut c_int) -> c_int;
        get_error_name = c"hipGetErrorName": fn(c_int) -> *const c_char;
        get_error_string = c"hipGetErrorString": fn(c_int) -> *const c_char;
        get_device_count = c"hipGetDeviceCount": fn(*mut c_int) -> c_int;
        get_device = c"hipGetDevice": fn(*mut c_int) -> c_int;
        set_device = c"hipSetDevice": fn(c_int) -> c_int;
        device_get_attribute = c"hipDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_int;
        get_device_properties = c"hipGetDevicePropertiesR0600": fn(*mut Properties, c_int) -> c_int;
        module_load_data = c"hipModuleLoadData": fn(*mut Handle, *const c_void) -> c_int;
        module_unload = c"hipModuleUnload": fn(Handle) -> c_int;
        module_get_function = c"hipModuleGetFunction": fn(*mut Handle, Handle, *const c_char) -> c_int;
        module_launch_kernel = c"hipModuleLaunchKernel": fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle,
        ) -> c_int;
        module_launch_cooperative_kernel = c"hipModuleLaunchCooperativeKernel": fn(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle,
        ) -> c_int;
        stream_is_capturing = c"hipStreamIsCapturing": fn(Handle, *mut c_int) -> c_int;
        mem_get_info = c"hipMemGetInfo": fn(*mut usize, *mut usize) -> c_int;
        malloc = c"hipMalloc": fn(*mut Handle, usize) -> c_int;
        free = c"hipFree": fn(Handle) -> c_int;
        memcpy_to_device = c"hipMemcpyHtoD": fn(Handle, *const c_void, usize) -> c_int;
        memcpy_to_host = c"hipMemcpyDtoH": fn(*mut c_void, Handle, usize) -> c_int;
        pointer_get_attributes = c"hipPointerGetAttributes": fn(*mut PointerAttributes, *const c_void) -> c_int;
        device_synchronize = c"hipDeviceSynchronize": fn() -> c_int;
    }
    optional {}
}

/// The driver, ready.
#[derive(Clone, Copy)]
pub(crate) struct Hip {
    api: Api,
    version: u32,
    count: u32,
}

impl Hip {
    /// Opens the driver and starts it.
    pub(crate) fn open() -> Result<Self> {
        let library = open(&[
            ("libamdhip64.so", c"libamdhip64.so"),
            ("libamdhip64.so.7", c"libamdhip64.so.7"),
            ("libamdhip64.so.6", c"libamdhip64.so.6"),
        ])?;
        let mut driver = Self {
            api: Api::resolve(library)?,
            version: 0,
            count: 0,
        };
        let (mut version, mut count) = (0, 0);
        // SAFETY: the flags have to be 0; the numbers are written before the calls return.
        unsafe {
            driver.check((driver.api.init)(0), "hipInit")?;
            driver.check(
                (driver.api.driver_get_version)(&mut version),
                "hipDriverGetVersion",
            )?;
            driver.check(
                (driver.api.get_device_count)(&mut count),
                "hipGetDeviceCount",
            )?;
        }
        driver.version = u32::try_from(version).unwrap_or(0);
        driver.count = u32::try_from(count).unwrap_or(0);
        Ok(driver)
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
        let said = |ask: unsafe extern "C" fn(c_int) -> *const c_char| {
            // SAFETY: the text is the driver's own for as long as it is loaded.
            unsafe {
                let text = ask(code);
                if text.is_null() {
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
            HIP_ERROR_OUT_OF_MEMORY => Error::OutOfMemory {
                requested,
                available: self.free_bytes(),
                cause,
            },
            HIP_ERROR_INVALID_CONTEXT | HIP_ERROR_INVALID_HANDLE => {
                Error::WrongContext { cause: Some(cause) }
            }
            _ => *cause,
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written before the call returns.
        let code = unsafe { (self.api.mem_get_info)(&mut free, &mut total) };
        (code == 0).then_some(free as u64)
    }

    /// The device that is current in this thread.
    pub(crate) fn current(&self) -> Result<Context> {
        let mut device = 0;
        // SAFETY: the device is written before the call returns.
        let code = unsafe { (self.api.get_device)(&mut device) };
        self.check(code, "hipGetDevice")?;
        Ok(Context {
            handle: 0,
            ordinal: u32::try_from(device).unwrap_or(0),
            id: 0,
        })
    }

    /// A device: there is nothing to keep.
    pub(crate) const fn retain(&self, ordinal: u32) -> Result<Context> {
        Ok(Context {
            handle: 0,
            ordinal,
            id: 0,
        })
    }

    /// Nothing was kept.
    pub(crate) const fn release(&self, _: u32) {}

    /// Runs something with a device current in this thread.
    pub(crate) fn within<R>(&self, context: Context, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let before = self.current()?.ordinal;
        if before == context.ordinal {
            return run();
        }
        self.set_device(context.ordinal)?;
        let result = run();
        // What was run was: a launch that is under way did not fail because its thread keeps the other device.
        let _ = self.set_device(before);
        result
    }

    fn set_device(&self, ordinal: u32) -> Result<()> {
        // SAFETY: a device that there is not is refused.
        let code = unsafe { (self.api.set_device)(device_of(ordinal)) };
        self.check(code, "hipSetDevice")
    }

    /// What the driver says of a device.
    pub(crate) fn describe(&self, ordinal: u32) -> Result<Device> {
        let ask = |attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: the value is written before the call returns.
            let code = unsafe {
                (self.api.device_get_attribute)(&mut value, attribute, device_of(ordinal))
            };
            self.check(code, "hipDeviceGetAttribute")?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        // SAFETY: the struct is numbers and texts, all of which may be 0.
        let mut properties: Box<Properties> = Box::new(unsafe { mem::zeroed() });
        // SAFETY: the struct is as large as any that the driver writes under this name.
        let code =
            unsafe { (self.api.get_device_properties)(&mut *properties, device_of(ordinal)) };
        self.check(code, "hipGetDeviceProperties")?;
        let mut device = Device::amd(&text_of(&properties.gcn_arch_name));
        device.name = Text::new(&text_of(&properties.name));
        device.ordinal = ordinal;
        device.driver_version = self.version;
        device.warp_size = ask(HIP_DEVICE_ATTRIBUTE_WARP_SIZE)?;
        device.max_threads = ask(HIP_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        device.max_shared = ask(HIP_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        device.multiprocessors = ask(HIP_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        device.l2_bytes = ask(HIP_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        device.cooperative = ask(HIP_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0;
        device.pageable_access = ask(HIP_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0;
        Ok(device)
    }

    /// A module belongs to a device.
    pub(crate) const fn has_modules(&self) -> bool {
        true
    }

    /// Whether a stream is capturing.
    pub(crate) fn is_capturing(&self, stream: Handle) -> Result<bool> {
        let mut status = HIP_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the status is written before the call returns; the stream is the caller's to vouch for.
        let code = unsafe { (self.api.stream_is_capturing)(stream, &mut status) };
        self.check(code, "hipStreamIsCapturing")
            .map_err(|error| self.told(error, 0))?;
        Ok(status != HIP_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Loads an image onto the device that is current. No compiler says anything.
    pub(crate) fn load(&self, image: &'static Image) -> Result<(Handles, Vec<u8>)> {
        let Ok(entry) = CString::new(image.entry) else {
            return Err(Error::InvalidImage {
                image: image.id,
                flaw: Flaw::Magic,
            });
        };
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let code = image.as_c_bytes().as_ptr().cast();
        // SAFETY: the image is whole; the module is written before the call returns.
        let status = unsafe { (self.api.module_load_data)(&mut module, code) };
        self.check(status, "hipModuleLoadData")
            .map_err(|error| self.refused(image, error))?;
        let handles = Handles {
            module: module as usize,
            function: 0,
        };
        // SAFETY: the name ends with NUL; the function is written before the call returns.
        let status =
            unsafe { (self.api.module_get_function)(&mut function, module, entry.as_ptr()) };
        self.check(status, "hipModuleGetFunction")
            .map_err(|error| {
                self.unload(handles);
                self.refused(image, error)
            })?;
        let handles = Handles {
            function: function as usize,
            ..handles
        };
        Ok((handles, Vec::new()))
    }

    fn refused(&self, image: &'static Image, error: Error) -> Error {
        match self.told(error, image.bytes.len() as u64) {
            error @ Error::Driver {
                code: HIP_ERROR_INVALID_IMAGE | HIP_ERROR_NO_BINARY_FOR_GPU,
                ..
            } => Error::InvalidImage {
                image: image.id,
                flaw: Flaw::Refused {
                    log: String::new(),
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

    /// Loading has put a function where it runs.
    pub(crate) const fn settle(&self, _: Handles) -> Result<()> {
        Ok(())
    }

    /// Unloads a module, whose device has to be current. What fails is left to the driver.
    pub(crate) fn unload(&self, handles: Handles) {
        // SAFETY: it was loaded once, and nobody launches from it any more.
        unsafe { (self.api.module_unload)(handles.module as Handle) };
    }

    /// Launches on the device that is current.
    ///
    /// # Safety
    ///
    /// The buffer holds what the image's kernel takes, and what its addresses point at is as the kernel needs it. The
    /// stream belongs to the device that is current.
    pub(crate) unsafe fn launch(&self, launch: &Launch, buffer: &mut [u8]) -> Result<()> {
        let ready = &launch.ready;
        let (image, function) = (ready.image, ready.function as Handle);
        let [x, y, z] = launch.grid;
        let (threads, shared, stream) = (ready.threads, ready.shared_dynamic, launch.stream);
        let (code, call) = if image.cooperative {
            // A cooperative launch takes no buffer.
            let code = with_addresses(image, buffer, |addresses| {
                let values = addresses.as_mut_ptr();
                let start = self.api.module_launch_cooperative_kernel;
                // SAFETY: as the caller promises; the driver copies the values before the call returns.
                unsafe { start(function, x, y, z, threads, 1, 1, shared, stream, values) }
            });
            (code, "hipModuleLaunchCooperativeKernel")
        } else {
            let mut bytes = ready.parameter_bytes;
            // HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END
            let mut extra = [
                1 as Handle,
                buffer.as_mut_ptr().cast(),
                2 as Handle,
                ptr::from_mut(&mut bytes).cast(),
                3 as Handle,
            ];
            let (none, extra) = (ptr::null_mut(), extra.as_mut_ptr());
            let start = self.api.module_launch_kernel;
            // SAFETY: as above.
            let code = unsafe {
                start(
                    function, x, y, z, threads, 1, 1, shared, stream, none, extra,
                )
            };
            (code, "hipModuleLaunchKernel")
        };
        self.check(code, call).map_err(|error| self.told(error, 0))
    }

    /// Device memory on the device that is current.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut address = ptr::null_mut();
        // SAFETY: the address is written before the call returns.
        let code = unsafe { (self.api.malloc)(&mut address, bytes) };
        self.check(code, "hipMalloc")
            .map_err(|error| self.told(error, bytes as u64))?;
        Ok(address as u64)
    }

    /// Gives memory back.
    pub(crate) fn free(&self, address: u64) {
        // SAFETY: it was allocated once, and nobody uses it any more.
        unsafe { (self.api.free)(address as Handle) };
    }

    /// Whose memory lies at an address.
    pub(crate) fn memory_of(&self, address: u64) -> Result<Memory> {
        let mut found = PointerAttributes {
            kind: 0,
            device: 0,
            device_pointer: 0,
            host_pointer: 0,
            is_managed: 0,
            flags: 0,
        };
        // SAFETY: the struct is the driver's own, and is written before the call returns; an address is only looked up.
        let code =
            unsafe { (self.api.pointer_get_attributes)(&mut found, address as *const c_void) };
        if code == HIP_ERROR_INVALID_VALUE {
            return Ok(Memory::Unknown);
        }
        self.check(code, "hipPointerGetAttributes")
            .map_err(|error| self.told(error, 0))?;
        Ok(match found.kind {
            _ if found.is_managed != 0 => Memory::Shared,
            HIP_MEMORY_TYPE_HOST | HIP_MEMORY_TYPE_MANAGED => Memory::Shared,
            HIP_MEMORY_TYPE_DEVICE => Memory::OfDevice(u32::try_from(found.device).unwrap_or(0)),
            _ => Memory::Unknown,
        })
    }

    /// Copies between host and device, when everything before is done.
    pub(crate) fn copy(&self, copy: Copying) -> Result<()> {
        // SAFETY: both places have as many bytes: the caller has them from a slice and from an allocation.
        let (code, call) = unsafe {
            match copy {
                Copying::ToDevice { to, from, bytes } => {
                    let code = (self.api.memcpy_to_device)(to as Handle, from, bytes);
                    (code, "hipMemcpyHtoD")
                }
                Copying::ToHost { to, from, bytes } => {
                    let code = (self.api.memcpy_to_host)(to, from as Handle, bytes);
                    (code, "hipMemcpyDtoH")
                }
            }
        };
        self.check(code, call).map_err(|error| self.told(error, 0))
    }

    /// Waits for everything on the device that is current.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: it takes nothing.
        let code = unsafe { (self.api.device_synchronize)() };
        self.check(code, "hipDeviceSynchronize")
            .map_err(|error| self.told(error, 0))
    }
}

fn device_of(ordinal: u32) -> c_int {
    c_int::try_from(ordinal).unwrap_or(c_int::MAX)
}

/// A text that ends with NUL, or with its room.
fn text_of(room: &[c_char]) -> String {
    let bytes = room.iter().map(|character| *character as u8);
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}
