//! What a launch is made of: device addresses and grids.

use core::fmt;

/// An address in a device's memory. It must not be dereferenced on the host.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address that points at nothing.
    pub const NULL: Self = Self(0);
}

impl From<u64> for DevicePtr {
    fn from(address: u64) -> Self {
        Self(address)
    }
}

impl From<DevicePtr> for u64 {
    fn from(pointer: DevicePtr) -> Self {
        pointer.0
    }
}

/// A grid that no launch can have.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GridError {
    /// An extent of the grid is negative, or more than a launch can have.
    OutOfRange {
        /// 0, 1 or 2 for x, y or z.
        axis: usize,
        /// What the declared expression gives for these arguments.
        extent: i64,
        /// The most that a launch can have along this axis.
        limit: u32,
    },
    /// An argument that the grid depends on is more than an `i64` holds.
    ArgumentOutOfRange {
        /// Name of the argument.
        name: &'static str,
        /// Its value.
        value: u64,
    },
}

impl fmt::Display for GridError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange {
                axis,
                extent,
                limit,
            } => {
                let axis = ["x", "y", "z"].get(axis).unwrap_or(&"?");
                write!(
                    formatter,
                    "the grid has {extent} blocks in {axis}; a launch takes 0 to {limit}"
                )
            }
            Self::ArgumentOutOfRange { name, value } => {
                write!(
                    formatter,
                    "the grid depends on {name}, and {value} is more than an i64 holds"
                )
            }
        }
    }
}

/// The most blocks that a CUDA launch can have in x, y and z. Source: NVIDIA, "CUDA C++ Programming Guide", "Technical
/// Specifications per Compute Capability". They hold for every target, so that one set of arguments fits all.
const LIMITS: [u32; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// The grid as a launch takes it; `None` when it is empty, which a driver refuses.
pub(crate) fn grid(extents: [i64; 3]) -> Result<Option<[u32; 3]>, GridError> {
    let mut grid = [0; 3];
    for (axis, (extent, limit)) in extents.into_iter().zip(LIMITS).enumerate() {
        grid[axis] = match u32::try_from(extent) {
            Ok(blocks) if blocks <= limit => blocks,
            _ => {
                return Err(GridError::OutOfRange {
                    axis,
                    extent,
                    limit,
                })
            }
        };
    }
    Ok(if grid.contains(&0) { None } else { Some(grid) })
}

// Used only where a grid or a condition depends on an unsigned 64-bit argument.
#[allow(dead_code)]
/// The argument as expressions take it, which know signed 64-bit integers only.
pub(crate) fn wide(name: &'static str, value: u64) -> Result<i64, GridError> {
    i64::try_from(value).map_err(|_| GridError::ArgumentOutOfRange { name, value })
}
