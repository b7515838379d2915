//! What the tuner of the C package found: files of choices, and what launches of groups find in them.
//!
//! A file is ASCII text. Its first line is `kernel-choices 1`; each further line is a choice of eight words, or empty, or
//! begins with `#`. A choice is for a group, a device and a bucket of shapes, and names a variant and the image that was
//! measured, by its SHA-256: when the image was built anew, the choice counts no more.

use core::fmt::Write as _;
use std::borrow::ToOwned;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::string::{String, ToString};
use std::vec::Vec;

#[cfg(feature = "driver")]
use crate::device::Device;
use crate::error::{Error, Result};
#[cfg(feature = "driver")]
use crate::image::Image;
use crate::params::{Shape, MAX_EXTENTS};
use crate::tables::LIBRARY;
use crate::variant::Group;
#[cfg(feature = "driver")]
use crate::variant::Variant;

const HEADER: &str = "kernel-choices ";
const VERSION: &str = "1";

const KEYS: [&str; 8] = [
    "library=",
    "group=",
    "device=",
    "shape=",
    "variant=",
    "target=",
    "sha256=",
    "nanoseconds=",
];

const MAX_LINE: usize = 2000;

/// What is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Choice {
    variant: String,
    target: String,
    sha256: String,
}

/// Group, device and shape.
type Key = (String, String, String);

/// What was chosen for this library. Of two choices for the same, the later one holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Choices {
    known: HashMap<Key, Choice>,
    foreign: usize,
    bad: Vec<(usize, String)>,
}

impl Choices {
    /// Nothing chosen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file. Lines of other libraries, and those that cannot be read, are passed over and counted.
    ///
    /// # Errors
    ///
    /// [`Error::Choices`] when the file cannot be read, or its first line is another than this crate knows.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut choices = Self::new();
        choices.add(path)?;
        Ok(choices)
    }

    /// Reads a file in addition to what is known.
    ///
    /// # Errors
    ///
    /// As [`Choices::read`]; then nothing is taken.
    pub fn add(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let fail = |reason: String| Error::Choices {
            path: path.display().to_string(),
            reason,
        };
        let bytes =
            fs::read(path).map_err(|error| fail(std::format!("it cannot be read: {error}")))?;
        // A byte that is no text makes its own line bad, and no other.
        self.parse(&String::from_utf8_lossy(&bytes)).map_err(fail)
    }

    /// Takes in the text of a file.
    fn parse(&mut self, text: &str) -> core::result::Result<(), String> {
        let mut lines = text
            .split('\n')
            .map(|line| line.strip_suffix('\r').unwrap_or(line))
            .enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        match first.strip_prefix(HEADER) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(std::format!(
                    "line 1: it has schema version {other}, and this library reads {VERSION}"
                ))
            }
            None => {
                return Err(std::format!(
                    "line 1: it is no file of choices, which begins with {HEADER}{VERSION}"
                ))
            }
        }
        for (index, line) in lines {
            // The header stands in the middle where files were written one behind the other.
            let is_header = line.strip_prefix(HEADER) == Some(VERSION);
            if line.is_empty() || line.starts_with('#') || is_header {
                continue;
            }
            match parse_line(line) {
                Ok((library, key, choice)) if library == LIBRARY => {
                    self.known.insert(key, choice);
                }
                Ok(_) => self.foreign += 1,
                Err(reason) => self.bad.push((index + 1, reason)),
            }
        }
        Ok(())
    }

    /// How many choices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// How many lines were of other libraries.
    #[must_use]
    pub const fn foreign(&self) -> usize {
        self.foreign
    }

    /// The lines that could not be read, by their numbers, and why.
    #[must_use]
    pub fn bad(&self) -> &[(usize, String)] {
        &self.bad
    }

    /// The variant that is chosen for a bucket on a device, when its image for that device is the one that was measured.
    #[cfg(feature = "driver")]
    pub(crate) fn variant_for(
        &self,
        group: &Group,
        device: &Device,
        shape: &Shape,
        image: impl Fn(&'static Variant) -> Option<&'static Image>,
    ) -> Option<&'static Variant> {
        let key = (
            group.name.to_owned(),
            device_word(device),
            shape_word(group, shape),
        );
        let choice = self.known.get(&key)?;
        let variant = group
            .variants
            .iter()
            .find(|variant| variant.name == choice.variant)?;
        let found = image(variant)?;
        let digest = found.sha256.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        (found.target == choice.target && digest == choice.sha256).then_some(*variant)
    }
}

