// Tokens in the form that packed quantized matrices are multiplied with, and rows of such a matrix as
// numbers.
//
// quantize_rows: grid [rows], block 256, no dynamic shared memory.
// widen_KIND, for KIND of `EACH_PACKED_FORMAT`: grid [ids ? count : ceil(rows / 16),
//     ceil(inputs / 256)], block 256, no dynamic shared memory.
#include "product.cuh"

struct QuantizeRows {
    // [rows / per_row, inputs]
    const float *x;
    // [rows], factors of x; or null
    const float *factors;
    // [rows, row_bytes(inputs)]
    unsigned char *out;
    // A multiple of 32.
    uint32_t inputs;
    // How many rows are made of one.
    uint32_t per_row;
};
LAYOUT(QuantizeRows, FIELD(x), FIELD(factors), FIELD(out), FIELD(inputs), FIELD(per_row))

KERNEL __launch_bounds__(256) quantize_rows(const QuantizeRows work) {
    unsigned row = blockIdx.x, inputs = work.inputs, group = threadIdx.x % 8;
    const float *x = work.x + size_t(row / work.per_row) * inputs;
    float factor = work.factors != nullptr ? work.factors[row] : 1;
    unsigned char *out = work.out + row * packed::row_bytes(inputs);
    auto *heads = reinterpret_cast<packed::Head *>(out + inputs);
    unsigned count = inputs / packed::SUB_BLOCK;
    for (unsigned first = 0; first < count; first += blockDim.x / 8) {
        unsigned sub = first + threadIdx.x / 8;
        bool valid = sub < count;
        sub = valid ? sub : 0;
        float four[4];
        packed::load_inputs(four, x + sub * packed::SUB_BLOCK + 4 * group, factor);
        packed::quantize(four, valid, out + sub * packed::SUB_BLOCK, heads + sub);
    }
    // Copies take heads by twos.
    if (count % 2 == 1 && threadIdx.x == 0) {
        heads[count] = {0, {0, 0}};
    }
}
EXPORT(quantize_rows)

struct Widen {
    const void *matrix;
    // [count], rows of the matrix; or null for all of them
    const uint32_t *ids;
    // [count, inputs] or [rows, inputs]
    void *out;
    OutputType out_type;
    uint32_t rows;
    uint32_t inputs;
};
LAYOUT(Widen, FIELD(matrix), FIELD(ids), FIELD(out), FIELD(out_type), FIELD(rows), FIELD(inputs))

// The numbers of a kind: scale * (value - offset), plus a minimum, each rounded.
template <typename F> INLINE void widen(const Widen &work) {
    unsigned lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    unsigned sub = blockIdx.y * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (sub >= work.inputs / packed::SUB_BLOCK) {
        return;
    }
    // What is no row is read as the last.
    unsigned wanted = work.ids != nullptr ? min(work.ids[blockIdx.x], work.rows - 1) : 0;
    unsigned run = work.ids != nullptr ? wanted / packed::RUN : blockIdx.x;
    unsigned first = run * packed::RUN;
    F weights;
    packed::Rows<F>(work.matrix, first + 2 * g, work.inputs).load(weights, sub, t);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        unsigned own = i / 2, half = i % 2, row = first + 2 * g + own;
        if (row >= work.rows || (work.ids != nullptr && row != wanted)) {
            continue;
        }
        uint32_t four = weights.values.get(own, half, t);
        float scale = weights.scale(own, F::HALVES == 2 ? half : 0), least = weights.min(own);
        size_t at = size_t(work.ids != nullptr ? blockIdx.x : row) * work.inputs +
                    sub * packed::SUB_BLOCK + 16 * half + 4 * t;
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            float x = __fmul_rn(scale, float(int(four >> 8 * k & 0xff) - F::OFFSET));
            store(work.out, work.out_type, at + k, F::MINS ? __fadd_rn(x, least) : x);
        }
    }
}

#define WIDEN(kind, format)                                                                        \
    KERNEL __launch_bounds__(256) widen_##kind(const Widen work) { widen<format>(work); }          \
    EXPORT(widen_##kind)

EACH_PACKED_FORMAT(WIDEN)
