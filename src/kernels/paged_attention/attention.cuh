// What the attention kernels share: their arguments, tiles of rows, what a row sees, and how spans
// of the context are merged. `kernel.cu` says what for.
#pragma once

#include "../cuda/device.cuh"

// Blocks of a span.
constexpr uint32_t SPAN_BLOCKS = 256 / KV_BLOCK;
constexpr float LOG2_E = 1.44269504f;
constexpr float NOTHING = -INFINITY;

// T rows of S sequences. They may be some of a batch: `tables`, `cu_seqlens`, `context_lens` and
// `partials` are then those of the call, the rest is the batch's.
struct Attention {
    const float *q;               // [T, heads, key_dim]
    const void *k;                // [num_blocks, kv_heads, key_dim, 32]
    const void *v;                // [num_blocks, kv_heads, 32, value_dim]
    void *out;                    // [T, heads, value_dim]
    float *partials;              // [partial_rows, heads, spans, value_dim + 2] or null
    const uint32_t *positions;    // [T]
    const uint32_t *starts;       // [T] or null: first positions that are seen before a window
    const uint32_t *ends;         // [T] or null: behind the last positions that are seen
    const uint32_t *tables;       // [S, table_stride]: blocks in order of position
    const uint32_t *cu_seqlens;   // [S + 1]: T more than the first is the last
    const uint32_t *context_lens; // [S]
    const float *sinks;           // [heads] or null
    const float *slopes;          // [heads] or null
    uint32_t table_stride;
    uint32_t num_seqs; // S, at least 1
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t key_dim;
    uint32_t value_dim;
    float scale;
    float softcap;   // 0: none
    uint32_t window; // 0: none
    uint32_t chunk;  // 0: none
    uint32_t ahead;  // positions behind its own that a query sees
    uint32_t queries_per_tile;
    uint32_t spans; // of the longest context, at least
    // Queries that `partials` has room for, and spans of a context that is not split. If none are,
    // every context is, and there is room for all queries.
    uint32_t partial_rows;
    uint32_t whole_spans;
    OutputType out_type;
};
LAYOUT(Attention, FIELD(q), FIELD(k), FIELD(v), FIELD(out), FIELD(partials), FIELD(positions),
       FIELD(starts), FIELD(ends), FIELD(tables), FIELD(cu_seqlens), FIELD(context_lens),
       FIELD(sinks), FIELD(slopes), FIELD(table_stride), FIELD(num_seqs), FIELD(heads),
       FIELD(kv_heads), FIELD(key_dim), FIELD(value_dim), FIELD(scale), FIELD(softcap),
       FIELD(window), FIELD(chunk), FIELD(ahead), FIELD(queries_per_tile), FIELD(spans),
       FIELD(partial_rows), FIELD(whole_spans), FIELD(out_type))

// What is known of a row: its largest score, and the sum of weights relative to that.
struct Sum {
    float largest = NOTHING;
    float total = 0;
};

// What weighted values are multiplied by when they are merged.
struct Factors {
    float before, here;
};

