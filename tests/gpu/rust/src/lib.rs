//! Launches as text, see tests/gpu/typed.c, and the memory that they work in.

pub mod job;
pub mod place;
