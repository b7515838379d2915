//! Which images a device takes, and how well they suit it: rules over data, which ask no driver.
//!
//! A name with `a` is for one architecture exactly, one with `f` for its family: the same major version, from its own
//! minor version on. A plain cubin runs on the same major version from its own minor version on, but not between 8.7
//! (Tegra) and the others. PTX runs on every later device whose driver knows its ISA (NVIDIA, "CUDA Compiler Driver
//! NVCC", "GPU Compilation"; "Parallel Thread Execution ISA", "Release Notes"). A gfx name is for that GPU; what follows
//! it, as in `gfx90a:xnack+`, has to be so on the device, and what it leaves out may be either (LLVM, "User Guide for
//! AMDGPU Backend").

use core::fmt;

use crate::device::{Device, Release, Vendor};
use crate::image::{Image, Kind};
use crate::tables::TARGET_VARIABLE;
use crate::variant::Variant;

const RANK_PTX: u32 = 1000;
const RANK_CUBIN: u32 = 2000;
const RANK_FAMILY: u32 = 3000;
const RANK_EXACT: u32 = 4000;

const TEGRA: u32 = 87;

/// What drivers before CUDA 12.1 take, and HIP.
pub(crate) const MAX_PARAMETER_BYTES: usize = 4096;

/// PTX ISA and the release of CUDA that brought it, both as major x 10 + minor.
const PTX_RELEASES: [(u32, u32); 23] = [
    (63, 100),
    (64, 101),
    (65, 102),
    (70, 110),
    (71, 111),
    (72, 112),
    (73, 113),
    (74, 114),
    (75, 115),
    (76, 116),
    (77, 117),
    (78, 118),
    (80, 120),
    (81, 121),
    (82, 122),
    (83, 123),
    (84, 124),
    (85, 125),
    (86, 127),
    (87, 128),
    (88, 129),
    (90, 130),
    (91, 131),
];

/// Why a device does not take an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is for another vendor's GPUs.
    OtherVendor,
    /// It is for one architecture alone, and the device has another.
    OtherArchitecture,
    /// The device is not of the family that it is for.
    OtherFamily,
    /// The device has another major version.
    OtherMajor,
    /// The device is older.
    OlderDevice,
    /// 8.7 (Tegra) and the others of 8.x do not run each other's code.
    Tegra,
    /// It wants a feature of the device, such as `xnack+`, that this one does not have.
    Feature {
        /// The feature.
        wanted: &'static str,
    },
    /// The environment, or the program, allows another target alone.
    OtherTarget {
        /// The one that is allowed.
        allowed: &'static str,
    },
    /// It is PTX of an ISA that the driver does not know.
    DriverTooOld {
        /// The ISA: `8.7`.
        isa: &'static str,
        /// The release of CUDA that brought it.
        need: Release,
        /// That of the driver.
        have: Release,
    },
    /// A block has more threads than the device takes.
    TooManyThreads {
        /// Of a block.
        need: u32,
        /// What the device takes.
        have: u32,
    },
    /// A block needs more shared memory than the device has, in bytes.
    TooMuchShared {
        /// Of a block, static and dynamic together.
        need: u64,
        /// What a block can have.
        have: u32,
    },
    /// It has more bytes of parameters than drivers take.
    ParametersTooLarge {
        /// What it has.
        need: usize,
    },
    /// It is launched cooperatively, which the device cannot.
    NoCooperation,
    /// It is launched in clusters, which the device or its driver cannot.
    NoClusters,
}