INLINE float power_of_two(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// The weight of a score relative to the largest one; 0 where there is no score yet.
INLINE float weight(float score, float largest) {
    return power_of_two(__fadd_rn(score, largest == NOTHING ? 0.0f : -largest));
}

INLINE float merged(float before, float here, Factors factors) {
    return fmaf(here, factors.here, __fmul_rn(before, factors.before));
}

// A record in memory: weighted values, the largest score, the sum of weights.
INLINE Sum sum_of(const float *record, uint32_t value_dim) {
    return {record[value_dim], record[value_dim + 1]};
}

// Adds what a row found in a span to what it found in the spans before.
INLINE Factors merge(Sum &all, Sum here) {
    float largest = fmaxf(all.largest, here.largest);
    Factors factors = {weight(all.largest, largest), weight(here.largest, largest)};
    all = {largest, merged(all.total, here.total, factors)};
    return factors;
}

// On the way to the output: a sink is one more score, for a value of zero.
INLINE float add_sink(const Attention &a, uint32_t head, Sum &sum) {
    return a.sinks == nullptr ? 1.0f
                              : merge(sum, {__fmul_rn(a.sinks[head], LOG2_E), 1.0f}).before;
}

// Zeros have no sign, since theirs depends on what else was added to the row.
INLINE float finished(float values, float factor, float total) {
    return total == 0 ? 0.0f : __fadd_rn(__fdiv_rn(__fmul_rn(values, factor), total), 0.0f);
}

// From the product of query and key to the score.
struct Scaling {
    float inner, outer;
    bool capped;

    INLINE float of(float product) const {
        float score = __fmul_rn(product, inner);
        return capped ? __fmul_rn(tanhf(score), outer) : score;
    }
};

INLINE Scaling scaling(const Attention &a) {
    bool capped = a.softcap != 0;
    float inner = capped ? __fdiv_rn(a.scale, a.softcap) : __fmul_rn(a.scale, LOG2_E);
    return {inner, __fmul_rn(a.softcap, LOG2_E), capped};
}

// Positions [start, end).
struct Visible {
    uint32_t start = ~0u;
    uint32_t end = 0;
};

INLINE Visible visible(const Attention &a, uint32_t token, uint32_t context) {
    uint32_t position = a.positions[token], end = position + 1;
    uint32_t start = a.window != 0 && a.window < end ? end - a.window : 0;
    if (a.chunk != 0) {
        start = max(start, position / a.chunk * a.chunk);
    }
    end += min(a.ahead, ~0u - end);
    if (a.ends != nullptr) {
        end = max(end, a.ends[token]);
    }
    if (a.starts != nullptr) {
        start = min(start, a.starts[token]);
    }
    end = min(end, context);
    return start < end ? Visible{start, end} : Visible{};
}

// What any lane of the warp sees.
INLINE Visible joined(Visible own) {
#pragma unroll
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) {
        own.start = min(own.start, __shfl_xor_sync(0xffffffff, own.start, distance));
        own.end = max(own.end, __shfl_xor_sync(0xffffffff, own.end, distance));
    }
    return own;
}

// Some queries of a sequence, and some heads of a group.
struct Tile {
    uint32_t sequence, context, token, queries;
    uint32_t kv_head, first_head, heads;
    // From one query's rows to the next one's: parts of a group have rows for as many heads.
    uint32_t stride;
};

// The last sequence of which `before` holds, which must be so for the first one and for all up to
// that. A warp tries 32 at once.
template <typename Before> INLINE uint32_t last_sequence(const Attention &a, Before before) {
    uint32_t found = 0, stride = 1;
    while (stride * WARP < a.num_seqs) {
        stride *= WARP;
    }
    for (; stride > 0; stride /= WARP) {
        uint32_t tried = found + threadIdx.x % WARP * stride;
        bool holds = tried < a.num_seqs && before(tried);
        found += (__popc(__ballot_sync(0xffffffff, holds)) - 1) * stride;
    }
    return found;
}

// The tile at `index` of all tiles, of the grid's column `column`; false if it has no rows.
INLINE bool find_tile(const Attention &a, uint32_t index, uint32_t column, Tile &tile) {
    // Sequences leave a tile free at times, but no tile has rows of two.
    auto first_tile = [&](uint32_t sequence) {
        return (a.cu_seqlens[sequence] - a.cu_seqlens[0]) / a.queries_per_tile + sequence;
    };
    uint32_t sequence =
        last_sequence(a, [&](uint32_t tried) { return first_tile(tried) <= index; });
    uint32_t end = a.cu_seqlens[sequence + 1];
    uint32_t skipped = index - first_tile(sequence);
    uint32_t token = a.cu_seqlens[sequence] + skipped * a.queries_per_tile;
    uint32_t parts = gridDim.y / a.kv_heads, group = a.heads / a.kv_heads;
    uint32_t heads = (group + parts - 1) / parts, first = column % parts * heads;
    if (token >= end || first >= group) {
        return false;
    }
    tile.sequence = sequence;
    tile.context = a.context_lens[sequence];
    tile.token = token;
    tile.queries = min(a.queries_per_tile, end - token);
    tile.kv_head = column / parts;
    tile.first_head = tile.kv_head * group + first;
    tile.heads = min(heads, group - first);
    tile.stride = heads;
    return true;
}

