//! What a launch is made of: grids, blocks and memory.

use core::fmt;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::variant::Variant;

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
    /// What is computed for an extent of the grid divides by zero, or leaves 64 bits.
    Arithmetic {
        /// 0, 1 or 2 for x, y or z.
        axis: usize,
    },
}

/// What an axis is called.
fn letter(axis: usize) -> &'static str {
    ["x", "y", "z"].get(axis).copied().unwrap_or("?")
}

impl fmt::Display for GridError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange {
                axis,
                extent,
                limit,
            } => {
                write!(
                    formatter,
                    "the grid has {extent} blocks in {}; a launch takes 0 to {limit}",
                    letter(axis)
                )
            }
            Self::Arithmetic { axis } => {
                write!(
                    formatter,
                    "the grid in {} divides by zero, or leaves 64 bits, for these arguments",
                    letter(axis)
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

/// The grid as a launch takes it, of extents that are `None` where arithmetic fails; `None` when it is empty, which a
/// driver refuses.
pub(crate) fn grid(extents: [Option<i64>; 3]) -> core::result::Result<Option<[u32; 3]>, GridError> {
    let mut grid = [0; 3];
    let axes = grid.iter_mut().zip(extents).zip(LIMITS).enumerate();
    for (axis, ((blocks, extent), limit)) in axes {
        let Some(extent) = extent else {
            return Err(GridError::Arithmetic { axis });
        };
        *blocks = match u32::try_from(extent) {
            Ok(found) if found <= limit => found,
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
pub(crate) fn wide(name: &'static str, value: u64) -> core::result::Result<i64, GridError> {
    i64::try_from(value).map_err(|_| GridError::ArgumentOutOfRange { name, value })
}

/// What a launch is: which image, and what the driver is told beside the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// The variant that serves the call.
    pub variant: &'static Variant,
    /// Its image for the device.
    pub image: &'static Image,
    /// Blocks in x, y and z, those of clusters counted one by one.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y and z; `[1, 1, 1]` is a launch without clusters.
    pub cluster: [u32; 3],
    /// Bytes of shared memory to give each block.
    pub shared_dynamic: u32,
    /// Whether the launch has to be cooperative.
    pub cooperative: bool,
    /// Whether the launch has to allow programmatic dependent launch.
    pub pdl: bool,
    /// Bytes of device memory to be passed behind [`Role::GlobalScratch`](crate::Role::GlobalScratch).
    pub global_scratch_bytes: u64,
    /// Bytes of device memory to be passed behind [`Role::ProfileScratch`](crate::Role::ProfileScratch).
    pub profile_scratch_bytes: u64,
}

impl LaunchConfig {
    /// `grid` is in clusters, not empty, and in range.
    pub(crate) fn new(
        variant: &'static Variant,
        image: &'static Image,
        grid: [u32; 3],
    ) -> Result<Self> {
        let [x, y, z] = grid.map(i64::from);
        let [cluster_x, cluster_y, cluster_z] = image.cluster.map(i64::from);
        let blocks = self::grid([
            Some(x * cluster_x),
            Some(y * cluster_y),
            Some(z * cluster_z),
        ]);
        let grid = blocks
            .map_err(|error| Error::Grid {
                variant: variant.name,
                error,
            })?
            .unwrap_or(grid);
        let count = grid
            .iter()
            .map(|extent| u64::from(*extent))
            .product::<u64>();
        Ok(Self {
            variant,
            image,
            grid,
            block: [image.threads, 1, 1],
            cluster: image.cluster,
            shared_dynamic: image.shared_dynamic,
            cooperative: image.cooperative,
            pdl: image.pdl,
            global_scratch_bytes: image.global_scratch_bytes.saturating_mul(count),
            profile_scratch_bytes: image.profile_scratch_bytes.saturating_mul(count),
        })
    }
}
