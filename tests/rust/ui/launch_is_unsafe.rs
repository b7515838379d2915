//! E0133: call to unsafe function

use kernels::variants::softmax_fp32_1024::Args;
use kernels::{Error, Kernel, Stream};

pub fn launch(kernel: &Kernel<Args>, args: &Args) -> Result<(), Error> {
    kernel.launch(args, Stream::DEFAULT)
}

fn main() {}
