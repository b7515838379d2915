//! E0308: mismatched types

use kernels::variants::{alone_fp32_1024, softmax_fp32_1024};
use kernels::{Error, Kernel, Stream};

pub fn launch(
    kernel: &Kernel<softmax_fp32_1024::Args>,
    args: &alone_fp32_1024::Args,
) -> Result<(), Error> {
    unsafe { kernel.launch(args, Stream::DEFAULT) }
}

fn main() {}
