//! Which machine a static archive is for. Source of the formats: ar(5) of GNU binutils, and the System V ABI for ELF.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"!<arch>\n";

/// Holds the archive against the machine that Cargo builds for, `arch` and `os` in Cargo's words.
pub(crate) fn check(archive: &Path, arch: &str, os: &str) -> Result<()> {
    let machine = machine(archive).map_err(|error| {
        Error::io("be read", archive, error).and(
            "expected: the archive of the C package, which link-static takes the images out of\n  \
             remedy: have `lib/` beside `rust/` in what KILN_PREBUILT names, as `doit` makes both, or leave out the \
             feature link-static",
        )
    })?;
    let found = match machine {
        Some(62) => "x86_64",
        Some(183) => "aarch64",
        _ => "another machine",
    };
    if found == arch && os == "linux" {
        return Ok(());
    }
    let host = match arch {
        "x86_64" | "aarch64" if os == "linux" => {
            format!("say `host: {arch}-linux-gnu` in kernels.yaml, or ")
        }
        _ => String::new(),
    };
    Err(Error::new(format!(
        "{}: the archive is for another machine than Cargo builds for\n  expected: {arch} with {os}\n  \
         actual: {found} with linux\n  remedy: {host}leave out the feature link-static: included images are for every machine",
        archive.display()
    )))
}

/// The machine of the first ELF file in an archive, as ELF numbers it; `None` where there is none.
fn machine(archive: &Path) -> io::Result<Option<u16>> {
    let mut file = BufReader::new(File::open(archive)?);
    let mut magic = [0; 8];
    file.read_exact(&mut magic)?;
    if &magic != MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is no archive",
        ));
    }
    loop {
        let mut header = [0; 60];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let size = header
            .get(48..58)
            .and_then(|text| std::str::from_utf8(text).ok());
        let Some(size) = size.and_then(|text| text.trim().parse::<i64>().ok()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a member of it has no size",
            ));
        };
        let mut start = [0; 20];
        let taken = usize::try_from(size).unwrap_or(0).min(start.len());
        let (head, _) = start.split_at_mut(taken);
        file.read_exact(head)?;
        if let [0x7f, b'E', b'L', b'F', .., low, high] = start {
            if taken == start.len() {
                return Ok(Some(u16::from_le_bytes([low, high])));
            }
        }
        let left = size - i64::try_from(taken).unwrap_or(0) + (size & 1);
        file.seek(SeekFrom::Current(left))?;
    }
}
