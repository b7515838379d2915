//! lifetime may not live long enough

use kernels::variants::softmax_fp32_1024::{Args, SM_80};
use kernels::KernelParams;

pub fn addresses(args: &Args) -> &mut [*mut core::ffi::c_void] {
    args.with_raw_params(&SM_80, |addresses| addresses).unwrap()
}

fn main() {}
