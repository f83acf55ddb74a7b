// Products of few tokens with packed quantized matrices, by tensor cores on bytes.
//
// Tokens are quantized as on the CPU: 32 inputs share a scale, the largest becomes 127. Products within
// a sub-block are summed as integers, exactly; then scales are applied.
//
// A sum has one order, whatever the tokens beside it, the kernel and its finish: sub-block s belongs to
// part s % 8, a part adds its sub-blocks in ascending order, and the sums of the parts are added in
// ascending order.
#pragma once

#include "../linear/linear.cuh"
#include "formats.cuh"

namespace packed {

// Matrix rows of a tile: two runs of 16.
constexpr unsigned ROWS = 32, RUN = ROWS / 2;
// Columns of 8 tokens whose sums are finished together.
constexpr unsigned FINISHED = 2;

// Sub-blocks of two runs of rows that a lane has under way, for products with some columns: as many as
// have room in its registers beside the sums.
template <typename F, unsigned COLUMNS> struct Depth {
    static constexpr unsigned REGISTERS = 2 * sizeof(F) / sizeof(uint32_t);
    static constexpr unsigned ROOM = (COLUMNS == 1 ? 64 : 22) / REGISTERS;
    static constexpr unsigned MOST = COLUMNS == 1 ? 4 : 2;
    static constexpr unsigned VALUE = ROOM < 1 ? 1 : ROOM < MOST ? ROOM : MOST;
};

// Of 32 inputs of a token: their scale, and sums of the first and the last 16 quantized ones.
struct alignas(8) Head {
    float scale;
    int16_t sums[2];
};

// Bytes of a quantized token in memory: its values, then heads, an even number of them.
INLINE size_t row_bytes(unsigned inputs) {
    return inputs + (inputs / SUB_BLOCK + 1) / 2 * 2 * sizeof(Head);
}
// Bytes of a token in shared memory: neighbours are a quarter of all banks apart.
INLINE unsigned token_bytes(unsigned stage) { return stage / 4 * 5 + 32; }

// Where four values of a group are among the 32 of a sub-block: groups g and g + 4 side by side, as one
// lane multiplies them.
INLINE unsigned place_of(unsigned group) { return group % 4 * 8 + group / 4 * 4; }

// Quantizes four inputs of each of eight neighbouring lanes, which are a sub-block. All lanes of a warp
// take part; the result of those with `valid` is written.
INLINE void quantize(const float (&x)[4], bool valid, unsigned char *values, Head *head) {
    unsigned group = threadIdx.x % 8;
    float largest = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
#pragma unroll
    for (unsigned distance = 4; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
    }
    float inverse = largest > 0 ? __fdiv_rn(127.0f, largest) : 0;
    uint32_t bytes = 0;
    int sum = 0;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        int value = __float2int_rn(__fmul_rn(x[i], inverse));
        bytes |= (uint32_t(value) & 0xff) << 8 * i;
        sum += value;
    }
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    int other = __shfl_xor_sync(0xffffffff, sum, 4);
    if (valid) {
        *reinterpret_cast<uint32_t *>(values + place_of(group)) = bytes;
        if (group == 0) {
            *head = {__fdiv_rn(largest, 127.0f), {int16_t(sum), int16_t(other)}};
        }
    }
}

// Four inputs of a row of f32 times a factor.
INLINE void load_inputs(float (&to)[4], const float *row, float factor) {
    float4 all = __ldg(reinterpret_cast<const float4 *>(row));
    to[0] = __fmul_rn(all.x, factor), to[1] = __fmul_rn(all.y, factor);
    to[2] = __fmul_rn(all.z, factor), to[3] = __fmul_rn(all.w, factor);
}

