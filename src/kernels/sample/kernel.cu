// Draws the next token of each row of logits, to the bit as `sampling` does on the CPU, and finds
// what the logprobs of the model's own distribution are made of.
//
// Grid: [rows]; block: 1024 threads, or two warps or more with the same results; no dynamic shared
// memory. Logits are overwritten, but for rows with logprobs, which need a copy.
//
// Weights are computed side by side; what the CPU adds up in some order, one thread adds up in that
// order. Few candidates are found by histograms (as in a radix select) and sorted in shared memory,
// band by band: a nucleus is mostly within the first band, and may be all of the vocabulary.
#include "rows.cuh"

struct Sample {
    // [.., vocab] and [rows with logprobs, vocab]
    float *logits, *copies;
    // [rows, ceil(vocab / 64)]: scratch for sums of blocks
    double *sums;
    // [rows]
    const SampleRow *rows;
    const TokenNumber *biases;
    const CountChange *changes;
    // Bits, set where a token is allowed; behind those of a row all is excluded.
    const uint32_t *masks;
    // [rows]
    SampledRow *sampled;
    // [rows, most_top], best first, ties by lower id
    TokenNumber *tops;
    // No row may ask for more than `most_top`, at most 512.
    uint32_t vocab, most_top;
};
LAYOUT(Sample, FIELD(logits), FIELD(copies), FIELD(sums), FIELD(rows), FIELD(biases),
       FIELD(changes), FIELD(masks), FIELD(sampled), FIELD(tops), FIELD(vocab), FIELD(most_top))
EXPORT_LAYOUT(TokenNumber)
EXPORT_LAYOUT(CountChange)
EXPORT_LAYOUT(SampleRow)
EXPORT_LAYOUT(SampledRow)

constexpr float GREEDY_TEMPERATURE = 1e-5f;
constexpr uint32_t NONE = 0xffffffff;
// Elements whose weights are summed together, in so many lanes.
constexpr uint32_t BLOCK = 64, LANES = 16;
// Candidates that fit in shared memory; how many a nucleus's first band has at least, and others.
constexpr uint32_t HELD = 4096, FIRST_PORTION = 512, PORTION = HELD / 2;
constexpr int BIN_BITS = 9, BINS = 1 << BIN_BITS;

// How far a walk came: candidates passed, the last one, the last one that may be drawn; the weights
// of all, and of those that `min_p` keeps.
struct Walk {
    double mass, total;
    uint32_t passed, last, drawn;
    bool done;
};

struct Shared {
    // Candidates, or the bits of f64.
    uint64_t held[HELD];
    uint32_t bins[BINS];
    uint64_t partial[WARP];
    // The bin that was looked for, and elements above it; what is counted one by one.
    uint32_t bin, above, count;
    Walk walk;
};

// Shares `[start, end)` out among the threads, and waits for all.
template <typename F> INLINE void each(uint32_t start, uint32_t end, F visit) {
#pragma unroll 4
    for (uint32_t i = start + threadIdx.x; i < end; i += blockDim.x) {
        visit(i);
    }
    __syncthreads();
}

// An integer for each number, in their total order.
INLINE uint32_t key_of(float x) {
    uint32_t bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}
// A candidate: the better one is larger, of equal ones that of the lower id.
INLINE uint64_t candidate(float x, uint32_t id) { return uint64_t(key_of(x)) << 32 | ~id; }
INLINE float value_of(uint64_t candidate) {
    auto key = uint32_t(candidate >> 32);
    return __uint_as_float(key >> 31 ? key & 0x7fffffff : ~key);
}
INLINE uint32_t id_of(uint64_t candidate) { return ~uint32_t(candidate); }

