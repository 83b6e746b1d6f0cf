/* One step of a Decision Mamba in many environments, float32 on a CPU; `nn/step_compiled.py` prepares and calls it.
 *
 * The formulas are those of `DecisionMamba.step`, with all that only weights enter multiplied out beforehand. At three
 * tokens (a, R, s) an environment the time goes into reading the weights, so each is read once for CHUNK environments.
 *
 * Symbols: T = 3 tokens, D width, I inner width, G branches, W taps, S states, R rank of delta, A numbers of an action.
 */

#include "products.h"

#define T 3
#define CHUNK 8         /* environments */
#define GATHERED 9      /* which tokens the fine branch reads: three for each of T */
#define TAPE 6          /* R, s of the step before, a, R, s, nothing */

typedef struct {
    scale norm, fusion;
    map of_x, of_z;                      /* D -> I for the coarse branch; D -> G·I for all gates */
    map of_seen;                         /* 3D -> I for the fine branch, gather and input projection in one */
    map x_proj[2], dt_proj[2];           /* I -> R + 2S, R -> I; of each branch */
    const float *taps, *conv_bias;       /* (G, W, I), (G, I) */
    const float *base, *skip;            /* (G, S, I) log2(e) A, (G, I) */
    map out_proj, project;               /* G·I -> D, D -> D */
} layer;

typedef struct {
    int D, I, G, W, S, R, A, inputs, layers, times;
    int gathered[GATHERED];
    const float *center, *spread;        /* (inputs,) */
    map up, mix[T];                      /* inputs -> 3D, D -> D of each input */
    scale embed, norm;
    const float *embed_bias, *table;     /* (D,), (times, D) */
    map hidden, head;                    /* D -> D, D -> A */
    const layer *each;
} net;

/* Arrays of one chunk. */
typedef struct {
    float *read, *up, *h, *u, *tape, *seen, *x, *z, *taped, *selected, *delta, *y, *fused;
} work;

static void gelu(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] *= 0.5f * (1.0f + erff(x[i] * 0.70710678118654752f));
}

/* h (n, T, D) of the inputs of n environments. */
static void embed(const net *m, work *k, int n, const float *action, const float *rtg, const float *obs,
                  const int64_t *timesteps, const int64_t *seen) {
    const int D = m->D, A = m->A, inputs = m->inputs;
    for (int e = 0; e < n; e++) {
        float *read = k->read + (size_t)e * inputs;
        memcpy(read, action + (size_t)e * A, sizeof(float) * A);
        read[A] = rtg[e];
        memcpy(read + A + 1, obs + (size_t)e * (inputs - A - 1), sizeof(float) * (inputs - A - 1));
        for (int i = 0; i < inputs; i++) read[i] = (read[i] - m->center[i]) / m->spread[i];
        if (seen[e] == 0) memset(read, 0, sizeof(float) * A); /* there was no action */
    }
    product(&m->up, n, k->read, inputs, k->up, (size_t)T * D);
    memcpy(k->fused, k->up, sizeof(float) * n * T * D);
    gelu(k->fused, (size_t)n * T * D);
    for (int t = 0; t < T; t++) product(&m->mix[t], n, k->fused + t * D, (size_t)T * D, k->h + t * D, (size_t)T * D);
    for (int e = 0; e < n; e++) {
        for (int t = 0; t < T; t++) {
            const size_t at = ((size_t)e * T + t) * D;
            int64_t time = timesteps[e] - (t == 0); /* the action is that of the step before */
            time = time < 0 ? 0 : time >= m->times ? m->times - 1 : time;
            float *h = k->h + at;
            for (int d = 0; d < D; d++) h[d] += k->up[at + d];
            const float mean = sum(h, D) / D;
            for (int d = 0; d < D; d++) h[d] -= mean;
            rescale(&m->embed, D, h);
            for (int d = 0; d < D; d++) h[d] += m->embed_bias[d] + m->table[time * D + d];
        }
    }
}

