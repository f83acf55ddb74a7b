// Operations of recurrent layers, which keep a state of fixed size for each sequence: short
// convolution, gated delta rule, selective state space. What they mean stands in `recurrence/`.
//
// Any mix of prompts, pieces of prompts and single tokens: S sequences, T rows. A token is computed
// from the state that the token before it left, by the same operations in the same order whatever
// the grid and the sequences beside it. Products and sums are written out as fmaf and __fmul_rn, so
// that no compiler fuses them in one place and not in another. All data is f32; strides are
// elements between two rows of an input. No output may be an input. States are changed in place;
// no slot may belong to two sequences, but for that of padding.
//
// short_conv, any `taps` of 2 or more (2, 3 and 4 from registers)
//     grid     [S, ceil(channels / 128), Z], Z >= 1, with the same results for any Z. Every Z-th
//              tile of max(16, taps - 1) tokens of a sequence falls to the same threads: Z = 1 for
//              single tokens, else about ceil(longest / 16), at most 32
//     threads  128
//     shared   0
// delta_rule_64 (key_dim <= 64), delta_rule_128 (key_dim <= 128), delta_rule_any
//     grid     [S, values, ceil(value_dim / 32)]
//     threads  256
//     shared   128 R + 2304, where R is 64 or 128 as in the name;
//              256 R + 2304 of delta_rule_any, where R is key_dim rounded up to 16
// state_space_64 (state_size <= 64), _128 and _256 alike, state_space_any
//     grid     [S, heads, ceil(head_dim / 32)]
//     threads  256
//     shared   as for the delta rule, of state_size
// All forms of the last two give the same bits.
#include "../pointwise/elementwise.cuh"
#include "recurrence.cuh"

struct ShortConv {
    // [T, channels], x_stride apart
    const float *x;
    // [taps, channels], the oldest token's first
    const float *weight;
    // [channels], or null
    const float *bias;
    // [slots, (taps - 1) * channels]: the last inputs, the oldest first
    float *states;
    // [T, channels]
    float *out;
    Runs runs;
    uint32_t x_stride, channels, taps;
    // Of the sums; a function of all ones is none.
    ElementwiseOp activation;
};
LAYOUT(ShortConv, FIELD(x), FIELD(weight), FIELD(bias), FIELD(states), FIELD(out), FIELD(runs),
       FIELD(x_stride), FIELD(channels), FIELD(taps), FIELD(activation))

constexpr unsigned CHANNELS = 128;
// Tokens that a thread takes at a time.
constexpr unsigned CONV_TOKENS = 16;

// One channel of one sequence.
struct Channel {
    const ShortConv &work;
    Run run;
    unsigned index;

    INLINE float *kept(unsigned row) const {
        unsigned rows = work.taps - 1;
        return work.states + (size_t(run.slot) * rows + row) * work.channels + index;
    }

    // The input `back` tokens before `token`.
    INLINE float input(unsigned token, unsigned back) const {
        if (token >= back) {
            return work.x[(run.first + token - back) * work.x_stride + index];
        }
        return run.starts ? 0 : *kept(work.taps - 1 + token - back);
    }

    INLINE float weight(unsigned tap) const {
        return work.weight[size_t(tap) * work.channels + index];
    }

    INLINE void write(unsigned token, float sum) const {
        work.out[(run.first + token) * work.channels + index] = apply(work.activation, sum);
    }
};

template <unsigned TAPS>
INLINE void convolve(const Channel &channel, unsigned first, unsigned end, float bias) {
    float weights[TAPS], inputs[TAPS];
#pragma unroll
    for (unsigned tap = 0; tap < TAPS; tap++) {
        weights[tap] = channel.weight(tap);
    }
    // What the first token needs, one place to the right.
#pragma unroll
    for (unsigned tap = 1; tap < TAPS; tap++) {
        inputs[tap] = channel.input(first, TAPS - tap);
    }
    float next = channel.input(first, 0);
#pragma unroll 1
    for (unsigned token = first; token < end; token++) {
#pragma unroll
        for (unsigned tap = 1; tap < TAPS; tap++) {
            inputs[tap - 1] = inputs[tap];
        }
        inputs[TAPS - 1] = next;
        if (token + 1 < end) {
            next = channel.input(token + 1, 0);
        }
        float sum = bias;
#pragma unroll
        for (unsigned tap = 0; tap < TAPS; tap++) {
            sum = fmaf(inputs[tap], weights[tap], sum);
        }
        channel.write(token, sum);
    }
}

INLINE void convolve_any(const Channel &channel, unsigned first, unsigned end, float bias) {
    unsigned taps = channel.work.taps;
    for (unsigned token = first; token < end; token++) {
        float sum = bias;
        for (unsigned tap = 0; tap < taps; tap++) {
            sum = fmaf(channel.input(token, taps - 1 - tap), channel.weight(tap), sum);
        }
        channel.write(token, sum);
    }
}

