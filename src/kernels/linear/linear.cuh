// Products of few tokens with matrices, bound by how fast the matrices can be read: what there is
// to multiply, what is done with the sums, and products with f32 weights.
//
// A sum has one order, whatever the tokens beside it, the kernel and its finish: inputs come in
// chunks of 64 (128 where weights are f32), chunk c belongs to part c % 8, a part adds its chunks
// in ascending order, and the sums of the parts are added in ascending order.
#pragma once

#include "../pointwise/elementwise.cuh"

// Warps that share the inputs of a tile of weight rows.
constexpr unsigned PARTS = 8;
constexpr unsigned TILE_THREADS = PARTS * WARP;
// Weight rows of a tile with half-precision weights, and with f32.
constexpr unsigned HALF_ROWS = 16, FLOAT_ROWS = 4;

// Most tokens that products normalize themselves.
constexpr unsigned NORMED = 3;

// What tokens bring.
struct Input {
    // [rows, inputs], f32, or of the weights' type if `rounded`.
    const void *x;
    uint32_t inputs;
    // Inputs that are in shared memory at a time, a multiple of 512; see `kernel.cu`.
    uint32_t stage;
    uint32_t rounded;
    // [inputs], the scale of an RMS norm that x, of f32 and at most NORMED rows, goes through first, and
    // what is added to the mean square; or null.
    const float *norm;
    float eps;
};

// Weight rows of a tile: two runs of equal length, of one matrix or of a gate's and its up's.
struct Tile {
    const void *weight[2];
    // Or null.
    const float *bias[2];
    uint32_t first[2];
    // Of a matrix.
    uint32_t rows;
    uint32_t is_gated;
    ElementwiseOp gating;
    // [.., stride], f32, or of the weights' type if `rounded`.
    void *out;
    uint32_t stride;
    uint32_t rounded;
    // Laid out as `out`, f32; or null.
    const float *residual;
    float factor;

    template <typename W>
    INLINE const W *row(unsigned run, unsigned i, unsigned inputs) const {
        // Rows behind the last are read as the last; nobody writes what they give.
        unsigned own = min(first[run] + i, rows - 1);
        return static_cast<const W *>(weight[run]) + size_t(own) * inputs;
    }

    // How many there are of one matrix, or of a gate and its up.
    INLINE unsigned tiles(unsigned tile_rows) const {
        unsigned step = is_gated ? tile_rows / 2 : tile_rows;
        return (rows + step - 1) / step;
    }

    // The runs of tile `index`.
    INLINE void place(unsigned index, unsigned tile_rows) {
        unsigned run = tile_rows / 2;
        first[0] = index * (is_gated ? run : tile_rows);
        first[1] = is_gated ? first[0] : first[0] + run;
    }

    // Writes what a sum with its bias makes.
    template <typename W> INLINE void put(size_t at, float y) const {
        y = residual != nullptr ? fmaf(factor, y, residual[at]) : factor * y;
        if (rounded) {
            static_cast<W *>(out)[at] = from_float<W>(y);
        } else {
            static_cast<float *>(out)[at] = y;
        }
    }
};

// Factors of tokens that are normalized: 1 / sqrt(mean(x^2) + eps), as `normalize` in `norm/kernel.cu`
// has them, to the bit; or ones. `scratch` has room for a float per warp, which is free again behind this.
template <typename Rows>
INLINE void norm_factors(float (&factors)[NORMED], const Input &input, const Rows &rows,
                         float *scratch) {
#pragma unroll
    for (unsigned token = 0; token < NORMED; token++) {
        factors[token] = 1;
        if (input.norm != nullptr && token < rows.count) {
            const float *x = static_cast<const float *>(input.x) + rows.source(token) * input.inputs;
            factors[token] = norm_factor(x, input.inputs, 0, input.eps, scratch);
        }
    }
    if (input.norm != nullptr) {
        __syncthreads();
    }
}

// One of the factors.
INLINE float factor_of(const float (&factors)[NORMED], unsigned token) {
    return token == 0 ? factors[0] : token == 1 ? factors[1] : factors[2];
}

template <bool WHOLE>
INLINE void load_floats(float (&to)[4], const float *row, unsigned k, unsigned end) {
    if constexpr (WHOLE) {
        float4 all = {0, 0, 0, 0};
        if (k < end) {
            all = __ldg(reinterpret_cast<const float4 *>(row + k));
        }
        to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
    } else {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            to[i] = k + i < end ? row[k + i] : 0;
        }
    }
}

