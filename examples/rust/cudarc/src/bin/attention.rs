//! Flash attention with a causal mask: 8 heads of queries over 2 heads of keys and values, in fp16.
//!
//! Queries, keys and values are `half::f16`, whose bits the kernel takes as they are.

use std::error::Error;

use half::f16;
use kernels::adapters::cudarc::context;
use kernels::groups::attention_fp16_64_causal::{Args, SliceArgs};
use kernels::Library;
use reference::Attention;

const HEADS: usize = 8;
const HEADS_PER_KV: usize = 4;
const TOKENS: usize = 300;
const DEPTH: usize = 64;

fn numbers(count: usize, seed: usize) -> Vec<f16> {
    (0..count)
        .map(|i| f16::from_f32(((i * 37 + seed) % 113) as f32 / 56.0 - 1.0))
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let context = context(0)?;
    let stream = context.default_stream();
    let library = Library::from_cudarc(&context)?;
    let kernel = library.kernel::<Args>();

    let head = TOKENS * DEPTH;
    let queries = numbers(HEADS * head, 1);
    let keys = numbers(HEADS / HEADS_PER_KV * head, 2);
    let values = numbers(HEADS / HEADS_PER_KV * head, 3);
    let mut output = stream.alloc_zeros::<f16>(HEADS * head)?;
    SliceArgs {
        output_ptr: (&mut output).into(),
        q_ptr: (&stream.clone_htod(&queries)?).into(),
        k_ptr: (&stream.clone_htod(&keys)?).into(),
        v_ptr: (&stream.clone_htod(&values)?).into(),
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
    }
    .launch(&kernel, &stream)?;

    let got = stream.clone_dtoh(&output)?;
    let wide = |halves: &[f16]| halves.iter().map(|half| half.to_f32()).collect::<Vec<_>>();
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
