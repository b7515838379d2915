#![doc = include_str!("../README.md")]

mod archive;
mod depfile;
mod error;
mod generated;
mod prebuilt;
mod python;

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use generated::Generated;

pub use error::{Error, Result};

/// What a manifest is called.
const MANIFEST: &str = "kernels.yaml";

/// A library of kernels that is to be built.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct Library {
    manifest: PathBuf,
    targets: Vec<String>,
    python: Option<PathBuf>,
    defaults: bool,
}

/// A library that is built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Built {
    /// What `library` in kernels.yaml says.
    pub library: String,
    /// The folder of the generated crate, in `OUT_DIR`.
    pub crate_folder: PathBuf,
    /// The file to include in `src/lib.rs`: `<library>.rs` in `OUT_DIR`.
    pub source: PathBuf,
    /// The features of the crate that are on.
    pub features: Vec<String>,
    /// With `link-static`: the archive that the images are linked from.
    pub archive: Option<PathBuf>,
}

impl Library {
    /// The library that a `kernels.yaml` declares; its path, which ends with that name, is relative to the package's
    /// folder.
    pub fn new(manifest: impl AsRef<Path>) -> Self {
        Self {
            manifest: manifest.as_ref().to_owned(),
            targets: Vec::new(),
            python: None,
            defaults: true,
        }
    }

    /// Builds for some of its targets, and leaves out the others.
    pub fn targets(mut self, targets: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// The Python that has Kiln, whatever the environment says: a name to look up on `PATH`, or a path, relative to the
    /// package's folder.
    pub fn python(mut self, python: impl AsRef<Path>) -> Self {
        self.python = Some(python.as_ref().to_owned());
        self
    }

    /// Leaves the default features of the crate off but for the targets: what stays needs neither `std` nor a driver.
    pub fn no_default_features(mut self) -> Self {
        self.defaults = false;
        self
    }

    /// Builds the library, or takes it from `KILN_PREBUILT`, and tells Cargo all that follows from it.
    ///
    /// # Errors
    ///
    /// When Kiln says that something is wrong, when there is no Kiln, and when what was built elsewhere is another
    /// library, of another form, without a target that is asked for, or for another machine.
    pub fn build(self) -> Result<Built> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
        let manifest = self.found(&package)?;
        println!("cargo:rerun-if-env-changed={}", prebuilt::VARIABLE);
        // A package may stand for several libraries, each with a folder of its own.
        let mut hasher = DefaultHasher::new();
        manifest.hash(&mut hasher);
        let folder = out.join(format!("kiln-{:016x}", hasher.finish()));
        let links = env::var_os("CARGO_FEATURE_LINK_STATIC").is_some();

        let (root, crate_folder) = match env::var_os(prebuilt::VARIABLE) {
            Some(built) if !built.is_empty() => self.take(Path::new(&built), &manifest, &folder)?,
            _ => self.make(&package, &manifest, &folder, links)?,
        };
        let generated = Generated::read(&crate_folder)?;
        self.finish(&out, &root, crate_folder, &generated, links)
    }