/* x (n, T, I) of a branch, in place, to what its scan reads; conv (n apart `stride`, W-1, I) holds what came before. */
static void convolve(const net *m, const layer *l, int g, int n, float *x, const int64_t *seen, const float *conv,
                     float *next, size_t stride, float *taped) {
    const int I = m->I, W = m->W;
    const float *taps = l->taps + (size_t)g * W * I, *bias = l->conv_bias + (size_t)g * I;
    for (int e = 0; e < n; e++) {
        float *own = x + (size_t)e * T * I;
        if (W > 1) memcpy(taped, conv + e * stride, sizeof(float) * (W - 1) * I); /* else there is no conv */
        memcpy(taped + (size_t)(W - 1) * I, own, sizeof(float) * T * I);
        if (W > 1) memcpy(next + e * stride, taped + (size_t)T * I, sizeof(float) * (W - 1) * I);
        for (int t = 0; t < T; t++) {
            if (t == 0 && seen[e] == 0) {
                memset(own, 0, sizeof(float) * I);
                continue;
            }
            for (int i = 0; i < I; i += WIDTH) {
                const int count = I - i < WIDTH ? I - i : WIDTH;
                vec sum = load(bias + i, count);
                for (int w = 0; w < W; w++)
                    sum += load(taps + (size_t)w * I + i, count) * load(taped + (size_t)(t + w) * I + i, count);
                store(own + (size_t)t * I + i, sum * sigmoid(sum), count);
            }
        }
    }
}

/* y at tokens first..T-1 (n, T - first, G, I) of a branch, with its gate z laid out likewise. */
static void scan(const net *m, const layer *l, int g, int n, int first, const work *k, const float *ssm, float *next,
                 size_t stride) {
    const int I = m->I, S = m->S, R = m->R, wide = R + 2 * S, reads = T - first;
    for (int e = 0; e < n; e++) {
        for (int i = 0; i < I; i += WIDTH) {
            const int count = I - i < WIDTH ? I - i : WIDTH;
            const vec skip = load(l->skip + (size_t)g * I + i, count);
            vec step[T], dx[T], sum[T];
            for (int t = 0; t < T; t++) {
                const size_t at = ((size_t)e * T + t) * I + i;
                const vec now = load(k->x + at, count);
                step[t] = softplus(load(k->delta + at, count));
                dx[t] = step[t] * now;
                sum[t] = skip * now;
            }
            const float *selected = k->selected + (size_t)e * T * wide + R;
            for (int s = 0; s < S; s++) {
                const size_t at = e * stride + (size_t)s * I + i;
                const vec rate = load(l->base + ((size_t)g * S + s) * I + i, count);
                vec state = load(ssm + at, count);
                for (int t = 0; t < T; t++) {
                    state = exp2v(step[t] * rate) * state + selected[t * wide + s] * dx[t];
                    sum[t] += selected[t * wide + S + s] * state;
                }
                store(next + at, state, count);
            }
            for (int t = first; t < T; t++) {
                const size_t at = (((size_t)e * reads + t - first) * m->G + g) * I + i;
                const vec gate = load(k->z + at, count);
                store(k->y + at, sum[t] * (gate * sigmoid(gate)), count);
            }
        }
    }
}

/* h (n, T, D) -> (n, T, D), or (n, D) of the newest token alone: `first` is 0 or T - 1. The memory of environment e
 * starts e·layers later for the whole network than for the layer. */
static void advance(const net *m, const layer *l, work *k, int n, int first, const int64_t *seen, const float *conv,
                    const float *ssm, const float *tokens, float *next_conv, float *next_ssm, float *next_tokens) {
    const int D = m->D, I = m->I, G = m->G, reads = T - first;
    const size_t convs = (size_t)m->layers * G * (m->W - 1) * I, ssms = (size_t)m->layers * G * m->S * I;
    const size_t tapes = (size_t)m->layers * 2 * D, row = sizeof(float) * D;
    memcpy(k->u, k->h, row * n * T);
    for (int e = 0; e < n; e++) {
        for (int t = 0; t < T; t++) rescale(&l->norm, D, k->u + ((size_t)e * T + t) * D);
        if (seen[e] == 0) memset(k->u + (size_t)e * T * D, 0, row); /* that action must leave no trace */
    }
    product(&l->of_x, n * T, k->u, D, k->x, I);
    product(&l->of_z, n * reads, k->u + (size_t)first * D, (size_t)(first ? T : 1) * D, k->z, (size_t)G * I);
    for (int g = 0; g < G; g++) {
        if (g == 1) {
            for (int e = 0; e < n; e++) {
                memcpy(k->tape, tokens + e * tapes, 2 * row);
                memcpy(k->tape + 2 * D, k->u + (size_t)e * T * D, T * row);
                memset(k->tape + (2 + T) * D, 0, row);
                memcpy(next_tokens + e * tapes, k->tape + T * D, 2 * row);
                for (int i = 0; i < GATHERED; i++)
                    memcpy(k->seen + ((size_t)e * GATHERED + i) * D, k->tape + (size_t)m->gathered[i] * D, row);
            }
            product(&l->of_seen, n * T, k->seen, (size_t)T * D, k->x, I);
            for (int e = 0; e < n; e++)
                if (seen[e] == 0) memset(k->x + (size_t)e * T * I, 0, sizeof(float) * I);
        }
        const size_t conv_at = (size_t)g * (m->W - 1) * I, ssm_at = (size_t)g * m->S * I;
        convolve(m, l, g, n, k->x, seen, conv + conv_at, next_conv + conv_at, convs, k->taped);
        product(&l->x_proj[g], n * T, k->x, I, k->selected, m->R + 2 * m->S);
        product(&l->dt_proj[g], n * T, k->selected, m->R + 2 * m->S, k->delta, I);
        scan(m, l, g, n, first, k, ssm + ssm_at, next_ssm + ssm_at, ssms);
    }
    product(&l->out_proj, n * reads, k->y, (size_t)G * I, k->fused, D);
    for (int r = 0; r < n * reads; r++) {
        const float *h = k->h + (size_t)(first ? r * T + first : r) * D;
        float *fused = k->fused + (size_t)r * D;
        rescale(&l->fusion, D, fused);
        for (int d = 0; d < D; d++) fused[d] += h[d];
    }
    product(&l->project, n * reads, k->fused, D, k->h, D);
}

