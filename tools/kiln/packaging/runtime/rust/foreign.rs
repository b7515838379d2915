//! Blocks of what is defined elsewhere, in any edition.

/// `foreign! { #[attribute] { items } }` is `extern "C" { items }` with the attribute.
///
/// The edition is that of the package whose build script makes this code. From 2024 on such a block has to be `unsafe`,
/// which compilers before 1.82 do not know; and from then on only, an underscore is an expression.
#[allow(unused_macros)]
macro_rules! foreign {
    ($(#[$attribute:meta])* { $($items:tt)* }) => {
        $crate::foreign::block! { _, $(#[$attribute])* { $($items)* } }
    };
}

#[allow(unused_macros)]
macro_rules! block {
    ($_since_2024:expr, $(#[$attribute:meta])* { $($items:tt)* }) => {
        $(#[$attribute])*
        #[allow(unsafe_code)]
        unsafe extern "C" { $($items)* }
    };
    (_, $(#[$attribute:meta])* { $($items:tt)* }) => {
        $(#[$attribute])*
        extern "C" { $($items)* }
    };
}

// Unused where features leave out driver and archive.
#[allow(unused_imports)]
pub(crate) use {block, foreign};
