//! What is launched: the variants that take arguments of one type, on one device.
#![allow(unsafe_code)]

use core::fmt;
use std::boxed::Box;
use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::vec::Vec;

use crate::driver::{is_forked, Launch, Ready};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::launch::LaunchConfig;
use crate::library::{Inner, Library};
use crate::params::{put_scratch, search, with_buffer, Found, KernelParams, Scratch, Shape};
use crate::pointer::Stream;
use crate::pointer_checks::{self, Checks};
use crate::variant::{Candidate, Variant};

/// The image of a variant for the library's device, and what its launches need once it is loaded.
struct Slot {
    image: OnceLock<Result<&'static Image>>,
    ready: OnceLock<Ready>,
}

/// What was found among the choices, by bucket: places of candidates.
#[derive(Default)]
struct Preferred {
    generation: u64,
    places: HashMap<Shape, Option<usize>>,
}

/// What can be launched with arguments `P`. To make one is cheap; keep it, since what its launches find out they keep in it.
///
/// It keeps its library, and may be used from several threads at once.
pub struct Kernel<P: KernelParams> {
    library: Library,
    /// One of them alone, where a variant was named.
    only: Option<usize>,
    slots: Box<[Slot]>,
    preferred: RwLock<Preferred>,
    params: core::marker::PhantomData<fn(&P)>,
}

impl<P: KernelParams> fmt::Debug for Kernel<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Kernel")
            .field("name", &P::NAME)
            .field("device", &self.library.device().architecture)
            .finish_non_exhaustive()
    }
}

impl<P: KernelParams> Kernel<P> {
    pub(crate) fn new(library: Library) -> Self {
        let slot = |_: &Candidate<P>| Slot {
            image: OnceLock::new(),
            ready: OnceLock::new(),
        };
        Self {
            library,
            only: None,
            slots: P::candidates().iter().map(slot).collect::<Vec<_>>().into(),
            preferred: RwLock::default(),
            params: core::marker::PhantomData,
        }
    }

    pub(crate) fn of(library: Library, variant: &'static Variant) -> Result<Self> {
        let found = P::variants().position(|own| own == variant);
        let only = found.ok_or(Error::NotOfKernel {
            name: variant.name,
            kernel: P::NAME,
        })?;
        let mut kernel = Self::new(library);
        kernel.only = Some(only);
        Ok(kernel)
    }

    /// The library that it is of.
    #[must_use]
    pub const fn library(&self) -> &Library {
        &self.library
    }

    /// What a launch with these arguments would be; `None`: the grid is empty, and there is nothing to launch. Nothing is
    /// loaded.
    ///
    /// # Errors
    ///
    /// As [`KernelParams::launch_config_for`], and [`Error::Forked`].
    pub fn launch_config(&self, args: &P) -> Result<Option<LaunchConfig>> {
        let found = self.find(args)?;
        found.map(|found| found.config()).transpose()
    }

