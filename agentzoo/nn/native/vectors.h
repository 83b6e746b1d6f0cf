/* Eight neighbouring numbers at once, for the C file beside this one; `nn/native/compiled.py` compiles them.
 *
 * GCC's and Clang's vector types need no flags and no intrinsics: a machine with narrower registers takes several for
 * one `vec`.
 */

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 8
typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE vec fill(float value) { return value - (vec){0}; } /* 0 + value would be computed, for the sake of -0 */

INLINE vec larger(vec a, vec b) {
    const ivec first = a > b;
    return (vec)((first & (ivec)a) | (~first & (ivec)b));
}

INLINE vec load(const float *from, int count) {
    if (count == WIDTH) return *(const vec *)from;
    float padded[WIDTH] = {0};
    memcpy(padded, from, 4 * (size_t)count);
    return *(const vec *)padded;
}

INLINE void store(float *to, vec v, int count) {
    if (count == WIDTH) *(vec *)to = v;
    else memcpy(to, (float *)&v, 4 * (size_t)count);
}

INLINE vec *reserve(size_t count) { return aligned_alloc(64, (sizeof(vec) * count + 63) / 64 * 64); }

INLINE float total(vec v) {
    float sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += v[i];
    return sum;
}

/* 2^x for x < 127, as 2^r 2^f with r = round(x): f in [-1/2, 1/2] by Cephes' polynomial (relative error 2e-7), 2^r by
 * putting r + 127 into the exponent. What is smaller than 2^-126 is 0; NaN stays. */
INLINE vec exp2v(vec x) {
    const vec shift = fill(12583039.0f); /* 1.5 · 2^23 + 127: adding it rounds to a whole number, in the low bits */
    vec r = x + shift;
    vec f = x - (r - shift);
    vec p = fill(1.535336188319500e-4f);
    p = p * f + 1.339887440266574e-3f;
    p = p * f + 9.618437357674640e-3f;
    p = p * f + 5.550332471162809e-2f;
    p = p * f + 2.402264791363012e-1f;
    p = p * f + 6.931472028550421e-1f;
    p = p * f + 1.0f;
    p *= (vec)((uvec)r << 23);
    return (vec)((ivec)p & ~(x < -126.0f));
}

INLINE vec expv(vec x) { return exp2v(x * 1.44269504088896341f); }
INLINE vec sigmoid(vec x) { return 1.0f / (1.0f + expv(-larger(x, fill(-80.0f)))); }

/* log(1 + e^x) = max(x, 0) + log1p(u), u = e^-|x|, and log1p(u) = 2 atanh(s), s = u / (2 + u) <= 1/3. */
INLINE vec softplus(vec x) {
    vec u = expv(-larger(x, -x));
    vec s = u / (2.0f + u), q = s * s;
    vec p = fill(1.0f / 15);
    p = p * q + 1.0f / 13;
    p = p * q + 1.0f / 11;
    p = p * q + 1.0f / 9;
    p = p * q + 1.0f / 7;
    p = p * q + 1.0f / 5;
    p = p * q + 1.0f / 3;
    p = p * q + 1.0f;
    return larger(x, fill(0.0f)) + 2.0f * s * p;
}
