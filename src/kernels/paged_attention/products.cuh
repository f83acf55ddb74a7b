// Attention of a warp's 16 rows to one block of the cache, by tensor cores.
#pragma once

#include "stages.cuh"

// The 16 queries of a warp as left operands. Those of large heads stay in shared memory, for lack
// of registers.
template <typename T, uint32_t D> struct Queries {
    static constexpr bool SHARED = D > 192;
    static constexpr uint32_t BYTES = SHARED ? 32 * D : 0;
    uint32_t own[SHARED ? 1 : D / 16][4];
    uint4 *shared;

    // `writes` says whether this warp is the one that fills the shared memory at `to`.
    INLINE void load(const Attention &a, const Row (&rows)[2], unsigned char *to, bool writes) {
        uint32_t lane = threadIdx.x % WARP;
        shared = reinterpret_cast<uint4 *>(to) + lane;
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step++) {
            uint32_t packed[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                packed[i] = 0;
                if (rows[i % 2].used) {
                    const float *q = a.q + rows[i % 2].index(a) * D + 16 * step + 8 * (i / 2);
                    float2 pair = reinterpret_cast<const float2 *>(q)[lane % 4];
                    packed[i] = pack<T>(pair.x, pair.y);
                }
            }
            if (SHARED && writes) {
                shared[step * WARP] = {packed[0], packed[1], packed[2], packed[3]};
            }
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                own[SHARED ? 0 : step][i] = packed[i];
            }
        }
    }
    INLINE void operand(uint32_t step, uint32_t (&to)[4]) const {
        if (SHARED) {
            uint4 all = shared[step * WARP];
            to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                to[i] = own[SHARED ? 0 : step][i];
            }
        }
    }
};

// Weighted values and sums of a warp's 16 rows, as a product's result lies over the lanes: lane
// 4 g + t has columns of rows g and g + 8.
template <uint32_t D> struct Records {
    float values[D / 8][4];
    // The totals are those of the lane's own columns.
    Sum sums[2];

    INLINE void clear() {
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++) {
            values[n][0] = values[n][1] = values[n][2] = values[n][3] = 0;
        }
        sums[0] = sums[1] = Sum{};
    }
    // Writes one of the lane's rows, all lanes' columns of which become a record at `to`.
    INLINE void write(uint32_t row, float *to) const {
        uint32_t lane = threadIdx.x % WARP;
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++) {
            float2 pair = {values[n][2 * row], values[n][2 * row + 1]};
            reinterpret_cast<float2 *>(to)[4 * n + lane % 4] = pair;
        }
        if (lane % 4 == 0) {
            to[D] = sums[row].largest;
            to[D + 1] = sums[row].total;
        }
    }
    // Makes totals those of whole rows.
    INLINE void add_columns() {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            float total = sums[i].total;
            total = __fadd_rn(total, __shfl_xor_sync(0xffffffff, total, 1));
            sums[i].total = __fadd_rn(total, __shfl_xor_sync(0xffffffff, total, 2));
        }
    }
};

// Adds the block whose tile is at `stage`, and which starts at position `base`.
template <typename T, uint32_t D>
INLINE void add_block(const Scaling &scaling, bool sloped, const Queries<T, D> &queries,
                      const Masks &masks, const unsigned char *stage, uint32_t base,
                      Records<D> &records) {
    uint32_t lane = threadIdx.x % WARP;
    float scores[4][4] = {};
#pragma unroll
    for (uint32_t step = 0; step < D / 16; step++) {
        uint32_t left[4];
        queries.operand(step, left);
#pragma unroll
        for (uint32_t pair = 0; pair < 2; pair++) {
            uint32_t right[4];
            load_matrices_transposed(
                right, stage + Stage<D>::key(16 * step + lane % 16, 2 * pair + lane / 16));
            mma_16_8_16<T>(scores[2 * pair], left, {right[0], right[1]});
            mma_16_8_16<T>(scores[2 * pair + 1], left, {right[2], right[3]});
        }
    }
    // Element e of scores[n]: row e / 2 of the lane's two, this column of the block.
    auto column = [&](uint32_t n, uint32_t e) { return 8 * n + 2 * (lane % 4) + e % 2; };
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        scores[i / 4][i % 4] = __fmul_rn(scores[i / 4][i % 4], scaling.inner);
    }
    if (scaling.capped) {
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            scores[i / 4][i % 4] = __fmul_rn(tanhf(scores[i / 4][i % 4]), scaling.outer);
        }
    }
    if (sloped) {
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t row = i % 4 / 2;
            float distance = masks.distance(row, base + column(i / 4, i % 4));
            scores[i / 4][i % 4] = fmaf(-masks.slopes[row], distance, scores[i / 4][i % 4]);
        }
    }
    bool changed = false;
    float factors[2];
#pragma unroll
    for (uint32_t row = 0; row < 2; row++) {
        Visible seen = masks.seen[row];
        if (base < seen.start || base + KV_BLOCK > seen.end) {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) {
                float &score = scores[i / 2][2 * row + i % 2];
                uint32_t position = base + column(i / 2, i % 2);
                score = position >= seen.start && position < seen.end ? score : NOTHING;
            }
        }
        float largest = NOTHING;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            largest = fmaxf(largest, scores[i / 2][2 * row + i % 2]);
        }
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        Sum &sum = records.sums[row];
        largest = fmaxf(largest, sum.largest);
        factors[row] = weight(sum.largest, largest);
        changed |= factors[row] != 1;
        float total = 0;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            float &score = scores[i / 2][2 * row + i % 2];
            score = weight(score, largest);
            total = __fadd_rn(total, score);
        }
        sum = {largest, fmaf(sum.total, factors[row], total)};
    }
    // Factors of one need no products.
    if (__ballot_sync(0xffffffff, changed) != 0) {
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++) {
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                records.values[n][e] = __fmul_rn(records.values[n][e], factors[e / 2]);
            }
        }
    }
#pragma unroll
    for (uint32_t step = 0; step < 2; step++) {
        const float(&first)[4] = scores[2 * step], (&second)[4] = scores[2 * step + 1];
        uint32_t left[4] = {pack<T>(first[0], first[1]), pack<T>(first[2], first[3]),
                            pack<T>(second[0], second[1]), pack<T>(second[2], second[3])};
#pragma unroll
        for (uint32_t pair = 0; pair < D / 16; pair++) {
            uint32_t right[4];
            load_matrices_transposed(
                right, stage + Stage<D>::value(16 * step + lane % 16, 2 * pair + lane / 16));
            mma_16_8_16<T>(records.values[2 * pair], left, {right[0], right[1]});
            mma_16_8_16<T>(records.values[2 * pair + 1], left, {right[2], right[3]});
        }
    }
}