/* action: (n, A), one-hot if discrete. rtg: (n,). obs: (n, inputs - A - 1). timesteps, seen: (n,). The memory, read and
 * written: conv (n, layers, G, W-1, I), ssm (n, layers, G, S, I), tokens (n, layers, 2, D), nothing if G is 1.
 * out: (n, A) in env units or logits. */
int mamba_step(const net *m, int n, const float *action, const float *rtg, const float *obs, const int64_t *timesteps,
               const int64_t *seen, const float *conv, const float *ssm, const float *tokens, float *next_conv,
               float *next_ssm, float *next_tokens, float *out) {
    const size_t D = m->D, I = m->I, G = m->G, rows = CHUNK * T;
    const size_t sizes[] = {CHUNK * (size_t)m->inputs, rows * D, rows * D, rows * D, TAPE * D, rows * T * D, rows * I,
                            rows * G * I, (m->W - 1 + T) * I, rows * (m->R + 2 * (size_t)m->S), rows * I, rows * G * I,
                            rows * D};
    const size_t arrays = sizeof sizes / sizeof *sizes;
    float *const memory = reserve_arrays(sizes, arrays), *rest = memory;
    if (!memory) return 1;
    work k = {0};
    float **const named[] = {&k.read, &k.up, &k.h, &k.u, &k.tape, &k.seen, &k.x, &k.z, &k.taped, &k.selected, &k.delta,
                              &k.y, &k.fused};
    for (size_t i = 0; i < arrays; i++) *named[i] = take(&rest, sizes[i]);
    const size_t observed = m->inputs - m->A - 1, conv_layer = G * (m->W - 1) * I, ssm_layer = G * m->S * I;
    const size_t tape_layer = G > 1 ? 2 * D : 0; /* without a fine branch there are no tokens */
    for (int start = 0; start < n; start += CHUNK) {
        const int count = n - start < CHUNK ? n - start : CHUNK;
        embed(m, &k, count, action + start * (size_t)m->A, rtg + start, obs + start * observed, timesteps + start,
              seen + start);
        for (int i = 0; i < m->layers; i++) {
            const size_t at = (size_t)start * m->layers + i;
            advance(m, m->each + i, &k, count, i + 1 < m->layers ? 0 : T - 1, seen + start, conv + at * conv_layer,
                    ssm + at * ssm_layer, tokens + at * tape_layer, next_conv + at * conv_layer, next_ssm + at * ssm_layer,
                    next_tokens + at * tape_layer);
        }
        for (int e = 0; e < count; e++) rescale(&m->norm, m->D, k.h + e * D);
        product(&m->hidden, count, k.h, D, k.u, D);
        gelu(k.u, count * D);
        float *said = out + start * (size_t)m->A;
        product(&m->head, count, k.u, D, said, m->A);
        for (int e = 0; e < count; e++)
            for (int a = 0; a < m->A; a++) said[e * m->A + a] = said[e * m->A + a] * m->spread[a] + m->center[a];
    }
    free(memory);
    return 0;
}
