// Products with the weights of experts, and the sums of what they give. T tokens, E experts, P of
// them for each token; pairs and their tiles as `group` in `routing.cu` lists them. The order of
// sums in products is that of `linear/linear.cuh`.
//
// experts_{bf16,f16}_{8,16,32,64}, experts_{bf16,f16}_any, experts_f32_8: as `linear_*` in
// `linear/kernel.cu` by capacity, tiles of weight rows, block, stage and shared bytes, where
// own = min(T, capacity), since a token comes to an expert at most once;
//   grid: [most_tiles, ceil(tiles / tiles_per_block)],
//     most_tiles = min(T * P, E + T * P / capacity)
// combine: grid [T, ceil(width / 256)], block 256, no dynamic shared memory.
#include "../linear/half_product.cuh"
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
LAYOUT(Experts, FIELD(weight), FIELD(up), FIELD(bias), FIELD(up_bias), FIELD(x), FIELD(factors),
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
    return {experts.x, experts.inputs, experts.stage, experts.x_rounded};
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

template <typename W, unsigned COLUMNS, unsigned DEPTH, bool WHOLE>
INLINE void experts_half(const Experts &experts) {
    PairTile own = experts.tiles[blockIdx.x];
    if (own.expert == NO_EXPERT) {
        return;
    }
    auto find = [&](Tile &tile, unsigned index) {
        return find_tile(tile, experts, own.expert, index, HALF_ROWS);
    };
    PairRows rows = rows_of<8 * COLUMNS>(experts, own);
    half_product<W, COLUMNS, DEPTH, WHOLE>(find, input_of(experts), rows);
}

#define EXPERTS(name, threads, ...)                                                                \
    KERNEL __launch_bounds__(threads) name(const Experts experts) {                                \
        experts_half<__VA_ARGS__>(experts);                                                        \
    }                                                                                              \
    EXPORT(name)

EXPERTS(experts_bf16_8, 768, bf16_t, 1, 2, true)
EXPERTS(experts_bf16_16, 512, bf16_t, 2, 3, true)
EXPERTS(experts_bf16_32, 512, bf16_t, 4, 3, true)
EXPERTS(experts_bf16_64, 512, bf16_t, 8, 2, true)
EXPERTS(experts_bf16_any, 512, bf16_t, 1, 2, false)
EXPERTS(experts_f16_8, 768, f16_t, 1, 2, true)
EXPERTS(experts_f16_16, 512, f16_t, 2, 3, true)
EXPERTS(experts_f16_32, 512, f16_t, 4, 3, true)
EXPERTS(experts_f16_64, 512, f16_t, 8, 2, true)
EXPERTS(experts_f16_any, 512, f16_t, 1, 2, false)

KERNEL __launch_bounds__(TILE_THREADS) experts_f32_8(const Experts experts) {
    PairTile own = experts.tiles[blockIdx.x];
    if (own.expert == NO_EXPERT) {
        return;
    }
    Tile tile;
    if (find_tile(tile, experts, own.expert, grid_row(), FLOAT_ROWS)) {
        float_product<8>(tile, input_of(experts), rows_of<8>(experts, own));
    }
}
EXPORT(experts_f32_8)

struct Combine {
    // [T * P, width]
    const float *y;
    // [T, P], or null for ones
    const float *weights;
    // [T, width], or null for zeros; may be `out`
    const float *residual;
    // [T, width]
    float *out;
    uint32_t width;
    uint32_t per_token;
    float factor;
};
LAYOUT(Combine, FIELD(y), FIELD(weights), FIELD(residual), FIELD(out), FIELD(width),
       FIELD(per_token), FIELD(factor))

KERNEL combine(const Combine work) {
    unsigned i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= work.width) {
        return;
    }
    size_t first = size_t(blockIdx.x) * work.per_token, at = size_t(blockIdx.x) * work.width + i;
    float sum = work.residual != nullptr ? work.residual[at] : 0;
#pragma unroll 4
    for (unsigned slot = 0; slot < work.per_token; slot++) {
        float weight = work.factor;
        weight *= work.weights != nullptr ? work.weights[first + slot] : 1;
        sum = fmaf(work.y[(first + slot) * work.width + i], weight, sum);
    }
    work.out[at] = sum;
}
EXPORT(combine)
