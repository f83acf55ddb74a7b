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
// linear_f32_{1,8}: capacity 1 or 8, tiles of 4 rows (gated: of 2), tiles_per_block 1, no dynamic
// shared memory, no `stage`; `inputs` may be any number.
#include "half_product.cuh"

struct LinearMatrix {
    // [rows, inputs]
    const void *weight;
    // [rows], or null
    const float *bias;
    // [tokens, stride]: its first `rows` columns are written; f32, or the weights' type
    void *out;
    uint32_t rows;
    uint32_t stride;
};
DESCRIBE(LinearMatrix, FIELD(weight), FIELD(bias), FIELD(out), FIELD(rows), FIELD(stride))

struct Linear {
    // The first `count` of them; a gate and its up, whose `out` isn't looked at, if `gated`.
    LinearMatrix matrices[3];
    // [tokens, inputs]: f32, or of the weights' type
    const void *x;
    // Null, or [tokens, stride] of the only matrix; may be what is written to. The result is
    // residual + factor * y.
    const float *residual;
    float factor;
    uint32_t count;
    uint32_t gated;
    ElementwiseOp gating;
    uint32_t tokens;
    uint32_t inputs;
    uint32_t stage;
    // Whether x, and what is written, is of the weights' type.
    uint32_t x_rounded;
    uint32_t out_rounded;
};
LAYOUT(Linear, FIELD(matrices), FIELD(x), FIELD(residual), FIELD(factor), FIELD(count),
       FIELD(gated), FIELD(gating), FIELD(tokens), FIELD(inputs), FIELD(stage), FIELD(x_rounded),
       FIELD(out_rounded))

// The tokens from `first` on.
struct TokenRows {
    uint32_t first, count;

    INLINE TokenRows(uint32_t tokens, uint32_t capacity)
        : first(blockIdx.x * capacity), count(min(tokens - first, capacity)) {}
    INLINE size_t source(unsigned token) const { return first + token; }
    INLINE size_t target(unsigned token) const { return first + token; }
    INLINE float factor(unsigned) const { return 1; }
};

INLINE Input input_of(const Linear &linear) {
    return {linear.x, linear.inputs, linear.stage, linear.x_rounded};
}

// Tile `index` of all matrices one after the other; false if there is none, it is the last then.
INLINE bool find_tile(Tile &tile, const Linear &linear, unsigned index, unsigned tile_rows) {
    tile.is_gated = linear.gated;
    tile.gating = linear.gating;
    tile.rounded = linear.out_rounded;
    tile.residual = linear.residual;
    tile.factor = linear.factor;
    tile.rows = linear.matrices[0].rows;
    unsigned matrix = 0, last = linear.gated ? 0 : linear.count - 1;
    while (index >= tile.tiles(tile_rows) && matrix < last) {
        index -= tile.tiles(tile_rows);
        matrix++;
        tile.rows = linear.matrices[matrix].rows;
    }
    const LinearMatrix &own = linear.matrices[matrix];
    const LinearMatrix &beside = linear.matrices[linear.gated ? 1 : matrix];
    tile.weight[0] = own.weight, tile.weight[1] = beside.weight;
    tile.bias[0] = own.bias, tile.bias[1] = beside.bias;
    tile.out = own.out;
    tile.stride = own.stride;
    unsigned tiles = tile.tiles(tile_rows);
    tile.place(min(index, tiles - 1), tile_rows);
    return index < tiles;
}

template <typename W, unsigned COLUMNS, unsigned DEPTH, bool WHOLE>
INLINE void linear_half(const Linear &linear) {
    auto find = [&](Tile &tile, unsigned index) {
        return find_tile(tile, linear, index, HALF_ROWS);
    };
    TokenRows rows(linear.tokens, 8 * COLUMNS);
    half_product<W, COLUMNS, DEPTH, WHOLE>(find, input_of(linear), rows);
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
LINEAR(linear_bf16_16, 512, bf16_t, 2, 4, true)
LINEAR(linear_bf16_32, 512, bf16_t, 4, 3, true)
LINEAR(linear_bf16_64, 512, bf16_t, 8, 2, true)
LINEAR(linear_bf16_any, 512, bf16_t, 1, 2, false)
LINEAR(linear_f16_8, 768, f16_t, 1, 2, true)
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