    /// The image that a launch with these arguments would take; `None` for an empty grid.
    ///
    /// # Errors
    ///
    /// As [`KernelParams::launch_config_for`], and [`Error::Forked`].
    pub fn image(&self, args: &P) -> Result<Option<&'static Image>> {
        Ok(self.find(args)?.map(|found| found.image))
    }

    /// Loads the images of all variants that the device has one for.
    ///
    /// # Errors
    ///
    /// The first failure to load; [`Error::NoCompatibleImage`] and the like when the device has none at all.
    pub fn preload(&self) -> Result<()> {
        let mut missing = None;
        let mut count = 0;
        for (place, candidate) in P::candidates().iter().enumerate() {
            if self.only.is_some_and(|only| only != place) {
                continue;
            }
            match self.image_of(place, candidate) {
                Ok(image) => {
                    self.library.load_settled(image)?;
                    count += 1;
                }
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        match missing {
            Some(error) if count == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Launches the first variant that serves the call, or the one that was chosen for its shapes; nothing for an empty
    /// grid. It waits for nothing, and no launch holds up another once the image is loaded.
    ///
    /// # Errors
    ///
    /// As [`KernelParams::launch_config_for`] and [`Library::preload_variant`]; of the launch itself [`Error::Launch`],
    /// [`Error::WrongContext`], [`Error::DeadContext`], [`Error::ScratchNeeded`], [`Error::ScratchFailed`],
    /// [`Error::Forked`], [`Error::Capturing`]; with [`Library::set_checks`] also [`Error::BadPointer`].
    ///
    /// # Safety
    ///
    /// - Every address among the arguments is of memory on the library's device, as large as the kernel reads and writes
    ///   it: the documentation of each field says its shape. What the kernel writes, nobody else uses until it is done;
    ///   what it reads, nobody writes. Memory stays until then.
    /// - What the kernel reads holds values of its type, and indices among it are in range.
    /// - The stream is one of the library's context (of its device, with HIP), and lives until the launch has returned.
    /// - Of a stream that is capturing, the launch is part of a graph, and is made anew whenever that is launched: memory, the
    ///   library or a [`Kernel`] of it, and their context live until the last of those launches is done, and what is said
    ///   above of memory holds for each of them. Scratch memory is the graph's where the allocator's calls are captured
    ///   too, as `cuMemAllocAsync` is.
    pub unsafe fn launch(&self, args: &P, stream: Stream) -> Result<()> {
        let Some(found) = self.find(args)? else {
            return Ok(());
        };
        // SAFETY: the caller promises it, and the image is one of the variant that serves the call.
        unsafe { self.start(&found, args, stream) }
    }

    fn find(&self, args: &P) -> Result<Option<Found<P>>> {
        // Before any lock, which another thread may have held in the parent.
        if is_forked() {
            return Err(Error::Forked);
        }
        let candidates = P::candidates();
        if let Some(only) = self.only {
            let one = candidates.get(only..=only).unwrap_or_default();
            return search(args, one, None, |_, candidate| {
                self.image_of(only, candidate)
            })
            .map(|found| {
                found.map(|found| Found {
                    place: only,
                    ..found
                })
            });
        }
        search(
            args,
            candidates,
            self.preferred(args),
            |place, candidate| self.image_of(place, candidate),
        )
    }

    /// The image of a candidate for the device, which is looked for once.
    fn image_of(&self, place: usize, candidate: &Candidate<P>) -> Result<&'static Image> {
        let find = || self.library.image(candidate.variant);
        match self.slots.get(place) {
            // Not `clone` of the whole: an error is large.
            Some(slot) => match slot.image.get_or_init(find) {
                Ok(image) => Ok(*image),
                Err(error) => Err(error.clone()),
            },
            None => find(),
        }
    }

    /// The candidate that was chosen for the bucket of a call.
    fn preferred(&self, args: &P) -> Option<usize> {
        let generation = self.library.generation();
        let group = P::group().filter(|_| generation != 0)?;
        let shape = args.shape();
        {
            let known = self
                .preferred
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            if known.generation == generation {
                if let Some(place) = known.places.get(&shape) {
                    return *place;
                }
            }
        }
        let variant = self.library.with_choices(|choices| {
            choices.variant_for(group, self.library.device(), &shape, |variant| {
                self.library.image(variant).ok()
            })
        });
        let place = variant.and_then(|variant| P::variants().position(|own| own == variant));
        let mut known = self
            .preferred
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if known.generation != generation {
            known.generation = generation;
            known.places.clear();
        }
        known.places.insert(shape, place);
        place
    }

    /// # Safety
    ///
    /// As `launch`.
    unsafe fn start(&self, found: &Found<P>, args: &P, stream: Stream) -> Result<()> {
        let inner = &*self.library.inner;
        let slot = self.slots.get(found.place);
        let ready = match slot.and_then(|slot| slot.ready.get()) {
            Some(ready) => *ready,
            None => self.load(slot, found.image, stream)?,
        };
        let mut launch = Launch {
            ready,
            grid: found.grid,
            stream: stream.as_raw(),
        };
        let checks = self.library.checks();
        let launched = if ready.has_attributes || ready.needs_scratch || checks != Checks::None {
            let config = found.config()?;
            launch.grid = config.grid;
            with_buffer(found.candidate, args, |buffer| {
                inner.driver.within(inner.context, || {
                    if checks != Checks::None {
                        pointer_checks::check(inner, checks, ready.image, buffer)?;
                    }
                    if ready.needs_scratch {
                        // SAFETY: as the caller promises.
                        unsafe { start_with_scratch(inner, &config, &launch, buffer, stream) }
                    } else {
                        // SAFETY: as below.
                        unsafe { inner.driver.launch(&launch, buffer) }
                    }
                })
            })
        } else {
            // Most launches: what they need is at hand.
            with_buffer(found.candidate, args, |buffer| {
                inner.driver.within(inner.context, || {
                    // SAFETY: as the caller promises; the function is the image's in the library's context.
                    unsafe { inner.driver.launch(&launch, buffer) }
                })
            })
        };
        launched.map_err(|error| match error {
            Error::Driver { .. } => Error::Launch {
                image: ready.image.id,
                cause: Box::new(error),
            },
            other => other,
        })
    }

    #[cold]
    fn load(&self, slot: Option<&Slot>, image: &'static Image, stream: Stream) -> Result<Ready> {
        let handles = self.library.load(image, Some(stream))?;
        let ready = Ready::new(image, handles.function);
        Ok(slot.map_or(ready, |slot| *slot.ready.get_or_init(|| ready)))
    }
}

/// Launches with memory from the library's allocator, which gets it back right behind the launch.
///
/// # Safety
///
/// As `Kernel::launch`.
unsafe fn start_with_scratch(
    inner: &Inner,
    config: &LaunchConfig,
    launch: &Launch,
    buffer: &mut [u8],
    stream: Stream,
) -> Result<()> {
    let image = launch.ready.image;
    let needed = config
        .global_scratch_bytes
        .saturating_add(config.profile_scratch_bytes);
    let allocator = inner.scratch.as_deref().ok_or(Error::ScratchNeeded {
        image: image.id,
        bytes: needed,
    })?;
    let get = |bytes, align| match bytes {
        0 => Ok(0),
        _ => match allocator.allocate(bytes, align, stream) {
            Some(address) if address != 0 => Ok(address),
            _ => Err(Error::ScratchFailed {
                image: image.id,
                bytes,
            }),
        },
    };
    let give_back = |address| {
        if address != 0 {
            allocator.release(address, stream);
        }
    };
    let global = get(config.global_scratch_bytes, image.global_scratch_align)?;
    let profile = get(config.profile_scratch_bytes, image.profile_scratch_align);
    let launched = profile.and_then(|profile| {
        put_scratch(image, Scratch::new(global, profile), buffer);
        // SAFETY: as the caller promises.
        let launched = unsafe { inner.driver.launch(launch, buffer) };
        give_back(profile);
        launched
    });
    give_back(global);
    launched
}

// Programs of several threads share both.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    #[allow(dead_code)]
    const fn of_any<P: KernelParams>() {
        is_shared::<Kernel<P>>();
    }
    is_shared::<Library>();
};
