// Cosines and sines of rotary embedding, from the positions of tokens.
//
// Grid: [tokens]; block: 64 threads; no dynamic shared memory.
#include "../cuda/device.cuh"

struct Angles {
    // [tokens]
    const uint32_t *positions;
    // [tokens]: of the token's sequence
    const uint32_t *lengths;
    // [pairs]
    const float *frequencies;
    // [pairs]: of tokens whose sequence is longer than `longest`
    const float *beyond;
    uint32_t longest;
    uint32_t pairs;
    float magnitude;
    // [tokens, pairs]
    float *cos;
    float *sin;
    // [tokens]: 1 + beta * ln(1 + floor((position + first) / every)); or null
    float *query_scale;
    float beta, every, first;
};
LAYOUT(Angles, FIELD(positions), FIELD(lengths), FIELD(frequencies), FIELD(beyond), FIELD(longest),
       FIELD(pairs), FIELD(magnitude), FIELD(cos), FIELD(sin), FIELD(query_scale), FIELD(beta),
       FIELD(every), FIELD(first))

KERNEL angles(const Angles work) {
    unsigned token = blockIdx.x;
    auto position = float(work.positions[token]);
    bool beyond = work.lengths[token] > work.longest;
    const float *frequencies = beyond ? work.beyond : work.frequencies;
    for (unsigned i = threadIdx.x; i < work.pairs; i += blockDim.x) {
        float angle = __fmul_rn(position, frequencies[i]);
        size_t at = size_t(token) * work.pairs + i;
        work.cos[at] = cosf(angle) * work.magnitude;
        work.sin[at] = sinf(angle) * work.magnitude;
    }
    if (work.query_scale && threadIdx.x == 0) {
        float stretched = floorf((position + work.first) / work.every);
        work.query_scale[token] = 1 + work.beta * logf(1 + stretched);
    }
}
EXPORT(angles)
