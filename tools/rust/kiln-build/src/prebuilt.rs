//! What was built elsewhere, in place of a build.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The variable that names the folder.
pub(crate) const VARIABLE: &str = "KILN_PREBUILT";

/// The folder of a library's crate below what Kiln built.
pub(crate) fn crate_folder(built: &Path, library: &str) -> Result<PathBuf> {
    if !built.is_absolute() {
        return Err(Error::new(format!(
            "{VARIABLE} is {}, and nobody knows which folder that starts from\n  expected: an absolute path",
            built.display()
        )));
    }
    let folder = built.join("rust").join(library);
    if folder.join("Cargo.toml").is_file() {
        return Ok(folder);
    }
    let there = fs::read_dir(built.join("rust"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect::<Vec<_>>();
    let actual = if there.is_empty() {
        "no crate at all".to_owned()
    } else {
        format!("crates of {}", there.join(", "))
    };
    Err(Error::new(format!(
        "{VARIABLE} has no crate of the library {library}\n  expected: {}\n  actual: {actual}\n  \
         remedy: name the build folder of that library, or unset {VARIABLE}, and it is built here",
        folder.display()
    )))
}

/// The name of the library, as kernels.yaml has it on a line of its own; there is no YAML reader here.
pub(crate) fn library_name(manifest: &Path) -> Result<String> {
    let text =
        fs::read_to_string(manifest).map_err(|error| Error::io("be read", manifest, error))?;
    text.lines()
        .find_map(|line| line.strip_prefix("library:"))
        .and_then(|value| value.split(" #").next())
        .map(|value| value.trim().trim_matches(['"', '\'']).to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| {
            Error::new(format!(
                "{}: with {VARIABLE} the library's name is read without Kiln\n  \
                 expected: a line that begins with `library:` and has the name behind it\n  actual: none",
                manifest.display()
            ))
        })
}

/// What belongs to a crate, in its folder. Whoever tried it out there left more: `target`, `Cargo.lock`.
const PARTS: [&str; 5] = ["Cargo.toml", "README.md", "include.rs", "src", "images"];

/// Copies a crate, and says which files it has.
///
/// Editors look for a package's code in its own folder and in that of its build script, and nowhere else.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(to).map_err(|error| Error::io("be made", to, error))?;
    let mut files = Vec::new();
    for part in PARTS {
        copy_part(&from.join(part), &to.join(part), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Copies a file, or a folder with all that is in it.
fn copy_part(from: &Path, to: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to).map_err(|error| Error::io("be copied", from, error))?;
        files.push(from.to_owned());
        return Ok(());
    }
    fs::create_dir_all(to).map_err(|error| Error::io("be made", to, error))?;
    for entry in fs::read_dir(from).map_err(|error| Error::io("be read", from, error))? {
        let entry = entry.map_err(|error| Error::io("be read", from, error))?;
        copy_part(&entry.path(), &to.join(entry.file_name()), files)?;
    }
    Ok(())
}
