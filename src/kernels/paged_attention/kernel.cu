// Attention over the paged KV cache, for any mix of prefill chunks and single tokens.
//
// What it means, and the cache's layout, are those of `paged_attention/mod.rs` and `kv_format.rs`:
// keys transposed, [num_blocks, kv_heads, key_dim, 32], values [num_blocks, kv_heads, 32, value_dim].
//
// A query's result is the same to the bit whatever else is in the batch, however its prompt was
// cut, and for any grid. The context is cut into spans of 256 positions at multiples of 256. Inside
// a span, blocks of 32 positions are taken in ascending order by online softmax (Milakov and
// Gimelshein, 2018) from a fresh state; `merge` then joins the spans in ascending order. A block or
// span of which a row sees nothing changes nothing of the row, so it makes no difference which rows
// share a tile. Products and sums are written out as fmaf, __fmul_rn and __fadd_rn, so that no
// compiler fuses them in one kernel and not in another. Scores are kept in base 2.
//
// A tile holds rows of one KV head, a row being a query and a query head. With R rows in a tile and
// `group = heads / kv_heads`:
//     parts = ceil(group / R)                      a larger group takes several tiles
//     queries_per_tile = R / ceil(group / parts)
//     grid = [T / queries_per_tile + S, kv_heads * parts, splits]
// Tiles find their sequence on the device; those that find no rows leave.
//
// Dynamic shared bytes, where D = key_dim = value_dim, and X bytes hold blocks of the cache:
//     bf16, f16  X = 256 D + 1024    two blocks, in turn
//     f8         X = 192 D + 512     a block as halves, one as it was copied
//     q8_0       X = 196 D + 512     the same
// attention_prefill_{bf16,f16,f8,q8_0}_{64,80,96,128,192,256}, but no q8_0_80
//     threads 32 W, W of 1..4, R = 16 W, splits = 1
//     shared  X + 64 D W + (D > 192 ? 32 D W : 0)
// attention_decode_{bf16,f16,f8,q8_0}_{64,80,96,128,192,256}, but no q8_0_80
//     threads 32 W, W of 1..4, R = 16; a warp takes whole spans
//     shared  X W + (D > 192 ? 32 D : 0) + (any context may be whole ? 64 D + 528 : 0)
// attention_any_{f32,f16,bf16,f8,q8_0}, any key_dim and value_dim
//     threads 128, R = 8
//     shared  32 key_dim + 64 value_dim + 2176
// attention_merge, after one of the last two if splits > 1
//     grid [T, heads, 1], threads value_dim rounded up to 32 and at most 256, shared 0
// With splits > 1, contexts of more than `whole_spans` spans are split: the blocks of z share their
// spans and leave records in `partials`, which holds partial_rows * heads * spans * (value_dim + 2)
// floats, where `spans` is ceil(c / 256) for a c that no context exceeds. The block of z = 0 takes
// any other context as a whole, also that of a long sequence whose records have no room any more.
//
// Rows of a sequence without context get zeros. Rows behind the last of `cu_seqlens` stay as they
// are. Prefill and decode forms give the same bits; those of `any` differ a little. For 8-bit
// caches the former compute with f16: f8 is exact in it; a number of q8_0 times its scale is
// rounded, and may be too large, as it would be for an f16 cache.
#include "attention.cuh"
#include "products.cuh"

