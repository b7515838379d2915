//! Kernels from .cu files: `vector_add` on slices, and one variant of `warp_reduce` on addresses, which is `unsafe`.

use std::error::Error;

use kernels::adapters::cudarc::{address, address_mut, context};
use kernels::{groups, variants, Library};

const ROWS: usize = 100;
const COLUMNS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    let stream = context.default_stream();
    let library = Library::from_cudarc(&context)?;

    let left: Vec<f32> = (0..ROWS * COLUMNS).map(|i| i as f32).collect();
    let right: Vec<f32> = left.iter().map(|value| value * 0.5).collect();
    let (x, y) = (stream.clone_htod(&left)?, stream.clone_htod(&right)?);
    let mut sum = stream.alloc_zeros::<f32>(ROWS * COLUMNS)?;
    groups::vector_add_fp32::SliceArgs {
        sum: (&mut sum).into(),
        x: (&x).into(),
        y: (&y).into(),
        n: (ROWS * COLUMNS) as i32,
    }
    .launch(&library.kernel(), &stream)?;
    let got = stream.clone_dtoh(&sum)?;
    if !got.iter().zip(&left).all(|(got, left)| *got == left * 1.5) {
        return Err("vector_add is wrong".into());
    }

    let kernel = library.kernel::<variants::warp_reduce_fp32_512::Args>();
    let mut sums = stream.alloc_zeros::<f32>(ROWS)?;
    {
        // The guards order this launch with what other streams do with the slices; they end after it.
        let (sums, _written) = address_mut(&mut sums, &stream);
        let (x, _read) = address(&x, &stream);
        let args = variants::warp_reduce_fp32_512::Args {
            sums,
            x,
            row_stride: COLUMNS as i64,
            n_cols: COLUMNS as i32,
            n_rows: ROWS as i32,
        };
        // SAFETY: `x` has ROWS rows of COLUMNS elements and `sums` has ROWS, and both outlive the launch.
        unsafe { kernel.launch(&args, (&*stream).into())? };
    }
    let got = stream.clone_dtoh(&sums)?;
    if reference::sum_error(&left, &got, COLUMNS) > 1e-5 {
        return Err("a sum is wrong".into());
    }
    println!("vector_add and warp_reduce of {ROWS} x {COLUMNS}: all right");
    Ok(())
}
