//! The kernels of `kernels.yaml`, built by this package's build script.
//!
//! What stands here of them is what the crate says that `doit` puts into `build/rust/kernels`.

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