// The warps of a block share what is staged, 16 rows for each. What they found in the spans before
// waits in shared memory: both it and the span's own would not fit into registers.
template <typename Blocks> INLINE void prefill(const Attention &a) {
    using T = typename Blocks::Element;
    constexpr uint32_t D = Blocks::DIM;
    DYNAMIC_SHARED(shared);
    uint32_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    Tile tile;
    // The last tiles of a prompt see most: they go first, those of all heads, as blocks start in the order of x.
    // Long ones that begin last would be waited for.
    uint32_t order = blockIdx.y * gridDim.x + blockIdx.x;
    if (!find_tile(a, gridDim.x - 1 - order / gridDim.y, order % gridDim.y, tile)) {
        return;
    }
    WholeBlock team;
    Blocks blocks(a, tile, shared);
    auto all = reinterpret_cast<float4 *>(shared + Blocks::BYTES) + warp * 4 * D + lane;
    unsigned char *scratch = shared + Blocks::BYTES + warps * 64 * D;
    Row rows[2] = {{tile, warp * 16 + lane / 4}, {tile, warp * 16 + lane / 4 + 8}};
    Queries<T, D> queries;
    queries.load(a, rows, scratch + warp * Queries<T, D>::BYTES, true);
    Masks masks(a, tile, rows);
    Records<D> records;
    records.clear();
    Sum sums[2];
#pragma unroll
    for (uint32_t n = 0; n < D / 8; n++) {
        all[n * WARP] = {0, 0, 0, 0};
    }
    Scaling scores = scaling(a);
    Visible seen = visible_to_tile(a, tile);
    uint32_t block = seen.start / KV_BLOCK, last = (seen.end + KV_BLOCK - 1) / KV_BLOCK;
    if (block < last) {
        blocks.start(team, block);
    }
    for (; block < last; block++) {
        const unsigned char *stage = blocks.take(team, block, block + 1, last);
        if (masks.sees(block)) {
            add_block<T, D>(scores, a.slopes != nullptr, queries, masks, stage, block * KV_BLOCK,
                            records);
        }
        if ((block + 1) % SPAN_BLOCKS == 0 || block + 1 == last) {
            records.add_columns();
            Factors upper = merge(sums[0], records.sums[0]);
            Factors lower = merge(sums[1], records.sums[1]);
#pragma unroll
            for (uint32_t n = 0; n < D / 8; n++) {
                float4 before = all[n * WARP];
                const float(&own)[4] = records.values[n];
                all[n * WARP] = {merged(before.x, own[0], upper), merged(before.y, own[1], upper),
                                 merged(before.z, own[2], lower), merged(before.w, own[3], lower)};
            }
            records.clear();
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (rows[i].used) {
            float factor = add_sink(a, rows[i].head, sums[i]), total = sums[i].total;
            size_t at = rows[i].index(a) * D + lane % 4 * 2;
#pragma unroll
            for (uint32_t n = 0; n < D / 8; n++) {
                float4 each = all[n * WARP];
                float2 own = i == 0 ? float2{each.x, each.y} : float2{each.z, each.w};
                store_pair(a.out, a.out_type, at + 8 * n, finished(own.x, factor, total),
                           finished(own.y, factor, total));
            }
        }
    }
}

// A tile of 16 rows whose spans are shared out: every warp stages blocks of its own. If there are
// no splits, spans are merged after each round of the warps; else records go to memory.
template <typename Blocks> INLINE void decode(const Attention &a) {
    using T = typename Blocks::Element;
    constexpr uint32_t D = Blocks::DIM;
    DYNAMIC_SHARED(shared);
    // Of a record in shared memory; what it has too many keeps rows in different banks.
    constexpr uint32_t RECORD = D + 8;
    uint32_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    Tile tile;
    if (!find_tile(a, gridDim.x - 1 - blockIdx.x, blockIdx.y, tile)) {
        return;
    }
    Split split = split_of(a, tile.sequence, tile.token, tile.queries);
    bool whole = !split.is;
    if (whole && blockIdx.z > 0) {
        return;
    }
    OneWarp team;
    Blocks blocks(a, tile, shared + warp * Blocks::BYTES);
    unsigned char *scratch = shared + warps * Blocks::BYTES;
    // [warps]: where among its bytes each has left its records.
    auto left_at = reinterpret_cast<uint32_t *>(scratch + Queries<T, D>::BYTES);
    // When records are merged, 2 W threads have a row, its columns shared out.
    uint32_t merged_row = threadIdx.x / (2 * warps), column = threadIdx.x % (2 * warps);
    float *all = reinterpret_cast<float *>(left_at + 4) + merged_row * RECORD;
    for (uint32_t i = column; whole && i < D; i += 2 * warps) {
        all[i] = 0;
    }
    Sum sum;

    // Where nothing of a context is hidden, the warp's first block is known before it is known what rows
    // see: it comes while queries do.
    uint32_t own_first = (warps * blockIdx.z + warp) * SPAN_BLOCKS;
    bool started = a.window == 0 && a.chunk == 0 && own_first * KV_BLOCK < tile.context;
    if (started) {
        blocks.start(team, own_first);
    }
    Row rows[2] = {{tile, lane / 4}, {tile, lane / 4 + 8}};
    Queries<T, D> queries;
    queries.load(a, rows, scratch, warp == 0);
    if (Queries<T, D>::SHARED) {
        __syncthreads();
    }
    Masks masks(a, tile, rows);
    Scaling scores = scaling(a);
    uint32_t first_block = masks.warp.start / KV_BLOCK;
    uint32_t last_block = (masks.warp.end + KV_BLOCK - 1) / KV_BLOCK;
    uint32_t last = (last_block + SPAN_BLOCKS - 1) / SPAN_BLOCKS, step = warps * (whole ? 1 : gridDim.z);
    uint32_t round = first_block / SPAN_BLOCKS + warps * blockIdx.z;
    uint32_t block = max((round + warp) * SPAN_BLOCKS, first_block);
    if (block < last_block && !started) {
        blocks.start(team, block);
    } else if (block >= last_block && started) {
        // None of the rows sees it.
        copy_wait<0>();
    }
    for (; round < last; round += step) {
        uint32_t span = round + warp;
        if (span < last) {
            Records<D> records;
            records.clear();
            for (bool more = true; more;) {
                uint32_t next = block + 1;
                more = next % SPAN_BLOCKS != 0 && next < last_block;
                if (next % SPAN_BLOCKS == 0) {
                    next += (step - 1) * SPAN_BLOCKS;
                }
                const unsigned char *stage = blocks.take(team, block, next, last_block);
                add_block<T, D>(scores, a.slopes != nullptr, queries, masks, stage,
                                block * KV_BLOCK, records);
                block = next;
            }
            records.add_columns();
            // The tile that came last is free.
            team.wait();
            auto own = reinterpret_cast<float *>(blocks.shared + blocks.taken);
            if (whole && lane == 0) {
                left_at[warp] = blocks.taken;
            }
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                if (whole) {
                    records.write(i, own + (lane / 4 + 8 * i) * RECORD);
                } else if (rows[i].used) {
                    records.write(i, rows[i].partial(a, tile, split, span));
                }
            }
        }
        if (whole) {
            __syncthreads();
            for (uint32_t i = 0; i < warps && round + i < last; i++) {
                const unsigned char *at = shared + i * Blocks::BYTES + left_at[i];
                const float *record = reinterpret_cast<const float *>(at) + merged_row * RECORD;
                Factors factors = merge(sum, sum_of(record, D));
                for (uint32_t j = column; j < D; j += 2 * warps) {
                    all[j] = merged(all[j], record[j], factors);
                }
            }
            __syncthreads();
        }
    }
    Row row(tile, merged_row);
    if (whole && row.used) {
        float factor = add_sink(a, row.head, sum);
        size_t at = row.index(a) * D;
        for (uint32_t i = column; i < D; i += 2 * warps) {
            store(a.out, a.out_type, at + i, finished(all[i], factor, sum.total));
        }
    }
}

