//! E0133: call to unsafe function

use kernels::{Error, Library};

pub fn open() -> Result<Library, Error> {
    Library::for_current_context()
}

fn main() {}
