// Products with half-precision weights by tensor cores, in the order of `linear.cuh`.
//
// Weights go from global memory to registers, many chunks ahead; tokens, which all warps of a block
// need, go through shared memory.
#pragma once

#include "linear.cuh"

// Inputs of a chunk with half-precision weights, and of a chunk for each part.
constexpr unsigned CHUNK = 64;
constexpr unsigned ROUND = PARTS * CHUNK;

// 16 bytes if they are `wanted`, else `to` stays what it is. Weights are of no use to anybody else,
// so they stay out of the first cache.
#ifdef __CUDACC__
INLINE void load_once(uint4 &to, const void *from, bool wanted) {
    asm volatile("{ .reg .pred wanted;\n"
                 "setp.ne.u32 wanted, %5, 0;\n"
                 "@wanted ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
                 : "l"(from), "r"(unsigned(wanted)));
}
#else
INLINE void load_once(uint4 &to, const void *from, bool wanted) {
    if (wanted) {
        to = *static_cast<const uint4 *>(from);
    }
}
#endif

// Eight numbers, of which the first `left` are of the row, one at a time; zeros behind them.
template <typename W> INLINE uint4 load_some(const W *from, int left) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = 2 * i < left ? from[2 * i].bits : 0;
        pairs[i] |= 2 * i + 1 < left ? uint32_t(from[2 * i + 1].bits) << 16 : 0;
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Bytes of a token in shared memory: neighbours are half of all banks apart, so that the loads of
// 16 bytes of two tokens don't meet.
INLINE unsigned token_bytes(unsigned stage) { return 2 * stage + 64; }

// Starts to bring the inputs `[from, from + stage)` of all tokens to shared memory, rounded to the
// weights' type, zeros behind the end.
//
// Where numbers have to be rounded, loads come before stores, so that BATCH are under way together;
// they need registers.
// If NORMS and the input has a norm, numbers are multiplied by `factors` and by the norm's scale.
template <typename W, bool WHOLE, unsigned BATCH, bool NORMS, typename Rows>
INLINE void fill(unsigned char *to, const Input &input, const Rows &rows, unsigned from,
                 const float (&factors)[NORMED]) {
    // A warp brings 256 inputs of a token at a time.
    constexpr unsigned SEGMENT = 8 * WARP, NOWHERE = ~0u;
    unsigned end = input.inputs, warps = blockDim.x / WARP, own = threadIdx.x % WARP * 8;
    unsigned filled = min((end + CHUNK - 1) / CHUNK * CHUNK - from, input.stage);
    unsigned token = 0, start = threadIdx.x / WARP * SEGMENT;
    auto settle = [&] {
        while (start >= filled) {
            start -= (filled + SEGMENT - 1) / SEGMENT * SEGMENT;
            token++;
        }
    };
    settle();
    if (input.rounded) {
        while (token < rows.count) {
            const W *row = static_cast<const W *>(input.x) + rows.source(token) * end;
            unsigned at = start + own, k = from + at;
            unsigned char *place = to + token * token_bytes(input.stage) + 2 * at;
            if (at < filled) {
                if constexpr (WHOLE) {
                    copy_async(place, row + (k < end ? k : 0), k < end);
                } else {
                    *reinterpret_cast<uint4 *>(place) = load_some(row + k, int(end - k));
                }
            }
            start += warps * SEGMENT;
            settle();
        }
        copy_commit();
        return;
    }
    while (NORMS && input.norm != nullptr && token < rows.count) {
        const float *row = static_cast<const float *>(input.x) + rows.source(token) * end;
        unsigned at = start + own;
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            unsigned k = from + at + 4 * i;
            if (at < filled) {
                float x[4], scale[4], factor = factor_of(factors, token);
                load_floats<WHOLE>(x, row, k, end);
                load_floats<WHOLE>(scale, input.norm, k, end);
                uint2 pairs = {pack<W>(x[0] * factor * scale[0], x[1] * factor * scale[1]),
                               pack<W>(x[2] * factor * scale[2], x[3] * factor * scale[3])};
                unsigned char *place = to + token * token_bytes(input.stage) + 2 * at;
                *reinterpret_cast<uint2 *>(place + 8 * i) = pairs;
            }
        }
        start += warps * SEGMENT;
        settle();
    }
    while (token < rows.count) {
        float x[BATCH][2][4], factor[BATCH];
        unsigned place[BATCH];
#pragma unroll
        for (unsigned i = 0; i < BATCH; i++) {
            unsigned at = start + own;
            place[i] = NOWHERE;
            if (token < rows.count && at < filled) {
                const float *row = static_cast<const float *>(input.x) + rows.source(token) * end;
                load_floats<WHOLE>(x[i][0], row, from + at, end);
                load_floats<WHOLE>(x[i][1], row, from + at + 4, end);
                factor[i] = rows.factor(token);
                place[i] = token * token_bytes(input.stage) + 2 * at;
            }
            start += warps * SEGMENT;
            settle();
        }
#pragma unroll
        for (unsigned i = 0; i < BATCH; i++) {
            if (place[i] != NOWHERE) {
                uint32_t pairs[4];
#pragma unroll
                for (unsigned j = 0; j < 4; j++) {
                    const float *pair = &x[i][j / 2][j % 2 * 2];
                    pairs[j] = pack<W>(pair[0] * factor[i], pair[1] * factor[i]);
                }
                uint4 all = {pairs[0], pairs[1], pairs[2], pairs[3]};
                *reinterpret_cast<uint4 *>(to + place[i]) = all;
            }
        }
    }
}

