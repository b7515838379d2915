//! Device addresses, typed by what lies there, and the element types that Rust has no word for.

use core::ffi::c_void;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

/// An address in a device's memory, of elements of type `T`. It must not be dereferenced on the host.
///
/// `DevicePtr<c_void>` is the address of elements whose type differs between the variants of a group.
#[repr(transparent)]
pub struct DevicePtr<T> {
    address: u64,
    element: PhantomData<fn(T) -> T>,
}

impl<T> DevicePtr<T> {
    /// The address that points at nothing.
    pub const NULL: Self = Self::new(0);

    /// The address as a driver gives it.
    #[must_use]
    pub const fn new(address: u64) -> Self {
        Self {
            address,
            element: PhantomData,
        }
    }

    /// The address as a driver takes it.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Whether it points at nothing.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The same address, of elements of another type.
    #[must_use]
    pub const fn cast<U>(self) -> DevicePtr<U> {
        DevicePtr::new(self.address)
    }

    /// The address `count` elements further on; it wraps at 64 bits.
    #[must_use]
    pub const fn wrapping_add(self, count: u64) -> Self {
        let bytes = count.wrapping_mul(core::mem::size_of::<T>() as u64);
        Self::new(self.address.wrapping_add(bytes))
    }
}

// Derived ones would ask the same of `T`.
impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

impl<T> Default for DevicePtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> Eq for DevicePtr<T> {}

impl<T> PartialEq for DevicePtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Hash for DevicePtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

impl<T> fmt::Debug for DevicePtr<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DevicePtr({:#x})", self.address)
    }
}

impl<T> fmt::Pointer for DevicePtr<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.address)
    }
}

impl<T> From<DevicePtr<T>> for u64 {
    fn from(pointer: DevicePtr<T>) -> Self {
        pointer.address
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What a kernel's arrays are made of.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The dtype, in Triton's words: `fp16`.
    const DTYPE: &'static str;
}

macro_rules! elements {
    ($($type:ty: $dtype:literal,)*) => {
        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
                const DTYPE: &'static str = $dtype;
            }
        )*
    };
}

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident($bits:ty): $dtype:literal,)*) => {
        $(
            $(#[$doc])*
            ///
            /// Equality is that of the bits.
            #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
            #[repr(transparent)]
            pub struct $name($bits);

            impl $name {
                /// The number with these bits.
                #[must_use]
                pub const fn from_bits(bits: $bits) -> Self {
                    Self(bits)
                }

                /// Its bits.
                #[must_use]
                pub const fn to_bits(self) -> $bits {
                    self.0
                }
            }
        )*

        elements! { $($name: $dtype,)* }
    };
}

bits! {
    /// An `fp16`: IEEE 754 binary16, as CUDA's `__half`.
    F16(u16): "fp16",
    /// A `bf16`: the upper half of an `f32`, as CUDA's `__nv_bfloat16`.
    BF16(u16): "bf16",
    /// An `fp8e4nv`: 4 bits of exponent, 3 of mantissa, no infinity; elsewhere e4m3fn.
    F8E4NV(u8): "fp8e4nv",
    /// An `fp8e4b8`: 4 bits of exponent with a bias of 8; elsewhere e4m3fnuz.
    F8E4B8(u8): "fp8e4b8",
    /// An `fp8e4b15`: 4 bits of exponent with a bias of 15.
    F8E4B15(u8): "fp8e4b15",
    /// An `fp8e5`: 5 bits of exponent, 2 of mantissa; elsewhere e5m2.
    F8E5(u8): "fp8e5",
    /// An `fp8e5b16`: 5 bits of exponent with a bias of 16; elsewhere e5m2fnuz.
    F8E5B16(u8): "fp8e5b16",
}

elements! {
    bool: "i1",
    i8: "i8",
    i16: "i16",
    i32: "i32",
    i64: "i64",
    u8: "u8",
    u16: "u16",
    u32: "u32",
    u64: "u64",
    f32: "fp32",
    f64: "fp64",
}

/// A stream of the driver: `CUstream` or `hipStream_t`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(transparent)]
pub struct Stream(usize);

impl Stream {
    /// The default stream of the library's context.
    pub const DEFAULT: Self = Self(0);

    /// The driver's handle. Whether it is a stream is looked at by the driver alone, when something is launched on it.
    #[must_use]
    pub fn from_raw(handle: *mut c_void) -> Self {
        Self(handle as usize)
    }

    /// The driver's handle.
    #[must_use]
    pub fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::DEFAULT
    }
}
