// The gated delta rule of any mix of prompts, pieces of prompts and single tokens, see
// `recurrence.cuh`. No output may be an input. All forms give the same bits.
//
// delta_rule_64 (key_dim <= 64), delta_rule_128 (key_dim <= 128), delta_rule_any
// delta_rule_each_{64,128,any}, where each element of a key has a decay of its own
//     grid     [S, values, ceil(value_dim / 32)]
//     threads  256
//     shared   V R + 2304, where R is 64 or 128 as in the name, and V is 128 or, of _each_, 192;
//              (V + 128) R + 2304 of those for any, where R is key_dim rounded up to 16
#include "../recurrence.cuh"

struct DeltaRule {
    // [T, 2 * keys * key_dim + values * value_dim], qkv_stride apart: queries, keys, values
    const float *qkv;
    // [T, values], write_stride and decay_stride apart; decay, of _each_: [T, values, key_dim]
    const float *write, *decay;
    // [values]; bias, of _each_: [values, key_dim]
    const float *rate, *bias;
    // [slots, values, key_dim, value_dim]
    float *states;
    // [T, values, value_dim]
    float *out;
    Sequences sequences;
    uint32_t qkv_stride, write_stride, decay_stride;
    uint32_t keys, values, key_dim, value_dim;
    // Value head i has key head i % keys, else i / (values / keys).
    uint32_t tiled;
    // Factor of the sigmoid of write.
    float write_scale;
    // Of _each_: whether decays are e^(bound * sigmoid(-rate * (decay + bias))), not
    // e^(rate * softplus(decay + bias)).
    uint32_t bounded;
    float bound;
};
LAYOUT(DeltaRule, FIELD(qkv), FIELD(write), FIELD(decay), FIELD(rate), FIELD(bias), FIELD(states),
       FIELD(out), FIELD(sequences), FIELD(qkv_stride), FIELD(write_stride), FIELD(decay_stride),
       FIELD(keys), FIELD(values), FIELD(key_dim), FIELD(value_dim), FIELD(tiled),
       FIELD(write_scale), FIELD(bounded), FIELD(bound))

// Added to the squared length of a key or query.
constexpr float LENGTH_EPS = 1e-6f;

// The normalized key and query of a token, its value, how much is written, and key times query.
INLINE void prepare_product(const DeltaRule &work, const Matrices &matrices, const Prepared &token,
                            size_t row, unsigned padded) {
    unsigned lane = threadIdx.x % WARP, head = matrices.head(), keys = work.keys;
    unsigned own = work.tiled ? head % keys : head / (work.values / keys);
    const float *inputs = work.qkv + row * work.qkv_stride;
    const float *query = inputs + size_t(own) * work.key_dim;
    const float *key = query + size_t(keys) * work.key_dim;
    matrices.copy(token.along, inputs + size_t(2) * keys * work.key_dim +
                                   size_t(head) * work.value_dim);
    float write = work.write[row * work.write_stride + head];
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
    float query_key = __fmul_rn(__fmul_rn(warp_sum(both), query_scale), key_scale);
#pragma unroll
    for (unsigned i = lane; i < padded; i += WARP) {
        token.first[i] = __fmul_rn(token.first[i], key_scale);
        token.second[i] = __fmul_rn(token.second[i], query_scale);
    }
    if (lane == 0) {
        token.factors[0] = work.write_scale / (1 + expf(-write));
        token.factors[1] = query_key;
    }
}

// With a normalized key k and query q, a token makes S' = decay * S and
// S = S' + k (write * (v - S'^T k))^T, and gives S^T q. Both sums are taken of the S of before.
struct Delta {
    static constexpr unsigned VECTORS = 2;
    const DeltaRule &work;
    const Matrices &matrices;

    INLINE void prepare(const Prepared &token, size_t row, unsigned padded) const {
        unsigned head = matrices.head();
        prepare_product(work, matrices, token, row, padded);
        if (threadIdx.x % WARP == 0) {
            float decay = work.decay[row * work.decay_stride + head];
            float time = softplus(decay + work.bias[head]);
            token.factors[2] = expf(__fmul_rn(work.rate[head], time));
        }
    }

