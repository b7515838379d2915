//! Finds images, variants and groups by name and target. Whatever is looked up here pulls every image into the program.

use crate::image::Image;
use crate::tables::{GROUPS, IMAGES, VARIANTS};
use crate::variant::{Group, Variant};

/// Every image in this build, in order of declaration.
#[must_use]
pub fn images() -> impl ExactSizeIterator<Item = &'static Image> + Clone {
    IMAGES.iter().copied()
}

/// The image of a variant for a target; `None` when there is none, or a feature left it out.
#[must_use]
pub fn find(variant: &str, target: &str) -> Option<&'static Image> {
    images().find(|image| image.variant == variant && image.target == target)
}

/// The images that compute the same thing, for every target, in order of declaration.
pub fn group(name: &str) -> impl Iterator<Item = &'static Image> + Clone + '_ {
    images().filter(move |image| image.group == name)
}

/// The images that are built for a target, in order of declaration.
pub fn for_target(name: &str) -> impl Iterator<Item = &'static Image> + Clone + '_ {
    images().filter(move |image| image.target == name)
}

/// The variant of a name; `None` when there is none.
#[must_use]
pub fn find_variant(name: &str) -> Option<&'static Variant> {
    VARIANTS.iter().copied().find(|found| found.name == name)
}

/// The group of a name; `None` when there is none.
#[must_use]
pub fn find_group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().copied().find(|found| found.name == name)
}
