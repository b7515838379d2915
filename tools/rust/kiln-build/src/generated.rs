//! What a crate that Kiln generated says of itself in its Cargo.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// The form of generated crates that this version includes.
pub(crate) const ABI: &str = "1";

/// A generated crate.
#[derive(Debug)]
pub(crate) struct Generated {
    /// The library's name, which is the crate's.
    pub(crate) library: String,
    /// What it has images for.
    pub(crate) targets: Vec<String>,
    /// Each feature, with what it switches on.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

impl Generated {
    /// The crate in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).map_err(|error| Error::io("be read", &path, error))?;
        Self::parse(&text).map_err(|reason| Error::new(format!("{}: {reason}", path.display())))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut features: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut section = "";
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            } else if let Some((key, value)) = line.split_once(" = ") {
                let mut value = value.to_owned();
                // A list may go over several lines.
                while value.starts_with('[') && !value.ends_with(']') {
                    value += lines.next().unwrap_or("]").trim();
                }
                let told_by = match section {
                    "features" => &mut features,
                    "package.metadata.kiln" => &mut told,
                    _ => continue,
                };
                told_by.insert(key.to_owned(), texts(&value));
            }
        }
        let abi = told.remove("abi").unwrap_or_default().concat();
        if abi.is_empty() {
            return Err("this is no crate that Kiln made".to_owned());
        }
        if abi != ABI {
            return Err(format!(
                "the crate is of another form than this kiln-build includes\n  expected: abi {ABI}\n  actual: abi {abi}\n  \
                 remedy: use the kiln-build that came with the Kiln that made it"
            ));
        }
        Ok(Self {
            library: told.remove("library").unwrap_or_default().concat(),
            targets: told.remove("targets").unwrap_or_default(),
            features,
        })
    }

    /// The features that are on when `chosen` are, in order of their names; those that the crate lacks are left out.
    pub(crate) fn closure<'a>(&'a self, chosen: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut open: Vec<&str> = chosen.into_iter().collect();
        let mut on = BTreeSet::new();
        while let Some(name) = open.pop() {
            if let Some(more) = self.features.get(name) {
                if on.insert(name) {
                    open.extend(more.iter().map(String::as_str));
                }
            }
        }
        on.remove("default");
        on.into_iter().collect()
    }
}

/// The texts of a list; of a single value, itself.
fn texts(value: &str) -> Vec<String> {
    let inner = value.trim().trim_start_matches('[').trim_end_matches(']');
    inner
        .split(',')
        .map(|text| text.trim().trim_matches('"').to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Generated;

    const TEXT: &str = "[package]\nname = \"red\"\n\n[package.metadata.kiln]\nabi = 1\nlibrary = \"red\"\n\
        targets = [\"sm_80\", \"gfx942\"]\n\n[features]\ndefault = [\n    \"driver\",\n    \"sm_80\",\n    \"gfx942\",\n]\nstd = []\n\
        driver = [\"std\"]\ncudarc = [\"driver\", \"dep:cudarc\"]\nsm_80 = []\ngfx942 = []\n";

    #[test]
    fn a_feature_switches_on_what_it_needs() -> Result<(), String> {
        let crate_ = Generated::parse(TEXT)?;
        assert_eq!(crate_.library, "red");
        assert_eq!(crate_.targets, ["sm_80", "gfx942"]);
        assert_eq!(
            crate_.closure(["default"]),
            ["driver", "gfx942", "sm_80", "std"]
        );
        assert_eq!(
            crate_.closure(["cudarc", "mine"]),
            ["cudarc", "driver", "std"]
        );
        Ok(())
    }

    #[test]
    fn another_form_is_refused() {
        let other = TEXT.replace("abi = 1", "abi = 2");
        assert!(Generated::parse(&other).is_err_and(|reason| reason.contains("actual: abi 2")));
        assert!(Generated::parse("[package]\n").is_err_and(|reason| reason.contains("no crate")));
    }
}
