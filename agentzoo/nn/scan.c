/* Mamba's selective scan and its first derivative for float32 on a CPU; `nn/scan_compiled.py` compiles and calls it.
 *
 * The formulas are those of nn/scan.py. One call does `windows` sequences of one tensor of shape (windows, L, I). The
 * outer loops go over windows and over WIDTH neighbouring channels, whose states (N, WIDTH) then stay in the first
 * cache over all L tokens. The backward pass computes the states again and keeps them, with their decays, for those
 * few channels only: 4 arrays of L·N·WIDTH numbers, whatever I and the number of windows are.
 *
 * WIDTH channels are one `vec`. GCC's and Clang's vector types need no flags and no intrinsics: a machine with narrower
 * registers takes several for one.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 8
typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH), aligned(4)));
#define INLINE static inline __attribute__((always_inline))

INLINE vec fill(float value) { return (vec){0} + value; }

INLINE vec larger(vec a, vec b) {
    const ivec first = a > b;
    return (vec)((first & (ivec)a) | (~first & (ivec)b));
}

INLINE vec load(const float *from, int count) {
    vec v = {0};
    if (count == WIDTH) memcpy(&v, from, sizeof v);
    else memcpy(&v, from, 4 * (size_t)count);
    return v;
}

INLINE void store(float *to, vec v, int count) {
    if (count == WIDTH) memcpy(to, &v, sizeof v);
    else memcpy(to, &v, 4 * (size_t)count);
}

INLINE vec *reserve(size_t count) { return aligned_alloc(64, (sizeof(vec) * count + 63) / 64 * 64); }

INLINE float total(vec v) {
    float sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += v[i];
    return sum;
}

/* 2^x for x < 127, as 2^r 2^f with r = round(x): f in [-1/2, 1/2] by Cephes' polynomial (relative error 2e-7), r in the exponent. */
INLINE vec exp2v(vec x) {
    const vec shift = fill(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number, in the low bits */
    vec r = x + shift;
    ivec whole = (ivec)r - (ivec)shift;
    vec f = x - (r - shift);
    vec p = fill(1.535336188319500e-4f);
    p = p * f + 1.339887440266574e-3f;
    p = p * f + 9.618437357674640e-3f;
    p = p * f + 5.550332471162809e-2f;
    p = p * f + 2.402264791363012e-1f;
    p = p * f + 6.931472028550421e-1f;
    p = p * f + 1.0f;
    return (vec)(((ivec)p + (whole << 23)) & ~(x < -126.0f)); /* what is smaller is 0; NaN stays */
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
                store(y + at, read * gate * sigmoid(gate), count);
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
