// How blocks of the cache come to shared memory, and how they lie there for tensor cores: a tile of
// f16 or bf16, which is what was copied (`Halves`) or made of 8-bit elements (`Bytes`). Either
// copies the next block while the one before is computed on.
#pragma once

#include "attention.cuh"

// A tile in shared memory. Rows of keys are 64 bytes; their four quarters change places so that
// eight rows lie in different banks. Rows of values have 16 bytes more than they need, to the same
// end.
template <uint32_t D> struct Stage {
    static constexpr uint32_t KEYS = 2 * D * KV_BLOCK;
    static constexpr uint32_t VALUE_ROW = 2 * D + 16;
    static constexpr uint32_t BYTES = KEYS + VALUE_ROW * KV_BLOCK;

    static INLINE uint32_t key(uint32_t row, uint32_t quarter) {
        return row * 64 + (quarter ^ (row >> 1 & 3)) * 16;
    }
    static INLINE uint32_t value(uint32_t row, uint32_t part) {
        return KEYS + row * VALUE_ROW + part * 16;
    }
};

// Those who work on a tile together: all threads of the block, or a warp on its own.
struct WholeBlock {
    uint32_t thread = threadIdx.x, threads = blockDim.x;
    static INLINE void wait() { __syncthreads(); }
};
struct OneWarp {
    uint32_t thread = threadIdx.x % WARP;
    static constexpr uint32_t threads = WARP;
    static INLINE void wait() { __syncwarp(); }
};

// Where the tile's head lies in block `block` of its sequence, counted in heads of a block.
INLINE size_t stored_head(const Attention &a, const Tile &tile, uint32_t block) {
    size_t stored = a.tables[size_t(tile.sequence) * a.table_stride + block];
    return stored * a.kv_heads + tile.kv_head;
}

// Blocks of halves in two stages. Nobody knows what lies behind the context: zeros are taken for
// it, since a weight of zero is no help against infinite values.
template <typename T, uint32_t D> struct Halves {
    using Element = T;
    static constexpr uint32_t DIM = D;
    static constexpr uint32_t BYTES = 2 * Stage<D>::BYTES;

    const Attention &a;
    const Tile &tile;
    unsigned char *shared;
    // Where the tile is that was taken last; the other stage is there for the next one.
    uint32_t taken = Stage<D>::BYTES;

    INLINE Halves(const Attention &a, const Tile &tile, unsigned char *shared)
        : a(a), tile(tile), shared(shared) {}
    // Starts to copy a block.
    template <typename Team> INLINE void start(const Team &team, uint32_t block) const {
        unsigned char *stage = shared + (Stage<D>::BYTES - taken);
        size_t offset = stored_head(a, tile, block) * (2 * D * KV_BLOCK);
        auto keys = static_cast<const unsigned char *>(a.k) + offset;
        auto values = static_cast<const unsigned char *>(a.v) + offset;
#pragma unroll 4
        for (uint32_t i = team.thread; i < 4 * D; i += team.threads) {
            copy_async(stage + Stage<D>::key(i / 4, i % 4), keys + i * 16);
        }
#pragma unroll 4
        for (uint32_t i = team.thread; i < 4 * D; i += team.threads) {
            uint32_t row = i / (D / 8), part = i % (D / 8);
            bool filled = block * KV_BLOCK + row < tile.context;
            copy_async(stage + Stage<D>::value(row, part), values + i * 16, filled);
        }
        copy_commit();
    }
    // The tile of `block`, which was started last. `next` is started if it is before `last`.
    template <typename Team>
    INLINE const unsigned char *take(const Team &team, uint32_t, uint32_t next, uint32_t last) {
        copy_wait<0>();
        // Also says that nobody is at the other stage any more.
        team.wait();
        taken = Stage<D>::BYTES - taken;
        if (next < last) {
            start(team, next);
        }
        return shared + taken;
    }
};

// Blocks of 8-bit elements: a tile of f16, and what was copied. The copy of a block is free for the
// next one as soon as there is a tile of it.
template <typename Form, uint32_t D> struct Bytes {
    using Element = f16_t;
    static constexpr uint32_t DIM = D;
    // Of a head's keys in a block, and of its values.
    static constexpr uint32_t COPIED = Form::ROW_BYTES * D;
    static constexpr uint32_t BYTES = Stage<D>::BYTES + 2 * COPIED;
    // Where the tile is.
    static constexpr uint32_t taken = 0;

    const Attention &a;
    const Tile &tile;
    unsigned char *shared;

    INLINE Bytes(const Attention &a, const Tile &tile, unsigned char *shared)
        : a(a), tile(tile), shared(shared) {}
    template <typename Team> INLINE void start(const Team &team, uint32_t block) const {
        unsigned char *copy = shared + Stage<D>::BYTES;
        size_t offset = stored_head(a, tile, block) * COPIED;
        auto keys = static_cast<const unsigned char *>(a.k) + offset;
        auto values = static_cast<const unsigned char *>(a.v) + offset;
#pragma unroll 4
        for (uint32_t i = 16 * team.thread; i < COPIED; i += 16 * team.threads) {
            copy_async(copy + i, keys + i);
            copy_async(copy + COPIED + i, values + i);
        }
        copy_commit();
    }
    template <typename Team>
    INLINE const unsigned char *take(const Team &team, uint32_t block, uint32_t next,
                                     uint32_t last) {
        copy_wait<0>();
        // Also says that nobody is at the tile any more.
        team.wait();
        const unsigned char *copy = shared + Stage<D>::BYTES;
        Form::template convert<D>(team, copy, copy + COPIED, tile.context - block * KV_BLOCK,
                                  shared);
        team.wait();
        if (next < last) {
            start(team, next);
        }
        return shared;
    }
};