// A head's elements in a block of the cache.
template <typename T> struct Plain {
    const T *keys, *values;
    uint32_t value_dim;

    INLINE Plain(const Attention &a, size_t head)
        : keys(static_cast<const T *>(a.k) + head * a.key_dim * KV_BLOCK),
          values(static_cast<const T *>(a.v) + head * a.value_dim * KV_BLOCK),
          value_dim(a.value_dim) {}
    INLINE float key(uint32_t i, uint32_t offset) const {
        return to_float(keys[i * KV_BLOCK + offset]);
    }
    INLINE float value(uint32_t offset, uint32_t i) const {
        return to_float(values[offset * value_dim + i]);
    }
};

// The same of q8_0. A group of keys has the scales of 32 positions, then their integers, a row per
// element; a group of values, at one position, a scale and 32 integers.
struct Grouped {
    static constexpr uint32_t GROUP = 32;
    static constexpr uint32_t GROUP_BYTES = 2 + GROUP;
    const unsigned char *keys, *values;
    uint32_t value_bytes;

    INLINE Grouped(const Attention &a, size_t head)
        : keys(static_cast<const unsigned char *>(a.k) +
               head * (a.key_dim / GROUP * GROUP_BYTES * KV_BLOCK)),
          values(static_cast<const unsigned char *>(a.v) +
                 head * (a.value_dim / GROUP * GROUP_BYTES * KV_BLOCK)),
          value_bytes(a.value_dim / GROUP * GROUP_BYTES) {}
    static INLINE float number(const unsigned char *scale, unsigned char bits) {
        return __fmul_rn(float(int8_t(bits)), to_float(*reinterpret_cast<const f16_t *>(scale)));
    }
    INLINE float key(uint32_t i, uint32_t offset) const {
        const unsigned char *group = keys + i / GROUP * GROUP_BYTES * KV_BLOCK;
        return number(group + 2 * offset, group[(2 + i % GROUP) * KV_BLOCK + offset]);
    }
    INLINE float value(uint32_t offset, uint32_t i) const {
        const unsigned char *group = values + offset * value_bytes + i / GROUP * GROUP_BYTES;
        return number(group, group[2 + i % GROUP]);
    }
};

