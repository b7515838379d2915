//! Walks every image that the crate `kernels` embeds, and checks its digest and alignment.
//!
//! Build the crate first, with `doit`; then `cargo run` here. It prints `id kind size sha256 ok` for each image, and
//! exits with 1 when one is not what its record says.

use std::process::ExitCode;

use kernels::{Image, Kind};
use sha2::{Digest, Sha256};

fn main() -> ExitCode {
    let mut walked = 0;
    let mut wrong = 0;
    for image in kernels::images() {
        let digest = Sha256::digest(image.bytes);
        let verdict = match fault(image, &digest) {
            None => "ok",
            Some(fault) => {
                wrong += 1;
                fault
            }
        };
        let (id, kind, size) = (image.id, image.kind, image.bytes.len());
        println!("{id} {kind} {size} {digest:x} {verdict}");
        walked += 1;
    }
    if walked == 0 {
        eprintln!("the crate holds no image: every target's feature is off");
        return ExitCode::FAILURE;
    }
    if wrong > 0 {
        eprintln!("{wrong} of {walked} images are not what their records say");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What is wrong with an image, whose bytes have this digest.
fn fault(image: &Image, digest: &[u8]) -> Option<&'static str> {
    if digest != image.sha256 {
        return Some("has another digest than its record");
    }
    if image.bytes.as_ptr() as usize % 64 != 0 {
        return Some("is not aligned to 64 bytes");
    }
    if image.kind == Kind::Ptx && image.as_c_bytes().last() != Some(&0) {
        return Some("does not end with a NUL");
    }
    None
}
