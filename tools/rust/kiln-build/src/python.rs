//! Runs Kiln.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};

/// The variables that say which Python is meant, first come first.
const VARIABLES: [&str; 2] = ["KILN_PYTHON", "PYTHON"];
/// That of an activated virtual environment.
const ENVIRONMENT: &str = "VIRTUAL_ENV";

/// The packages that a build needs.
const IMPORTS: &str = "import kiln, doit, yaml, jinja2, elftools, msgpack, triton";

/// A Python.
pub(crate) struct Python {
    program: OsString,
    /// Which one it is and why, for those who meant another.
    told: String,
}

/// The Python that is asked for. Cargo is told of each variable that was looked at, and of no other.
pub(crate) fn chosen(given: Option<&Path>, package: &Path) -> Result<Python> {
    let told = |program: &OsStr, by: &str| {
        let program = Path::new(program).display();
        format!("{program}, since {by} says so")
    };
    if let Some(path) = given {
        let program = match is_name(path) {
            true => path.as_os_str().to_owned(),
            false => package.join(path).into_os_string(),
        };
        let told = told(&program, "the build script");
        return Ok(Python { program, told });
    }
    for name in VARIABLES {
        if let Some(program) = variable(name) {
            let path = Path::new(&program);
            if !is_name(path) && !path.is_absolute() {
                return Err(relative(name, path));
            }
            let told = told(&program, name);
            return Ok(Python { program, told });
        }
    }
    if let Some(folder) = variable(ENVIRONMENT) {
        let program = PathBuf::from(folder)
            .join("bin")
            .join("python3")
            .into_os_string();
        let told = told(&program, ENVIRONMENT);
        return Ok(Python { program, told });
    }
    Ok(Python {
        program: "python3".into(),
        told: "python3 of PATH, since neither KILN_PYTHON, PYTHON nor an activated environment names another"
            .to_owned(),
    })
}

/// A variable's value, where it has one; Cargo asks again when that changes.
fn variable(name: &str) -> Option<OsString> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a program is looked up on `PATH`.
fn is_name(program: &Path) -> bool {
    program.components().count() == 1 && !program.is_absolute()
}

fn relative(name: &str, path: &Path) -> Error {
    Error::new(format!(
        "{name} is {path}, and nobody knows which folder that starts from\n  expected: an absolute path, or a name to \
         look up on PATH\n  remedy: for a path that starts from the project's folder, have the lines `[env]` and \
         `{name} = {{ value = \"{path}\", relative = true }}` in its .cargo/config.toml, and unset {name}",
        path = path.display()
    ))
}

impl Python {
    /// Builds, with `words` behind `kiln build`, in the folder of the manifest; what Kiln warns of.
    pub(crate) fn build(&self, manifest: &Path, words: &[&OsStr]) -> Result<Vec<String>> {
        let folder = manifest.parent().unwrap_or(Path::new("."));
        let output = self
            .run(folder, &["-m", "kiln", "build"], words)
            .map_err(|reason| self.cannot_run(&reason))?;
        let (printed, told) = (text(&output.stdout), text(&output.stderr));
        if output.status.success() {
            return Ok(told.lines().map(str::to_owned).collect());
        }
        let check = self.run(folder, &["-c", IMPORTS], &[]);
        if let Some(why) = check.ok().filter(|check| !check.status.success()) {
            let why = text(&why.stderr);
            return Err(self.cannot_run(why.lines().last().unwrap_or_default()));
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
        &self,
        folder: &Path,
        first: &[&str],
        words: &[&OsStr],
    ) -> std::result::Result<Output, String> {
        Command::new(&self.program)
            .args(first)
            .args(words)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())
    }

    fn cannot_run(&self, reason: &str) -> Error {
        let Self { program, told } = self;
        Error::new(format!(
            "there is no Kiln to build the kernels with: {reason}\n  python: {told}\n  remedy: install Kiln there, \
             `{} -m pip install PATH/OF/KILN`; or name another Python in KILN_PYTHON; or point KILN_PREBUILT to what was \
             built elsewhere",
            Path::new(program).display()
        ))
    }
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