// Any format and any head, in f32. A warp has the scores of two rows, a position in each lane; a
// thread has columns of the values, all rows of them.
template <typename Format> INLINE void any(const Attention &a) {
    DYNAMIC_SHARED(shared);
    constexpr uint32_t ROWS = 8;
    constexpr uint32_t THREADS = 128;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Tile tile;
    if (!find_tile(a, gridDim.x - 1 - blockIdx.x, blockIdx.y, tile)) {
        return;
    }
    Split split = split_of(a, tile.sequence, tile.token, tile.queries);
    bool whole = !split.is;
    if (whole && blockIdx.z > 0) {
        return;
    }
    auto q = reinterpret_cast<float *>(shared);       // [key_dim, 8]
    float *weights = q + a.key_dim * ROWS;            // [2, 32, 8]
    float *factors = weights + 2 * KV_BLOCK * ROWS;   // [2, 8]
    auto joints = reinterpret_cast<Factors *>(factors + 2 * ROWS); // [8]
    float *values = factors + 4 * ROWS;               // [8, value_dim]
    float *all = values + a.value_dim * ROWS;         // [8, value_dim]
    for (uint32_t i = threadIdx.x; i < a.key_dim * ROWS; i += THREADS) {
        Row row(tile, i / a.key_dim);
        uint32_t element = i % a.key_dim;
        q[element * ROWS + i / a.key_dim] =
            row.used ? a.q[row.index(a) * a.key_dim + element] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < a.value_dim; i += THREADS) {
        for (uint32_t row = 0; row < ROWS; row++) {
            all[row * a.value_dim + i] = 0;
        }
    }
    __syncthreads();
    Row rows[2] = {{tile, 2 * warp}, {tile, 2 * warp + 1}};
    Masks masks(a, tile, rows);
    Scaling scores = scaling(a);
    Visible seen = visible_to_tile(a, tile);
    uint32_t first_block = seen.start / KV_BLOCK;
    uint32_t last_block = (seen.end + KV_BLOCK - 1) / KV_BLOCK;
    uint32_t span = first_block / SPAN_BLOCKS + blockIdx.z, odd = 0;
    Sum sums[2];
    for (; span * SPAN_BLOCKS < last_block; span += whole ? 1 : gridDim.z) {
        Sum here[2];
        uint32_t block = max(span * SPAN_BLOCKS, first_block);
        uint32_t end = min((span + 1) * SPAN_BLOCKS, last_block);
        for (bool fresh = true; block < end; block++, odd ^= 1, fresh = false) {
            size_t stored = a.tables[size_t(tile.sequence) * a.table_stride + block];
            Format cache(a, stored * a.kv_heads + tile.kv_head);
            uint32_t base = block * KV_BLOCK;
            float products[2] = {};
#pragma unroll 8
            for (uint32_t i = 0; i < a.key_dim; i++) {
                float key = cache.key(i, lane);
                products[0] = fmaf(q[i * ROWS + 2 * warp], key, products[0]);
                products[1] = fmaf(q[i * ROWS + 2 * warp + 1], key, products[1]);
            }
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float score = scores.of(products[i]);
                float distance = masks.distance(i, base + lane);
                score = a.slopes == nullptr ? score : fmaf(-masks.slopes[i], distance, score);
                bool sees = base + lane >= masks.seen[i].start && base + lane < masks.seen[i].end;
                score = sees ? score : NOTHING;
                float largest = fmaxf(warp_max(score), here[i].largest);
                float factor = weight(here[i].largest, largest), own = weight(score, largest);
                here[i] = {largest, fmaf(here[i].total, factor, warp_sum(own))};
                weights[(odd * KV_BLOCK + lane) * ROWS + 2 * warp + i] = own;
                if (lane == 0) {
                    factors[odd * ROWS + 2 * warp + i] = factor;
                }
            }
            // Once for a block, since two blocks in a row use different weights.
            __syncthreads();
            uint32_t count = min(KV_BLOCK, tile.context - base);
            for (uint32_t column = threadIdx.x; column < a.value_dim; column += THREADS) {
                float own[ROWS];
#pragma unroll
                for (uint32_t row = 0; row < ROWS; row++) {
                    own[row] = fresh ? 0.0f
                                     : __fmul_rn(values[row * a.value_dim + column],
                                                 factors[odd * ROWS + row]);
                }
#pragma unroll 8
                for (uint32_t i = 0; i < count; i++) {
                    float value = cache.value(i, column);
                    const float *each = weights + (odd * KV_BLOCK + i) * ROWS;
#pragma unroll
                    for (uint32_t row = 0; row < ROWS; row++) {
                        own[row] = fmaf(each[row], value, own[row]);
                    }
                }
#pragma unroll
                for (uint32_t row = 0; row < ROWS; row++) {
                    values[row * a.value_dim + column] = own[row];
                }
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            Factors joint = merge(sums[i], here[i]);
            if (lane == 0 && whole) {
                joints[2 * warp + i] = joint;
            } else if (lane == 0 && rows[i].used) {
                float *record = rows[i].partial(a, tile, split, span) + a.value_dim;
                record[0] = here[i].largest;
                record[1] = here[i].total;
            }
        }
        // The next time they are written is after the barrier of another block.
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < a.value_dim; i += THREADS) {
            for (uint32_t row = 0; row < ROWS; row++) {
                float value = values[row * a.value_dim + i];
                if (whole) {
                    float &to = all[row * a.value_dim + i];
                    to = merged(to, value, joints[row]);
                } else if (Row own(tile, row); own.used) {
                    own.partial(a, tile, split, span)[i] = value;
                }
            }
        }
    }
    if (!whole) {
        return;
    }
    // In the place of weights: what values are multiplied by and divided by.
    auto lasts = reinterpret_cast<float2 *>(weights);
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        if (lane == 0 && rows[i].used) {
            float factor = add_sink(a, rows[i].head, sums[i]);
            lasts[2 * warp + i] = {factor, sums[i].total};
        }
    }
    __syncthreads();
    for (uint32_t row = 0; row < ROWS; row++) {
        Row own(tile, row);
        for (uint32_t i = threadIdx.x; own.used && i < a.value_dim; i += THREADS) {
            store(a.out, a.out_type, own.index(a) * a.value_dim + i,
                  finished(all[row * a.value_dim + i], lasts[row].x, lasts[row].y));
        }
    }
}

