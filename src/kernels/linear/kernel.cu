// Products of tokens with the rows of up to three matrices, or of a gate's and an up's, in one
// launch. The order of sums is that of `linear.cuh`.
//
// linear_{bf16,f16}_{8,16,32,64} and linear_{bf16,f16}_any, for weights of that type. `_any` is
// slow, for what isn't aligned: inputs that are no multiple of 8, addresses that are none of 16
// bytes.
//   capacity: 8, 16, 32 or 64 tokens; 8 for `_any`
//   tiles: sum over matrices of ceil(rows / 16); gated: ceil(rows / 8)
//   block: 256 * tiles_per_block threads, tiles_per_block 1 or 2; 2 halve how often tokens are read
//   grid: [ceil(tokens / capacity), height, ceil(ceil(tiles / tiles_per_block) / height)] with
//     height = min(ceil(tiles / tiles_per_block), 65535)
//   own = min(tokens, capacity); padded = ceil(inputs / 512) * 512
//   stage: padded; or less, a multiple of 512, where that needs too much shared memory
//   shared bytes: max(own * (2 * stage + 64) * (stage < padded ? 2 : 1),
//                     512 * capacity * tiles_per_block)
// linear_{bf16,f16}_8_rounds, the same with a grid of [1, H, 1] for any H: blocks take tiles in rounds
//   stage: padded
//   shared bytes: own * (2 * stage + 64) + 4096
// linear_f32_{1,8}: capacity 1 or 8, tiles of 4 rows (gated: of 2), tiles_per_block 1, no dynamic
// shared memory, no `stage`; `inputs` may be any number.
#include "args.cuh"
#include "half_product.cuh"

EXPORT_LAYOUT(Linear)

template <typename W, unsigned COLUMNS, unsigned DEPTH, bool WHOLE, bool ROUNDS = false>
INLINE void linear_half(const Linear &linear) {
    auto find = [&](Tile &tile, unsigned index) {
        return find_tile(tile, linear, index, HALF_ROWS);
    };
    TokenRows rows(linear.tokens, 8 * COLUMNS);
    half_product<W, COLUMNS, DEPTH, WHOLE, ROUNDS>(find, input_of(linear), rows);
}

template <unsigned TOKENS> INLINE void linear_float(const Linear &linear) {
    Tile tile;
    if (find_tile(tile, linear, grid_row(), FLOAT_ROWS)) {
        float_product<TOKENS>(tile, input_of(linear), TokenRows(linear.tokens, TOKENS));
    }
}

#define LINEAR(name, threads, ...)                                                                 \
    KERNEL __launch_bounds__(threads) name(const Linear linear) {                                  \
        linear_half<__VA_ARGS__>(linear);                                                          \
    }                                                                                              \
    EXPORT(name)

// Bounds are how many threads are to have room on a multiprocessor: three blocks of one tile where
// there are few sums, two else.
LINEAR(linear_bf16_8, 768, bf16_t, 1, 2, true)
LINEAR(linear_bf16_8_rounds, 768, bf16_t, 1, 2, true, true)
LINEAR(linear_bf16_16, 512, bf16_t, 2, 4, true)
LINEAR(linear_bf16_32, 512, bf16_t, 4, 3, true)
LINEAR(linear_bf16_64, 512, bf16_t, 8, 2, true)
LINEAR(linear_bf16_any, 512, bf16_t, 1, 2, false)
LINEAR(linear_f16_8, 768, f16_t, 1, 2, true)
LINEAR(linear_f16_8_rounds, 768, f16_t, 1, 2, true, true)
LINEAR(linear_f16_16, 512, f16_t, 2, 4, true)
LINEAR(linear_f16_32, 512, f16_t, 4, 3, true)
LINEAR(linear_f16_64, 512, f16_t, 8, 2, true)
LINEAR(linear_f16_any, 512, f16_t, 1, 2, false)

KERNEL __launch_bounds__(TILE_THREADS) linear_f32_1(const Linear linear) {
    linear_float<1>(linear);
}
EXPORT(linear_f32_1)
KERNEL __launch_bounds__(TILE_THREADS) linear_f32_8(const Linear linear) {
    linear_float<8>(linear);
}
EXPORT(linear_f32_8)