// e^x as `logits.rs` computes it: without fused operations, whose bits would be others.
INLINE double exp_unfused(double x) {
    const double rounder = 6755399441055744.0, smallest = -700.0;
    double clamped = x > smallest ? x : smallest;
    double shifted = __dadd_rn(__dmul_rn(clamped, 0x1.71547652b82fep+0), rounder);
    double n = __dadd_rn(shifted, -rounder);
    double r = __dadd_rn(clamped, -__dmul_rn(n, __longlong_as_double(0x3fe62e42fee00000)));
    r = __dadd_rn(r, -__dmul_rn(n, __longlong_as_double(0x3dea39ef35793c76)));
    double factorial = 39916800, sum = 1 / factorial;
#pragma unroll
    for (int i = 11; i > 0; i--) {
        factorial /= i;
        sum = __dadd_rn(__dmul_rn(sum, r), 1 / factorial);
    }
    uint64_t power = uint64_t(__double_as_longlong(shifted)) << 52;
    long long bits = __double_as_longlong(sum) + (long long)power;
    return x > smallest ? __longlong_as_double(bits) : 0.0;
}

INLINE float weight_of(float logit, float max, float temperature) {
    float x = __fdiv_rn(__fadd_rn(logit, -max), temperature);
    // Less than half of the smallest f32; most of what a grammar leaves.
    return x < -105.0f ? 0.0f : float(exp_unfused(x));
}

// Sixteen lanes added up in the order of `logits.rs`: 8, 4, 2, 1 apart.
INLINE double sum_of_lanes(double sum) {
    for (uint32_t width = LANES / 2; width > 0; width /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, width);
    }
    return sum;
}

// The largest over the block, for all threads.
INLINE uint64_t block_largest(uint64_t x, Shared &s) {
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        x = max(x, __shfl_xor_sync(0xffffffff, x, distance));
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        s.partial[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / WARP; warp++) {
        x = max(x, s.partial[warp]);
    }
    return x;
}

// The largest logit, or NaN; the first such, whatever the sign of zeros; and the key that as many
// elements as there are threads, or all, have or surpass.
struct Scan {
    float max;
    uint32_t first, floor;
};

// Looks at every element, and copies it if there is a buffer; passes over NaNs if not asked for them.
__device__ Scan scan(const float *row, uint32_t vocab, float *copy, bool sees_nans, Shared &s) {
    uint64_t best = 0;
    each(0, vocab, [&](uint32_t i) {
        float x = row[i];
        if (copy) {
            copy[i] = x;
        }
        uint64_t nan = sees_nans ? uint64_t(NONE) << 32 | uint32_t(~i) : 0;
        best = max(best, x != x ? nan : candidate(x == 0 ? -0.0f : x, i));
    });
    uint64_t floor = ~block_largest(~best, s);
    best = block_largest(best, s);
    return {best == 0 ? -INFINITY : value_of(best), id_of(best), uint32_t(floor >> 32)};
}

// Biases, grammar and penalties; whether there were any.
__device__ bool alter(const Sample &all, const SampleRow &row, float *logits) {
    const uint32_t vocab = all.vocab;
    each(row.bias_start, row.bias_end, [&](uint32_t i) {
        uint32_t token = all.biases[i].token;
        bool own = token < vocab && (i == row.bias_start || all.biases[i - 1].token != token);
        for (; own && i < row.bias_end && all.biases[i].token == token; i++) {
            logits[token] = __fadd_rn(logits[token], all.biases[i].number);
        }
    });
    bool required = row.required != NONE, masked = row.mask != NONE;
    each(0, required || masked ? vocab : 0, [&](uint32_t i) {
        const uint32_t *mask = &all.masks[row.mask];
        uint32_t word = required || i / 32 >= row.mask_words ? 0 : mask[i / 32];
        bool allowed = required ? i == row.required : word >> i % 32 & 1;
        if (!allowed || (required && logits[i] == -INFINITY)) {
            logits[i] = allowed ? 0.0f : -INFINITY;
        }
    });
    each(row.change_start, row.change_end, [&](uint32_t i) {
        const CountChange &change = all.changes[i];
        row.counts[change.index] = {change.token, change.number};
    });
    each(0, row.count_end, [&](uint32_t i) {
        auto [token, count] = row.counts[i];
        if (token < vocab) {
            float x = logits[token];
            x = x > 0 ? __fdiv_rn(x, row.repetition_penalty) : __fmul_rn(x, row.repetition_penalty);
            x = __fadd_rn(x, -__fmul_rn(count, row.frequency_penalty));
            logits[token] = count > 0 ? __fadd_rn(x, -row.presence_penalty) : x;
        }
    });
    return required || masked || row.bias_start < row.bias_end || row.count_end > 0;
}

