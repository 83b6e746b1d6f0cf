/* What a transformer does between its matrix products, each in one pass over memory: dropout, the weights of causal
 * attention, GELU. Numbers are float32 or, where a `_half` says so, bfloat16; all is computed in float32.
 * `nn/dropout.py` and `nn/native/fused.py` call it.
 *
 * What dropout keeps is a function of a seed and of the place, so that the backward pass asks again and nothing of it
 * is stored.
 */

#include "vectors.h"

/* seed: 64 random bits. dropped: the probability times 2^32. scale: 1 / (1 - probability). */
typedef struct {
    uint32_t low, high, dropped;
    float scale;
} chance;

INLINE chance chance_of(uint64_t seed, uint32_t dropped, float scale) {
    return (chance){(uint32_t)seed, (uint32_t)(seed >> 32), dropped, scale};
}

/* `scale` where number `place` + lane is kept, else 0. The mixing is "lowbias32" (github.com/skeeto/hash-prospector). */
INLINE vec kept(const chance *c, uint32_t place) {
    const uvec lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    uvec x = (lanes + place) * 0x9e3779b1u + c->low;
    x = (x ^ x >> 16) * 0x21f0aaadu ^ c->high;
    x = (x ^ x >> 15) * 0xd35a2d97u;
    x ^= x >> 15;
    return (vec)((ivec)(x >= c->dropped) & (ivec)fill(c->scale));
}

INLINE int lanes_left(int64_t count, int64_t i) { return count - i < WIDTH ? (int)(count - i) : WIDTH; }

INLINE void drop(int64_t count, chance c, const void *x, int x_half, const void *residual, int residual_half, void *y,
                 int y_half) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        const int now = lanes_left(count, i);
        vec v = get(x, x_half, i, now) * kept(&c, (uint32_t)i);
        if (residual) v += get(residual, residual_half, i, now);
        put(y, y_half, i, v, now);
    }
}

/* y = x where it is kept, scaled, plus the residual unless that is NULL. y may be x if both are of one kind. */
void dropout(int64_t count, uint64_t seed, uint32_t dropped, float scale, const void *x, int x_half,
             const void *residual, int residual_half, void *y, int y_half) {
    const chance c = chance_of(seed, dropped, scale);
    switch (4 * !!x_half + 2 * !!residual_half + !!y_half) { /* a loop for each case, with nothing to ask inside */
    case 0: drop(count, c, x, 0, residual, 0, y, 0); break;
    case 1: drop(count, c, x, 0, residual, 0, y, 1); break;
    case 2: drop(count, c, x, 0, residual, 1, y, 0); break;
    case 3: drop(count, c, x, 0, residual, 1, y, 1); break;
    case 4: drop(count, c, x, 1, residual, 0, y, 0); break;
    case 5: drop(count, c, x, 1, residual, 0, y, 1); break;
    case 6: drop(count, c, x, 1, residual, 1, y, 0); break;
    default: drop(count, c, x, 1, residual, 1, y, 1);
    }
}

/* Row `row` of the scores belongs to the query at token start + step (row % queries), which sees the tokens up to its
 * own; there are `L` of them. Where it does not see, weights are 0. */
INLINE int seen(int64_t row, int queries, int start, int step) { return start + step * (int)(row % queries) + 1; }

INLINE void weigh(int64_t first, int64_t rows, int queries, int L, int start, int step, float factor, chance c,
                  const void *scores, void *shares, void *weights, int half, float *line) {
    for (int64_t r = 0; r < rows; r++) {
        const int n = seen(first + r, queries, start, step);
        const int64_t at = r * L;
        vec most = fill(-__builtin_inff()), sum = fill(0.0f);
        for (int i = 0; i < n; i += WIDTH) {
            const int now = lanes_left(n, i);
            vec v = get(scores, half, at + i, now) * factor;
            for (int lane = now; lane < WIDTH; lane++) v[lane] = -__builtin_inff();
            *(vec *)(line + i) = v;
            most = larger(most, v);
        }
        float highest = most[0];
        for (int lane = 1; lane < WIDTH; lane++) highest = most[lane] > highest ? most[lane] : highest;
        for (int i = 0; i < n; i += WIDTH) {
            const vec v = expv(*(vec *)(line + i) - highest);
            *(vec *)(line + i) = v;
            sum += v;
        }
        const float each = 1.0f / total(sum);
        for (int i = 0; i < L; i += WIDTH) {
            const int now = lanes_left(L, i);
            vec v = fill(0.0f);
            if (i < n) v = *(vec *)(line + i) * each;
            put(shares, half, at + i, v, now);
            put(weights, half, at + i, v * kept(&c, (uint32_t)((first + r) * L + i)), now);
        }
    }
}

