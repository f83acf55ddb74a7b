// The gated delta rule of any mix of prompts, pieces of prompts and single tokens, see
// `recurrence.cuh`. No output may be an input. All forms give the same bits.
//
// delta_rule_64 (key_dim <= 64), delta_rule_128 (key_dim <= 128), delta_rule_any
//     grid     [S, values, ceil(value_dim / 32)]
//     threads  256
//     shared   128 R + 2304, where R is 64 or 128 as in the name;
//              256 R + 2304 of delta_rule_any, where R is key_dim rounded up to 16
#include "../recurrence.cuh"

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
    Sequences sequences;
    uint32_t qkv_stride, write_stride, decay_stride;
    uint32_t keys, values, key_dim, value_dim;
    // Value head i has key head i % keys, else i / (values / keys).
    uint32_t tiled;
    // Factor of the sigmoid of write.
    float write_scale;
};
LAYOUT(DeltaRule, FIELD(qkv), FIELD(write), FIELD(decay), FIELD(rate), FIELD(bias), FIELD(states),
       FIELD(out), FIELD(sequences), FIELD(qkv_stride), FIELD(write_stride), FIELD(decay_stride),
       FIELD(keys), FIELD(values), FIELD(key_dim), FIELD(value_dim), FIELD(tiled),
       FIELD(write_scale))

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
        float query_key = __fmul_rn(__fmul_rn(warp_sum(both), query_scale), key_scale);
#pragma unroll
        for (unsigned i = lane; i < padded; i += WARP) {
            token.first[i] = __fmul_rn(token.first[i], key_scale);
            token.second[i] = __fmul_rn(token.second[i], query_scale);
        }
        if (lane == 0) {
            float time = softplus(decay + work.bias[head]);
            token.factors[0] = expf(__fmul_rn(work.rate[head], time));
            token.factors[1] = work.write_scale / (1 + expf(-write));
            token.factors[2] = query_key;
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
        float decay = token.factors[0], write = token.factors[1], query_key = token.factors[2];
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

template <unsigned ROWS> INLINE void delta_rule(const DeltaRule &work) {
    Matrices matrices{work.states, work.out, work.values, work.key_dim, work.value_dim};
    recur<ROWS>(Delta{work, matrices}, matrices, work.sequences);
}

RECURRENCE(delta_rule, DeltaRule, 64, 64)
RECURRENCE(delta_rule, DeltaRule, 128, 128)
RECURRENCE(delta_rule, DeltaRule, any, 0)