// Sorts what is held, best first: bitonic, after Batcher.
__device__ void sort_held(uint32_t count, Shared &s) {
    const uint32_t padded = count < 2 ? 1 : 2u << (31 - __clz(int(count - 1)));
    each(count, padded, [&](uint32_t i) { s.held[i] = 0; });
    for (uint32_t size = 2; size <= padded; size *= 2) {
        for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
            each(0, padded / 2, [&](uint32_t pair) {
                uint32_t i = 2 * pair - (pair & (stride - 1));
                uint64_t a = s.held[i], b = s.held[i + stride];
                if ((a < b) == ((i & size) == 0)) {
                    s.held[i] = b;
                    s.held[i + stride] = a;
                }
            });
        }
    }
}

// Candidates of a row, best first, of which one band is held.
struct Candidates {
    const float *values;
    // Keys below which none counts, and below which none is needed for a first band of up to as
    // many as there are threads; what the first band has at least.
    uint32_t vocab, low, floor, portion;
    // Values are logits, to be weighed when they are held, or weights if the temperature is 0. What
    // weighs less than `min_p` isn't drawn.
    float max, temperature, min_p;
    // How many are held; whether they are the first ones, or the last; the last one's value.
    uint32_t count = 0;
    bool first = false, last = false;
    uint64_t end = 0;
};

// Holds the first band or the next one, sorted: at least a portion, or what is left.
__device__ void hold(Candidates &all, bool first, Shared &s) {
    const uint32_t vocab = all.vocab, want = first ? all.portion : PORTION;
    const uint64_t high = first ? candidate(all.max == 0 ? 0.0f : all.max, 0) : all.end - 1;
    uint32_t low = first && want <= blockDim.x ? max(all.floor, all.low) : all.low;
    uint64_t from = uint64_t(low) << 32, to = high;
    uint32_t count = 0;
    // Bin by bin, until what is in question fits.
    for (bool found = from > high; !found;) {
        const int shift = max(64 - BIN_BITS - __clzll((long long)(to - from)), 0);
        each(0, BINS, [&](uint32_t i) { s.bins[i] = 0; });
        each(0, vocab, [&](uint32_t i) {
            uint64_t own = candidate(all.values[i], i);
            if (own >= from && own <= to) {
                atomicAdd(&s.bins[(own - from) >> shift], 1u);
            }
        });
        if (threadIdx.x == 0) {
            uint32_t bin = BINS - 1;
            while (bin > 0 && count + s.bins[bin] < want) {
                count += s.bins[bin--];
            }
            s.bin = bin;
            s.above = count;
            s.count = 0;
        }
        __syncthreads();
        uint32_t within = s.bins[s.bin];
        from += uint64_t(s.bin) << shift;
        to = min(to, from + ((uint64_t(1) << shift) - 1));
        found = s.above + within <= HELD;
        count = found ? s.above + within : s.above;
        __syncthreads();
    }
    each(0, count > 0 ? vocab : 0, [&](uint32_t i) {
        uint64_t own = candidate(all.values[i], i);
        if (own >= from && own <= high) {
            s.held[atomicAdd(&s.count, 1u)] = own;
        }
    });
    sort_held(count, s);
    all.count = count;
    all.first = first;
    all.last = count < want;
    all.end = count > 0 ? s.held[count - 1] : 0;
    __syncthreads();
    each(0, all.temperature > 0 ? count : 0, [&](uint32_t i) {
        float weight = weight_of(value_of(s.held[i]), all.max, all.temperature);
        s.held[i] = candidate(weight, id_of(s.held[i]));
    });
}