    /// The manifest, in a folder without links. Kiln is run in that folder, and takes the file of that name.
    fn found(&self, package: &Path) -> Result<PathBuf> {
        let named = package.join(&self.manifest);
        if self.manifest.file_name() != Some(MANIFEST.as_ref()) {
            return Err(Error::new(format!(
                "{}: a manifest is called {MANIFEST}\n  expected: Library::new with a path that ends with /{MANIFEST}\n  \
                 actual: {}\n  remedy: rename the file; each library's lies in a folder of its own",
                named.display(),
                self.manifest.display()
            )));
        }
        let file = fs::metadata(&named).and_then(|found| match found.is_file() {
            true => fs::canonicalize(named.parent().unwrap_or(package)),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "it is no file")),
        });
        let folder = file.map_err(|error| {
            Error::io("be found", &named, error).and(&format!(
                "expected: a {MANIFEST}, relative to the package's folder"
            ))
        })?;
        Ok(folder.join(MANIFEST))
    }

    /// Builds; the folders of what was built and of the crate in it.
    fn make(
        &self,
        package: &Path,
        manifest: &Path,
        folder: &Path,
        links: bool,
    ) -> Result<(PathBuf, PathBuf)> {
        let build = folder.join("build");
        let stamp = folder.join("stamp");
        fs::create_dir_all(folder).map_err(|error| Error::io("be made", folder, error))?;
        let jobs = variable("NUM_JOBS")?;
        let targets = self.targets.join(",");
        let mut words: Vec<&OsStr> = vec!["--build-dir".as_ref(), build.as_ref()];
        words.extend(["--stamp".as_ref(), stamp.as_os_str()]);
        words.extend(["-n".as_ref(), jobs.as_os_str()]);
        if !targets.is_empty() {
            words.extend::<[&OsStr; 2]>(["--targets".as_ref(), targets.as_ref()]);
        }
        words.push("crate".as_ref());
        if links {
            words.push("archive:all".as_ref());
        }
        let python = python::chosen(self.python.as_deref(), package)?;
        for warning in python.build(manifest, &words)? {
            println!("cargo:warning={warning}");
        }
        let read = |suffix: &str| {
            let mut path = stamp.clone().into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error| Error::io("be read", &path, error))
        };
        for path in depfile::files(&read(".d")?) {
            rerun_if_changed(&path);
        }
        // Those who call Cargo from an editor and from a terminal have two, and one build for each call.
        for name in read(".env")?.lines().filter(|name| *name != "PATH") {
            println!("cargo:rerun-if-env-changed={name}");
        }
        let crates = build.join("rust");
        let made = fs::read_dir(&crates)
            .and_then(|mut entries| entries.next().transpose())
            .map_err(|error| Error::io("be read", &crates, error))?;
        match made {
            Some(entry) => Ok((build, entry.path())),
            None => Err(Error::new(format!(
                "{}: Kiln made no crate",
                crates.display()
            ))),
        }
    }

    /// Takes what was built elsewhere; its folder, and that of a copy of its crate.
    fn take(&self, built: &Path, manifest: &Path, folder: &Path) -> Result<(PathBuf, PathBuf)> {
        rerun_if_changed(manifest);
        let library = prebuilt::library_name(manifest)?;
        let from = prebuilt::crate_folder(built, &library)?;
        let generated = Generated::read(&from)?;
        if generated.library != library {
            return Err(Error::new(format!(
                "{}: the crate is another library's\n  expected: {library}, as in {}\n  actual: {}",
                from.display(),
                manifest.display(),
                generated.library
            )));
        }
        let lacking = |target: &&String| !generated.targets.contains(target);
        if let Some(target) = self.targets.iter().find(lacking) {
            return Err(Error::new(format!(
                "{}: the library was built without the target {target}\n  expected: {}\n  actual: {}",
                from.display(),
                self.targets.join(", "),
                generated.targets.join(", ")
            )));
        }
        let copied = folder.join("prebuilt");
        if copied.exists() {
            fs::remove_dir_all(&copied).map_err(|error| Error::io("be removed", &copied, error))?;
        }
        for path in prebuilt::copy(&from, &copied)? {
            rerun_if_changed(&path);
        }
        Ok((built.to_owned(), copied))
    }

    /// Writes what the package includes, and tells Cargo of features and archive.
    fn finish(
        &self,
        out: &Path,
        root: &Path,
        crate_folder: PathBuf,
        generated: &Generated,
        links: bool,
    ) -> Result<Built> {
        let library = generated.library.clone();
        let include = crate_folder.join("include.rs");
        let source = out.join(format!("{library}.rs"));
        // What an earlier run of the build script left is included as well as what this one made, so the file asks for a
        // word of the run that Cargo looked at last.
        let mark = format!("KILN_BUILT_{}", library.to_uppercase());
        println!("cargo:rustc-env={mark}=1");
        let stale = format!(
            "{library}.rs is of an earlier build: `library` in kernels.yaml has another name now, which is that of the \
             file to include, or build.rs does not call `.build()`"
        );
        // Debug writes a text as a string literal of Rust.
        let text = format!("const _: &str = env!({mark:?}, {stale:?});\ninclude!({include:?});\n");
        fs::write(&source, text).map_err(|error| Error::io("be written", &source, error))?;

        let features = self.features(generated);
        for name in &features {
            println!("cargo:rustc-cfg=feature=\"{name}\"");
        }
        let names: Vec<_> = generated
            .features
            .keys()
            .map(|name| format!("{name:?}"))
            .collect();
        let names = names.join(", ");
        println!("cargo:rustc-check-cfg=cfg(feature, values({names}))");
        let mut archive = None;
        if links {
            let lib = root.join("lib");
            let path = lib.join(format!("lib{library}.a"));
            let word = |name| env::var(name).unwrap_or_default();
            let (arch, os) = (word("CARGO_CFG_TARGET_ARCH"), word("CARGO_CFG_TARGET_OS"));
            archive::check(&path, &arch, &os)?;
            if !path.starts_with(out) {
                rerun_if_changed(&path);
            }
            println!("cargo:rustc-link-search=native={}", lib.display());
            archive = Some(path);
        }
        Ok(Built {
            library,
            crate_folder,
            source,
            features,
            archive,
        })
    }

    /// The default features, or the targets alone, and those that the package has features for.
    fn features(&self, generated: &Generated) -> Vec<String> {
        let is_target = |name: &str| generated.targets.iter().any(|target| target == name);
        let wanted = |name: &str| {
            let asked = self.targets.is_empty() || self.targets.iter().any(|target| target == name);
            let variable = format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"));
            if is_target(name) {
                asked
            } else {
                env::var_os(variable).is_some()
            }
        };
        let defaults = generated
            .features
            .get("default")
            .map_or(&[][..], Vec::as_slice);
        let defaults = defaults
            .iter()
            .map(String::as_str)
            .filter(|name| self.defaults && !is_target(name));
        let named = generated.features.keys().map(String::as_str);
        let chosen = defaults.chain(named.filter(|name| *name != "default" && wanted(name)));
        generated
            .closure(chosen)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }
}

fn variable(name: &str) -> Result<OsString> {
    env::var_os(name).ok_or_else(|| {
        Error::new(format!(
            "{name} is not set: kiln-build works in build scripts, which Cargo runs"
        ))
    })
}

fn rerun_if_changed(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}
