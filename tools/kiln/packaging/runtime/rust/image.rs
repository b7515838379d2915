//! What is known of one built image, and its bytes.

use core::ffi::CStr;
use core::fmt;

/// What kind of code an image is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Machine code of an NVIDIA GPU: an ELF file.
    Cubin,
    /// NVIDIA's portable assembly, which the driver compiles when it loads it: NUL-terminated text.
    Ptx,
    /// Machine code of an AMD GPU: an ELF file.
    Hsaco,
}

impl fmt::Display for Kind {
    /// `cubin`, `ptx` or `hsaco`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Cubin => "cubin",
            Self::Ptx => "ptx",
            Self::Hsaco => "hsaco",
        })
    }
}

/// Who provides a parameter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The caller: it is a field of the variant's `Args`.
    User,
    /// The launcher: address of [`Image::global_scratch_bytes`] bytes for each block of the grid; null when that is 0.
    GlobalScratch,
    /// The launcher: address of [`Image::profile_scratch_bytes`] bytes for each block of the grid; null when that is 0.
    ProfileScratch,
}

/// One parameter of a kernel, as the image lays it out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Parameter {
    /// Name in the kernel's source; a hidden parameter is named after its role.
    pub name: &'static str,
    /// Rust type of its value: `DevicePtr<F16>`, `i32`, ...
    pub rust_type: &'static str,
    /// Who provides it.
    pub role: Role,
    /// Where it starts in the parameter buffer, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The address or value must be a multiple of this: the kernel was compiled on that promise, and is wrong without.
    pub promise: Option<u32>,
}

#[cfg(feature = "driver")]
impl Parameter {
    /// Whether it is an address that the caller gives.
    pub(crate) fn is_address(&self) -> bool {
        self.role == Role::User && self.rust_type.starts_with("DevicePtr<")
    }
}

/// A value that is compiled into an image.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text; and `None`, a tuple, or the name of a dtype or of a function, as Python has it.
    Text(&'static str),
}

/// A named value that is compiled into an image.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Constant {
    /// Name of the kernel's `constexpr` parameter, or of an argument that must be 1.
    pub name: &'static str,
    /// Its value in this image.
    pub value: Value,
}

/// One variant of a kernel built for one target: what was measured off it, what was declared for it, and its bytes.
///
/// Sizes are bytes.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Image {
    /// `<variant>@<target>`, unique in this crate.
    pub id: &'static str,
    /// The declared kernel that this is a variant of.
    pub kernel: &'static str,
    /// The variant: a kernel for one dtype and block.
    pub variant: &'static str,
    /// The group: variants of one group compute the same thing, and compete.
    pub group: &'static str,
    /// The dtype, in Triton's words: `fp16`.
    pub dtype: &'static str,
    /// The block, as it stands in names: `2048`. Empty for a kernel without blocks.
    pub block: &'static str,
    /// What the image is built for: `sm_90a`, `compute_80`, `gfx942`.
    pub target: &'static str,
    /// The kernel's symbol in the image.
    pub entry: &'static str,
    /// What kind of code it is.
    pub kind: Kind,
    /// The image, aligned to 64 bytes, or to 8 where `link-static` takes it out of a fat binary; a PTX without the NUL that
    /// follows it, for which see [`Image::ptx`].
    pub bytes: &'static [u8],
    /// SHA-256 of `bytes`.
    pub sha256: [u8; 32],
    /// Every parameter in order, the hidden ones last.
    pub parameters: &'static [Parameter],
    /// Size of the whole parameter buffer.
    pub parameter_bytes: usize,
    /// What is compiled in: the `constexpr` parameters in order, then the arguments that must be 1.
    pub constants: &'static [Constant],
    /// Threads in a block: the launch's block size in x, with 1 in y and z.
    pub threads: u32,
    /// Warps in a block; warp specialisation can make it more than was requested.
    pub warps: u32,
    /// Warps that the declaration asked for.
    pub warps_requested: u32,
    /// Threads in a warp.
    pub warp_size: u32,
    /// Blocks in a cluster in x, y and z; `[1, 1, 1]` is a launch without clusters.
    pub cluster: [u32; 3],
    /// Whether the launch has to be cooperative.
    pub cooperative: bool,
    /// Whether the kernel is made for programmatic dependent launch.
    pub pdl: bool,
    /// Shared memory that the image itself reserves in a block.
    pub shared_static: u32,
    /// Shared memory that the launch has to give each block.
    pub shared_dynamic: u32,
    /// Device memory behind the [`Role::GlobalScratch`] parameter, for each block of the grid and of the cluster.
    pub global_scratch_bytes: u64,
    /// Alignment of that memory.
    pub global_scratch_align: u64,
    /// Device memory behind the [`Role::ProfileScratch`] parameter, for each block of the grid and of the cluster.
    pub profile_scratch_bytes: u64,
    /// Alignment of that memory.
    pub profile_scratch_align: u64,
    /// 32-bit registers a thread uses (vector registers on AMD); `None` where the image does not say.
    pub registers: Option<u32>,
    /// Scalar registers a wave uses, on AMD.
    pub scalar_registers: Option<u32>,
    /// Bytes a thread spills to memory, each instruction counted once; `None` where it is not known: of a PTX.
    pub spills: Option<u32>,
    /// Local memory a thread uses; `None` where the image does not say.
    pub stack: Option<u32>,
    /// The PTX ISA of a PTX image, which decides the oldest driver that takes it: `8.0`.
    pub ptx_isa: Option<&'static str>,
    /// The grid in x, y and z as declared, over arguments, launch inputs and constants.
    pub grid: [&'static str; 3],
    /// The condition as declared under which the variant can be used; `None`: always.
    pub select: Option<&'static str>,
    pub(crate) stored: &'static [u8],
}