// Whether queries of a sequence may see so many spans that its context is split.
INLINE bool is_long(const Attention &a, uint32_t sequence) {
    constexpr uint32_t SPAN = SPAN_BLOCKS * KV_BLOCK;
    uint32_t spans = (a.context_lens[sequence] + SPAN - 1) / SPAN;
    if (a.window != 0) {
        spans = min(spans, (a.window + SPAN - 1) / SPAN + 1);
    }
    if (a.chunk != 0) {
        spans = min(spans, (a.chunk + SPAN - 1) / SPAN + 1);
    }
    return a.whole_spans == 0 || spans > a.whole_spans;
}

// Where the records of a tile's first query are, if the blocks of the grid's z share its spans.
struct Split {
    bool is;
    uint32_t first;
};

// For all lanes: of `queries` of a sequence, from `token` on. Long sequences have records in their
// order as far as there is room; what has none is not split.
INLINE Split split_of(const Attention &a, uint32_t sequence, uint32_t token, uint32_t queries) {
    if (a.partials == nullptr || !is_long(a, sequence)) {
        return {false, 0};
    }
    uint32_t first = a.cu_seqlens[sequence] - a.cu_seqlens[0];
    if (a.whole_spans != 0) {
        first = 0;
        for (uint32_t i = threadIdx.x % WARP; i < sequence; i += WARP) {
            first += is_long(a, i) ? a.cu_seqlens[i + 1] - a.cu_seqlens[i] : 0;
        }
#pragma unroll
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2) {
            first += __shfl_xor_sync(0xffffffff, first, distance);
        }
    }
    first += token - a.cu_seqlens[sequence];
    return {first + queries <= a.partial_rows, first};
}

// What any query of the tile sees, for all lanes.
INLINE Visible visible_to_tile(const Attention &a, const Tile &tile) {
    Visible own;
    for (uint32_t i = threadIdx.x % WARP; i < tile.queries; i += WARP) {
        Visible one = visible(a, tile.token + i, tile.context);
        own = {min(own.start, one.start), max(own.end, one.end)};
    }
    return joined(own);
}

// One row of a tile.
struct Row {
    bool used;
    uint32_t token, head;

    INLINE Row(const Tile &tile, uint32_t row) {
        uint32_t query = row / tile.stride, own = row % tile.stride;
        used = query < tile.queries && own < tile.heads;
        token = tile.token + query;
        head = tile.first_head + own;
    }
    // Index of the row among those of all heads.
    INLINE size_t index(const Attention &a) const { return size_t(token) * a.heads + head; }
    // The row's record of a span, if the tile is split.
    INLINE float *partial(const Attention &a, const Tile &tile, Split split, uint32_t span) const {
        size_t row = size_t(split.first + token - tile.token) * a.heads + head;
        return a.partials + (row * a.spans + span) * (a.value_dim + 2);
    }
    INLINE float slope(const Attention &a) const {
        return used && a.slopes != nullptr ? __fmul_rn(a.slopes[head], LOG2_E) : 0.0f;
    }
};

// What decides the scores of a lane's two rows.
struct Masks {
    Visible seen[2];
    float slopes[2];
    // What the warp sees of all.
    Visible warp;

    INLINE Masks(const Attention &a, const Tile &tile, const Row (&rows)[2]) {
        Visible own;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            slopes[i] = rows[i].slope(a);
            seen[i] = Visible{};
            if (rows[i].used) {
                seen[i] = visible(a, rows[i].token, tile.context);
            }
            own = {min(own.start, seen[i].start), max(own.end, seen[i].end)};
            if (!rows[i].used) {
                // Needs no mask, as nobody reads it.
                seen[i] = {0, ~0u};
            }
        }
        warp = joined(own);
    }
    // From a position that the row sees to its own, the last one it sees.
    INLINE float distance(uint32_t row, uint32_t position) const {
        return float(seen[row].end - 1 - position);
    }
    INLINE bool sees(uint32_t block) const {
        return block * KV_BLOCK < warp.end && (block + 1) * KV_BLOCK > warp.start;
    }
};
