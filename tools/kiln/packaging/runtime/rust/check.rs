//! What can be seen of an image's bytes before a driver has them: an error here names the image, and a driver's would not.

use crate::error::{Error, Flaw, Result};
use crate::image::{Image, Kind};

/// `e_machine` of a cubin and of an hsaco: "CUDA" and "AMD GPU" of the ELF registry.
const CUDA: u16 = 190;
const AMDGPU: u16 = 224;

/// `EF_AMDGPU_MACH`, bits 0 to 7 of `e_flags`, of the GPUs that Kiln builds for (LLVM, "User Guide for AMDGPU Backend").
const MACHINES: [(u32, &str); 19] = [
    (0x2c, "gfx900"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x33, "gfx1010"),
    (0x36, "gfx1030"),
    (0x3f, "gfx90a"),
    (0x41, "gfx1100"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x49, "gfx1250"),
    (0x4a, "gfx1151"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x55, "gfx1152"),
    (0x58, "gfx1153"),
];

/// The start of an ELF file of 64 bits, least significant byte first, up to `e_flags`.
const HEADER: usize = 52;

/// Holds an image against its record: magic, class, machine and architecture of an ELF file; `.version` and `.target` of
/// a PTX.
pub(crate) fn check(image: &'static Image) -> Result<()> {
    let found = match image.kind {
        Kind::Ptx => ptx(image),
        Kind::Cubin => elf(image.bytes, CUDA).and_then(|flags| cubin(image, flags)),
        Kind::Hsaco => elf(image.bytes, AMDGPU).and_then(|flags| hsaco(image, flags)),
    };
    found.map_err(|flaw| Error::InvalidImage {
        image: image.id,
        flaw,
    })
}

/// The flags of an ELF file for a machine.
fn elf(bytes: &[u8], expected: u16) -> core::result::Result<u32, Flaw> {
    let Some([0x7f, b'E', b'L', b'F', class, order, rest @ ..]) = bytes.first_chunk::<HEADER>()
    else {
        return Err(Flaw::Magic);
    };
    if (*class, *order) != (2, 1) {
        return Err(Flaw::Class);
    }
    // What is behind the first six bytes: e_machine stands at 18, e_flags at 48.
    let [_, _, _, _, _, _, _, _, _, _, _, _, low, high, .., a, b, c, d] = *rest;
    let found = u16::from_le_bytes([low, high]);
    if found != expected {
        return Err(Flaw::Machine { expected, found });
    }
    Ok(u32::from_le_bytes([a, b, c, d]))
}

/// Compilers up to CUDA 12.9 have the number of the architecture in bits 0 to 7 for `sm_90` and below; CUDA 12.9 from
/// `sm_100` on, and CUDA 13 for all, in bits 8 to 15. The ABI's version, which stands in the ELF header, tells them apart.
fn cubin(image: &Image, flags: u32) -> core::result::Result<(), Flaw> {
    const NEWER_ABI: u8 = 8;
    let abi = image.bytes.get(8).copied().unwrap_or(0);
    let found = if abi >= NEWER_ABI {
        flags >> 8 & 0xff
    } else {
        flags & 0xff
    };
    let number = image
        .target
        .trim_matches(|character: char| !character.is_ascii_digit());
    match number.parse::<u32>() {
        Ok(declared) if declared == found => Ok(()),
        _ => Err(Flaw::Architecture { found }),
    }
}

/// What follows the name of the GPU, as in `gfx90a:xnack+`, is the driver's to hold against its device.
fn hsaco(image: &Image, flags: u32) -> core::result::Result<(), Flaw> {
    let found = flags & 0xff;
    let declared = image.target.split(':').next();
    match MACHINES.iter().find(|(_, name)| declared == Some(*name)) {
        Some((number, _)) if *number != found => Err(Flaw::Architecture { found }),
        _ => Ok(()),
    }
}

/// The values of the first `.version` and `.target`, which stand before all code. Comments may hold any bytes.
fn ptx(image: &Image) -> core::result::Result<(), Flaw> {
    let value = |directive: &[u8]| {
        let mut lines = image.bytes.split(|byte| *byte == b'\n');
        let found = lines.find_map(|line| line.trim_ascii_start().strip_prefix(directive))?;
        let mut words = found.split(|byte| byte.is_ascii_whitespace() || *byte == b',');
        words.find(|word| !word.is_empty())
    };
    if value(b".version") != image.ptx_isa.map(str::as_bytes) {
        return Err(Flaw::PtxVersion);
    }
    let declared = image.target.trim_start_matches("compute_");
    let target = value(b".target").and_then(|target| target.strip_prefix(b"sm_"));
    if target != Some(declared.as_bytes()) {
        return Err(Flaw::PtxTarget);
    }
    Ok(())
}
