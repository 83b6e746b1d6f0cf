/* Mamba's selective scan and its first derivative for float32 on a CPU; `nn/native/scan_compiled.py` calls it.
 *
 * The formulas are those of nn/native/scan.py. One call does `windows` sequences of one tensor of shape (windows, L, I), in
 * chunks of tokens and WIDTH neighbouring channels, whose states (N, WIDTH) stay in the first cache. A chunk goes twice
 * over its tokens: first what needs no state, so that the loop over states does not wait for a softplus.
 *
 * The forward pass keeps the states in front of every chunk; the backward pass visits the chunks from the last to the
 * first and computes a chunk's states again, so that its memory depends neither on L nor on the number of windows.
 */

#include "vectors.h"

#define CHUNK 20 /* tokens */

INLINE int chunks_of(int L) { return (L + CHUNK - 1) / CHUNK; }
INLINE int size_of_chunk(int L, int first) { return L - first < CHUNK ? L - first : CHUNK; }

int scan_chunks(int L) { return chunks_of(L); }

/* x, delta, z, y: (windows, L, I). base: (N, I), log2(e) A. B, C: (windows, L, N). D, bias: (I,).
 * kept: (windows, chunks, N, I), the states before each chunk, or NULL where there will be no backward pass. */
int scan_forward(int windows, int L, int I, int N, const float *x, const float *delta, const float *base,
                 const float *B, const float *C, const float *D, const float *z, const float *bias, float *y,
                 float *kept) {
    vec *rates = reserve(2 * (size_t)N), *state = rates + N;
    if (!rates) return 1;
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < I; i += WIDTH) {
            const int count = I - i < WIDTH ? I - i : WIDTH;
            const vec skip = load(D + i, count), shift = load(bias + i, count);
            for (int n = 0; n < N; n++) rates[n] = load(base + (size_t)n * I + i, count);
            memset(state, 0, sizeof(vec) * (size_t)N);
            for (int first = 0; first < L; first += CHUNK) {
                const int size = size_of_chunk(L, first);
                vec steps[CHUNK], dxs[CHUNK], skipped[CHUNK], opens[CHUNK];
                for (int l = 0; l < size; l++) {
                    const size_t at = ((size_t)w * L + first + l) * I + i;
                    const vec now = load(x + at, count), gate = load(z + at, count);
                    steps[l] = softplus(load(delta + at, count) + shift);
                    dxs[l] = steps[l] * now;
                    skipped[l] = skip * now;
                    opens[l] = gate * sigmoid(gate);
                }
                if (kept) {
                    float *own = kept + ((size_t)w * chunks_of(L) + first / CHUNK) * N * I + i;
                    for (int n = 0; n < N; n++) store(own + (size_t)n * I, state[n], count);
                }
                for (int l = 0; l < size; l++) {
                    const size_t token = (size_t)w * L + first + l;
                    const float *b = B + token * N, *c = C + token * N;
                    const vec step = steps[l], dx = dxs[l];
                    vec read = skipped[l];
                    for (int n = 0; n < N; n++) {
                        const vec now = exp2v(step * rates[n]) * state[n] + b[n] * dx;
                        state[n] = now;
                        read += c[n] * now;
                    }
                    store(y + token * I + i, read * opens[l], count);
                }
            }
        }
    }
    free(rates);
    return 0;
}

/* Gradients of all inputs given `grad`, that of y: gx, gdelta, gz, gB and gC are written, gA (N, I), gD and gbias (I,)
 * are added to. With g_l the gradient of s_l, w_l = exp(Δ_l A) g_l what it passes on and q_l = exp(Δ_l A) s_{l-1} what
 * was carried: g_l = C_l gy_l + w_{l+1}, and g_l q_l is the gradient of the exponent Δ_l A. */
