//! The 16-bit floating-point numbers of the crate half, which have the same bits.

use crate::pointer::{BF16, F16};

impl From<half::f16> for F16 {
    fn from(number: half::f16) -> Self {
        Self::from_bits(number.to_bits())
    }
}

impl From<F16> for half::f16 {
    fn from(number: F16) -> Self {
        Self::from_bits(number.to_bits())
    }
}

impl From<half::bf16> for BF16 {
    fn from(number: half::bf16) -> Self {
        Self::from_bits(number.to_bits())
    }
}

impl From<BF16> for half::bf16 {
    fn from(number: BF16) -> Self {
        Self::from_bits(number.to_bits())
    }
}