// The part's sums of 16 weight rows with 8 tokens in each column, laid out as by `mma_16_8_16`.
// `low` and `high` are the lane's rows.
//
// A lane's 16 bytes of a weight row are what it holds of that row in two products, one after the
// other: where in a product an input stands doesn't matter as long as it is there for the tokens
// too. So the first has inputs 0-3, 8-11, 16-19 and 24-27 of half a chunk, the second the others.
// Where tokens are `there` already, all of them are. BATCH is that of `fill`.
template <typename W, unsigned COLUMNS, unsigned DEPTH, bool WHOLE, unsigned BATCH, typename Rows>
INLINE void part_sums(float (&sums)[COLUMNS][4], const W *low, const W *high, const Input &input,
                      const Rows &rows, unsigned char *shared, bool there) {
    unsigned lane = threadIdx.x % WARP, end = input.inputs;
    // The lane's first input of a round.
    unsigned k = threadIdx.x / WARP % PARTS * CHUNK + lane % 4 * 8;
    low += k, high += k;
    // Chunks under way; each index is known when this is compiled, so that they are registers.
    // Behind the end of a row they keep what they had of it: it meets the zeros of tokens.
    uint4 ring[DEPTH][2][2] = {};
    auto load = [&](uint4(&to)[2][2], unsigned ahead) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            unsigned at = ahead + half * (CHUNK / 2);
            if constexpr (WHOLE) {
                load_once(to[half][0], low + at, k + at < end);
                load_once(to[half][1], high + at, k + at < end);
            } else {
                to[half][0] = load_some(low + at, int(end - k - at));
                to[half][1] = load_some(high + at, int(end - k - at));
            }
        }
    };
#pragma unroll
    for (unsigned i = 0; i < DEPTH; i++) {
        load(ring[i], i * ROUND);
    }
    unsigned token[COLUMNS];