/// A device in one word: its name, in which every byte that words do not have is an underscore.
#[cfg(feature = "driver")]
fn device_word(device: &Device) -> String {
    let name = if device.name.is_empty() {
        device.architecture.as_str()
    } else {
        device.name.as_str()
    };
    let plain = |byte: u8| {
        let is_plain = byte.is_ascii_alphanumeric() || b"_+-.:".contains(&byte);
        char::from(if is_plain { byte } else { b'_' })
    };
    name.bytes().map(plain).collect()
}

/// A bucket in a file's words: `n_cols:2048,n_rows:16`; `-` where nothing tells shapes apart.
#[cfg_attr(not(feature = "driver"), allow(dead_code))]
fn shape_word(group: &Group, shape: &Shape) -> String {
    let mut word = String::new();
    for (name, code) in group.extents.iter().take(MAX_EXTENTS).zip(shape.codes()) {
        let bucket = code
            .checked_sub(1)
            .map_or(0, |power| 1_u128 << power.min(64));
        let comma = if word.is_empty() { "" } else { "," };
        // Writing to a String does not fail.
        let _ = write!(word, "{comma}{name}:{bucket}");
    }
    if word.is_empty() {
        word.push('-');
    }
    word
}

/// A line as library, what it is for, and what is chosen; or why it is none.
fn parse_line(line: &str) -> core::result::Result<(&str, Key, Choice), String> {
    if line.len() > MAX_LINE {
        return Err(std::format!("it is longer than {MAX_LINE} bytes"));
    }
    let mut rest = line.split(' ');
    let mut word = |place: usize| -> core::result::Result<&str, String> {
        let key = KEYS.get(place).copied().unwrap_or("");
        let found = rest.next().and_then(|word| word.strip_prefix(key));
        let value = found.ok_or_else(|| std::format!("its word {} is not {key}", place + 1))?;
        if is_fit(key, value) {
            Ok(value)
        } else {
            Err(std::format!("what follows {key} is no such word"))
        }
    };
    let library = word(0)?;
    let key = (
        word(1)?.to_owned(),
        word(2)?.to_owned(),
        word(3)?.to_owned(),
    );
    let choice = Choice {
        variant: word(4)?.to_owned(),
        target: word(5)?.to_owned(),
        sha256: word(6)?.to_owned(),
    };
    word(7)?;
    match rest.next() {
        Some(_) => Err("it has more than eight words".to_string()),
        None => Ok((library, key, choice)),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A number as it is written: no sign, no zero in front, below 2^63.
fn is_number(text: &str) -> bool {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    is_plain && is_short && text.parse::<i64>().is_ok()
}

/// 0, or a power of two as a bucket has it, up to 2^64.
fn is_power(text: &str) -> bool {
    let is_plain =
        is_number(text) || ["9223372036854775808", "18446744073709551616"].contains(&text);
    is_plain
        && text
            .parse::<u128>()
            .is_ok_and(|number| number == 0 || number.is_power_of_two())
}

fn is_fit(key: &str, value: &str) -> bool {
    match key {
        "shape=" => {
            value == "-"
                || value.split(',').all(|part| {
                    part.split_once(':')
                        .is_some_and(|(name, bucket)| is_name(name) && is_power(bucket))
                })
        }
        "sha256=" => {
            value.len() == 64
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        }
        "nanoseconds=" => is_number(value),
        "device=" | "target=" => {
            !value.is_empty()
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_+-.:".contains(&byte))
        }
        _ => is_name(value),
    }
}