/* scores, shares, weights: (rows, L). shares = softmax(factor · scores) over what is seen; weights = dropout(shares).
 * first: the number of the first row, where rows are shared out among threads. */
int causal_weights(int64_t first, int64_t rows, int queries, int L, int start, int step, float factor, uint64_t seed,
                   uint32_t dropped, float scale, const void *scores, void *shares, void *weights, int half) {
    const chance c = chance_of(seed, dropped, scale);
    float *line = (float *)reserve((size_t)L / WIDTH + 1);
    if (!line) return 1;
    if (half) weigh(first, rows, queries, L, start, step, factor, c, scores, shares, weights, 1, line);
    else weigh(first, rows, queries, L, start, step, factor, c, scores, shares, weights, 0, line);
    free(line);
    return 0;
}

INLINE void weigh_back(int64_t first, int64_t rows, int queries, int L, int start, int step, float factor, chance c,
                       const void *grad, const void *shares, void *out, int half, float *line) {
    for (int64_t r = 0; r < rows; r++) {
        const int n = seen(first + r, queries, start, step);
        const int64_t at = r * L;
        vec sum = fill(0.0f);
        for (int i = 0; i < n; i += WIDTH) {
            const int now = lanes_left(n, i);
            const vec v = get(grad, half, at + i, now) * kept(&c, (uint32_t)((first + r) * L + i));
            *(vec *)(line + i) = v;
            sum += v * get(shares, half, at + i, now);
        }
        const float mean = total(sum);
        for (int i = 0; i < L; i += WIDTH) {
            const int now = lanes_left(L, i);
            vec v = fill(0.0f);
            if (i < n) v = get(shares, half, at + i, now) * (*(vec *)(line + i) - mean) * factor;
            put(out, half, at + i, v, now);
        }
    }
}

/* The gradient of the scores, given that of the weights; arguments as before. */
int causal_weights_back(int64_t first, int64_t rows, int queries, int L, int start, int step, float factor,
                        uint64_t seed, uint32_t dropped, float scale, const void *grad, const void *shares, void *out,
                        int half) {
    const chance c = chance_of(seed, dropped, scale);
    float *line = (float *)reserve((size_t)L / WIDTH + 1);
    if (!line) return 1;
    if (half) weigh_back(first, rows, queries, L, start, step, factor, c, grad, shares, out, 1, line);
    else weigh_back(first, rows, queries, L, start, step, factor, c, grad, shares, out, 0, line);
    free(line);
    return 0;
}

/* GELU by tanh: x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). */
#define SLOPE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define CUBE 0.044715f

INLINE void gelu_all(int64_t count, const void *x, void *y, int half) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        const int now = lanes_left(count, i);
        const vec v = get(x, half, i, now);
        put(y, half, i, v * sigmoid(SLOPE * v * (1.0f + CUBE * v * v)), now);
    }
}

INLINE void gelu_back_all(int64_t count, const void *x, const void *grad, void *out, int half) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        const int now = lanes_left(count, i);
        const vec v = get(x, half, i, now), s = sigmoid(SLOPE * v * (1.0f + CUBE * v * v));
        const vec slope = s + v * s * (1.0f - s) * SLOPE * (1.0f + 3.0f * CUBE * v * v);
        put(out, half, i, get(grad, half, i, now) * slope, now);
    }
}

/* y = GELU(x). */
void gelu(int64_t count, const void *x, void *y, int half) {
    if (half) gelu_all(count, x, y, 1);
    else gelu_all(count, x, y, 0);
}

/* out = grad GELU'(x). */
void gelu_back(int64_t count, const void *x, const void *grad, void *out, int half) {
    if (half) gelu_back_all(count, x, grad, out, 1);
    else gelu_back_all(count, x, grad, out, 0);
}
