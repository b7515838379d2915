//! Runs Kiln.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};

/// The variables that say which Python is meant, first come first.
pub(crate) const VARIABLES: [&str; 2] = ["KILN_PYTHON", "PYTHON"];
/// That of an activated virtual environment.
pub(crate) const ENVIRONMENT: &str = "VIRTUAL_ENV";

/// The packages that a build needs.
const IMPORTS: &str = "import kiln, doit, yaml, jinja2, elftools, msgpack, triton";

/// The Python that is asked for, and by what.
pub(crate) fn chosen(given: Option<&Path>) -> (OsString, String) {
    if let Some(path) = given {
        return (path.into(), "the build script".to_owned());
    }
    for name in VARIABLES {
        if let Some(path) = env::var_os(name).filter(|path| !path.is_empty()) {
            return (path, name.to_owned());
        }
    }
    if let Some(folder) = env::var_os(ENVIRONMENT).filter(|folder| !folder.is_empty()) {
        let path = PathBuf::from(folder).join("bin").join("python3");
        return (path.into(), ENVIRONMENT.to_owned());
    }
    ("python3".into(), "nothing else is said".to_owned())
}

/// Builds, with `words` behind `kiln build`, in the folder of the manifest; what Kiln warns of.
pub(crate) fn build(
    given: Option<&Path>,
    manifest: &Path,
    words: &[&OsStr],
) -> Result<Vec<String>> {
    let (python, by) = chosen(given);
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let output = run(&python, folder, &["-m", "kiln", "build"], words)
        .map_err(|reason| cannot_run(&python, &by, &reason))?;
    let (printed, told) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() {
        return Ok(told.lines().map(str::to_owned).collect());
    }
    let check = run(&python, folder, &["-c", IMPORTS], &[]);
    if let Some(why) = check.ok().filter(|check| !check.status.success()) {
        let reason = text(&why.stderr)
            .lines()
            .last()
            .unwrap_or_default()
            .to_owned();
        return Err(cannot_run(&python, &by, &reason));
    }
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| !is_progress(line))
        .chain(told.lines())
        .collect();
    Err(Error::new(format!(
        "Kiln could not build {} ({}):\n{}",
        manifest.display(),
        output.status,
        lines.join("\n")
    )))
}

fn run(
    python: &OsStr,
    folder: &Path,
    first: &[&str],
    words: &[&OsStr],
) -> std::result::Result<Output, String> {
    Command::new(python)
        .args(first)
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a line only says that something went well: `[3/12] compile:softmax_fp16_1024@sm_80`.
fn is_progress(line: &str) -> bool {
    line.strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
        .and_then(|(count, _)| count.split_once('/'))
        .is_some_and(|(done, total)| done.parse::<u64>().is_ok() && total.parse::<u64>().is_ok())
}

fn cannot_run(python: &OsStr, by: &str, reason: &str) -> Error {
    Error::new(format!(
        "there is no Kiln to build the kernels with: {reason}\n  python: {}, since {by} says so\n  \
         remedy: install Kiln there, name another Python in KILN_PYTHON, or point KILN_PREBUILT to what was built elsewhere",
        Path::new(python).display()
    ))
}