KERNEL __launch_bounds__(CHANNELS) short_conv(const ShortConv work) {
    Channel channel{work, Run(work.runs, blockIdx.x), blockIdx.y * CHANNELS + threadIdx.x};
    const Run &run = channel.run;
    if (channel.index >= work.channels) {
        return;
    }
    float bias = work.bias ? work.bias[channel.index] : 0;
    // Tokens that need the old state are all in the first tile, whose thread writes the new one.
    unsigned tile = max(CONV_TOKENS, work.taps - 1);
    for (unsigned first = blockIdx.z * tile; first < run.count; first += gridDim.z * tile) {
        unsigned end = min(first + tile, run.count);
        switch (work.taps) {
        case 2:
            convolve<2>(channel, first, end, bias);
            break;
        case 3:
            convolve<3>(channel, first, end, bias);
            break;
        case 4:
            convolve<4>(channel, first, end, bias);
            break;
        default:
            convolve_any(channel, first, end, bias);
        }
    }
    if (blockIdx.z == 0 && run.count > 0 && run.slot != NO_SLOT) {
        // What is read of the old state stands behind what is written.
        for (unsigned row = 0; row + 1 < work.taps; row++) {
            *channel.kept(row) = channel.input(run.count, work.taps - 1 - row);
        }
    }
}
EXPORT(short_conv)

struct DeltaRule {
    // [T, 2 * keys * key_dim + values * value_dim], qkv_stride apart: queries, keys, values
    const float *qkv;
    // [T, values], write_stride and decay_stride apart
    const float *write, *decay;
    // [values]
    const float *rate, *bias;
    // [slots, values, key_dim, value_dim]
    float *states;
    // [T, values, value_dim]
    float *out;
    Runs runs;
    uint32_t qkv_stride, write_stride, decay_stride;
    uint32_t keys, values, key_dim, value_dim;
    // Value head i has key head i % keys, else i / (values / keys).
    uint32_t tiled;
};
LAYOUT(DeltaRule, FIELD(qkv), FIELD(write), FIELD(decay), FIELD(rate), FIELD(bias), FIELD(states),
       FIELD(out), FIELD(runs), FIELD(qkv_stride), FIELD(write_stride), FIELD(decay_stride),
       FIELD(keys), FIELD(values), FIELD(key_dim), FIELD(value_dim), FIELD(tiled))

// Added to the squared length of a key or query.
constexpr float LENGTH_EPS = 1e-6f;

// With a normalized key k and query q, a token makes S' = decay * S and
// S = S' + k (write * (v - S'^T k))^T, and gives S^T q. Both sums are taken of the S of before.
struct Delta {
    const DeltaRule &work;
    const Matrices &matrices;

    INLINE void prepare(const Prepared &token, size_t row, unsigned padded) const {
        unsigned lane = threadIdx.x % WARP, head = matrices.head(), keys = work.keys;
        unsigned own = work.tiled ? head % keys : head / (work.values / keys);
        const float *inputs = work.qkv + row * work.qkv_stride;
        const float *query = inputs + size_t(own) * work.key_dim;
        const float *key = query + size_t(keys) * work.key_dim;
        matrices.copy(token.along, inputs + size_t(2) * keys * work.key_dim +
                                       size_t(head) * work.value_dim);
        float write = work.write[row * work.write_stride + head];
        float decay = work.decay[row * work.decay_stride + head];
        float key_square = 0, query_square = 0, both = 0;
#pragma unroll
        for (unsigned i = lane; i < padded; i += WARP) {
            float k = i < work.key_dim ? key[i] : 0, q = i < work.key_dim ? query[i] : 0;
            key_square = fmaf(k, k, key_square);
            query_square = fmaf(q, q, query_square);
            both = fmaf(k, q, both);
            token.first[i] = k;
            token.second[i] = q;
        }
        float root = sqrtf(float(work.key_dim));
        float key_scale = 1 / sqrtf(warp_sum(key_square) + LENGTH_EPS);
        float query_scale = 1 / __fmul_rn(sqrtf(warp_sum(query_square) + LENGTH_EPS), root);
        float meet = __fmul_rn(__fmul_rn(warp_sum(both), query_scale), key_scale);
#pragma unroll
        for (unsigned i = lane; i < padded; i += WARP) {
            token.first[i] = __fmul_rn(token.first[i], key_scale);
            token.second[i] = __fmul_rn(token.second[i], query_scale);
        }
        if (lane == 0) {
            float time = softplus(decay + work.bias[head]);
            token.numbers[0] = expf(__fmul_rn(work.rate[head], time));
            token.numbers[1] = 1 / (1 + expf(-write));
            token.numbers[2] = meet;
        }
    }

