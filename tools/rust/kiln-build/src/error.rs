//! What goes wrong, in words for whoever reads Cargo's output.

use std::fmt;
use std::io;
use std::path::Path;

/// Why there is no library. A build script returns it from `main`, and Cargo shows its text.
pub struct Error {
    message: String,
    source: Option<io::Error>,
}

/// What this crate's functions give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// A file or folder with which `what` could not be done.
    pub(crate) fn io(what: &str, path: &Path, source: io::Error) -> Self {
        Self {
            message: format!("{}: cannot {what}: {source}", path.display()),
            source: Some(source),
        }
    }

    /// The same with one more line.
    pub(crate) fn and(mut self, line: &str) -> Self {
        self.message += "\n  ";
        self.message += line;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    /// As `Display` does: a `main` that returns an error prints this, and people are to read Kiln's lines as they are.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}
