//! Asks the driver of each address among a launch's arguments, for programs that look for a wrong one.

use crate::driver::Memory;
use crate::error::{BadPointer, Error, Result};
use crate::image::Image;
use crate::library::Inner;

/// Whether a launch asks the driver of each address if it is memory that the device can reach: its own, managed, or the
/// host's where the driver allocated or registered it. That takes a microsecond or so each.
///
/// Another device's memory is refused, also where peer access is on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Checks {
    /// Nothing is asked.
    #[default]
    None,
    /// Of each address; null is refused too, for no kernel says that it may be null.
    Pointers,
    /// Null passes, for kernels that take it where they use nothing.
    PointersOrNull,
}

impl Checks {
    pub(crate) const fn of(number: u8) -> Self {
        match number {
            1 => Self::Pointers,
            2 => Self::PointersOrNull,
            _ => Self::None,
        }
    }
}

/// Looks at the addresses in a parameter buffer, in the library's context. Scratch memory is not among them yet.
#[cold]
pub(crate) fn check(
    inner: &Inner,
    checks: Checks,
    image: &'static Image,
    buffer: &[u8],
) -> Result<()> {
    for parameter in image.parameters {
        if !parameter.is_address() {
            continue;
        }
        let bytes = buffer.get(parameter.offset..).unwrap_or_default();
        let Some(address) = bytes.first_chunk().copied().map(u64::from_le_bytes) else {
            continue;
        };
        let why = if address == 0 {
            (checks != Checks::PointersOrNull).then_some(BadPointer::Null)
        } else {
            match inner.driver.memory_of(address)? {
                Memory::OfDevice(device) if device != inner.context.ordinal => {
                    Some(BadPointer::OtherDevice {
                        device,
                        own: inner.context.ordinal,
                    })
                }
                Memory::Unknown if !inner.device.pageable_access => Some(BadPointer::Unknown),
                _ => None,
            }
        };
        if let Some(why) = why {
            return Err(Error::BadPointer {
                variant: image.variant,
                argument: parameter.name,
                address,
                why,
            });
        }
    }
    Ok(())
}