#pragma unroll
    for (unsigned column = 0; column < COLUMNS; column++) {
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            sums[column][i] = 0;
        }
        // Places without a token repeat the last one.
        token[column] = min(column * 8 + lane / 4, rows.count - 1) * token_bytes(input.stage);
    }
    float factors[NORMED] = {};
    if (!there) {
        if constexpr (COLUMNS == 1) {
            norm_factors(factors, input, rows, reinterpret_cast<float *>(shared));
        }
        fill<W, WHOLE, BATCH, COLUMNS == 1>(shared, input, rows, 0, factors);
    }

    // Where rounds and stages begin; the buffer that the next stage goes to.
    unsigned round = 0, next_stage = 0, spare = 0;
    const unsigned char *x = shared;
    while (round < end) {
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            if (round >= end) {
                break;
            }
            if (round == next_stage) {
                copy_wait<0>();
                // All see the stage that begins, and nobody reads the one before any more.
                __syncthreads();
                x = shared + spare + k % ROUND * 2;
                spare = rows.count * token_bytes(input.stage) - spare;
                next_stage += input.stage;
                if (next_stage < end) {
                    fill<W, WHOLE, 1, false>(shared + spare, input, rows, next_stage, factors);
                }
            }
            // The same for all lanes: whether there is the chunk.
            if (k / CHUNK * CHUNK < end) {
#pragma unroll
                for (unsigned half = 0; half < 2; half++) {
                    const uint4 &a = ring[i][half][0], &b = ring[i][half][1];
                    const uint32_t near[4] = {a.x, b.x, a.y, b.y}, far[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
                    for (unsigned column = 0; column < COLUMNS; column++) {
                        const unsigned char *own = x + token[column] + half * CHUNK;
                        uint4 y = *reinterpret_cast<const uint4 *>(own);
                        mma_16_8_16<W>(sums[column], near, {y.x, y.y});
                        mma_16_8_16<W>(sums[column], far, {y.z, y.w});
                    }
                }
            }
            load(ring[i], DEPTH * ROUND);
            low += ROUND, high += ROUND;
            k += ROUND;
            round += ROUND;
            x += ROUND * 2;
        }
    }
}

// A tile for each TILE_THREADS threads of a block, all with the same tokens. `find(tile, index)`
// says which; where it says that there is none, threads only help to bring the tokens.
//
// If ROUNDS, the grid may have fewer blocks than there are tiles: a block takes one after the other, with the
// same tokens, which are all there at once. Sums lie behind them; else they take their place.
template <typename W, unsigned COLUMNS, unsigned DEPTH, bool WHOLE, bool ROUNDS, typename Find,
          typename Rows>
INLINE void half_product(const Find &find, const Input &input, const Rows &rows) {
    constexpr unsigned CAPACITY = 8 * COLUMNS;
    // Of registers there are just enough.
    constexpr unsigned BATCH = ROUNDS ? 1 : 2;
    DYNAMIC_SHARED(shared);
    unsigned index = grid_row() * (blockDim.x / TILE_THREADS) + threadIdx.x / TILE_THREADS;
    unsigned sums_at = ROUNDS ? rows.count * token_bytes(input.stage) : 0;
    for (bool there = false;; there = true) {
        float sums[COLUMNS][4];
        const W *own[2];
        {
            Tile tile;
            find(tile, index);
            unsigned group = threadIdx.x % WARP / 4;
            own[0] = tile.row<W>(0, group, input.inputs);
            own[1] = tile.row<W>(1, group, input.inputs);
        }
        part_sums<W, COLUMNS, DEPTH, WHOLE, BATCH>(sums, own[0], own[1], input, rows, shared, there);
        // The tile is found anew: nothing of it stays in registers that way.
        asm volatile("" : "+r"(index));
        Tile tile;
        bool exists = find(tile, index);
        if (!ROUNDS) {
            // What was there is the tokens.
            __syncthreads();
        }
        float *all = reinterpret_cast<float *>(shared + sums_at);
        all += threadIdx.x / TILE_THREADS * (PARTS * CAPACITY * HALF_ROWS);
        unsigned lane = threadIdx.x % WARP, part = threadIdx.x / WARP % PARTS;
#pragma unroll
        for (unsigned column = 0; column < COLUMNS; column++) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                unsigned token = column * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8;
                all[(part * CAPACITY + token) * HALF_ROWS + row] = sums[column][i];
            }
        }
        __syncthreads();
        if (exists) {
            finish<W, HALF_ROWS>(tile, rows, all, CAPACITY);
        }
        if (!ROUNDS) {
            return;
        }
        index += gridDim.y * gridDim.z * (blockDim.x / TILE_THREADS);
        // None of the block's tiles is there any more where its first one isn't.
        if (!find(tile, index - threadIdx.x / TILE_THREADS)) {
            return;
        }
    }
}
