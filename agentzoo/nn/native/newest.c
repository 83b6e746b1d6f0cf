/* The newest token of a stack of one-headed blocks, float32 on a CPU; `nn/newest_compiled.py` prepares and calls it.
 *
 * The formulas are those of nn/newest.py, one window after the other: its L tokens stay in the caches through a whole
 * block, nothing that comes after a token is computed for it, and no operator has to be called for 60 rows.
 */

#include "products.h"

typedef struct {
    map ask_answer, up, down; /* D -> 2D, D -> H, H -> D */
    float eps[2];             /* of the LayerNorms before attention and MLP, whose weights are in the products */
} block;

typedef struct {
    int D, H, before;                      /* `before`: blocks before the last */
    const block *each;
    map ask, answer, up, down;             /* of the last block: D -> D, D -> D, D -> H, H -> D */
    float eps[3];                          /* of the last block's LayerNorms and of the final one */
    const float *weight, *bias;            /* (D,) of the final LayerNorm */
} stack;

/* Arrays of one window; P = L to the next multiple of PANEL. */
typedef struct {
    float *x, *seen, *both, *keys, *scores, *answers, *mixed, *wide; /* keys: panels (P / PANEL, D, PANEL), as answers */
} work;

static const float nothing[PANEL] = {0};

/* LayerNorm without weights: (D,) -> (D,). */
static void normalize(int D, float eps, const float *x, float *out) {
    const float mean = sum(x, D) / D;
    for (int d = 0; d < D; d++) out[d] = x[d] - mean;
    const float size = 1.0f / sqrtf(dot(out, out, D) / D + eps);
    for (int d = 0; d < D; d++) out[d] *= size;
}

/* exp(score - largest) over their sum for the first `seen` of `count` scores, 0 for the others. */
static void softmax(float *scores, int seen, int count) {
    float largest = scores[0];
    for (int j = 1; j < seen; j++) largest = scores[j] > largest ? scores[j] : largest;
    for (int j = 0; j < seen; j += WIDTH) {
        const int now = smaller(seen - j, WIDTH);
        store(scores + j, expv(load(scores + j, now) - largest), now);
    }
    const float whole = sum(scores, seen);
    for (int j = 0; j < seen; j++) scores[j] /= whole;
    memset(scores + seen, 0, sizeof(float) * (size_t)(count - seen));
}

/* x += W_down relu(W_up normalized x), for `rows` rows of x. */
static void mlp(const map *up, const map *down, float eps, int rows, float *x, work *k) {
    const int D = up->X, H = up->Y;
    for (int r = 0; r < rows; r++) normalize(D, eps, x + (size_t)r * D, k->seen + (size_t)r * D);
    product(up, rows, k->seen, D, k->wide, H);
    for (size_t i = 0; i < (size_t)rows * H; i++) k->wide[i] = k->wide[i] < 0 ? 0 : k->wide[i]; /* NaN stays */
    product(down, rows, k->wide, H, k->mixed, D);
    for (size_t i = 0; i < (size_t)rows * D; i++) x[i] += k->mixed[i];
}

