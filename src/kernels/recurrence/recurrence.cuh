// Sequences and their states, and how tokens are taken one after the other through matrices that
// recurrent layers keep: the frame of the delta rule and of the state space.
//
// A call has T rows of S sequences. A token is computed from the state that the token before it
// left, by the same operations in the same order whatever the grid and the sequences beside it.
// Products and sums are written out as fmaf and __fmul_rn, so that no compiler fuses them in one
// place and not in another. All data is f32; strides are elements between two rows of an input.
// States are changed in place; no slot may belong to two sequences, but for that of padding.
#pragma once

#include "../cuda/device.cuh"

// Which rows belong to which sequence, and where the state of each is.
struct Sequences {
    // [S + 1]: row ranges, ascending; a sequence without rows keeps its state as it is
    const uint32_t *cu_seqlens;
    // [T]: a sequence whose first row here has position 0 starts from zeros, whatever its state
    // holds
    const uint32_t *positions;
    // [S]: the row of the states; all ones: the sequence is padding and has none, it starts from
    // zeros, and what it gives is written
    const uint32_t *slots;
};
DESCRIBE(Sequences, FIELD(cu_seqlens), FIELD(positions), FIELD(slots))

// The rows of one sequence.
struct Sequence {
    size_t first;
    unsigned count;
    uint32_t slot;
    bool starts;

    INLINE Sequence(const Sequences &sequences, unsigned index) {
        first = sequences.cu_seqlens[index];
        count = sequences.cu_seqlens[index + 1] - unsigned(first);
        slot = sequences.slots[index];
        starts = slot == NO_SLOT || (count > 0 && sequences.positions[first] == 0);
    }
};

// The delta rule and the state space keep a matrix for each head of a sequence, and every column of
// it goes its own way. A block has 32 columns. Half of its warps hold them, a column in the
// registers of 4 lanes, and take the tokens one after the other. The other half prepares for them
// the next few tokens in shared memory, so that nobody waits for loads or for sums over a warp.
constexpr unsigned COLUMNS = 32;
// Lanes that share a column: of 16 rows each has 4 next to each other.
constexpr unsigned SPLIT = 4;
// Threads that hold columns, and as many that prepare tokens.
constexpr unsigned HOLDERS = COLUMNS * SPLIT;
constexpr unsigned RECURRENCE_THREADS = 2 * HOLDERS;
constexpr unsigned PREPARING_WARPS = HOLDERS / WARP;
// Tokens that are prepared at a time, while as many others are taken.
constexpr unsigned PREPARED = 8;
// Factors of a prepared token.
constexpr unsigned FACTORS = 4;

// A prepared token in shared memory.
struct Prepared {
    // Two or three vectors along the rows of the matrix, zeros behind the last.
    float *first, *second, *third;
    // One along the block's columns.
    float *along;
    float *factors;

    static INLINE unsigned size(unsigned padded, unsigned vectors) {
        return vectors * padded + COLUMNS + FACTORS;
    }

    INLINE Prepared(float *start, unsigned padded, unsigned vectors)
        : first(start), second(start + padded), third(start + 2 * padded),
          along(start + vectors * padded), factors(start + vectors * padded + COLUMNS) {}
};

// Matrices of all heads, and where a block and its threads are among them.
struct Matrices {
    // [slots, heads, rows, columns]
    float *states;
    // [T, heads, columns]
    float *out;
    unsigned heads, rows, columns;

    INLINE unsigned head() const { return blockIdx.y; }
    INLINE unsigned first_column() const { return blockIdx.z * COLUMNS; }
    // Eight columns to a warp.
    INLINE unsigned own_column() const {
        return threadIdx.x / WARP * (WARP / SPLIT) + threadIdx.x % (WARP / SPLIT);
    }
    INLINE unsigned part() const { return threadIdx.x % WARP / (WARP / SPLIT); }
    INLINE unsigned row(unsigned i) const { return i / 4 * 4 * SPLIT + part() * 4 + i % 4; }
    INLINE unsigned column() const { return first_column() + own_column(); }
    INLINE bool holds(unsigned i) const { return row(i) < rows && column() < columns; }

    INLINE size_t output(size_t row) const { return (row * heads + head()) * columns + column(); }

    // A thread's part of a column: its first number, and what comes between its i-th and the next.
    INLINE float *start(uint32_t slot) const {
        size_t matrix = size_t(slot) * heads + head();
        return states + (matrix * rows + row(0)) * columns + column();
    }
    INLINE size_t distance(unsigned i) const {
        return size_t(i % 4 < 3 ? 1 : 4 * SPLIT - 3) * columns;
    }

