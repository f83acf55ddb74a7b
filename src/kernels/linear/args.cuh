// What products of tokens with the rows of up to three matrices, or of a gate's and an up's, are given.
#pragma once

#include "linear.cuh"

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
    // As for `Input`; only with a capacity of 8, weights that are not f32, and all inputs in one stage.
    const float *norm;
    float eps;
};
DESCRIBE(Linear, FIELD(matrices), FIELD(x), FIELD(residual), FIELD(factor), FIELD(count),
         FIELD(gated), FIELD(gating), FIELD(tokens), FIELD(inputs), FIELD(stage), FIELD(x_rounded),
         FIELD(out_rounded), FIELD(norm), FIELD(eps))

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
    return {linear.x,         linear.inputs, linear.stage,
            linear.x_rounded, linear.norm,   linear.eps};
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
