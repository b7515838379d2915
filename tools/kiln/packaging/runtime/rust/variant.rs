//! What is known of a variant and of a group, besides their images.

use core::fmt;

use crate::error::Error;
use crate::image::Image;
use crate::launch::GridError;
use crate::refused::Missed;

/// One argument of a variant, in the order of its `Args`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Argument {
    /// Name in the kernel's source, or of the launch input in kernels.yaml.
    pub name: &'static str,
    /// Its type as a signature has it: `*fp16`, `i32`.
    pub dtype: &'static str,
    /// Where it lies in `Args`, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Address or value must be a multiple of this, or be 1; `None` where nothing is promised.
    pub promise: Option<u32>,
    /// Only the launch depends on it: the kernel does not take it.
    pub is_input: bool,
}

/// A variant: a kernel for one dtype, block and set of promises, with its images in this build.
#[non_exhaustive]
pub struct Variant {
    /// `softmax_fp16_2048`.
    pub name: &'static str,
    /// The name without what is promised.
    pub base: &'static str,
    /// The declared kernel that this is a variant of.
    pub kernel: &'static str,
    /// The group: variants of one group compute the same thing, and compete.
    pub group: &'static str,
    /// The dtype, in Triton's words: `fp16`.
    pub dtype: &'static str,
    /// The block, as it stands in names: `2048`. Empty for a kernel without blocks.
    pub block: &'static str,
    /// The grid in x, y and z as declared, over arguments, launch inputs and constants.
    pub grid: [&'static str; 3],
    /// The condition as declared under which the variant can be used; `None`: always.
    pub select: Option<&'static str>,
    /// What its `Args` hold.
    pub arguments: &'static [Argument],
    /// Size of the largest parameter buffer among its images.
    pub buffer_bytes: usize,
    /// Its images in this build, in the order of the declared targets.
    pub images: &'static [&'static Image],
}

impl PartialEq for Variant {
    /// Whether both are the same variant: names are unique in a library.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Variant {}

impl fmt::Debug for Variant {
    /// What it is and how many images it has.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Variant")
            .field("name", &self.name)
            .field("group", &self.group)
            .field("images", &self.images.len())
            .finish_non_exhaustive()
    }
}

/// Variants that compute the same thing, in order of declaration.
#[derive(Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Group {
    /// `softmax_fp16`.
    pub name: &'static str,
    /// Its variants.
    pub variants: &'static [&'static Variant],
    /// All take the same arguments: the group has an `Args`, and can be launched.
    pub is_uniform: bool,
    /// The integers that grid, `select` or tensors use, by which the tuner tells shapes apart; of a uniform group.
    pub extents: &'static [&'static str],
}

/// What a variant is for those who launch it with arguments of type `P`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Candidate<P: 'static> {
    /// The variant.
    pub variant: &'static Variant,
    /// The grid in clusters; `None` when it is empty.
    pub grid: fn(&P) -> Result<Option<[u32; 3]>, GridError>,
    /// Whether the kernel can compute what the arguments describe, promises apart.
    pub selects: fn(&P) -> bool,
    /// What that depends on, and how far it is from holding.
    pub missed: fn(&P) -> Missed,
    /// The first argument whose promise does not hold.
    pub broken: fn(&P) -> Option<Broken>,
    /// Writes the parameter buffer.
    pub pack: fn(&P, &mut [u8]),
}

/// A promise that does not hold.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    argument: &'static str,
    need: u32,
    got: i128,
    is_address: bool,
}

impl Broken {
    /// Of an address.
    #[must_use]
    pub fn address(argument: &'static str, need: u32, got: u64) -> Self {
        Self {
            argument,
            need,
            got: i128::from(got),
            is_address: true,
        }
    }

    /// Of a value.
    #[must_use]
    pub fn value(argument: &'static str, need: u32, got: impl Into<i128>) -> Self {
        Self {
            argument,
            need,
            got: got.into(),
            is_address: false,
        }
    }

    pub(crate) fn of(self, variant: &'static Variant) -> Error {
        let (variant, argument) = (variant.name, self.argument);
        match u64::try_from(self.got) {
            Ok(got) if self.is_address => Error::Misaligned {
                variant,
                argument,
                need: self.need,
                got,
            },
            _ => Error::Specialization {
                variant,
                argument,
                need: self.need,
                got: self.got,
            },
        }
    }
}