    // Copies to shared memory what a row of inputs has for the block's columns.
    INLINE void copy(float *to, const float *from) const {
        unsigned own = first_column() + threadIdx.x % WARP;
        to[threadIdx.x % WARP] = own < columns ? from[own] : 0;
    }
};

// A thread's rows of a column, of up to ROWS in all, or of any number in shared memory.
template <unsigned ROWS> struct Column {
    float own[ROWS / SPLIT];

    INLINE Column(float *, unsigned) {}
    INLINE unsigned count() const { return ROWS / SPLIT; }
    INLINE float &operator[](unsigned i) { return own[i]; }
};
template <> struct Column<0> {
    float *own;
    unsigned rows;

    INLINE Column(float *shared, unsigned padded)
        : own(shared + threadIdx.x), rows(padded / SPLIT) {}
    INLINE unsigned count() const { return rows; }
    INLINE float &operator[](unsigned i) { return own[i * HOLDERS]; }
};

INLINE void load_four(float (&to)[4], const float *from) {
    float4 all = *reinterpret_cast<const float4 *>(from);
    to[0] = all.x;
    to[1] = all.y;
    to[2] = all.z;
    to[3] = all.w;
}

// The sum over a column, the same for the lanes that share it.
INLINE float column_sum(const float (&sums)[4]) {
    float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
    for (unsigned distance = WARP / SPLIT; distance < WARP; distance *= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    return sum;
}

INLINE float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Takes one sequence through the matrix of one head, by what `Rule` does to prepare a token, of
// `Rule::VECTORS` vectors, and to advance a column by it.
template <unsigned ROWS, typename Rule>
INLINE void recur(const Rule &rule, const Matrices &matrices, const Sequences &sequences) {
    DYNAMIC_SHARED(shared);
    Sequence sequence(sequences, blockIdx.x);
    if (sequence.count == 0) {
        return;
    }
    unsigned padded = ROWS > 0 ? ROWS : (matrices.rows + 4 * SPLIT - 1) / (4 * SPLIT) * 4 * SPLIT;
    unsigned size = Prepared::size(padded, Rule::VECTORS), warp = threadIdx.x / WARP;
    bool holds = threadIdx.x < HOLDERS;
    auto tokens = reinterpret_cast<float *>(shared);
    Column<ROWS> column(tokens + 2 * PREPARED * size, padded);
    if (holds) {
        const float *state = matrices.start(sequence.slot);
#pragma unroll
        for (unsigned i = 0; i < column.count(); i++) {
            column[i] = sequence.starts || !matrices.holds(i) ? 0 : *state;
            state += matrices.distance(i);
        }
    }
    // Those who hold columns are one tile behind.
    for (unsigned start = 0; start < sequence.count + PREPARED; start += PREPARED) {
        if (holds && start > 0) {
            unsigned end = min(start, sequence.count);
            for (unsigned token = start - PREPARED; token < end; token++) {
                Prepared own(tokens + token % (2 * PREPARED) * size, padded, Rule::VECTORS);
                float y = rule.advance(column, own);
                if (matrices.part() == 0 && matrices.column() < matrices.columns) {
                    matrices.out[matrices.output(sequence.first + token)] = y;
                }
            }
        } else if (!holds) {
            unsigned end = min(start + PREPARED, sequence.count);
            for (unsigned token = start + warp % PREPARING_WARPS; token < end;
                 token += PREPARING_WARPS) {
                Prepared own(tokens + token % (2 * PREPARED) * size, padded, Rule::VECTORS);
                rule.prepare(own, sequence.first + token, padded);
            }
        }
        __syncthreads();
    }
    if (holds && sequence.slot != NO_SLOT) {
        float *state = matrices.start(sequence.slot);
#pragma unroll
        for (unsigned i = 0; i < column.count(); i++) {
            if (matrices.holds(i)) {
                *state = column[i];
            }
            state += matrices.distance(i);
        }
    }
}

// A kernel of an operation for columns of up to so many rows, or of any number if that is 0.
#define RECURRENCE(operation, Work, size, rows)                                                    \
    KERNEL __launch_bounds__(RECURRENCE_THREADS, 2) operation##_##size(const Work work) {          \
        operation<rows>(work);                                                                     \
    }                                                                                              \
    EXPORT(operation##_##size)