/* x (L, D) += causal attention. */
static void attend(const stack *m, const block *b, int L, work *k) {
    const int D = m->D, P = (L + PANEL - 1) / PANEL * PANEL;
    for (int l = 0; l < L; l++) normalize(D, b->eps[0], k->x + (size_t)l * D, k->seen + (size_t)l * D);
    product(&b->ask_answer, L, k->seen, D, k->both, (size_t)2 * D);
    for (int l = 0; l < P; l++) { /* the last panel's columns beyond L are asked for by nobody, but must be numbers */
        float *to = k->keys + (size_t)(l / PANEL) * D * PANEL + l % PANEL;
        for (int d = 0; d < D; d++) to[(size_t)d * PANEL] = l < L ? k->seen[(size_t)l * D + d] : 0;
    }
    for (int d = 0; d < D; d += PANEL) {
        float *to = k->answers + (size_t)d * L;
        const size_t count = smaller(D - d, PANEL);
        for (int l = 0; l < L; l++, to += PANEL) {
            memcpy(to, k->both + (size_t)l * 2 * D + D + d, sizeof(float) * count);
            memset(to + count, 0, sizeof(float) * (PANEL - count));
        }
    }
    for (int l = 0; l < L; l += ROWS) {
        const int rows = smaller(L - l, ROWS), until = l + rows; /* the last of these rows sees tokens before `until` */
        float *scores = k->scores;
        for (int j = 0; j < until; j += PANEL)
            tile(rows, D, PANEL, k->keys + (size_t)j * D, nothing, k->both + (size_t)l * 2 * D, (size_t)2 * D, scores + j, P);
        for (int r = 0; r < rows; r++) softmax(scores + (size_t)r * P, l + r + 1, until);
        for (int d = 0; d < D; d += PANEL)
            tile(rows, until, smaller(D - d, PANEL), k->answers + (size_t)d * L, nothing, scores, P, k->mixed + d, D);
        float *x = k->x + (size_t)l * D;
        for (size_t i = 0; i < (size_t)rows * D; i++) x[i] += k->mixed[i];
    }
}

/* out (D,): the last token of x (L, D) after the last block and the final LayerNorm. */
static void last(const stack *m, int L, work *k, float *out) {
    const int D = m->D;
    float *newest = k->x + (size_t)(L - 1) * D, *asked = k->both, *found = k->both + D;
    for (int l = 0; l < L; l++) normalize(D, m->eps[0], k->x + (size_t)l * D, k->seen + (size_t)l * D);
    product(&m->ask, 1, k->seen + (size_t)(L - 1) * D, D, asked, D);
    for (int l = 0; l < L; l++) k->scores[l] = dot(asked, k->seen + (size_t)l * D, D);
    softmax(k->scores, L, L);
    memset(found, 0, sizeof(float) * (size_t)D); /* one answer to the sum, rather than a sum of answers */
    for (int l = 0; l < L; l++)
        for (int d = 0; d < D; d++) found[d] += k->scores[l] * k->seen[(size_t)l * D + d];
    product(&m->answer, 1, found, D, k->mixed, D);
    for (int d = 0; d < D; d++) newest[d] += k->mixed[d];
    mlp(&m->up, &m->down, m->eps[1], 1, newest, k);
    normalize(D, m->eps[2], newest, out);
    for (int d = 0; d < D; d++) out[d] = out[d] * m->weight[d] + m->bias[d];
}

/* x: (windows, L, D). out: (windows, D). */
int newest_token(const stack *m, int windows, int L, const float *x, float *out) {
    const size_t D = m->D, P = (L + PANEL - 1) / PANEL * PANEL, panels = (D + PANEL - 1) / PANEL;
    const size_t sizes[] = {L * D, L * D, (L + 1) * 2 * D, P * D, ROWS * P, panels * L * PANEL, L * D, L * (size_t)m->H};
    const size_t arrays = sizeof sizes / sizeof *sizes;
    float *const memory = reserve_arrays(sizes, arrays), *rest = memory;
    if (!memory) return 1;
    work k = {0};
    float **const named[] = {&k.x, &k.seen, &k.both, &k.keys, &k.scores, &k.answers, &k.mixed, &k.wide};
    for (size_t i = 0; i < arrays; i++) *named[i] = take(&rest, sizes[i]);
    for (int w = 0; w < windows; w++) {
        memcpy(k.x, x + (size_t)w * L * D, sizeof(float) * L * D);
        for (int i = 0; i < m->before; i++) {
            attend(m, m->each + i, L, &k);
            mlp(&m->each[i].up, &m->each[i].down, m->each[i].eps[1], L, k.x, &k);
        }
        last(m, L, &k, out + (size_t)w * D);
    }
    free(memory);
    return 0;
}