impl Refusal {
    /// Whether the architecture takes the image, and something else stands against it.
    #[must_use]
    pub const fn is_of_limits(&self) -> bool {
        matches!(
            self,
            Self::DriverTooOld { .. }
                | Self::TooManyThreads { .. }
                | Self::TooMuchShared { .. }
                | Self::ParametersTooLarge { .. }
                | Self::NoCooperation
                | Self::NoClusters
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OtherVendor => formatter.write_str("it is for another vendor's GPUs"),
            Self::OtherArchitecture => formatter.write_str("it is for that architecture alone"),
            Self::OtherFamily => formatter.write_str("the device is not of that family"),
            Self::OtherMajor => formatter.write_str("the device has another major version"),
            Self::OlderDevice => formatter.write_str("the device is older"),
            Self::Tegra => formatter
                .write_str("Tegra's 8.7 and the others of 8.x do not run each other's code"),
            Self::Feature { wanted } => write!(formatter, "the device is not {wanted}"),
            Self::OtherTarget { allowed } => {
                write!(
                    formatter,
                    "{allowed} alone is allowed, by the program or by {TARGET_VARIABLE}"
                )
            }
            Self::DriverTooOld { isa, need, have } => write!(
                formatter,
                "it is PTX of ISA {isa}, which drivers know since CUDA {need}, and the driver is of CUDA {have}"
            ),
            Self::TooManyThreads { need, have } => {
                write!(formatter, "a block has {need} threads, and the device takes {have}")
            }
            Self::TooMuchShared { need, have } => write!(
                formatter,
                "a block needs {need} bytes of shared memory, and the device has {have}"
            ),
            Self::ParametersTooLarge { need } => write!(
                formatter,
                "it has {need} bytes of parameters, and drivers take {MAX_PARAMETER_BYTES}"
            ),
            Self::NoCooperation => {
                formatter.write_str("it is launched cooperatively, which the device cannot")
            }
            Self::NoClusters => formatter
                .write_str("it is launched in clusters, which the device or its driver cannot"),
        }
    }
}

/// How well an image suits a device: the higher, the better. Or why it does not.
///
/// `only`: the target that is allowed alone.
///
/// # Errors
///
/// The first of the rules that stands against it.
pub fn judge(
    image: &'static Image,
    device: &Device,
    only: Option<&'static str>,
) -> Result<u32, Refusal> {
    if let Some(allowed) = only {
        if allowed != image.target {
            return Err(Refusal::OtherTarget { allowed });
        }
    }
    let rank = match device.vendor {
        Vendor::Nvidia => judge_nvidia(image, device)?,
        Vendor::Amd => judge_amd(image, device)?,
    };
    let shared = u64::from(image.shared_static) + u64::from(image.shared_dynamic);
    if image.threads > device.max_threads {
        return Err(Refusal::TooManyThreads {
            need: image.threads,
            have: device.max_threads,
        });
    }
    if shared > u64::from(device.max_shared) {
        return Err(Refusal::TooMuchShared {
            need: shared,
            have: device.max_shared,
        });
    }
    if image.parameter_bytes > MAX_PARAMETER_BYTES {
        return Err(Refusal::ParametersTooLarge {
            need: image.parameter_bytes,
        });
    }
    if image.cooperative && !device.cooperative {
        return Err(Refusal::NoCooperation);
    }
    if image.cluster != [1; 3] && !device.clusters {
        return Err(Refusal::NoClusters);
    }
    Ok(rank)
}

fn judge_nvidia(image: &'static Image, device: &Device) -> Result<u32, Refusal> {
    let is_ptx = matches!(image.kind, Kind::Ptx);
    let number = image
        .target
        .trim_start_matches(|character: char| !character.is_ascii_digit());
    let letter = number.trim_start_matches(|character: char| character.is_ascii_digit());
    let capability = number
        .strip_suffix(letter)
        .and_then(|digits| digits.parse::<u32>().ok());
    let Some(capability) = capability.filter(|_| !matches!(image.kind, Kind::Hsaco)) else {
        return Err(Refusal::OtherVendor);
    };
    let own = device.capability;
    let rank = if letter.starts_with('a') {
        if capability != own {
            return Err(Refusal::OtherArchitecture);
        }
        if is_ptx {
            RANK_PTX + 1
        } else {
            RANK_EXACT
        }
    } else if letter.starts_with('f') {
        if capability / 10 != own / 10 || capability > own {
            return Err(Refusal::OtherFamily);
        }
        if is_ptx {
            RANK_PTX + 1
        } else {
            RANK_FAMILY
        }
    } else if is_ptx {
        if capability > own {
            return Err(Refusal::OlderDevice);
        }
        RANK_PTX
    } else if capability / 10 != own / 10 {
        return Err(Refusal::OtherMajor);
    } else if capability > own {
        return Err(Refusal::OlderDevice);
    } else if capability != own && (capability == TEGRA || own == TEGRA) {
        return Err(Refusal::Tegra);
    } else {
        RANK_CUBIN
    };
    if let (true, Some(isa)) = (is_ptx, image.ptx_isa) {
        let have = device.release();
        if let Some(need) = oldest_release(isa).filter(|need| *need > have) {
            return Err(Refusal::DriverTooOld { isa, need, have });
        }
    }
    // Of the same architecture, code with a letter first: it may use more.
    Ok(rank + 2 * capability)
}