// Starts to bring the inputs `[from, from + stage)` of all tokens to shared memory, quantized. If NORMS and the
// input has a norm, numbers are multiplied by `factors` and by the norm's scale.
template <bool NORMS, typename Tokens>
INLINE void fill(unsigned char *to, const Input &input, const Tokens &tokens, unsigned from,
                 const float (&factors)[NORMED]) {
    unsigned filled = min(input.inputs - from, input.stage), bytes = token_bytes(input.stage);
    if (input.rounded) {
        // In pieces of 16 bytes: of values, then of heads, which are an even number in memory too.
        unsigned values = filled / 16, all = values + (filled / SUB_BLOCK + 1) / 2;
        for (unsigned i = threadIdx.x; i < tokens.count * all; i += blockDim.x) {
            unsigned token = i / all, piece = i % all, head = piece - values;
            const unsigned char *row = static_cast<const unsigned char *>(input.x) +
                                       tokens.source(token) * row_bytes(input.inputs);
            const unsigned char *source = piece < values
                                              ? row + from + 16 * piece
                                              : row + input.inputs + from / 4 + 16 * head;
            unsigned place = piece < values ? 16 * piece : input.stage + 16 * head;
            copy_async(to + token * bytes + place, source);
        }
        copy_commit();
        return;
    }
    unsigned subs = filled / SUB_BLOCK, each = blockDim.x / 8, group = threadIdx.x % 8;
    for (unsigned first = 0; first < tokens.count * subs; first += each) {
        unsigned i = first + threadIdx.x / 8;
        bool valid = i < tokens.count * subs;
        unsigned token = valid ? i / subs : 0, sub = valid ? i % subs : 0;
        const float *row =
            static_cast<const float *>(input.x) + tokens.source(token) * input.inputs;
        float x[4];
        unsigned at = from + sub * SUB_BLOCK + 4 * group;
        if (NORMS && input.norm != nullptr) {
            float scale[4];
            load_inputs(x, row + at, factor_of(factors, token));
            load_inputs(scale, input.norm + at, 1);
#pragma unroll
            for (unsigned k = 0; k < 4; k++) {
                x[k] = __fmul_rn(x[k], scale[k]);
            }
        } else {
            load_inputs(x, row + at, tokens.factor(token));
        }
        unsigned char *own = to + token * bytes;
        auto *heads = reinterpret_cast<Head *>(own + input.stage);
        quantize(x, valid, own + sub * SUB_BLOCK, heads + sub);
    }
}

// Adds the products of a sub-block of two runs of rows with 8 tokens in each column. `x` is the stage's,
// `sub` the sub-block's place in it.
template <typename F, unsigned COLUMNS>
INLINE void add_sub_block(float (&sums)[2][COLUMNS][4], const F (&weights)[2], const unsigned char *x,
                          unsigned sub, unsigned stage, unsigned count) {
    unsigned g = threadIdx.x % WARP / 4, t = threadIdx.x % 4, bytes = token_bytes(stage);
    uint32_t a[2][4];
    float scale[2][2][F::HALVES], least[2][2];
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
        unsigned run = i / 4, row = i % 2, half = i / 2 % 2;
        a[run][i % 4] = weights[run].values.get(row, half, t);
        if (half < F::HALVES) {
            scale[run][row][half] = weights[run].scale(row, half);
        }
        least[run][row] = weights[run].min(row);
    }
#pragma unroll
    for (unsigned column = 0; column < COLUMNS; column++) {
        // The same for all lanes: whether there are tokens.
        if (column > 0 && column * 8 >= count) {
            break;
        }
        // Places without a token repeat the last one.
        unsigned own = min(column * 8 + g, count - 1) * bytes;
        uint2 b = *reinterpret_cast<const uint2 *>(x + own + sub * SUB_BLOCK + 8 * t);
        Head heads[2];
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            unsigned token = min(column * 8 + 2 * t + i, count - 1) * bytes;
            heads[i] = reinterpret_cast<const Head *>(x + token + stage)[sub];
        }
#pragma unroll
        for (unsigned run = 0; run < 2; run++) {
#pragma unroll
            for (unsigned half = 0; half < F::HALVES; half++) {
                int own_sums[4];
#pragma unroll
                for (unsigned i = 0; i < 4; i++) {
                    const int16_t(&of)[2] = heads[i % 2].sums;
                    int sum = F::HALVES == 2 ? int(of[half]) : of[0] + of[1];
                    own_sums[i] = -F::OFFSET * sum;
                }
                if constexpr (F::HALVES == 2) {
                    mma_16_8_16(own_sums, a[run][2 * half], a[run][2 * half + 1], half ? b.y : b.x);
                } else {
                    mma_16_8_32(own_sums, a[run], {b.x, b.y});
                }
#pragma unroll
                for (unsigned i = 0; i < 4; i++) {
                    const Head &head = heads[i % 2];
                    float &sum = sums[run][column][i], product = float(own_sums[i]);
                    if constexpr (F::MINS) {
                        float all = least[run][i / 2] * float(head.sums[0] + head.sums[1]);
                        sum = fmaf(fmaf(scale[run][i / 2][half], product, all), head.scale, sum);
                    } else {
                        sum = fmaf(product, scale[run][i / 2][half] * head.scale, sum);
                    }
                }
            }
        }
    }
}

