//! The arguments of a launch: which variant serves them, in which grid, and what the driver is given.

use core::ffi::c_void;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::image::{Image, Role};
use crate::launch::LaunchConfig;
use crate::refused::Values;
use crate::select::{Refusal, Selection, MAX_PARAMETER_BYTES};
use crate::variant::{Candidate, Group, Variant};

mod sealed {
    /// Only the generated arguments are a kernel's.
    pub trait Sealed {}
}

#[doc(hidden)]
pub use sealed::Sealed;

/// Addresses of the scratch memory of a launch; null where an image wants none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Scratch {
    /// Of [`LaunchConfig::global_scratch_bytes`] bytes.
    pub global: u64,
    /// Of [`LaunchConfig::profile_scratch_bytes`] bytes.
    pub profile: u64,
}

impl Scratch {
    /// The addresses of both.
    #[must_use]
    pub const fn new(global: u64, profile: u64) -> Self {
        Self { global, profile }
    }
}

/// What can be launched: the `Args` of a variant, of variants that differ by promises alone, or of a group.
///
/// It is sealed: only this crate's own `Args` have it.
pub trait KernelParams: Copy + Send + Sync + Sealed + 'static {
    /// What is launched: the name of the group, or of the variants without what is promised.
    const NAME: &'static str;

    #[doc(hidden)]
    fn candidates() -> &'static [Candidate<Self>];

    #[doc(hidden)]
    fn group() -> Option<&'static Group>;

    #[doc(hidden)]
    fn shape(&self) -> Shape;

    /// The variants that take these arguments, in order of preference.
    fn variants() -> impl ExactSizeIterator<Item = &'static Variant> {
        Self::candidates().iter().map(|candidate| candidate.variant)
    }

    /// What a launch would be on a device: the first variant whose `select` and promises hold and which has an image for
    /// it. `None`: the grid is empty, and there is nothing to launch.
    ///
    /// # Errors
    ///
    /// Of the variants that do not serve the call, that of the one that comes nearest: [`Error::NotSelected`],
    /// [`Error::Misaligned`], [`Error::Specialization`], [`Error::Grid`]; of the device [`Error::NoCompatibleImage`],
    /// [`Error::Unsuitable`], [`Error::DriverTooOld`].
    fn launch_config_for(&self, device: &Device) -> Result<Option<LaunchConfig>> {
        let found = search(self, Self::candidates(), None, |_, candidate| {
            image_for(&Selection::new(candidate.variant, *device))
        })?;
        found.map(|found| found.config()).transpose()
    }

    /// The same in a library; what its tuner chose comes first.
    ///
    /// # Errors
    ///
    /// As [`KernelParams::launch_config_for`].
    #[cfg(feature = "driver")]
    fn launch_config(&self, library: &crate::Library) -> Result<Option<LaunchConfig>> {
        library.kernel::<Self>().launch_config(self)
    }

    /// Runs `run` with the addresses of the values of each parameter, as `cuLaunchKernel` takes them under
    /// `kernelParams`; the values live as long as the call.
    ///
    /// # Errors
    ///
    /// [`Error::NotOfKernel`] for an image of another kernel, [`Error::ScratchNeeded`] for one that wants scratch memory.
    fn with_raw_params<R>(
        &self,
        image: &'static Image,
        run: impl FnOnce(&mut [*mut c_void]) -> R,
    ) -> Result<R> {
        let bytes = image
            .global_scratch_bytes
            .saturating_add(image.profile_scratch_bytes);
        if bytes != 0 {
            return Err(Error::ScratchNeeded {
                image: image.id,
                bytes,
            });
        }
        self.with_raw_params_and_scratch(image, Scratch::default(), run)
    }

    /// The same with scratch memory, whose addresses are passed as they are.
    ///
    /// # Errors
    ///
    /// [`Error::NotOfKernel`] for an image of another kernel.
    fn with_raw_params_and_scratch<R>(
        &self,
        image: &'static Image,
        scratch: Scratch,
        run: impl FnOnce(&mut [*mut c_void]) -> R,
    ) -> Result<R> {
        let candidate = candidate_of::<Self>(image.variant, image.id)?;
        let result = with_buffer(candidate, self, |buffer| {
            put_scratch(image, scratch, buffer);
            with_addresses(image, buffer, run)
        });
        Ok(result)
    }
}

/// The candidate that is a variant; `name` is what was asked with.
pub(crate) fn candidate_of<P: KernelParams>(
    variant: &str,
    name: &'static str,
) -> Result<&'static Candidate<P>> {
    let found = P::candidates()
        .iter()
        .find(|candidate| candidate.variant.name == variant);
    found.ok_or(Error::NotOfKernel {
        name,
        kernel: P::NAME,
    })
}

