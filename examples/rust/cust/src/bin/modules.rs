//! Hands images to cust as modules, machine code and PTX, and launches them by `launch!`.
//!
//! The crate still says which image the device takes, in which grid, and with how many threads.

use std::error::Error;

use cust::launch;
use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use kernels::adapters::cust::module;
use kernels::variants::{vector_add_fp32_256, warp_reduce_fp32_128};
use kernels::{Image, Kind, Library};

const ROWS: usize = 100;
const COLUMNS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;

    let left: Vec<f32> = (0..ROWS * COLUMNS).map(|i| i as f32).collect();
    let right: Vec<f32> = left.iter().map(|value| value * 0.5).collect();
    let (x, y) = (
        DeviceBuffer::from_slice(&left)?,
        DeviceBuffer::from_slice(&right)?,
    );
    let args = vector_add_fp32_256::Args {
        sum: kernels::DevicePtr::NULL,
        x: x.as_device_ptr().into(),
        y: y.as_device_ptr().into(),
        n: (ROWS * COLUMNS) as i32,
    };
    let config = library
        .kernel()
        .launch_config(&args)?
        .ok_or("nothing to launch")?;
    let ptx: &'static Image = &vector_add_fp32_256::COMPUTE_80;
    for image in [config.image, ptx] {
        let module = module(image)?;
        let function = module.get_function(image.entry)?;
        let sum = DeviceBuffer::<f32>::zeroed(left.len())?;
        let (grid, block) = (config, config);
        // SAFETY: these are the parameters of vector_add, whose buffers have `n` elements.
        unsafe {
            launch!(function<<<grid, block, 0, stream>>>(sum.as_device_ptr(), args.x, args.y, args.n))?
        };
        stream.synchronize()?;
        let mut got = vec![0.0; left.len()];
        sum.copy_to(&mut got)?;
        if !got.iter().zip(&left).all(|(got, left)| *got == left * 1.5) {
            return Err(format!("{} is wrong", image.id).into());
        }
        println!(
            "{}, as {}: right",
            image.id,
            if image.kind == Kind::Ptx {
                "PTX"
            } else {
                "machine code"
            }
        );
    }

    let sums = DeviceBuffer::<f32>::zeroed(ROWS)?;
    let args = warp_reduce_fp32_128::Args {
        sums: sums.as_device_ptr().into(),
        x: x.as_device_ptr().into(),
        row_stride: COLUMNS as i64,
        n_cols: COLUMNS as i32,
        n_rows: ROWS as i32,
    };
    // A kernel with dynamic shared memory: `launch!` is told how much.
    let config = library
        .kernel()
        .launch_config(&args)?
        .ok_or("nothing to launch")?;
    let module = module(config.image)?;
    let function = module.get_function(config.image.entry)?;
    let shared = config.shared_dynamic;
    // SAFETY: these are the parameters of warp_reduce, for ROWS rows of COLUMNS elements.
    unsafe {
        launch!(function<<<config, config, shared, stream>>>(args.sums, args.x, args.row_stride, args.n_cols))?
    };
    stream.synchronize()?;
    let mut got = vec![0.0; ROWS];
    sums.copy_to(&mut got)?;
    if reference::sum_error(&left, &got, COLUMNS) > 1e-5 {
        return Err(format!("{} is wrong", config.image.id).into());
    }
    println!("{}: right", config.image.id);
    Ok(())
}
