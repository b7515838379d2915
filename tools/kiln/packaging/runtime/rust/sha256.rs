//! SHA-256 (FIPS 180-4), so that checking an image takes no other crate.

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
const ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// The square roots of the first 8 primes (section 5.3.3).
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

const BLOCK: usize = 64;

/// The digest of some bytes.
pub(crate) fn digest(data: &[u8]) -> [u8; 32] {
    let mut hash = START;
    let mut blocks = data.chunks_exact(BLOCK);
    for block in &mut blocks {
        absorb(&mut hash, block);
    }
    // Section 5.1.1: a one bit, zeros, and the length in bits; in a second block when the rest leaves no room.
    let rest = blocks.remainder();
    let mut last = [0; 2 * BLOCK];
    let length = (data.len() as u64).wrapping_mul(8).to_be_bytes();
    let end = if rest.len() + 9 <= BLOCK {
        BLOCK
    } else {
        2 * BLOCK
    };
    for (to, from) in last.iter_mut().zip(rest.iter().chain(&[0x80])) {
        *to = *from;
    }
    for (to, from) in last.iter_mut().take(end).rev().zip(length.iter().rev()) {
        *to = *from;
    }
    for block in last.chunks_exact(BLOCK).take(end / BLOCK) {
        absorb(&mut hash, block);
    }
    let mut digest = [0; 32];
    for (to, word) in digest.chunks_exact_mut(4).zip(hash) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// Section 6.2.2: one block into the running hash.
fn absorb(hash: &mut [u32; 8], block: &[u8]) {
    // The last 16 words of the schedule, the oldest first.
    let mut words = [0_u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *hash;
    for constant in ROUNDS {
        let [word, second, .., ninth, _, _, _, _, fourteenth, _] = words;
        let sum1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h
            .wrapping_add(sum1)
            .wrapping_add(choice)
            .wrapping_add(constant)
            .wrapping_add(word);
        let sum0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(sum0).wrapping_add(majority));

        let sigma0 = second.rotate_right(7) ^ second.rotate_right(18) ^ (second >> 3);
        let sigma1 = fourteenth.rotate_right(17) ^ fourteenth.rotate_right(19) ^ (fourteenth >> 10);
        let next = sigma1
            .wrapping_add(ninth)
            .wrapping_add(sigma0)
            .wrapping_add(word);
        words.rotate_left(1);
        if let Some(newest) = words.last_mut() {
            *newest = next;
        }
    }
    for (sum, word) in hash.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
}