    template <unsigned ROWS>
    INLINE float advance(Column<ROWS> &column, const Prepared &token) const {
        const float *keys = token.first + matrices.part() * 4;
        const float *queries = token.second + matrices.part() * 4;
        float said[4] = {0, 0, 0, 0}, asked[4] = {0, 0, 0, 0}, k[4], q[4];
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, keys + i * SPLIT);
            load_four(q, queries + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                said[c] = fmaf(column[i + c], k[c], said[c]);
                asked[c] = fmaf(column[i + c], q[c], asked[c]);
            }
        }
        float decay = token.numbers[0], write = token.numbers[1], meet = token.numbers[2];
        float value = token.along[matrices.own_column()];
        float change = __fmul_rn(write, fmaf(-decay, column_sum(said), value));
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, keys + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = fmaf(k[c], change, __fmul_rn(column[i + c], decay));
            }
        }
        return fmaf(change, meet, __fmul_rn(decay, column_sum(asked)));
    }
};

template <unsigned ROWS> INLINE void delta_rule(const DeltaRule &work) {
    Matrices matrices{work.states, work.out, work.values, work.key_dim, work.value_dim};
    recur<ROWS>(Delta{work, matrices}, matrices, work.runs);
}

struct StateSpace {
    // [T, heads * head_dim + 2 * groups * state_size], x_stride apart: inputs, then what writes and
    // what reads the states of each group
    const float *x;
    // [T, heads], steps_stride apart
    const float *steps;
    // [heads]
    const float *decay, *skip, *step_bias;
    // [slots, heads, state_size, head_dim]
    float *states;
    // [T, heads, head_dim]
    float *out;
    Runs runs;
    uint32_t x_stride, steps_stride;
    uint32_t heads, head_dim, state_size, groups;
    // Bounds of time steps; `most` may be infinite.
    float least, most;
};
LAYOUT(StateSpace, FIELD(x), FIELD(steps), FIELD(decay), FIELD(skip), FIELD(step_bias),
       FIELD(states), FIELD(out), FIELD(runs), FIELD(x_stride), FIELD(steps_stride), FIELD(heads),
       FIELD(head_dim), FIELD(state_size), FIELD(groups), FIELD(least), FIELD(most))

// With inputs u and a time step s, a token makes S = e^(s * decay) * S + s * b u^T, and gives
// S^T c + skip * u.
struct Space {
    const StateSpace &work;
    const Matrices &matrices;

    INLINE void prepare(const Prepared &token, size_t row, unsigned padded) const {
        unsigned lane = threadIdx.x % WARP, head = matrices.head(), size = work.state_size;
        unsigned group = head / (work.heads / work.groups);
        const float *inputs = work.x + row * work.x_stride;
        const float *write = inputs + size_t(work.heads) * work.head_dim + size_t(group) * size;
        const float *read = write + size_t(work.groups) * size;
        matrices.copy(token.along, inputs + size_t(head) * work.head_dim);
        float step = softplus(work.steps[row * work.steps_stride + head] + work.step_bias[head]);
        step = fminf(fmaxf(step, work.least), work.most);
#pragma unroll
        for (unsigned i = lane; i < padded; i += WARP) {
            token.first[i] = i < size ? __fmul_rn(step, write[i]) : 0;
            token.second[i] = i < size ? read[i] : 0;
        }
        if (lane == 0) {
            token.numbers[0] = expf(__fmul_rn(step, work.decay[head]));
            token.numbers[1] = work.skip[head];
        }
    }

    template <unsigned ROWS>
    INLINE float advance(Column<ROWS> &column, const Prepared &token) const {
        const float *writes = token.first + matrices.part() * 4;
        const float *reads = token.second + matrices.part() * 4;
        float fading = token.numbers[0], skip = token.numbers[1];
        float input = token.along[matrices.own_column()];
        float sums[4] = {0, 0, 0, 0}, write[4], read[4];
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(write, writes + i * SPLIT);
            load_four(read, reads + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = fmaf(column[i + c], fading, __fmul_rn(write[c], input));
                sums[c] = fmaf(column[i + c], read[c], sums[c]);
            }
        }
        return fmaf(input, skip, column_sum(sums));
    }
};

template <unsigned ROWS> INLINE void state_space(const StateSpace &work) {
    Matrices matrices{work.states, work.out, work.heads, work.state_size, work.head_dim};
    recur<ROWS>(Space{work, matrices}, matrices, work.runs);
}

#define RECURRENCE(operation, Work, size, rows)                                                    \
    KERNEL __launch_bounds__(RECURRENCE_THREADS, 2) operation##_##size(const Work work) {          \
        operation<rows>(work);                                                                     \
    }                                                                                              \
    EXPORT(operation##_##size)

RECURRENCE(delta_rule, DeltaRule, 64, 64)
RECURRENCE(delta_rule, DeltaRule, 128, 128)
RECURRENCE(delta_rule, DeltaRule, any, 0)
RECURRENCE(state_space, StateSpace, 64, 64)
RECURRENCE(state_space, StateSpace, 128, 128)
RECURRENCE(state_space, StateSpace, 256, 256)
RECURRENCE(state_space, StateSpace, any, 0)
