// Products of many tokens with half-precision weights: both go through shared memory, a few steps of inputs
// ahead, and a block multiplies 128 rows with 64 tokens.
//
// A sum has one order, whatever the tokens beside it, which is not that of `linear.cuh`: inputs are added in
// ascending order, 16 at a time as tensor cores do it.
#pragma once

#include "linear.cuh"

namespace many {

// Weight rows of a tile, two runs of 64; tokens; inputs of a step; steps in shared memory.
constexpr unsigned ROWS = 128, TOKENS = 64, STEP = 64, STEPS = 3;
constexpr unsigned RUN = ROWS / 2, THREADS = 128;
// Of a warp: rows of each run, tokens.
constexpr unsigned WARP_RUN = 32, WARP_TOKENS = 32;
// A row of a step in shared memory: pieces of 16 bytes.
constexpr unsigned PIECES = STEP / 8, ROW_BYTES = 16 * PIECES;
constexpr unsigned STEP_BYTES = (ROWS + TOKENS) * ROW_BYTES;

// Where a piece of a row is: pieces of eight rows in a column are in different banks.
INLINE unsigned place_of(unsigned row, unsigned piece) {
    return row * ROW_BYTES + 16 * (piece ^ row % 8);
}

// The run and its row that a row in shared memory stands for: a warp has the same rows of both.
INLINE unsigned run_of(unsigned row) { return row / WARP_RUN % 2; }
INLINE unsigned row_in_run(unsigned row) { return row / (2 * WARP_RUN) * WARP_RUN + row % WARP_RUN; }

// Starts to bring the inputs from `from` on; zeros behind the last, and any token behind the last.
template <typename W, typename Tokens>
INLINE void fill(unsigned char *to, const Tile &tile, const Input &input, const Tokens &tokens,
                 unsigned from) {
    unsigned piece = threadIdx.x % PIECES, k = from + 8 * piece;
    bool exists = k < input.inputs;
    k = exists ? k : 0;
#pragma unroll
    for (unsigned row = threadIdx.x / PIECES; row < ROWS; row += THREADS / PIECES) {
        const W *weights = tile.row<W>(run_of(row), row_in_run(row), input.inputs);
        copy_async(to + place_of(row, piece), weights + k, exists);
    }
#pragma unroll
    for (unsigned token = threadIdx.x / PIECES; token < TOKENS; token += THREADS / PIECES) {
        size_t own = tokens.source(min(token, tokens.count - 1));
        const W *x = static_cast<const W *>(input.x) + own * input.inputs;
        copy_async(to + place_of(ROWS + token, piece), x + k, exists);
    }
}

// Adds the products of a step.
template <typename W>
INLINE void add_step(float (&sums)[4][4][4], const unsigned char *step, unsigned rows,
                     unsigned tokens) {
    unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (unsigned k = 0; k < STEP / 16; k++) {
        uint32_t a[4][4], b[2][4];
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            load_matrices(a[i], step + place_of(rows + 16 * i + lane % 16, 2 * k + lane / 16));
        }
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            unsigned token = ROWS + tokens + 16 * i + lane / 16 * 8 + lane % 8;
            load_matrices(b[i], step + place_of(token, 2 * k + lane / 8 % 2));
        }
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
#pragma unroll
            for (unsigned j = 0; j < 4; j++) {
                mma_16_8_16<W>(sums[i][j], a[i], {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
            }
        }
    }
}

// Writes what the sums of two rows of a token make, of which the second is of the other run.
template <typename W>
INLINE void finish_pair(const Tile &tile, size_t target, const unsigned (&rows)[2],
                        const float (&sums)[2]) {
    float y[2];
    bool exists[2];
#pragma unroll
    for (unsigned run = 0; run < 2; run++) {
        exists[run] = rows[run] < tile.rows;
        y[run] = sums[run];
        if (exists[run] && tile.bias[run] != nullptr) {
            y[run] += tile.bias[run][rows[run]];
        }
    }
    size_t at = target * tile.stride;
    if (tile.is_gated) {
        if (exists[0]) {
            tile.put<W>(at + rows[0], apply_to_pair(tile.gating, y[0], y[1]));
        }
        return;
    }
#pragma unroll
    for (unsigned run = 0; run < 2; run++) {
        if (exists[run]) {
            tile.put<W>(at + rows[run], y[run]);
        }
    }
}

// All threads take part; inputs are of the weights' type, a multiple of 8, at addresses that are one of 16.
template <typename W, typename Tokens>
INLINE void product(const Tile &tile, const Input &input, const Tokens &tokens) {
    DYNAMIC_SHARED(shared);
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned own_rows = warp % 2 * 2 * WARP_RUN, own_tokens = warp / 2 * WARP_TOKENS;
    unsigned count = (input.inputs + STEP - 1) / STEP;
    float sums[4][4][4] = {};
    auto bring = [&](unsigned step) {
        if (step < count) {
            fill<W>(shared + step % STEPS * STEP_BYTES, tile, input, tokens, step * STEP);
        }
        copy_commit();
    };
#pragma unroll
    for (unsigned step = 0; step < STEPS - 1; step++) {
        bring(step);
    }
    for (unsigned step = 0; step < count; step++) {
        copy_wait<STEPS - 2>();
        // All see the step, and nobody reads the one before any more, where the next one goes.
        __syncthreads();
        bring(step + STEPS - 1);
        add_step<W>(sums, shared + step % STEPS * STEP_BYTES, own_rows, own_tokens);
    }
    copy_wait<0>();
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
#pragma unroll
        for (unsigned i = 0; i < 2 * 4; i++) {
            unsigned block = i / 4, at = i % 4;
            unsigned token = own_tokens + 8 * j + lane % 4 * 2 + at % 2;
            if (token >= tokens.count) {
                continue;
            }
            unsigned row = warp % 2 * WARP_RUN + 16 * block + lane / 4 + at / 2 * 8;
            unsigned rows[2] = {tile.first[0] + row, tile.first[1] + row};
            finish_pair<W>(tile, tokens.target(token), rows, {sums[block][j][at], sums[block + 2][j][at]});
        }
    }
}

} // namespace many
