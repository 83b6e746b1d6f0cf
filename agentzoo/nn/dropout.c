/* Dropout in one pass over memory, float32 on a CPU; `nn/dropout.py` calls it. What is kept is a function of a seed and
 * of the place, so that the backward pass can ask again.
 */

#include "vectors.h"

/* seed: 64 random bits. dropped: the probability times 2^32. scale: 1 / (1 - probability). */
typedef struct {
    uint32_t low, high, dropped;
    float scale;
} chance;

/* `scale` where number `place` + lane is kept, else 0. The mixing is "lowbias32" (github.com/skeeto/hash-prospector). */
INLINE vec kept(const chance *c, uint32_t place) {
    const uvec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    uvec x = (lanes + place) * 0x9e3779b1u + c->low;
    x = (x ^ x >> 16) * 0x21f0aaadu ^ c->high;
    x = (x ^ x >> 15) * 0xd35a2d97u;
    x ^= x >> 15;
    return (vec)((ivec)(x >= c->dropped) & (ivec)fill(c->scale));
}

/* y = x where it is kept, scaled, plus the residual unless that is NULL. y may be x. */
void dropout(int64_t count, uint64_t seed, uint32_t dropped, float scale, const float *x, const float *residual,
             float *y) {
    const chance c = {(uint32_t)seed, (uint32_t)(seed >> 32), dropped, scale};
    for (int64_t i = 0; i < count; i += WIDTH) {
        const int now = count - i < WIDTH ? (int)(count - i) : WIDTH;
        vec v = load(x + i, now) * kept(&c, (uint32_t)i);
        if (residual) v += load(residual + i, now);
        store(y + i, v, now);
    }
}
