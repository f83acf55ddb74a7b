// Products of tokens with the rows of up to three packed quantized matrices, or of a gate's and an up's, in
// one launch. The order of sums is that of `packed/product.cuh`.
//
// linear_KIND_{8,64}, for KIND of `EACH_PACKED_FORMAT`, by capacity.
//   tiles: sum over matrices of ceil(rows / 32); gated: ceil(rows / 16)
//   block, grid: as for `linear_*` in `kernel.cu`
//   own = min(tokens, capacity); padded = ceil(inputs / 512) * 512
//   stage: padded; or less, a multiple of 512, where that needs too much shared memory
//   shared bytes: max(own * (stage / 4 * 5 + 32) * (stage < padded ? 2 : 1),
//                     1024 * min(capacity, 16) * tiles_per_block)
// x is f32, or what `quantize_rows` makes of it if `x_rounded`; outputs are f32.
#include "../packed/product.cuh"
#include "args.cuh"

EXPORT_LAYOUT(Linear)

template <typename F, unsigned COLUMNS>
INLINE void linear_packed(const Linear &linear) {
    auto find = [&](Tile &tile, unsigned index) {
        return find_tile(tile, linear, index, packed::ROWS);
    };
    TokenRows rows(linear.tokens, 8 * COLUMNS);
    packed::product<F, COLUMNS>(find, input_of(linear), rows);
}

// Two blocks of one tile have room on a multiprocessor.
#define LINEAR(name, ...)                                                                          \
    KERNEL __launch_bounds__(2 * TILE_THREADS) name(const Linear linear) {                         \
        linear_packed<__VA_ARGS__>(linear);                                                        \
    }                                                                                              \
    EXPORT(name)
#define LINEAR_OF(kind, format)                                                                    \
    LINEAR(linear_##kind##_8, format, 1)                                                        \
    LINEAR(linear_##kind##_64, format, 8)

EACH_PACKED_FORMAT(LINEAR_OF)