    template <unsigned ROWS>
    INLINE float advance(Column<ROWS> &column, const Prepared &token) const {
        const float *keys = token.first + matrices.part() * 4;
        const float *queries = token.second + matrices.part() * 4;
        float key_sums[4] = {0, 0, 0, 0}, query_sums[4] = {0, 0, 0, 0}, k[4], q[4];
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, keys + i * SPLIT);
            load_four(q, queries + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                key_sums[c] = fmaf(column[i + c], k[c], key_sums[c]);
                query_sums[c] = fmaf(column[i + c], q[c], query_sums[c]);
            }
        }
        float write = token.factors[0], query_key = token.factors[1], decay = token.factors[2];
        float value = token.along[matrices.own_column()];
        float change = __fmul_rn(write, fmaf(-decay, column_sum(key_sums), value));
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, keys + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = fmaf(k[c], change, __fmul_rn(column[i + c], decay));
            }
        }
        return fmaf(change, query_key, __fmul_rn(decay, column_sum(query_sums)));
    }
};

// The same where each row of S fades by a decay of its own: sums are taken of S'.
struct DeltaOfEach {
    static constexpr unsigned VECTORS = 3;
    const DeltaRule &work;
    const Matrices &matrices;

    INLINE void prepare(const Prepared &token, size_t row, unsigned padded) const {
        unsigned head = matrices.head(), dim = work.key_dim;
        prepare_product(work, matrices, token, row, padded);
        const float *decay = work.decay + row * work.decay_stride + size_t(head) * dim;
        const float *bias = work.bias + size_t(head) * dim;
        float rate = work.rate[head];
        for (unsigned i = threadIdx.x % WARP; i < padded; i += WARP) {
            float x = i < dim ? decay[i] + bias[i] : 0;
            float exponent = work.bounded ? work.bound / (1 + expf(__fmul_rn(rate, x)))
                                          : __fmul_rn(rate, softplus(x));
            token.third[i] = expf(exponent);
        }
    }

    template <unsigned ROWS>
    INLINE float advance(Column<ROWS> &column, const Prepared &token) const {
        unsigned part = matrices.part() * 4;
        float key_sums[4] = {0, 0, 0, 0}, query_sums[4] = {0, 0, 0, 0}, k[4], q[4], decay[4];
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, token.first + part + i * SPLIT);
            load_four(q, token.second + part + i * SPLIT);
            load_four(decay, token.third + part + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = __fmul_rn(column[i + c], decay[c]);
                key_sums[c] = fmaf(column[i + c], k[c], key_sums[c]);
                query_sums[c] = fmaf(column[i + c], q[c], query_sums[c]);
            }
        }
        float write = token.factors[0], query_key = token.factors[1];
        float value = token.along[matrices.own_column()];
        float change = __fmul_rn(write, value - column_sum(key_sums));
#pragma unroll
        for (unsigned i = 0; i < column.count(); i += 4) {
            load_four(k, token.first + part + i * SPLIT);
#pragma unroll
            for (unsigned c = 0; c < 4; c++) {
                column[i + c] = fmaf(k[c], change, column[i + c]);
            }
        }
        return fmaf(change, query_key, column_sum(query_sums));
    }
};

template <typename Rule, unsigned ROWS> INLINE void take(const DeltaRule &work) {
    Matrices matrices{work.states, work.out, work.values, work.key_dim, work.value_dim};
    recur<ROWS>(Rule{work, matrices}, matrices, work.sequences);
}
template <unsigned ROWS> INLINE void delta_rule(const DeltaRule &work) { take<Delta, ROWS>(work); }
template <unsigned ROWS> INLINE void delta_rule_each(const DeltaRule &work) {
    take<DeltaOfEach, ROWS>(work);
}

RECURRENCE(delta_rule, DeltaRule, 64, 64)
RECURRENCE(delta_rule, DeltaRule, 128, 128)
RECURRENCE(delta_rule, DeltaRule, any, 0)
RECURRENCE(delta_rule_each, DeltaRule, 64, 64)
RECURRENCE(delta_rule_each, DeltaRule, 128, 128)
RECURRENCE(delta_rule_each, DeltaRule, any, 0)
