//! E0603: module `params` is private

#[derive(Clone, Copy)]
struct Own;

impl kernels::params::Sealed for Own {}

fn main() {}