// The forms of 8-bit elements. `ROW_BYTES` has 32 elements at one position, or 32 positions of one
// element with their share of scales. `convert` makes a tile of keys and values, of which the first
// `filled` positions are real: zeros are taken for the values of others, as above.

// f8, one by one.
struct EachAlone {
    static constexpr uint32_t ROW_BYTES = 32;

    static INLINE void store(unsigned char *to, uint2 codes) {
        uint2 low = halves_of_f8(codes.x), high = halves_of_f8(codes.y);
        *reinterpret_cast<uint4 *>(to) = {low.x, low.y, high.x, high.y};
    }
    template <uint32_t D, typename Team>
    static INLINE void convert(const Team &team, const unsigned char *keys,
                               const unsigned char *values, uint32_t filled, unsigned char *tile) {
#pragma unroll 4
        for (uint32_t i = team.thread; i < 4 * D; i += team.threads) {
            store(tile + Stage<D>::key(i / 4, i % 4), reinterpret_cast<const uint2 *>(keys)[i]);
        }
#pragma unroll 4
        for (uint32_t i = team.thread; i < 4 * D; i += team.threads) {
            uint32_t row = i / (D / 8), part = i % (D / 8);
            uint2 codes = {0, 0};
            if (row < filled) {
                codes = reinterpret_cast<const uint2 *>(values)[i];
            }
            store(tile + Stage<D>::value(row, part), codes);
        }
    }
};

// q8_0: a group of keys has the scales of 32 positions, then their integers, a row per element; a
// group of values, at one position, a scale and 32 integers. A warp takes a group of 32 positions.
struct InGroups {
    static constexpr uint32_t ROW_BYTES = 34;

    // Numbers of 8 bits times two scales each, all rounded once.
    static INLINE void store(unsigned char *to, const uint32_t (&integers)[2],
                             const uint4 &scales) {
        uint2 low = halves_of_i8(integers[0]), high = halves_of_i8(integers[1]);
        *reinterpret_cast<uint4 *>(to) = {
            multiply_halves(low.x, scales.x), multiply_halves(low.y, scales.y),
            multiply_halves(high.x, scales.z), multiply_halves(high.y, scales.w)};
    }
    template <uint32_t D, typename Team>
    static INLINE void convert(const Team &team, const unsigned char *keys,
                               const unsigned char *values, uint32_t filled, unsigned char *tile) {
        constexpr uint32_t GROUPS = D / 32;
#pragma unroll 1
        for (uint32_t i = team.thread / WARP; i < 2 * GROUPS; i += team.threads / WARP) {
            if (i < GROUPS) {
                convert_keys<D>(keys, i, tile);
            } else {
                convert_values<D>(values, i - GROUPS, filled, tile);
            }
        }
    }
    // A lane has 8 positions of 4 elements.
    template <uint32_t D>
    static INLINE void convert_keys(const unsigned char *keys, uint32_t group,
                                    unsigned char *tile) {
        uint32_t lane = threadIdx.x % WARP;
        const unsigned char *from = keys + group * (ROW_BYTES * KV_BLOCK);
        uint4 scales = reinterpret_cast<const uint4 *>(from)[lane % 4];
        auto integers = reinterpret_cast<const uint2 *>(from + 2 * KV_BLOCK) + lane;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint2 eight = integers[i * WARP];
            uint32_t row = 32 * group + 8 * i + lane / 4;
            store(tile + Stage<D>::key(row, lane % 4), {eight.x, eight.y}, scales);
        }
    }
    // A lane has a position. Its integers begin in the middle of a word or at the next one.
    template <uint32_t D>
    static INLINE void convert_values(const unsigned char *values, uint32_t group,
                                      uint32_t filled, unsigned char *tile) {
        // Lanes whose positions lie in different banks; the next ones take another group, and with
        // it other banks.
        constexpr uint32_t APART = D % 128 != 0 ? 32 : D % 256 != 0 ? 16 : 8;
        uint32_t position = threadIdx.x % WARP;
        group ^= 2 * (position / APART);
        uint32_t index = position * (D / 32) + group;
        auto words = reinterpret_cast<const uint32_t *>(values) + 17 * index / 2;
        uint32_t scale_bytes = index % 2 == 0 ? 0x1010 : 0x3232;
        uint32_t number_bytes = index % 2 == 0 ? 0x5432 : 0x7654;
        uint32_t own[9] = {};
        if (position < filled) {
#pragma unroll
            for (uint32_t i = 0; i < 9; i++) {
                own[i] = words[i];
            }
        }
        uint32_t scale = __byte_perm(own[0], 0, scale_bytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            store(tile + Stage<D>::value(position, 4 * group + i),
                  {__byte_perm(own[2 * i], own[2 * i + 1], number_bytes),
                   __byte_perm(own[2 * i + 1], own[2 * i + 2], number_bytes)},
                  {scale, scale, scale, scale});
        }
    }
    // Four integers as two pairs of f16. Behind the exponent of 1024, an integer's bits with the sign
    // turned over are 1024 + 128 more than the number.
    static INLINE uint2 halves_of_i8(uint32_t four) {
        uint32_t bits = four ^ 0x80808080;
        return {subtract_halves(__byte_perm(bits, 0x64, 0x4140), 0x64806480),
                subtract_halves(__byte_perm(bits, 0x64, 0x4342), 0x64806480)};
    }
};

// The forms by the names that kernels have.
template <uint32_t D> using bf16_blocks = Halves<bf16_t, D>;
template <uint32_t D> using f16_blocks = Halves<f16_t, D>;
template <uint32_t D> using f8_blocks = Bytes<EachAlone, D>;
template <uint32_t D> using q8_0_blocks = Bytes<InGroups, D>;