// From the best candidate on, until `limit` are passed, their mass is `goal`, or nothing is `left`
// to go.
__device__ void walk(Candidates &all, uint32_t limit, double goal, double left, Shared &s) {
    if (!all.first) {
        hold(all, true, s);
    }
    Walk walk = {0, 0, 0, NONE, NONE, limit == 0};
    for (;; hold(all, false, s)) {
        if (threadIdx.x == 0) {
            // Read one ahead, so that sums don't wait for it.
            uint64_t next = s.held[0];
            for (uint32_t i = 0; i < all.count && !walk.done; i++) {
                float weight = value_of(next);
                walk.last = id_of(next);
                next = s.held[(i + 1) % HELD];
                walk.passed++;
                walk.mass += double(weight);
                if (weight >= all.min_p && weight > 0) {
                    walk.total += double(weight);
                    left -= double(weight);
                    walk.drawn = walk.last;
                }
                walk.done = walk.passed == limit || walk.mass >= goal || left < 0;
            }
            s.walk = walk;
        }
        __syncthreads();
        if (s.walk.done || all.last) {
            return;
        }
    }
}

// Weighs a row in place and sums its blocks; the total is in `s.walk.total` then.
__device__ void weigh_row(float *row, uint32_t vocab, float max, float temperature, float least,
                          double *sums, Shared &s) {
    uint32_t blocks = (vocab + BLOCK - 1) / BLOCK;
    // By whole warps, which take two blocks each.
    each(0, (blocks + 1) / 2 * WARP, [&](uint32_t lane) {
        double sum = 0;
#pragma unroll
        for (uint32_t part = 0; part < BLOCK; part += LANES) {
            uint32_t i = lane / LANES * BLOCK + part + lane % LANES;
            if (i < vocab) {
                float weight = weight_of(row[i], max, temperature);
                row[i] = weight = weight >= least ? weight : 0.0f;
                sum += double(weight);
            }
        }
        sum = sum_of_lanes(sum);
        if (lane % LANES == 0 && lane / LANES < blocks) {
            sums[lane / LANES] = sum;
        }
    });
    if (threadIdx.x == 0) {
        double total = 0;
#pragma unroll 16
        for (uint32_t block = 0; block < blocks; block++) {
            total += sums[block];
        }
        s.walk.total = total;
    }
    __syncthreads();
}

// The token at `left` of all weights laid end to end, or none if there are none; by one thread.
INLINE uint32_t token_at(double left, const float *weights, const double *sums, uint32_t vocab) {
    for (uint32_t start = 0; start < vocab; start += BLOCK) {
        if (left >= sums[start / BLOCK]) {
            left -= sums[start / BLOCK];
            continue;
        }
        for (uint32_t i = start; i < start + BLOCK && i < vocab; i++) {
            left -= double(weights[i]);
            if (left < 0) {
                return i;
            }
        }
    }
    // Rounding may leave a crumb behind the last token.
    uint32_t end = vocab;
    while (end > 0 && !(weights[end - 1] > 0)) {
        end--;
    }
    return end - 1;
}

// Draws from the altered logits, scanned in `scan`; they become weights.
__device__ uint32_t draw(const SampleRow &row, float *logits, uint32_t vocab, double *sums,
                         const Scan &scan, Shared &s) {
    const float largest = scan.max, temperature = row.temperature, min_p = row.min_p;
    const double top_p = double(row.top_p), endless = INFINITY;
    const bool few = row.top_k > 0 && row.top_k < vocab, fit = few && row.top_k <= HELD;
    if (!few && top_p >= 1) {
        weigh_row(logits, vocab, largest, temperature, min_p, sums, s);
        if (threadIdx.x == 0) {
            double left = __dmul_rn(row.position, s.walk.total);
            s.walk.drawn = token_at(left, logits, sums, vocab);
        }
        __syncthreads();
        return s.walk.drawn != NONE ? s.walk.drawn : scan.first;
    }
    uint32_t low = key_of(-INFINITY), portion = fit ? row.top_k : PORTION;
    Candidates kept = {logits, vocab, low, scan.floor, portion, largest, temperature, min_p};
    if (few) {
        walk(kept, row.top_k, endless, endless, s);
    } else {
        weigh_row(logits, vocab, largest, temperature, 0, sums, s);
    }
    Walk way = s.walk;
    __syncthreads();
    if (top_p < 1) {
        uint32_t limit = few ? way.passed : vocab;
        double total = few ? way.mass : way.total;
        uint64_t end = few ? candidate(logits[way.last], way.last) : 0;
        __syncthreads();
        if (fit) {
            // Weights may be equal where logits aren't: another order then.
            sort_held(limit, s);
        } else {
            // All that weigh less than this together aren't in the nucleus.
            double least = few ? 0 : __dmul_rn(1 - top_p, total) / double(vocab);
            low = max(key_of(0) + 1, key_of(__double2float_ru(least)));
            kept = {logits, vocab, low, 0, FIRST_PORTION, 1, 0, min_p};
            each(0, few ? vocab : 0, [&](uint32_t i) {
                bool within = candidate(logits[i], i) >= end;
                logits[i] = within ? weight_of(logits[i], largest, temperature) : 0.0f;
            });
        }
        walk(kept, limit, __dmul_rn(top_p, total), endless, s);
        way = s.walk;
        __syncthreads();
    }
    walk(kept, way.passed, endless, __dmul_rn(row.position, way.total), s);
    return s.walk.drawn != NONE ? s.walk.drawn : scan.first;
}

