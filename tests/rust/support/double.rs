//! The driver that computes nothing, tests/gpu_doubles, as programs of cases set it and ask what it was asked.

// Each program uses a part of it.
#![allow(dead_code)]

use std::ffi::{c_char, c_int, c_void, CStr, CString};

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A function of the double: of the one that `$DOUBLE` names, or of libcuda's.
pub fn symbol(name: &CStr) -> *mut c_void {
    let library = match std::env::var("DOUBLE") {
        Ok(name) => CString::new(name).unwrap(),
        Err(_) => c"libcuda.so.1".into(),
    };
    let found = unsafe { dlsym(dlopen(library.as_ptr(), 1), name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

pub fn set(name: &str, value: i32) {
    let name = CString::new(name).unwrap();
    let set: extern "C" fn(*const c_char, c_int) -> c_int =
        unsafe { std::mem::transmute(symbol(c"double_set")) };
    assert_eq!(set(name.as_ptr(), value), 0, "{name:?}");
}

/// A function fails from now on, with that code; none does with `None`.
pub fn fail(function: Option<&'static CStr>, code: i32) {
    let fail: extern "C" fn(*const c_char, c_int) =
        unsafe { std::mem::transmute(symbol(c"double_fail")) };
    fail(function.map_or(std::ptr::null(), CStr::as_ptr), code);
}

/// There is memory at an address: of the driver's own kind of number, managed or not, of a device.
pub fn point(address: u64, kind: i32, is_managed: bool, device: i32) {
    let point: extern "C" fn(u64, c_int, c_int, c_int) =
        unsafe { std::mem::transmute(symbol(c"double_point")) };
    point(address, kind, is_managed.into(), device);
}

/// What the driver was asked since the last call, a line a call.
pub fn log() -> String {
    let log: extern "C" fn(*mut c_char, usize) =
        unsafe { std::mem::transmute(symbol(c"double_log")) };
    let mut text = vec![0_u8; 1 << 20];
    log(text.as_mut_ptr().cast(), text.len());
    let text = CStr::from_bytes_until_nul(&text).unwrap().to_bytes();
    String::from_utf8_lossy(text).into_owned()
}

/// Runs the case that the program's first argument names.
pub fn run(cases: &[(&str, fn())]) {
    let wanted = std::env::args().nth(1).unwrap();
    let found = cases.iter().find(|(name, _)| *name == wanted);
    let (_, case) = found.expect("a case");
    case();
}
