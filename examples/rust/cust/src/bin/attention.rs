//! Flash attention with a causal mask: 8 heads of queries over 2 heads of keys and values, in fp16.
//!
//! cust knows no numbers of 16 bits of half 2; the crate's `F16` are such numbers, and come from half's.

use std::error::Error;

use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use half::f16;
use kernels::groups::attention_fp16_64_causal::Args;
use kernels::{Library, F16};
use reference::Attention;

const HEADS: usize = 8;
const HEADS_PER_KV: usize = 4;
const TOKENS: usize = 300;
const DEPTH: usize = 64;

fn numbers(count: usize, seed: usize) -> Vec<F16> {
    (0..count)
        .map(|i| f16::from_f32(((i * 37 + seed) % 113) as f32 / 56.0 - 1.0).into())
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let context = cust::quick_init()?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let library = Library::from_cust(&context)?;

    let head = TOKENS * DEPTH;
    let queries = numbers(HEADS * head, 1);
    let keys = numbers(HEADS / HEADS_PER_KV * head, 2);
    let values = numbers(HEADS / HEADS_PER_KV * head, 3);
    let (q, k, v) = (
        DeviceBuffer::from_slice(&queries)?,
        DeviceBuffer::from_slice(&keys)?,
        DeviceBuffer::from_slice(&values)?,
    );
    let mut got = vec![F16::default(); queries.len()];
    let output = DeviceBuffer::from_slice(&got)?;
    let args = Args {
        output_ptr: output.as_device_ptr().into(),
        q_ptr: q.as_device_ptr().into(),
        k_ptr: k.as_device_ptr().into(),
        v_ptr: v.as_device_ptr().into(),
        n_queries: TOKENS as i32,
        n_keys: TOKENS as i32,
        heads_per_kv: HEADS_PER_KV as i32,
        stride_qb: (HEADS * head) as i64,
        stride_qh: head as i64,
        stride_qm: DEPTH as i64,
        stride_kb: (HEADS / HEADS_PER_KV * head) as i64,
        stride_kh: head as i64,
        stride_kn: DEPTH as i64,
        stride_vb: (HEADS / HEADS_PER_KV * head) as i64,
        stride_vh: head as i64,
        stride_vn: DEPTH as i64,
        stride_ob: (HEADS * head) as i64,
        stride_oh: head as i64,
        stride_om: DEPTH as i64,
        sm_scale: (DEPTH as f32).powf(-0.5),
        n_batch: 1,
        n_heads: HEADS as i32,
    };
    // SAFETY: the buffers are as large as heads, tokens and strides say, and live until the stream has been waited for.
    unsafe { library.kernel().launch(&args, (&stream).into())? };
    stream.synchronize()?;

    output.copy_to(&mut got)?;
    let wide = |halves: &[F16]| -> Vec<f32> {
        let numbers = halves.iter().map(|half| f16::from(*half).to_f32());
        numbers.collect()
    };
    let attention = Attention {
        heads: HEADS,
        heads_per_kv: HEADS_PER_KV,
        tokens: TOKENS,
        depth: DEPTH,
    };
    let largest = attention.error(&wide(&queries), &wide(&keys), &wide(&values), &wide(&got));
    println!("attention of {HEADS} heads and {TOKENS} tokens: largest error {largest:.1e}");
    if largest < 1e-2 {
        Ok(())
    } else {
        Err("that is too much".into())
    }
}
