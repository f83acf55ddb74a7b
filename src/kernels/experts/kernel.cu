// Products with the weights of experts, and the sums of what they give. T tokens, E experts, P of
// them for each token; pairs and their tiles as `group` in `routing.cu` lists them. The order of
// sums in products is that of `linear/linear.cuh`.
//
// experts_{bf16,f16}_{8,16,32,64}, experts_{bf16,f16}_any, experts_f32_8: as `linear_*` in
// `linear/kernel.cu` by capacity, tiles of weight rows, block, stage and shared bytes, where
// own = min(T, capacity), since a token comes to an expert at most once;
//   grid: [most_tiles, ceil(tiles / tiles_per_block)],
//     most_tiles = min(T * P, E + T * P / capacity)
// experts_{bf16,f16}_many: for many tokens of each expert, whose inputs are of the weights' type, a multiple
// of 8, and have no factors. The order of sums is that of `linear/many_product.cuh`.
//   tiles: ceil(rows / 128); gated: ceil(rows / 64)
//   block: 128 threads; grid: [most_tiles, tiles] with a capacity of 64; shared bytes: 73728
// combine: grid [T, ceil(width / 256)], block 256, no dynamic shared memory.
#include "../linear/half_product.cuh"
#include "../linear/many_product.cuh"
#include "args.cuh"

EXPORT_LAYOUT(Experts)

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
    half_product<W, COLUMNS, DEPTH, WHOLE, false>(find, input_of(experts), rows);
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

// Three blocks have room on a multiprocessor.
template <typename W> INLINE void experts_many(const Experts &experts) {
    PairTile own = experts.tiles[blockIdx.x];
    if (own.expert == NO_EXPERT) {
        return;
    }
    Tile tile;
    find_tile(tile, experts, own.expert, blockIdx.y, many::ROWS);
    many::product<W>(tile, input_of(experts), rows_of<many::TOKENS>(experts, own));
}

KERNEL __launch_bounds__(3 * many::THREADS) experts_bf16_many(const Experts experts) {
    experts_many<bf16_t>(experts);
}
EXPORT(experts_bf16_many)
KERNEL __launch_bounds__(3 * many::THREADS) experts_f16_many(const Experts experts) {
    experts_many<f16_t>(experts);
}
EXPORT(experts_f16_many)

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
