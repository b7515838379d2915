//! Opens a driver's library, and resolves what is used of it; and notices a fork.

use core::ffi::{c_void, CStr};
use core::sync::atomic::{AtomicBool, Ordering};
use std::string::String;

use crate::error::{Error, Result};

/// A driver is open, or about to be.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// This process is a child, and its parent had a driver open.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Whether the driver is lost by a fork.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
mod system {
    use core::ffi::{c_char, c_int, c_void};

    pub(super) const RTLD_LAZY: c_int = 1;
    pub(super) const RTLD_NOLOAD: c_int = 4;

    crate::foreign::foreign! {{
        pub(super) fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        pub(super) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        pub(super) fn dlerror() -> *const c_char;
        pub(super) fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }}
}

/// An open library, which stays open: drivers do not survive to be closed.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    name: &'static str,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    handle: *mut c_void,
}

/// Opens the first of some libraries that is there.
#[cfg(target_os = "linux")]
pub(crate) fn open(names: &[(&'static str, &'static CStr)]) -> Result<Opened> {
    // A program may have brought its own, under a name that is not found again: take that one.
    for flags in [system::RTLD_LAZY | system::RTLD_NOLOAD, system::RTLD_LAZY] {
        for (name, path) in names {
            // SAFETY: the name is a text that ends with NUL. What the library runs when it is loaded is the driver's.
            let handle = unsafe { system::dlopen(path.as_ptr(), flags) };
            if !handle.is_null() {
                return Ok(Opened { name, handle });
            }
        }
    }
    let (library, path) = names.first().copied().unwrap_or(("", c""));
    // SAFETY: as above; the message, where there is one, holds until this thread's next call of that kind.
    let reason = unsafe {
        system::dlopen(path.as_ptr(), system::RTLD_LAZY);
        let message = system::dlerror();
        if message.is_null() {
            String::from("it is not there")
        } else {
            CStr::from_ptr(message).to_string_lossy().into_owned()
        }
    };
    Err(Error::DriverNotFound { library, reason })
}

/// There are drivers for Linux alone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open(names: &[(&'static str, &'static CStr)]) -> Result<Opened> {
    Err(Error::DriverNotFound {
        library: names.first().map_or("", |(name, _)| *name),
        reason: String::from("this crate knows the drivers of Linux alone"),
    })
}

impl Opened {
    /// The library's file name.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The address of a function; `None` where the library has none of that name.
    #[cfg(target_os = "linux")]
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the library is open, and the name ends with NUL.
        let found = unsafe { system::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// No library is ever open.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn symbol(&self, _: &CStr) -> Option<*mut c_void> {
        None
    }
}

/// Opens a driver; from then on a child of this process knows that it is one. `had_one`: one was open before.
pub(crate) fn watched<T>(had_one: bool, open: impl FnOnce() -> Result<T>) -> Result<T> {
    watch_forks();
    IS_OPEN.store(true, Ordering::Relaxed);
    let opened = open();
    IS_OPEN.store(had_one || opened.is_ok(), Ordering::Relaxed);
    opened
}

#[cfg(target_os = "linux")]
fn watch_forks() {
    extern "C" fn in_child() {
        if IS_OPEN.load(Ordering::Relaxed) {
            IS_FORKED.store(true, Ordering::Relaxed);
        }
    }
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: the function may run in a child at any moment: all it does is to look at one atomic and to set another.
        // Without memory for it, a child would not be told: it would get the driver's own errors.
        unsafe { system::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[cfg(not(target_os = "linux"))]
fn watch_forks() {}

/// Declares the functions of a driver, and a way to resolve all of them.
///
/// `needed` ones are called, `optional` ones are `Option`s: older drivers lack them.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        struct $table:ident, since $since:literal;
        needed { $($need:ident = $need_symbol:literal: fn($($need_type:ty),* $(,)?) -> $need_result:ty;)* }
        optional { $($option:ident = $option_symbol:literal: fn($($option_type:ty),* $(,)?) -> $option_result:ty;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $need: unsafe extern "C" fn($($need_type),*) -> $need_result,)*
            $(pub(crate) $option: Option<unsafe extern "C" fn($($option_type),*) -> $option_result>,)*
        }

        impl $table {
            /// Finds every function in a library.
            fn resolve(library: $crate::driver::load::Opened) -> $crate::error::Result<Self> {
                let missing = |symbol: &'static ::core::ffi::CStr| $crate::error::Error::SymbolMissing {
                    library: library.name(),
                    symbol: symbol.to_str().unwrap_or(""),
                    since: $since,
                };
                Ok(Self {
                    $($need: {
                        let found = library.symbol($need_symbol).ok_or_else(|| missing($need_symbol))?;
                        // SAFETY: the function of that name is declared so in the vendor's header, and stays where it is:
                        // the library is never closed.
                        unsafe {
                            ::core::mem::transmute::<
                                *mut ::core::ffi::c_void,
                                unsafe extern "C" fn($($need_type),*) -> $need_result,
                            >(found)
                        }
                    },)*
                    $($option: library.symbol($option_symbol).map(|found| {
                        // SAFETY: as above.
                        unsafe {
                            ::core::mem::transmute::<
                                *mut ::core::ffi::c_void,
                                unsafe extern "C" fn($($option_type),*) -> $option_result,
                            >(found)
                        }
                    }),)*
                })
            }
        }
    };
}

pub(crate) use functions;