/// The release that a PTX needs; `None` where that is not known: then the driver says it. From ISA 9.0 on, which came
/// with CUDA 13.0, both have gone up together.
fn oldest_release(isa: &str) -> Option<Release> {
    let (major, minor) = isa.split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    let wanted = major.checked_mul(10)?.checked_add(minor)?;
    let known = PTX_RELEASES.iter().find(|(isa, _)| *isa == wanted);
    match known {
        Some((_, cuda)) => Some(Release {
            major: cuda / 10,
            minor: cuda % 10,
        }),
        None if major == 9 => Some(Release { major: 13, minor }),
        None => None,
    }
}

fn judge_amd(image: &'static Image, device: &Device) -> Result<u32, Refusal> {
    if !matches!(image.kind, Kind::Hsaco) {
        return Err(Refusal::OtherVendor);
    }
    let (mut wanted, mut own) = (image.target.split(':'), device.architecture.split(':'));
    if wanted.next() != own.next() {
        return Err(Refusal::OtherArchitecture);
    }
    // Each feature that the image names stands among the device's.
    match wanted.find(|feature| own.clone().all(|has| has != *feature)) {
        Some(wanted) => Err(Refusal::Feature { wanted }),
        None => Ok(RANK_EXACT),
    }
}

/// What becomes of a variant on a device: each of its images is taken, or why not. It prints as a table.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    variant: &'static Variant,
    device: Device,
    only: Option<&'static str>,
}

impl Selection {
    /// The choice for a device.
    #[must_use]
    pub const fn new(variant: &'static Variant, device: Device) -> Self {
        Self {
            variant,
            device,
            only: None,
        }
    }

    /// The same choice among the images of one target alone.
    #[must_use]
    pub const fn only(self, target: Option<&'static str>) -> Self {
        Self {
            only: target,
            ..self
        }
    }

    /// The variant that it is about.
    #[must_use]
    pub const fn variant(&self) -> &'static Variant {
        self.variant
    }

    /// The device that it is about.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// The image that is used: the one that suits the device best, the first of several.
    #[must_use]
    pub fn image(&self) -> Option<&'static Image> {
        let mut best = None;
        for (image, verdict) in self.verdicts() {
            match (verdict, best) {
                (Ok(rank), None) => best = Some((image, rank)),
                (Ok(rank), Some((_, highest))) if rank > highest => best = Some((image, rank)),
                _ => {}
            }
        }
        best.map(|(image, _)| image)
    }

    /// Each image of the variant in this build, with how well it suits the device, or why it does not.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static Image, Result<u32, Refusal>)> + '_ {
        let images = self.variant.images.iter().copied();
        images.map(|image| (image, judge(image, &self.device, self.only)))
    }

    pub(crate) const fn allowed(&self) -> Option<&'static str> {
        self.only
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, device) = (self.variant.name, &self.device);
        let (ordinal, architecture) = (device.ordinal, device.architecture);
        write!(formatter, "{name} for device {ordinal} ({architecture}):")?;
        for (image, verdict) in self.verdicts() {
            match verdict {
                Ok(_) => write!(formatter, "\n  {}: the device takes it", image.target)?,
                Err(refusal) => write!(formatter, "\n  {}: {refusal}", image.target)?,
            }
        }
        match self.image() {
            Some(image) => write!(formatter, "\nused is {}", image.target),
            None => formatter.write_str("\nnone is used"),
        }
    }
}
