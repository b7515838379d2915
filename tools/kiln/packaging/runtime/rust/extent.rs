//! How many elements a tensor spans.

use crate::error::{Error, Result};

// Unused where no kernel declares the shapes of its tensors.
#[allow(dead_code)]
/// From the first element of a tensor to its last, both included. Without strides it has no gaps, and its last dimension is
/// innermost.
pub(crate) fn elements(
    argument: &'static str,
    shape: &[i64],
    strides: Option<&[i64]>,
) -> Result<u64> {
    let counted = match strides {
        Some(strides) => span(shape.iter().copied().zip(strides.iter().copied())),
        None => shape
            .iter()
            .try_fold(1, |count: i64, extent| count.checked_mul(*extent))
            .filter(|_| shape.iter().all(|extent| *extent >= 0)),
    };
    counted
        .and_then(|count| u64::try_from(count).ok())
        .ok_or(Error::TensorSize { argument })
}

/// `None`: an extent or a stride is negative, or there are too many.
fn span(dimensions: impl Iterator<Item = (i64, i64)>) -> Option<i64> {
    let (mut last, mut is_empty) = (0i64, false);
    for (extent, stride) in dimensions {
        if extent < 0 || stride < 0 {
            return None;
        }
        is_empty |= extent == 0;
        last = last.checked_add((extent - 1).max(0).checked_mul(stride)?)?;
    }
    if is_empty {
        Some(0)
    } else {
        last.checked_add(1)
    }
}
