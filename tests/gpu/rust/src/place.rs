//! Memory for one launch, in one context: what its arguments point at, with margins that must not change.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr as _};
use kernels::{DevicePtr, Variant};

use crate::job::{Job, Kind};

/// Bytes before and behind each buffer, and what the driver aligns memory to.
const MARGIN: usize = 256;
/// What is in outputs and margins before a launch.
const FILL: u8 = 0xff;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What outputs have to be after a launch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected<'a> {
    Anything,
    /// The bytes of each, in order.
    Same(&'a [Vec<u8>]),
    Untouched,
}

pub struct Place<'a> {
    pub job: &'a Job,
    pub stream: Arc<CudaStream>,
    /// Arguments and launch inputs, by name, as they lie in memory.
    pub scalars: HashMap<String, Vec<u8>>,
    /// Added to the address of a buffer, by name: bytes that break a promise.
    pub shifts: HashMap<String, u64>,
    /// For each buffer of the job its memory, and where in it the buffer begins.
    memory: Vec<(CudaSlice<u8>, usize)>,
}

/// A number in an argument.
pub trait Scalar {
    /// From the bytes that lie in memory.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! scalars {
    ($($type:ty)*) => {
        $(
            impl Scalar for $type {
                fn from_bytes(bytes: &[u8]) -> Self {
                    Self::from_le_bytes(bytes.try_into().expect("a number of that size"))
                }
            }
        )*
    };
}

scalars! { i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 }

impl<'a> Place<'a> {
    /// Addresses are multiples of what the variant promises and of no more; of an element, where they are not `aligned`.
    pub fn new(
        job: &'a Job,
        variant: &Variant,
        stream: &Arc<CudaStream>,
        aligned: bool,
    ) -> Outcome<Self> {
        let mut memory = Vec::new();
        for buffer in &job.buffers {
            let argument = variant
                .arguments
                .iter()
                .find(|argument| argument.name == buffer.name);
            let promise = argument
                .ok_or("a buffer of no argument")?
                .promise
                .filter(|_| aligned);
            let shift = MARGIN + promise.map_or(buffer.item, |promise| promise as usize);
            let slice = stream.alloc_zeros::<u8>(shift + buffer.size + MARGIN)?;
            if slice.device_ptr(stream).0 % MARGIN as u64 != 0 {
                return Err("the driver aligns memory to less than that".into());
            }
            memory.push((slice, shift));
        }
        let (scalars, shifts) = (job.scalars.clone(), HashMap::new());
        let mut place = Self {
            job,
            stream: stream.clone(),
            scalars,
            shifts,
            memory,
        };
        place.fill()?;
        Ok(place)
    }

    /// Puts everything as it is before a launch.
    pub fn fill(&mut self) -> Outcome<()> {
        for (buffer, (slice, shift)) in self.job.buffers.iter().zip(&mut self.memory) {
            let mut bytes = vec![FILL; slice.len()];
            match buffer.kind {
                Kind::Input => bytes[*shift..][..buffer.size].copy_from_slice(&buffer.content),
                Kind::Output => {}
                Kind::Workspace => bytes[*shift..][..buffer.size].fill(0),
            }
            self.stream.memcpy_htod(&bytes, slice)?;
        }
        Ok(self.stream.synchronize()?)
    }

    /// Margins and inputs are as before, and outputs are what is expected. Returns them.
    pub fn check(&self, expected: Expected<'_>) -> Outcome<Vec<Vec<u8>>> {
        let mut outputs = Vec::new();
        for (buffer, (slice, shift)) in self.job.buffers.iter().zip(&self.memory) {
            let bytes = self.stream.clone_dtoh(slice)?;
            self.stream.synchronize()?;
            let (before, rest) = bytes.split_at(*shift);
            let (own, behind) = rest.split_at(buffer.size);
            let name = &buffer.name;
            if before.iter().chain(behind).any(|byte| *byte != FILL) {
                return Err(format!("it wrote before or behind {name}").into());
            }
            if buffer.kind == Kind::Input && own != buffer.content {
                return Err(format!("it changed {name}").into());
            }
            if buffer.kind != Kind::Output {
                continue;
            }
            match expected {
                Expected::Same(wanted) if wanted[outputs.len()] != own => {
                    return Err(format!("{name} is not what the first launch wrote").into());
                }
                Expected::Untouched if own.iter().any(|byte| *byte != FILL) => {
                    return Err(format!("{name} was written by a launch that must not be").into());
                }
                _ => outputs.push(own.to_vec()),
            }
        }
        Ok(outputs)
    }

    /// The value of an argument that is no pointer, or of a launch input.
    pub fn scalar<T: Scalar>(&self, name: &str) -> T {
        T::from_bytes(
            self.scalars
                .get(name)
                .unwrap_or_else(|| panic!("{name} has no value")),
        )
    }

    /// The address of a buffer.
    pub fn address<T>(&self, name: &str) -> DevicePtr<T> {
        let mut buffers = self.job.buffers.iter().zip(&self.memory);
        let (_, (slice, shift)) = buffers
            .find(|(buffer, _)| buffer.name == name)
            .expect("a buffer");
        let start = slice.device_ptr(&self.stream).0 + *shift as u64;
        DevicePtr::new(start + self.shifts.get(name).copied().unwrap_or(0))
    }

    /// The buffers as slices, each to be taken once.
    pub fn slices(&mut self) -> Slices<'_> {
        let buffers = self.job.buffers.iter().zip(&mut self.memory);
        Slices(
            buffers
                .map(|(buffer, (slice, shift))| {
                    let start =
                        *shift + self.shifts.get(&buffer.name).copied().unwrap_or(0) as usize;
                    (
                        buffer.name.as_str(),
                        slice.slice_mut(start..start + buffer.size),
                    )
                })
                .collect(),
        )
    }
}

/// Bytes of buffers, by name.
pub struct Slices<'a>(HashMap<&'a str, CudaViewMut<'a, u8>>);

impl<'a> Slices<'a> {
    /// What the kernel reads.
    pub fn read<T>(&mut self, name: &str) -> CudaView<'a, T> {
        let bytes = self.0.remove(name).expect("a buffer").into_view();
        // SAFETY: each pattern of bits is a number.
        unsafe { bytes.transmute(bytes.len() / size_of::<T>()) }.expect("there is room")
    }

    /// What the kernel writes: bytes, for [`typed`].
    pub fn written(&mut self, name: &str) -> CudaViewMut<'a, u8> {
        self.0.remove(name).expect("a buffer")
    }
}

/// The same memory as numbers of another type.
pub fn typed<'b, T>(bytes: &'b mut CudaViewMut<'_, u8>) -> CudaViewMut<'b, T> {
    let count = bytes.len() / size_of::<T>();
    // SAFETY: each pattern of bits is a number.
    unsafe { bytes.transmute_mut(count) }.expect("there is room")
}
