//! A GPU, as far as the choice of an image depends on it.

use core::fmt::{self, Write as _};
use core::ops::Deref;

/// A short text that needs no allocator: up to `N` bytes, which are 255 at most.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Text<N> {
    /// The text, or as many whole characters of it as have room.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept = Self {
            bytes: [0; N],
            length: 0,
        };
        kept.append(text);
        kept
    }

    fn append(&mut self, text: &str) {
        for character in text.chars() {
            let start = usize::from(self.length);
            let end = start + character.len_utf8();
            match (self.bytes.get_mut(start..end), u8::try_from(end)) {
                (Some(room), Ok(length)) => {
                    character.encode_utf8(room);
                    self.length = length;
                }
                _ => break,
            }
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length));
        bytes
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    /// Appends; what has no room is left out.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text);
        Ok(())
    }
}

/// Whose GPU it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Vendor {
    /// NVIDIA, with CUDA.
    Nvidia,
    /// AMD, with HIP.
    Amd,
}

impl fmt::Display for Vendor {
    /// `NVIDIA` or `AMD`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
        })
    }
}

/// A release of CUDA.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Release {
    /// The 12 of CUDA 12.4.
    pub major: u32,
    /// The 4 of CUDA 12.4.
    pub minor: u32,
}

impl Release {
    /// What a driver's number stands for: 12040 for CUDA 12.4.
    #[must_use]
    pub const fn of_driver(version: u32) -> Self {
        Self {
            major: version / 1000,
            minor: version % 1000 / 10,
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// What a GPU is called in errors: `sm_90`, `gfx942:sramecc+:xnack-`.
pub type Architecture = Text<39>;

/// A GPU and its driver.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Device {
    /// Whose it is.
    pub vendor: Vendor,
    /// Its number among the devices that the driver shows.
    pub ordinal: u32,
    /// The driver's name for it, `NVIDIA H200`; empty where it has none.
    pub name: Text<127>,
    /// `sm_90`; `gfx942:sramecc+:xnack-`.
    pub architecture: Architecture,
    /// 90 for compute capability 9.0; 0 for AMD.
    pub capability: u32,
    /// 12040 for a driver of CUDA 12.4; HIP's own number for AMD.
    pub driver_version: u32,
    /// Threads in a warp.
    pub warp_size: u32,
    /// Threads that a block can have.
    pub max_threads: u32,
    /// Bytes of shared memory that a block can have, after it was asked for them.
    pub max_shared: u32,
    /// How many multiprocessors (compute units) there are.
    pub multiprocessors: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u32,
    /// Whether it launches cooperative grids.
    pub cooperative: bool,
    /// Whether it, and its driver, launch clusters.
    pub clusters: bool,
    /// Whether kernels read memory of the host that no driver allocated.
    pub pageable_access: bool,
}

impl Device {
    /// A GPU of NVIDIA by its capability (90 for 9.0), with a driver (12040 for CUDA 12.4), to ask what it would take.
    ///
    /// Nothing is too large for it, and it launches everything, until the fields say otherwise.
    #[must_use]
    pub fn nvidia(capability: u32, driver_version: u32) -> Self {
        let mut architecture = Text::new("");
        // A Text takes what it has room for, and reports no failure.
        let _ = write!(architecture, "sm_{capability}");
        Self::unlimited(Vendor::Nvidia, architecture, capability, driver_version, 32)
    }

    /// A GPU of AMD by its target ID, such as `gfx942:sramecc+:xnack-`, to ask what it would take.
    ///
    /// Nothing is too large for it until the fields say otherwise.
    #[must_use]
    pub fn amd(architecture: &str) -> Self {
        Self::unlimited(Vendor::Amd, Text::new(architecture), 0, 0, 64)
    }

    fn unlimited(
        vendor: Vendor,
        architecture: Architecture,
        capability: u32,
        driver_version: u32,
        warp_size: u32,
    ) -> Self {
        Self {
            vendor,
            ordinal: 0,
            name: Text::new(""),
            architecture,
            capability,
            driver_version,
            warp_size,
            max_threads: u32::MAX,
            max_shared: u32::MAX,
            multiprocessors: 1,
            l2_bytes: 0,
            cooperative: true,
            clusters: matches!(vendor, Vendor::Nvidia),
            pageable_access: false,
        }
    }

    /// The release of CUDA that the driver is of; of AMD's, what its number gives.
    #[must_use]
    pub const fn release(&self) -> Release {
        Release::of_driver(self.driver_version)
    }
}