// The part's sums of a tile with 8 tokens in each column, laid out as by `mma_16_8_32`, but for rows:
// those of a lane are neighbours.
template <typename F, unsigned COLUMNS, typename Tokens>
INLINE void part_sums(float (&sums)[2][COLUMNS][4], const Rows<F> (&rows)[2], const Input &input,
                      const Tokens &tokens, unsigned char *shared) {
    unsigned t = threadIdx.x % 4, count = input.inputs / SUB_BLOCK;
    unsigned part = threadIdx.x / WARP % PARTS, stage = input.stage / SUB_BLOCK;
    constexpr unsigned DEPTH = Depth<F, COLUMNS>::VALUE;
    // Sub-blocks under way; each index is known when this is compiled, so that they are registers.
    F ring[DEPTH][2] = {};
    auto load = [&](F(&to)[2], unsigned sub_block) {
        if (sub_block < count) {
            rows[0].load(to[0], sub_block, t);
            rows[1].load(to[1], sub_block, t);
        }
    };
#pragma unroll
    for (unsigned i = 0; i < DEPTH; i++) {
        load(ring[i], part + i * PARTS);
    }
#pragma unroll
    for (unsigned i = 0; i < 2 * COLUMNS * 4; i++) {
        sums[i / 4 / COLUMNS][i / 4 % COLUMNS][i % 4] = 0;
    }
    float factors[NORMED] = {};
    if constexpr (COLUMNS == 1) {
        norm_factors(factors, input, tokens, reinterpret_cast<float *>(shared));
    }
    fill<COLUMNS == 1>(shared, input, tokens, 0, factors);

    // Where rounds and stages begin; the buffer of the stage, and that of the next.
    unsigned round = 0, next_stage = 0, spare = 0;
    const unsigned char *x = shared;
    while (round < count) {
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            if (round >= count) {
                break;
            }
            if (round == next_stage) {
                copy_wait<0>();
                // All see the stage that begins, and nobody reads the one before any more.
                __syncthreads();
                x = shared + spare;
                spare = tokens.count * token_bytes(input.stage) - spare;
                next_stage += stage;
                if (next_stage < count) {
                    fill<false>(shared + spare, input, tokens, next_stage * SUB_BLOCK, factors);
                }
            }
            unsigned own = round + part;
            // The same for all lanes: whether there is the sub-block.
            if (own < count) {
                add_sub_block<F, COLUMNS>(sums, ring[i], x, own - (next_stage - stage), input.stage,
                                          tokens.count);
            }
            load(ring[i], own + DEPTH * PARTS);
            round += PARTS;
        }
    }
}

// Some of the tokens.
template <typename Tokens> struct Some {
    const Tokens &all;
    unsigned first;
    uint32_t count;
    INLINE size_t target(unsigned token) const { return all.target(first + token); }
};

// A tile for each TILE_THREADS threads of a block, all with the same tokens. `find(tile, index)`
// says which; where it says that there is none, threads only help to bring the tokens.
template <typename F, unsigned COLUMNS, typename Find, typename Tokens>
INLINE void product(const Find &find, const Input &input, const Tokens &tokens) {
    constexpr unsigned TOGETHER = COLUMNS < FINISHED ? COLUMNS : FINISHED, CAPACITY = 8 * TOGETHER;
    DYNAMIC_SHARED(shared);
    float sums[2][COLUMNS][4];
    unsigned index = grid_row() * (blockDim.x / TILE_THREADS) + threadIdx.x / TILE_THREADS;
    unsigned lane = threadIdx.x % WARP, part = threadIdx.x / WARP % PARTS;
    {
        Tile tile;
        find(tile, index);
        unsigned own = lane / 4 * 2;
        const Rows<F> rows[2] = {{tile.weight[0], tile.first[0] + own, input.inputs},
                                 {tile.weight[1], tile.first[1] + own, input.inputs}};
        part_sums<F, COLUMNS>(sums, rows, input, tokens, shared);
    }
    // The tile is found anew: nothing of it stays in registers that way.
    asm volatile("" : "+r"(index));
    Tile tile;
    bool exists = find(tile, index);
    float *all = reinterpret_cast<float *>(shared);
    all += threadIdx.x / TILE_THREADS * (PARTS * CAPACITY * ROWS);
#pragma unroll
    for (unsigned first = 0; first < COLUMNS; first += TOGETHER) {
        if (first * 8 >= tokens.count) {
            break;
        }
        // What was there is the tokens, or sums that are finished.
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < 2 * TOGETHER * 4; i++) {
            unsigned run = i / 4 / TOGETHER, column = i / 4 % TOGETHER;
            unsigned token = column * 8 + lane % 4 * 2 + i % 2, row = lane / 4 * 2 + i / 2 % 2;
            all[(part * CAPACITY + token) * ROWS + run * RUN + row] =
                sums[run][first + column][i % 4];
        }
        __syncthreads();
        if (exists) {
            Some<Tokens> some{tokens, first * 8, min(tokens.count - first * 8, CAPACITY)};
            finish<bf16_t, ROWS>(tile, some, all, CAPACITY);
        }
    }
}

} // namespace packed
