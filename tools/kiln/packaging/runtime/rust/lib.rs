#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// The names of variants, arguments and the crate are those that the kernels were declared with.
#![allow(non_snake_case)]
// And so are the constants, one of which may be close to pi.
#![allow(clippy::approx_constant)]

mod arithmetic;
mod image;
mod launch;
mod lookup;
mod tables;
pub mod variants;

pub use image::{Constant, Image, Kind, Parameter, Role, Value};
pub use launch::{DevicePtr, GridError};
pub use lookup::{find, for_target, group, images};
pub use tables::{IMAGES, LIBRARY, TARGETS};