/// A variant that serves a call.
pub(crate) struct Found<P: 'static> {
    /// Its place among the candidates.
    #[cfg_attr(not(feature = "driver"), allow(dead_code))]
    pub(crate) place: usize,
    pub(crate) candidate: &'static Candidate<P>,
    pub(crate) image: &'static Image,
    /// In clusters.
    pub(crate) grid: [u32; 3],
}

impl<P> Found<P> {
    pub(crate) fn config(&self) -> Result<LaunchConfig> {
        LaunchConfig::new(self.candidate.variant, self.image, self.grid)
    }
}

/// How near a refusal came to serving the call: the nearest is what a caller wants to read.
fn nearness(error: &Error) -> u32 {
    match error {
        Error::NotSelected { .. } => 0,
        Error::Misaligned { .. } | Error::Specialization { .. } => 1,
        Error::Grid { .. } => 2,
        _ => 3,
    }
}

/// The first candidate that serves a call, `preferred` before all; `None` for an empty grid.
///
/// `image` finds the one for the device. An error of it that is none of choosing ends the search.
#[inline]
pub(crate) fn search<P>(
    args: &P,
    candidates: &'static [Candidate<P>],
    preferred: Option<usize>,
    mut image: impl FnMut(usize, &'static Candidate<P>) -> Result<&'static Image>,
) -> Result<Option<Found<P>>> {
    let mut look_at = |place, candidate| {
        let Some(grid) = look(args, candidate)? else {
            return Ok(None);
        };
        Ok(Some(Found {
            place,
            candidate,
            image: image(place, candidate)?,
            grid,
        }))
    };
    let mut nearest: Option<Error> = None;
    let first = preferred.and_then(|place| Some((place, candidates.get(place)?)));
    for (place, candidate) in first.into_iter().chain(candidates.iter().enumerate()) {
        match look_at(place, candidate) {
            Err(error) if is_of_choosing(&error) => nearest = Some(nearer(nearest, error)),
            found => return found,
        }
    }
    Err(match nearest {
        Some(Error::NotSelected { .. }) => not_selected(args, candidates),
        Some(error) => error,
        None => NO_VARIANT,
    })
}

const NO_VARIANT: Error = Error::NotOfKernel {
    name: "no variant",
    kernel: "a kernel without variants",
};

/// Of candidates whose conditions do not hold, the one that comes nearest, and the first of several.
#[cold]
fn not_selected<P>(args: &P, candidates: &'static [Candidate<P>]) -> Error {
    let missed = candidates
        .iter()
        .map(|candidate| (candidate.variant, (candidate.missed)(args)));
    let nearest = missed.min_by_key(|(_, missed)| missed.shortfall);
    nearest.map_or(NO_VARIANT, |(variant, missed)| Error::NotSelected {
        // Those that differ by promises alone have one condition.
        group: candidates
            .iter()
            .any(|candidate| candidate.variant.base != variant.base)
            .then_some(variant.group),
        variant: variant.name,
        condition: variant.select.unwrap_or("always"),
        values: missed.values,
    })
}

/// Of two refusals, the one that came nearest; of two that came as near, the first.
#[cold]
fn nearer(known: Option<Error>, found: Error) -> Error {
    match known {
        Some(known) if nearness(&known) >= nearness(&found) => known,
        _ => found,
    }
}

const fn is_of_choosing(error: &Error) -> bool {
    matches!(
        error,
        Error::NotSelected { .. }
            | Error::Misaligned { .. }
            | Error::Specialization { .. }
            | Error::Grid { .. }
            | Error::NoCompatibleImage { .. }
            | Error::Unsuitable { .. }
            | Error::DriverTooOld { .. }
    )
}

/// The grid of a variant that can serve the call; `None` when it is empty.
pub(crate) fn look<P>(args: &P, candidate: &Candidate<P>) -> Result<Option<[u32; 3]>> {
    let variant = candidate.variant;
    let grid = (candidate.grid)(args);
    if matches!(grid, Ok(None)) {
        return Ok(None);
    }
    if !(candidate.selects)(args) {
        return Err(Error::NotSelected {
            group: None,
            variant: variant.name,
            condition: variant.select.unwrap_or("always"),
            // Most launches pass variants by on the way to their own: what is told is looked up when none serves.
            values: Values::NONE,
        });
    }
    if let Some(broken) = (candidate.broken)(args) {
        return Err(broken.of(variant));
    }
    grid.map_err(|error| Error::Grid {
        variant: variant.name,
        error,
    })
}

/// The image that a device takes; or why it takes none.
pub(crate) fn image_for(selection: &Selection) -> Result<&'static Image> {
    if let Some(image) = selection.image() {
        return Ok(image);
    }
    let (variant, device) = (selection.variant(), selection.device());
    for (image, verdict) in selection.verdicts() {
        match verdict {
            Err(Refusal::DriverTooOld { need, have, .. }) => {
                return Err(Error::DriverTooOld {
                    image: image.id,
                    need: Some(need),
                    have,
                })
            }
            // An image that the architecture would take says more than those that it would not.
            Err(refusal) if refusal.is_of_limits() => {
                return Err(Error::Unsuitable {
                    image: image.id,
                    device: device.architecture,
                    refusal,
                })
            }
            _ => {}
        }
    }
    Err(Error::NoCompatibleImage {
        variant: variant.name,
        device: device.architecture,
        built: variant.images,
        only: selection.allowed(),
    })
}

