/* Products of a few rows with weights that are laid out in the order in which they are read.
 *
 * A weight lies in panels of PANEL columns, each whole and after the other: (ceil(Y / PANEL), X, PANEL), zero beyond
 * column Y; `nn/packed.py` makes them. ROWS rows share what is read of a panel, and their sums stay in registers.
 */

#pragma once

#include <math.h>

#include "vectors.h"

#define PANEL (2 * WIDTH)
#define ROWS 6

/* X -> Y. weight: panels. bias: (ceil(Y / PANEL), PANEL). */
typedef struct {
    int X, Y;
    const float *weight, *bias;
} map;

/* weight · x / sqrt(|x|² + eps): weight (D,) and eps hold the number of channels already. */
typedef struct {
    const float *weight;
    float eps;
} scale;

INLINE void tile_of(const int rows, int X, int count, const float *w, const float *bias, const float *x, size_t dx,
                    float *y, size_t dy) {
    vec left[ROWS], right[ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) left[r] = load(bias, WIDTH), right[r] = load(bias + WIDTH, WIDTH);
    for (int k = 0; k < X; k++, w += PANEL) {
        const vec a = load(w, WIDTH), b = load(w + WIDTH, WIDTH);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const vec v = fill(x[r * dx + k]);
            left[r] += v * a;
            right[r] += v * b;
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) { /* through memory, so that the sums stay in registers until here */
        float sums[PANEL];
        store(sums, left[r], WIDTH);
        store(sums + WIDTH, right[r], WIDTH);
        memcpy(y + r * dy, sums, sizeof(float) * (size_t)count);
    }
}

/* y (rows, count) = x (rows, X) · one panel + bias (PANEL,), for at most ROWS rows, which are dx and dy numbers apart. */
static void tile(int rows, int X, int count, const float *w, const float *bias, const float *x, size_t dx, float *y,
                 size_t dy) {
    switch (rows) {
        case 1: tile_of(1, X, count, w, bias, x, dx, y, dy); break;
        case 2: tile_of(2, X, count, w, bias, x, dx, y, dy); break;
        case 3: tile_of(3, X, count, w, bias, x, dx, y, dy); break;
        case 4: tile_of(4, X, count, w, bias, x, dx, y, dy); break;
        case 5: tile_of(5, X, count, w, bias, x, dx, y, dy); break;
        default: tile_of(ROWS, X, count, w, bias, x, dx, y, dy);
    }
}

INLINE int smaller(int a, int b) { return a < b ? a : b; }

/* y (rows, Y) = x (rows, X) · weight + bias; rows are dx and dy numbers apart. */
static void product(const map *m, int rows, const float *x, size_t dx, float *y, size_t dy) {
    for (int column = 0; column < m->Y; column += PANEL)
        for (int r = 0; r < rows; r += ROWS)
            tile(smaller(rows - r, ROWS), m->X, smaller(m->Y - column, PANEL), m->weight + (size_t)column * m->X,
                 m->bias + column, x + r * dx, dx, y + r * dy + column, dy);
}

INLINE float sum(const float *x, int D) {
    vec sums = {0};
    for (int d = 0; d < D; d += WIDTH) sums += load(x + d, smaller(D - d, WIDTH));
    return total(sums);
}

INLINE float dot(const float *a, const float *b, int D) {
    vec sum = {0};
    for (int d = 0; d < D; d += WIDTH) {
        const int count = smaller(D - d, WIDTH);
        sum += load(a + d, count) * load(b + d, count);
    }
    return total(sum);
}

INLINE void rescale(const scale *s, int D, float *x) {
    const float size = 1.0f / sqrtf(dot(x, x, D) + s->eps);
    for (int d = 0; d < D; d++) x[d] *= size * s->weight[d];
}

/* Work arrays: `count` numbers of what was reserved, aligned. */
INLINE float *take(float **rest, size_t count) {
    float *here = *rest;
    *rest += (count + WIDTH - 1) / WIDTH * WIDTH;
    return here;
}

/* One reservation for arrays of these sizes, from which they are taken in turn; NULL where there is no memory. */
INLINE float *reserve_arrays(const size_t *sizes, size_t arrays) {
    size_t vectors = 0;
    for (size_t i = 0; i < arrays; i++) vectors += sizes[i] / WIDTH + 1;
    return (float *)reserve(vectors);
}
