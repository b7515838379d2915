//! What the kernels of the examples have to compute, computed on the host: results are held against it.

/// The largest error of a softmax of rows.
pub fn softmax_error(values: &[f32], got: &[f32], columns: usize) -> f32 {
    let mut largest = 0.0f32;
    for (row, got) in values.chunks(columns).zip(got.chunks(columns)) {
        for (wanted, got) in softmax(row).iter().zip(got) {
            largest = largest.max((wanted - got).abs());
        }
    }
    largest
}

fn softmax(row: &[f32]) -> Vec<f32> {
    let peak = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = row.iter().map(|value| (value - peak).exp()).collect();
    let total: f32 = powers.iter().sum();
    powers.iter().map(|power| power / total).collect()
}

/// The largest error among the sums of rows, as a part of the sum.
pub fn sum_error(values: &[f32], got: &[f32], columns: usize) -> f64 {
    let mut largest = 0.0f64;
    for (row, got) in values.chunks(columns).zip(got) {
        let wanted: f64 = row.iter().map(|value| f64::from(*value)).sum();
        largest = largest.max((wanted - f64::from(*got)).abs() / wanted);
    }
    largest
}

/// Attention with a causal mask: some heads of queries to one of keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    pub heads: usize,
    pub heads_per_kv: usize,
    pub tokens: usize,
    pub depth: usize,
}

impl Attention {
    /// The largest error of a result, which has a row of `depth` numbers for each token of each head, as the queries have.
    pub fn error(&self, queries: &[f32], keys: &[f32], values: &[f32], got: &[f32]) -> f32 {
        let mut largest = 0.0f32;
        for place in 0..self.heads * self.tokens {
            let (head, token) = (place / self.tokens, place % self.tokens);
            let wanted = self.attend(head, token, queries, keys, values);
            for (wanted, got) in wanted.iter().zip(&got[place * self.depth..]) {
                largest = largest.max((wanted - got).abs());
            }
        }
        largest
    }

    /// One row of the result: the token sees itself and those before it.
    fn attend(
        &self,
        head: usize,
        token: usize,
        queries: &[f32],
        keys: &[f32],
        values: &[f32],
    ) -> Vec<f32> {
        let depth = self.depth;
        let query = &queries[(head * self.tokens + token) * depth..][..depth];
        let first = head / self.heads_per_kv * self.tokens;
        let scores: Vec<f32> = (first..=first + token)
            .map(|seen| {
                let products = keys[seen * depth..].iter().zip(query).map(|(k, q)| k * q);
                products.sum::<f32>() * (depth as f32).powf(-0.5)
            })
            .collect();
        let mut result = vec![0.0; depth];
        for (seen, weight) in softmax(&scores).iter().enumerate() {
            let row = &values[(first + seen) * depth..];
            for (result, value) in result.iter_mut().zip(row) {
                *result += weight * value;
            }
        }
        result
    }
}