impl Image {
    /// The text of a PTX image with its NUL, as a driver wants it; `None` for any other kind.
    #[must_use]
    pub fn ptx(&self) -> Option<&'static CStr> {
        match self.kind {
            Kind::Ptx => CStr::from_bytes_with_nul(self.stored).ok(),
            _ => None,
        }
    }

    /// What to hand to a driver's "load data" call: [`Image::bytes`], for PTX with the NUL that ends it.
    #[must_use]
    pub const fn as_c_bytes(&self) -> &'static [u8] {
        self.stored
    }

    /// Whether the bytes have the SHA-256 of the record: about 4 ms a MiB.
    #[must_use]
    pub fn verify(&self) -> bool {
        crate::sha256::digest(self.bytes) == self.sha256
    }
}

impl fmt::Debug for Image {
    /// What it is and how large, not its thousands of bytes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Image")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("entry", &self.entry)
            .field("size", &self.bytes.len())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

// Unused when features leave out every image.
#[allow(dead_code)]
/// Data at an address that is a multiple of 64: ELF readers and GPU drivers may assume more than a byte's alignment.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

const _: () = assert!(core::mem::align_of::<Aligned<[u8; 1]>>() == 64);

/// The bytes of an image as they are stored: `data!(size, file, symbol)`, the file relative to that of the caller.
#[cfg(not(feature = "link-static"))]
#[allow(unused_macros)]
macro_rules! data {
    ($size:literal, $file:literal, $symbol:literal) => {{
        static DATA: $crate::image::Aligned<[u8; $size]> =
            $crate::image::Aligned(*include_bytes!($file));
        &DATA.0
    }};
}

/// The bytes of an image in the archive: `data!(size, file, symbol)`.
#[cfg(feature = "link-static")]
#[allow(unused_macros)]
macro_rules! data {
    ($size:literal, $file:literal, $symbol:literal) => {{
        $crate::foreign::foreign! {{
            #[link_name = $symbol]
            static DATA: [u8; $size];
        }}
        // SAFETY: a part of the symbol is a digest of the image that was measured, so an archive that has it has at least
        // `$size` bytes there, and nothing writes to them. In a fat binary they are aligned to 8, and the type asks for
        // nothing.
        #[allow(unsafe_code)]
        let data = unsafe { &DATA };
        data
    }};
}

// Unused when features leave out every image.
#[allow(unused_imports)]
pub(crate) use data;

// Unused when features leave out every PTX image. It runs in the compiler, where a panic is an error.
#[allow(dead_code, clippy::panic)]
/// The text of a PTX image. Fails to compile when no NUL ends `stored`, up to which a driver would read.
///
/// Only the last byte is looked at: a loop over a large image would pass the compiler's limit for constants. An archive's
/// bytes are not known yet; Kiln has read it when it was made.
pub(crate) const fn without_nul(stored: &'static [u8]) -> &'static [u8] {
    match stored.split_last() {
        #[cfg(not(feature = "link-static"))]
        Some((0, text)) => text,
        #[cfg(feature = "link-static")]
        Some((_, text)) => text,
        _ => panic!("a PTX image must end with a NUL"),
    }
}

// Unused when features leave out every image. It runs in the compiler, where a panic is an error.
#[allow(dead_code, clippy::indexing_slicing)]
/// The bytes of a digest written in hexadecimal. Fails to compile when `text` is anything else.
pub(crate) const fn sha256(text: &str) -> [u8; 32] {
    assert!(text.len() == 64, "a SHA-256 has 64 hexadecimal digits");
    let mut bytes = [0; 32];
    let mut index = 0;
    while index < 32 {
        let high = digit(text.as_bytes()[2 * index]);
        let low = digit(text.as_bytes()[2 * index + 1]);
        bytes[index] = high << 4 | low;
        index += 1;
    }
    bytes
}

#[allow(dead_code, clippy::panic)]
const fn digit(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0',
        b'a'..=b'f' => character - b'a' + 10,
        _ => panic!("a SHA-256 has 64 hexadecimal digits"),
    }
}
