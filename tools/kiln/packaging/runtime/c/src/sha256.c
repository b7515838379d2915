/* SHA-256 (FIPS 180-4), so that a consumer needs no cryptographic library to check an image. */
#include "internal.h"

#include <string.h>

enum { BLOCK = 64, LENGTH = 8, ROUNDS = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2). */
static const uint32_t round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned bits)
{
    return (word >> bits) | (word << (32 - bits));
}

static uint32_t read_word(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | (uint32_t)bytes[3];
}

/* Section 6.2.2: one block into the running hash. */
static void absorb(uint32_t hash[8], const unsigned char block[BLOCK])
{
    uint32_t schedule[ROUNDS];
    for (size_t i = 0; i < 16; i++) {
        schedule[i] = read_word(block + 4 * i);
    }
    for (size_t i = 16; i < ROUNDS; i++) {
        const uint32_t w2 = schedule[i - 2];
        const uint32_t w15 = schedule[i - 15];
        const uint32_t sigma0 = rotate(w15, 7) ^ rotate(w15, 18) ^ (w15 >> 3);
        const uint32_t sigma1 = rotate(w2, 17) ^ rotate(w2, 19) ^ (w2 >> 10);
        schedule[i] = sigma1 + schedule[i - 7] + sigma0 + schedule[i - 16];
    }

    uint32_t a = hash[0], b = hash[1], c = hash[2], d = hash[3];
    uint32_t e = hash[4], f = hash[5], g = hash[6], h = hash[7];
    for (size_t i = 0; i < ROUNDS; i++) {
        const uint32_t sum1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        const uint32_t choice = (e & f) ^ (~e & g);
        const uint32_t t1 = h + sum1 + choice + round_constants[i] + schedule[i];
        const uint32_t sum0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + sum0 + majority;
    }
    hash[0] += a;
    hash[1] += b;
    hash[2] += c;
    hash[3] += d;
    hash[4] += e;
    hash[5] += f;
    hash[6] += g;
    hash[7] += h;
}

void kiln_sha256(const unsigned char *data, size_t size, uint8_t digest[32])
{
    /* Section 5.3.3: the square roots of the first 8 primes. */
    uint32_t hash[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    const size_t rest = size % BLOCK;
    for (size_t done = 0; done < size - rest; done += BLOCK) {
        absorb(hash, data + done);
    }

    /* Section 5.1.1: a one bit, zeros, and the length in bits. They take a second block when the rest leaves no room. */
    unsigned char last[2 * BLOCK] = {0};
    const size_t end = rest + 1 + LENGTH <= BLOCK ? BLOCK : 2 * BLOCK;
    if (rest != 0) {
        memcpy(last, data + (size - rest), rest);
    }
    last[rest] = 0x80;
    const uint64_t bits = (uint64_t)size * 8;
    for (size_t i = 0; i < LENGTH; i++) {
        last[end - 1 - i] = (unsigned char)(bits >> (8 * i) & 0xff);
    }
    for (size_t done = 0; done < end; done += BLOCK) {
        absorb(hash, last + done);
    }

    for (size_t i = 0; i < 32; i++) {
        digest[i] = (uint8_t)(hash[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
    }
}