// Merges the records of a row in ascending order, if it has any.
KERNEL attention_merge(Attention a) {
    uint32_t token = a.cu_seqlens[0] + blockIdx.x, head = blockIdx.y;
    if (token >= a.cu_seqlens[a.num_seqs]) {
        return;
    }
    uint32_t sequence =
        last_sequence(a, [&](uint32_t tried) { return a.cu_seqlens[tried] <= token; });
    // Of the tile that the token is in.
    uint32_t skipped = token - a.cu_seqlens[sequence];
    uint32_t beside = skipped % a.queries_per_tile;
    uint32_t queries = min(a.queries_per_tile, a.cu_seqlens[sequence + 1] - (token - beside));
    Split split = split_of(a, sequence, token - beside, queries);
    if (!split.is) {
        return;
    }
    Visible seen = visible(a, token, a.context_lens[sequence]);
    uint32_t span_len = SPAN_BLOCKS * KV_BLOCK;
    uint32_t first = seen.start / span_len, last = (seen.end + span_len - 1) / span_len;
    size_t stored = size_t(split.first + beside) * a.heads + head;
    size_t row = size_t(token) * a.heads + head;
    for (uint32_t i = threadIdx.x; i < a.value_dim; i += blockDim.x) {
        Sum sum;
        float value = 0;
#pragma unroll 4
        for (uint32_t span = first; span < last; span++) {
            const float *record = a.partials + (stored * a.spans + span) * (a.value_dim + 2);
            Factors factors = merge(sum, sum_of(record, a.value_dim));
            value = merged(value, record[i], factors);
        }
        float factor = add_sink(a, head, sum);
        store(a.out, a.out_type, row * a.value_dim + i, finished(value, factor, sum.total));
    }
}
EXPORT(attention_merge)

