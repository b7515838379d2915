//! How many elements a tensor spans.

use core::fmt;

use crate::error::{Error, Result};

/// Why arguments describe no tensor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SizeError {
    /// An extent is negative.
    Extent {
        /// It as it is declared.
        extent: &'static str,
        /// Its value.
        value: i64,
    },
    /// A stride is negative.
    Stride {
        /// It as it is declared.
        stride: &'static str,
        /// Its value.
        value: i64,
    },
    /// An extent or a stride divides by zero, or leaves 64 bits on the way.
    Arithmetic {
        /// It as it is declared.
        expression: &'static str,
    },
    /// An argument that extents or strides depend on is more than an `i64` holds.
    TooLarge {
        /// Its value.
        value: u64,
    },
    /// It has more elements than an `i64` counts.
    TooMany,
}

impl fmt::Display for SizeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Extent { extent, value } => {
                write!(formatter, "its extent {extent} is {value}")
            }
            Self::Stride { stride, value } => {
                write!(formatter, "its stride {stride} is {value}")
            }
            Self::Arithmetic { expression } => {
                write!(formatter, "{expression} divides by zero, or leaves 64 bits")
            }
            Self::TooLarge { value } => write!(formatter, "{value} is more than an i64 holds"),
            Self::TooMany => formatter.write_str("it has more elements than an i64 counts"),
        }
    }
}

// Unused where no kernel declares the shapes of its tensors.
#[allow(dead_code)]
/// From the first element of a tensor to its last, both included. Without strides it has no gaps, and its last dimension is
/// innermost. Each extent and stride comes as it is declared, with its value.
pub(crate) fn elements(
    argument: &'static str,
    shape: &[(&'static str, i64)],
    strides: Option<&[(&'static str, i64)]>,
) -> Result<u64> {
    let fault = |why| Error::TensorSize { argument, why };
    let is_negative = |(_, value): &&(&'static str, i64)| *value < 0;
    if let Some((extent, value)) = shape.iter().find(is_negative).copied() {
        return Err(fault(SizeError::Extent { extent, value }));
    }
    let strided = strides.unwrap_or(&[]);
    if let Some((stride, value)) = strided.iter().find(is_negative).copied() {
        return Err(fault(SizeError::Stride { stride, value }));
    }
    let mut extents = shape.iter().map(|(_, extent)| *extent);
    let counted = match strides {
        Some(strides) => span(extents.zip(strides.iter().map(|(_, stride)| *stride))),
        None => extents.try_fold(1, i64::checked_mul),
    };
    counted
        .and_then(|count| u64::try_from(count).ok())
        .ok_or(fault(SizeError::TooMany))
}

// Unused, too, where no kernel declares them.
#[allow(dead_code)]
/// An extent or a stride as it is declared, with its value, which it does not have where its arithmetic divides by zero or
/// leaves 64 bits.
pub(crate) fn known(
    argument: &'static str,
    expression: &'static str,
    value: Option<i64>,
) -> Result<(&'static str, i64)> {
    match value {
        Some(value) => Ok((expression, value)),
        None => Err(Error::TensorSize {
            argument,
            why: SizeError::Arithmetic { expression },
        }),
    }
}

/// `None`: there are too many. No extent and no stride is negative.
fn span(dimensions: impl Iterator<Item = (i64, i64)>) -> Option<i64> {
    let (mut last, mut is_empty) = (0i64, false);
    for (extent, stride) in dimensions {
        is_empty |= extent == 0;
        last = last.checked_add((extent - 1).max(0).checked_mul(stride)?)?;
    }
    if is_empty {
        Some(0)
    } else {
        last.checked_add(1)
    }
}
