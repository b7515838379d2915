//! Other crates' contexts, streams and memory, for launches on them.
#![allow(unsafe_code)]

#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;

use crate::pointer::{Element, BF16, F16, F8E4B15, F8E4B8, F8E4NV, F8E5, F8E5B16};

/// A type whose values have the bits of a kernel's elements `E`: `E` itself, but for `bool`; the integer of the same size
/// for what Rust has no word for; with the feature `f16` the numbers of half.
///
/// # Safety
///
/// Size and alignment are those of `E`, and each pattern of bits is a value.
pub unsafe trait SameBits<E: Element> {}

macro_rules! same_bits {
    ($($element:ty: $($type:ty)*;)*) => {
        $($(
            // SAFETY: they are the same type, or one is a transparent struct of the other or of the same integer.
            unsafe impl SameBits<$element> for $type {}
        )*)*
    };
}

same_bits! {
    bool: u8;
    i8: i8;
    i16: i16;
    i32: i32;
    i64: i64;
    u8: u8;
    u16: u16;
    u32: u32;
    u64: u64;
    f32: f32;
    f64: f64;
    F16: F16 u16;
    BF16: BF16 u16;
    F8E4NV: F8E4NV u8;
    F8E4B8: F8E4B8 u8;
    F8E4B15: F8E4B15 u8;
    F8E5: F8E5 u8;
    F8E5B16: F8E5B16 u8;
}

#[cfg(feature = "f16")]
same_bits! {
    F16: half::f16;
    BF16: half::bf16;
}