/// A buffer of parameters of up to `N` bytes, at an address that suits all of them.
#[repr(C, align(16))]
struct Buffer<const N: usize>([u8; N]);

/// What most kernels' parameters fit into.
const SMALL: usize = 256;

/// Runs `run` with the parameters of a call.
pub(crate) fn with_buffer<P, R>(
    candidate: &Candidate<P>,
    args: &P,
    run: impl FnOnce(&mut [u8]) -> R,
) -> R {
    // To zero 4 KiB takes longer than all else that a launch does here.
    if candidate.variant.buffer_bytes <= SMALL {
        let mut buffer = Buffer([0; SMALL]);
        (candidate.pack)(args, &mut buffer.0);
        run(&mut buffer.0)
    } else {
        with_large_buffer(candidate, args, run)
    }
}

/// Apart from the small one: room on the stack is taken for all that a function may need, and touched page by page.
#[inline(never)]
fn with_large_buffer<P, R>(
    candidate: &Candidate<P>,
    args: &P,
    run: impl FnOnce(&mut [u8]) -> R,
) -> R {
    let mut buffer = Buffer([0; MAX_PARAMETER_BYTES]);
    (candidate.pack)(args, &mut buffer.0);
    run(&mut buffer.0)
}

/// Writes the addresses of scratch memory where the image has them.
pub(crate) fn put_scratch(image: &Image, scratch: Scratch, buffer: &mut [u8]) {
    for parameter in image.parameters {
        let address = match parameter.role {
            Role::User => continue,
            Role::GlobalScratch => scratch.global,
            Role::ProfileScratch => scratch.profile,
        };
        put(buffer, parameter.offset, &address.to_le_bytes());
    }
}

/// Writes bytes into a buffer; what lies beyond it is left out.
pub(crate) fn put(buffer: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(room) = buffer.get_mut(offset..offset + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

/// Runs `run` with the address of each parameter in a buffer.
pub(crate) fn with_addresses<R>(
    image: &Image,
    buffer: &mut [u8],
    run: impl FnOnce(&mut [*mut c_void]) -> R,
) -> R {
    const FEW: usize = 32;
    if image.parameters.len() <= FEW {
        fill::<FEW, R>(image, buffer, run)
    } else {
        // Each parameter has a byte at least, and a kernel 4 KiB of them at most.
        fill::<MAX_PARAMETER_BYTES, R>(image, buffer, run)
    }
}

/// Never a part of its caller, for the room that it takes on the stack.
#[inline(never)]
fn fill<const N: usize, R>(
    image: &Image,
    buffer: &mut [u8],
    run: impl FnOnce(&mut [*mut c_void]) -> R,
) -> R {
    let mut addresses = [core::ptr::null_mut::<c_void>(); N];
    let start = buffer.as_mut_ptr();
    for (address, parameter) in addresses.iter_mut().zip(image.parameters) {
        *address = start.wrapping_add(parameter.offset).cast();
    }
    let count = image.parameters.len().min(N);
    match addresses.get_mut(..count) {
        Some(filled) => run(filled),
        None => run(&mut []),
    }
}

/// How many integers tell shapes apart, at most.
pub(crate) const MAX_EXTENTS: usize = 16;

/// The bucket of a call: of each extent 0 for 0 and below, else 1 + the exponent of the power of two that is not below
/// it; what is left is 0.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Shape([u8; MAX_EXTENTS]);

impl Shape {
    /// The bucket of some extents.
    #[must_use]
    pub fn of(extents: &[i128]) -> Self {
        let mut codes = [0; MAX_EXTENTS];
        for (code, extent) in codes.iter_mut().zip(extents) {
            *code = match u64::try_from(*extent) {
                Ok(0) | Err(_) => 0,
                Ok(1) => 1,
                Ok(more) => 65 - (more - 1).leading_zeros() as u8,
            };
        }
        Self(codes)
    }

    #[cfg_attr(not(feature = "std"), allow(dead_code))]
    pub(crate) const fn codes(&self) -> &[u8; MAX_EXTENTS] {
        &self.0
    }
}