// The sum of e^(logit - max), in lanes that each one thread adds up; for the first thread.
__device__ double sum_of_exps(const float *row, uint32_t vocab, double max, Shared &s) {
    double sum = 0;
    for (uint32_t start = 0; start < vocab; start += HELD) {
        __syncthreads();
        each(0, HELD, [&](uint32_t i) {
            double exp = start + i < vocab ? exp_unfused(double(row[start + i]) - max) : 0.0;
            s.held[i] = uint64_t(__double_as_longlong(exp));
        });
#pragma unroll 8
        for (uint32_t i = threadIdx.x; threadIdx.x < LANES && i < HELD; i += LANES) {
            sum += __longlong_as_double((long long)s.held[i]);
        }
    }
    return sum_of_lanes(sum);
}

KERNEL __launch_bounds__(1024) sample_rows(const Sample all) {
    __shared__ Shared s;
    const SampleRow &row = all.rows[blockIdx.x];
    const uint32_t vocab = all.vocab;
    float *raw = all.logits + size_t(row.row) * vocab;
    double *sums = all.sums + size_t(blockIdx.x) * ((vocab + BLOCK - 1) / BLOCK);
    bool reports = row.top != NONE;
    float *logits = reports ? all.copies + size_t(row.copy) * vocab : raw;
    Scan seen = scan(raw, vocab, reports ? logits : nullptr, true, s);
    uint32_t status = isfinite(seen.max) ? 0 : seen.max != seen.max ? 1 : 2;
    SampledRow out = {0, seen.max, 0, seen.first, status, 0, 0};
    if (reports && out.status == 0) {
        out.sum = sum_of_exps(raw, vocab, double(seen.max), s);
        uint32_t want = min(row.top, all.most_top);
        Candidates best = {raw, vocab, key_of(-INFINITY), seen.floor, want, seen.max, 0, 0};
        hold(best, true, s);
        out.top = min(best.count, want);
        each(0, out.top, [&](uint32_t i) {
            all.tops[blockIdx.x * all.most_top + i] = {id_of(s.held[i]), value_of(s.held[i])};
        });
    }
    if (out.status == 0 && alter(all, row, logits)) {
        seen = scan(logits, vocab, nullptr, false, s);
        out.token = seen.first;
        out.status = seen.max == -INFINITY ? 3 : 0;
    }
    if (out.status == 0 && !(row.temperature < GREEDY_TEMPERATURE)) {
        out.token = draw(row, logits, vocab, sums, seen, s);
    }
    if (out.status == 0 && reports) {
        out.logit = raw[out.token];
        if (threadIdx.x == 0) {
            s.count = 0;
        }
        __syncthreads();
        uint32_t ahead = 0;
        each(0, vocab, [&](uint32_t i) { ahead += raw[i] > out.logit; });
        atomicAdd(&s.count, ahead);
        __syncthreads();
        out.rank = s.count + 1;
    }
    if (threadIdx.x == 0) {
        all.sampled[blockIdx.x] = out;
    }
}
EXPORT(sample_rows)