// The second bound is the number of blocks that an H100's shared memory holds, where
// registers allow it.
#define PRODUCTS(type, dim)                                                                        \
    KERNEL __launch_bounds__(128, dim > 192 ? 1 : dim > 128 ? 2 : dim > 64 ? 3 : 4)                \
    attention_prefill_##type##_##dim(Attention a) {                                                \
        prefill<type##_blocks<dim>>(a);                                                            \
    }                                                                                              \
    EXPORT(attention_prefill_##type##_##dim)                                                       \
    KERNEL __launch_bounds__(128, dim > 64 ? 2 : 3)                                                \
    attention_decode_##type##_##dim(Attention a) {                                                 \
        decode<type##_blocks<dim>>(a);                                                             \
    }                                                                                              \
    EXPORT(attention_decode_##type##_##dim)

#define DIMS(type)                                                                                 \
    PRODUCTS(type, 64)                                                                             \
    PRODUCTS(type, 96)                                                                             \
    PRODUCTS(type, 128)                                                                            \
    PRODUCTS(type, 192)                                                                            \
    PRODUCTS(type, 256)

DIMS(bf16)
DIMS(f16)
DIMS(f8)
DIMS(q8_0)
PRODUCTS(bf16, 80)
PRODUCTS(f16, 80)
PRODUCTS(f8, 80)

#define ANY(type, format)                                                                          \
    KERNEL __launch_bounds__(128, 3) attention_any_##type(Attention a) { any<format>(a); }         \
    EXPORT(attention_any_##type)

ANY(f32, Plain<float>)
ANY(f16, Plain<f16_t>)
ANY(bf16, Plain<bf16_t>)
ANY(f8, Plain<f8_t>)
ANY(q8_0, Grouped)
