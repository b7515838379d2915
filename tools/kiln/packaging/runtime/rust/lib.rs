#![cfg_attr(feature = "driver", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "driver"),
    doc = "Kernels for GPUs, without launching: images, records, arguments and grids."
)]
#![no_std]
// What asks a driver allows it, block by block.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![deny(missing_docs)]
// Nothing here panics: what can go wrong is an error.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing)]
// The names of variants, arguments and the crate are those that the kernels were declared with.
#![allow(non_snake_case)]
// And so are the constants, one of which may be close to pi.
#![allow(clippy::approx_constant)]
// What a package without a `rust-version`, or of a later edition, could write in newer words than 1.81 knows. First of all
// it does not know these names.
#![allow(unknown_lints)]
#![allow(clippy::manual_is_multiple_of)]
#![allow(clippy::collapsible_if)]

#[cfg(feature = "std")]
extern crate std;

#[cfg(any(feature = "cudarc", feature = "cust"))]
pub mod adapters;
mod arithmetic;
#[cfg(feature = "driver")]
mod check;
#[cfg(feature = "std")]
mod choices;
mod device;
#[cfg(feature = "driver")]
#[allow(unsafe_code)]
mod driver;
mod error;
mod extent;
mod foreign;
pub mod groups;
#[cfg(feature = "f16")]
mod half;
mod image;
#[cfg(feature = "driver")]
mod kernel;
mod launch;
#[cfg(feature = "driver")]
mod library;
mod lookup;
#[cfg(feature = "driver")]
mod memory;
mod params;
mod pointer;
#[cfg(feature = "driver")]
mod pointer_checks;
mod refused;
mod select;
mod sha256;
mod tables;
mod variant;
pub mod variants;

#[cfg(feature = "std")]
pub use choices::Choices;
pub use device::{Architecture, Device, Release, Text, Vendor};
#[cfg(feature = "driver")]
pub use error::BadPointer;
pub use error::{Error, Flaw, Result};
pub use extent::SizeError;
pub use image::{Constant, Image, Kind, Parameter, Role, Value};
#[cfg(feature = "driver")]
pub use kernel::Kernel;
pub use launch::{GridError, LaunchConfig};
#[cfg(feature = "driver")]
pub use library::{Library, LibraryOptions, RawHandles, ScratchAllocator};
pub use lookup::{find, find_group, find_variant, for_target, group, images};
#[cfg(feature = "driver")]
pub use memory::DeviceBuffer;
pub use params::{KernelParams, Scratch};
pub use pointer::{DevicePtr, Element, Stream, BF16, F16, F8E4B15, F8E4B8, F8E4NV, F8E5, F8E5B16};
#[cfg(feature = "driver")]
pub use pointer_checks::Checks;
pub use refused::Values;
pub use select::{judge, Refusal, Selection};
pub use tables::{GROUPS, IMAGES, LIBRARY, TARGETS, TARGET_VARIABLE, VARIANTS};
pub use variant::{Argument, Group, Variant};
