// What products with the weights of experts are given. T tokens, E experts, P of them for each token;
// pairs and their tiles as `group` in `routing.cu` lists them.
#pragma once

#include "../linear/linear.cuh"
#include "pair_tile.cuh"

struct Experts {
    // [E], each [rows, inputs]; `up` only if gated
    const void *const *weight;
    const void *const *up;
    // [E], each [rows]; or null
    const float *const *bias;
    const float *const *up_bias;
    // [T, inputs] where `per_row` is P, [T * P, inputs] where it is 1; f32, or of the weights' type
    const void *x;
    // [T * P], factors of x, which is f32 then; or null
    const float *factors;
    // [T * P]
    const uint32_t *pairs;
    // [most_tiles], of this kernel's capacity
    const PairTile *tiles;
    // [T * P, rows], by pair: f32, or of the weights' type
    void *out;
    uint32_t rows;
    uint32_t inputs;
    uint32_t per_row;
    // As for `linear_*`.
    uint32_t stage;
    uint32_t x_rounded;
    uint32_t out_rounded;
    uint32_t gated;
    ElementwiseOp gating;
};
DESCRIBE(Experts, FIELD(weight), FIELD(up), FIELD(bias), FIELD(up_bias), FIELD(x), FIELD(factors),
         FIELD(pairs), FIELD(tiles), FIELD(out), FIELD(rows), FIELD(inputs), FIELD(per_row),
         FIELD(stage), FIELD(x_rounded), FIELD(out_rounded), FIELD(gated), FIELD(gating))

struct PairRows {
    const uint32_t *pairs, *sources;
    const float *factors;
    uint32_t count;

    INLINE size_t source(unsigned i) const { return sources[i]; }
    INLINE size_t target(unsigned i) const { return pairs[i]; }
    INLINE float factor(unsigned i) const { return factors != nullptr ? factors[pairs[i]] : 1; }
};

INLINE Input input_of(const Experts &experts) {
    return {experts.x, experts.inputs, experts.stage, experts.x_rounded, nullptr, 0};
}

INLINE bool find_tile(Tile &tile, const Experts &experts, uint32_t expert, unsigned index,
                      unsigned tile_rows) {
    auto bias_of = [&](const float *const *all) { return all != nullptr ? all[expert] : nullptr; };
    tile.weight[0] = experts.weight[expert];
    tile.weight[1] = experts.gated ? experts.up[expert] : tile.weight[0];
    tile.bias[0] = bias_of(experts.bias);
    tile.bias[1] = bias_of(experts.gated ? experts.up_bias : experts.bias);
    tile.rows = experts.rows;
    tile.is_gated = experts.gated;
    tile.gating = experts.gating;
    tile.out = experts.out;
    tile.stride = experts.rows;
    tile.rounded = experts.out_rounded;
    tile.residual = nullptr;
    tile.factor = 1;
    unsigned tiles = tile.tiles(tile_rows);
    tile.place(min(index, tiles - 1), tile_rows);
    return index < tiles;
}

// The tile's pairs are those of the block.
template <unsigned CAPACITY> INLINE PairRows rows_of(const Experts &experts, const PairTile &own) {
    __shared__ uint32_t pairs[CAPACITY], sources[CAPACITY];
    unsigned count = own.last - own.first;
    if (threadIdx.x < count) {
        uint32_t pair = experts.pairs[own.first + threadIdx.x];
        pairs[threadIdx.x] = pair;
        sources[threadIdx.x] = pair / experts.per_row;
    }
    __syncthreads();
    return {pairs, sources, experts.factors, count};
}