int scan_backward(int windows, int L, int I, int N, const float *x, const float *delta, const float *base,
                  const float *A, const float *B, const float *C, const float *D, const float *z, const float *bias,
                  const float *kept, const float *grad, float *gx, float *gdelta, float *gA, float *gB, float *gC,
                  float *gD, float *gz, float *gbias) {
    const size_t numbers = (size_t)CHUNK * N, groups = (I + WIDTH - 1) / WIDTH;
    vec *memory = reserve(4 * numbers + (4 + groups) * (size_t)N);
    if (!memory) return 1;
    vec *carries = memory, *decays = carries + numbers, *gBs = decays + numbers, *gCs = gBs + numbers;
    vec *rates = gCs + numbers, *slopes = rates + N, *gslopes = slopes + N, *state = gslopes + N, *messages = state + N;
    for (int w = 0; w < windows; w++) {
        memset(messages, 0, sizeof(vec) * groups * N); /* w of the token after the chunk */
        for (int first = (chunks_of(L) - 1) * CHUNK; first >= 0; first -= CHUNK) {
            const int size = size_of_chunk(L, first);
            const size_t before = (size_t)w * L + first;
            memset(gBs, 0, 2 * sizeof(vec) * numbers);
            for (int i = 0; i < I; i += WIDTH) {
                const int count = I - i < WIDTH ? I - i : WIDTH;
                const vec skip = load(D + i, count), shift = load(bias + i, count), zero = fill(0.0f);
                const float *own = kept + ((size_t)w * chunks_of(L) + first / CHUNK) * N * I + i;
                vec *message = messages + (size_t)i / WIDTH * N;
                vec gskip = zero, gshift = zero;
                for (int n = 0; n < N; n++) {
                    rates[n] = load(base + (size_t)n * I + i, count);
                    slopes[n] = load(A + (size_t)n * I + i, count);
                    state[n] = load(own + (size_t)n * I, count);
                    gslopes[n] = zero;
                }
                vec steps[CHUNK], dxs[CHUNK], gys[CHUNK], opens[CHUNK], rises[CHUNK], reads[CHUNK];
                for (int l = 0; l < size; l++) {
                    const size_t at = (before + l) * I + i;
                    const vec now = load(x + at, count), gate = load(z + at, count), raw = load(delta + at, count) + shift;
                    steps[l] = softplus(raw);
                    rises[l] = sigmoid(raw); /* its derivative */
                    dxs[l] = steps[l] * now;
                    reads[l] = skip * now;
                    opens[l] = sigmoid(gate);
                    gys[l] = load(grad + at, count) * gate * opens[l];
                }
                for (int l = 0; l < size; l++) {
                    const float *b = B + (before + l) * N, *c = C + (before + l) * N;
                    vec *carry = carries + (size_t)l * N, *decay = decays + (size_t)l * N, *gc = gCs + (size_t)l * N;
                    const vec step = steps[l], dx = dxs[l], gy = gys[l];
                    vec read = reads[l];
                    for (int n = 0; n < N; n++) {
                        const vec kept_part = exp2v(step * rates[n]), carried = kept_part * state[n];
                        const vec now = carried + b[n] * dx;
                        decay[n] = kept_part;
                        carry[n] = carried;
                        state[n] = now;
                        gc[n] += gy * now;
                        read += c[n] * now;
                    }
                    reads[l] = read;
                }
                for (int l = size - 1; l >= 0; l--) {
                    const size_t at = (before + l) * I + i;
                    const float *b = B + (before + l) * N, *c = C + (before + l) * N;
                    const vec *carry = carries + (size_t)l * N, *decay = decays + (size_t)l * N;
                    const vec step = steps[l], dx = dxs[l], gy = gys[l];
                    vec *gb = gBs + (size_t)l * N, gdx = zero, gstep = zero;
                    for (int n = 0; n < N; n++) {
                        const vec g = c[n] * gy + message[n], p = g * carry[n];
                        message[n] = decay[n] * g;
                        gdx += b[n] * g;
                        gb[n] += dx * g;
                        gstep += p * slopes[n];
                        gslopes[n] += p * step;
                    }
                    const vec now = load(x + at, count), gate = load(z + at, count), up = load(grad + at, count);
                    gstep = (gstep + gdx * now) * rises[l];
                    gshift += gstep;
                    gskip += gy * now;
                    store(gdelta + at, gstep, count);
                    store(gx + at, gdx * step + gy * skip, count);
                    store(gz + at, up * reads[l] * opens[l] * (1.0f + gate * (1.0f - opens[l])), count);
                }
                for (int n = 0; n < N; n++) {
                    float *slope = gA + (size_t)n * I + i;
                    store(slope, load(slope, count) + gslopes[n], count);
                }
                store(gD + i, load(gD + i, count) + gskip, count);
                store(gbias + i, load(gbias + i, count) + gshift, count);
            }
            for (size_t n = 0; n < (size_t)size * N; n++) {
                gB[before * N + n] = total(gBs[n]);
                gC[before * N + n] = total(gCs[n]);
            }
        }
    }
    free(memory);
    return 0;
}