// Adds the parts' sums `[PARTS, capacity, ROWS]` and writes what they make.
template <typename W, unsigned ROWS, typename Rows>
INLINE void finish(const Tile &tile, const Rows &rows, const float *sums, unsigned capacity) {
    constexpr unsigned RUN = ROWS / 2;
    for (unsigned i = threadIdx.x % TILE_THREADS; i < rows.count * RUN; i += TILE_THREADS) {
        unsigned token = i / RUN, own = i % RUN;
        float y[2];
        bool exists[2];
#pragma unroll
        for (unsigned run = 0; run < 2; run++) {
            const float *at = sums + token * ROWS + run * RUN + own;
            y[run] = at[0];
            for (unsigned part = 1; part < PARTS; part++) {
                y[run] += at[part * capacity * ROWS];
            }
            unsigned row = tile.first[run] + own;
            exists[run] = row < tile.rows;
            if (exists[run] && tile.bias[run] != nullptr) {
                y[run] += tile.bias[run][row];
            }
        }
        size_t at = rows.target(token) * tile.stride + tile.first[0] + own;
        if (tile.is_gated) {
            if (exists[0]) {
                tile.template put<W>(at, apply_to_pair(tile.gating, y[0], y[1]));
            }
            continue;
        }
        if (exists[0]) {
            tile.template put<W>(at, y[0]);
        }
        if (exists[1]) {
            tile.template put<W>(at + RUN, y[1]);
        }
    }
}

// Of tiles of rows there may be more than a grid is high.
INLINE unsigned grid_row() { return blockIdx.z * gridDim.y + blockIdx.y; }

// The part's sums of a tile of f32 weights, a lane's share of them.
template <unsigned TOKENS, bool WHOLE, typename Rows>
INLINE void float_sums(float (&sums)[FLOAT_ROWS][TOKENS], const Tile &tile, const Input &input,
                       const Rows &rows) {
    unsigned end = input.inputs;
    const float *weights[FLOAT_ROWS], *x[TOKENS];
    float factor[TOKENS];
#pragma unroll
    for (unsigned i = 0; i < FLOAT_ROWS; i++) {
        weights[i] = tile.row<float>(i / 2, i % 2, end);
    }
#pragma unroll
    for (unsigned token = 0; token < TOKENS; token++) {
        unsigned own = min(token, rows.count - 1);
        x[token] = static_cast<const float *>(input.x) + rows.source(own) * end;
        factor[token] = rows.factor(own);
#pragma unroll
        for (unsigned i = 0; i < FLOAT_ROWS; i++) {
            sums[i][token] = 0;
        }
    }
#pragma unroll(TOKENS == 1 ? 4 : 1)
    for (unsigned k = threadIdx.x * 4; k < end; k += TILE_THREADS * 4) {
        float w[FLOAT_ROWS][4];
#pragma unroll
        for (unsigned i = 0; i < FLOAT_ROWS; i++) {
            load_floats<WHOLE>(w[i], weights[i], k, end);
        }
#pragma unroll
        for (unsigned token = 0; token < TOKENS; token++) {
            float y[4];
            load_floats<WHOLE>(y, x[token], k, end);
#pragma unroll
            for (unsigned j = 0; j < 4; j++) {
#pragma unroll
                for (unsigned i = 0; i < FLOAT_ROWS; i++) {
                    sums[i][token] = fmaf(w[i][j], y[j] * factor[token], sums[i][token]);
                }
            }
        }
    }
}

template <unsigned TOKENS, typename Rows>
INLINE void float_product(const Tile &tile, const Input &input, const Rows &rows) {
    __shared__ float all[PARTS * TOKENS * FLOAT_ROWS];
    float sums[FLOAT_ROWS][TOKENS];
    if (input.inputs % 4 == 0) {
        float_sums<TOKENS, true>(sums, tile, input, rows);
    } else {
        float_sums<TOKENS, false>(sums, tile, input, rows);
    }
#pragma unroll
    for (unsigned token = 0; token < TOKENS; token++) {
#pragma unroll
        for (unsigned i = 0; i < FLOAT_ROWS; i++) {
            float sum = warp_sum(sums[i][token]);
            if (threadIdx.x % WARP == 0) {
                all[(threadIdx.x / WARP * TOKENS + token) * FLOAT_ROWS + i] = sum;
            }
        }
    }
    __syncthreads();
    finish<float, FLOAT_ROWS>(tile, rows, all, TOKENS);
}
