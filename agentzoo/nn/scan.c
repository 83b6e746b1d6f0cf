/* Mamba's selective scan and its first derivative for float32 on a CPU; `nn/scan_compiled.py` calls it.
 *
 * The formulas are those of nn/scan.py. One call does `windows` sequences of one tensor of shape (windows, L, I). The
 * outer loops go over windows and over WIDTH neighbouring channels, whose states (N, WIDTH) then stay in the first
 * cache over all L tokens. The backward pass computes the states again and keeps them, with their decays, for those
 * few channels only: 4 arrays of L·N·WIDTH numbers, whatever I and the number of windows are.
 */

#include "vectors.h"

/* x, delta, z, y: (windows, L, I). base: (N, I), log2(e) A. B, C: (windows, L, N). D, bias: (I,). */
int scan_forward(int windows, int L, int I, int N, const float *x, const float *delta, const float *base,
                 const float *B, const float *C, const float *D, const float *z, const float *bias, float *y) {
    vec *rates = reserve(2 * (size_t)N), *state = rates + N;
    if (!rates) return 1;
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < I; i += WIDTH) {
            const int count = I - i < WIDTH ? I - i : WIDTH;
            const vec skip = load(D + i, count), shift = load(bias + i, count);
            for (int n = 0; n < N; n++) rates[n] = load(base + (size_t)n * I + i, count);
            memset(state, 0, sizeof(vec) * (size_t)N);
            for (int l = 0; l < L; l++) {
                const size_t token = (size_t)w * L + l, at = token * I + i;
                const float *b = B + token * N, *c = C + token * N;
                const vec now = load(x + at, count), gate = load(z + at, count);
                const vec step = softplus(load(delta + at, count) + shift), dx = step * now;
                vec read = skip * now;
                for (int n = 0; n < N; n++) {
                    state[n] = exp2v(step * rates[n]) * state[n] + b[n] * dx;
                    read += c[n] * state[n];
                }
                store(y + at, read * (gate * sigmoid(gate)), count);
            }
        }
    }
    free(rates);
    return 0;
}

/* Gradients of all inputs given `grad`, that of y: gx, gdelta, gz, gB and gC are written, gA (N, I), gD and gbias (I,)
 * are added to. With g_l the gradient of s_l and w_l = exp(Δ_l A) g_l what it passes on:
 * g_l = C_l gy_l + w_{l+1}, and p_l = w_l s_{l-1} is the gradient of the exponent Δ_l A. */
int scan_backward(int windows, int L, int I, int N, const float *x, const float *delta, const float *base,
                  const float *A, const float *B, const float *C, const float *D, const float *z, const float *bias,
                  const float *grad, float *gx, float *gdelta, float *gA, float *gB, float *gC, float *gD, float *gz,
                  float *gbias) {
    const size_t tokens = (size_t)L * N;
    vec *memory = reserve(4 * tokens + 4 * (size_t)N + 3 * (size_t)L);
    if (!memory) return 1;
    vec *states = memory, *decays = states + tokens, *gBs = decays + tokens, *gCs = gBs + tokens;
    vec *rates = gCs + tokens, *slopes = rates + N, *message = slopes + N, *gslopes = message + N;
    vec *steps = gslopes + N, *reads = steps + L, *raws = reads + L;
    for (int w = 0; w < windows; w++) {
        memset(gBs, 0, 2 * sizeof(vec) * tokens);
        for (int i = 0; i < I; i += WIDTH) {
            const int count = I - i < WIDTH ? I - i : WIDTH;
            const vec skip = load(D + i, count), shift = load(bias + i, count), zero = fill(0.0f);
            vec gskip = zero, gshift = zero;
            for (int n = 0; n < N; n++) {
                rates[n] = load(base + (size_t)n * I + i, count);
                slopes[n] = load(A + (size_t)n * I + i, count);
                gslopes[n] = zero;
            }
            memset(message, 0, sizeof(vec) * (size_t)N);
            const vec *before = message; /* the state before the first token */
            for (int l = 0; l < L; l++) {
                const size_t token = (size_t)w * L + l, at = token * I + i;
                const float *b = B + token * N, *c = C + token * N;
                vec *state = states + (size_t)l * N, *decay = decays + (size_t)l * N;
                const vec now = load(x + at, count);
                raws[l] = load(delta + at, count) + shift;
                steps[l] = softplus(raws[l]);
                const vec dx = steps[l] * now;
                vec read = skip * now;
                for (int n = 0; n < N; n++) {
                    decay[n] = exp2v(steps[l] * rates[n]);
                    state[n] = decay[n] * before[n] + b[n] * dx;
                    read += c[n] * state[n];
                }
                reads[l] = read;
                before = state;
            }
            memset(message, 0, sizeof(vec) * (size_t)N); /* now w of the token after */
            for (int l = L - 1; l >= 0; l--) {
                const size_t token = (size_t)w * L + l, at = token * I + i;
                const float *b = B + token * N, *c = C + token * N;
                vec *gb = gBs + (size_t)l * N, *gc = gCs + (size_t)l * N;
                const vec *state = states + (size_t)l * N, *decay = decays + (size_t)l * N;
                const vec now = load(x + at, count), gate = load(z + at, count), up = load(grad + at, count);
                const vec open = sigmoid(gate), gy = up * gate * open, dx = steps[l] * now;
                vec gdx = zero, gstep = zero;
                for (int n = 0; n < N; n++) {
                    const vec g = c[n] * gy + message[n];
                    message[n] = decay[n] * g;
                    gdx += b[n] * g;
                    gc[n] += gy * state[n];
                    gb[n] += dx * g;
                    if (l) {
                        const vec p = message[n] * state[n - N];
                        gstep += p * slopes[n];
                        gslopes[n] += p * steps[l];
                    }
                }
                gstep = (gstep + gdx * now) * sigmoid(raws[l]);
                gshift += gstep;
                gskip += gy * now;
                store(gdelta + at, gstep, count);
                store(gx + at, gdx * steps[l] + gy * skip, count);
                store(gz + at, up * reads[l] * open * (1.0f + gate * (1.0f - open)), count);
            }
            for (int n = 0; n < N; n++) {
                float *slope = gA + (size_t)n * I + i;
                store(slope, load(slope, count) + gslopes[n], count);
            }
            store(gD + i, load(gD + i, count) + gskip, count);
            store(gbias + i, load(gbias + i, count) + gshift, count);
        }
        for (size_t n = 0; n < tokens; n++) {
            gB[w * tokens + n] = total(gBs[n]);
            gC[w * tokens + n] = total(gCs[n]);
        }
    }
    free(memory);
    return 0;
}
