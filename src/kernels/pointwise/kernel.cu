// Elementwise operations of one tensor, and of a gate and what it gates.
//
// Grid: [ceil(count / 1024)]; block: 256 threads, of which each takes four neighbours; no dynamic shared
// memory.
#include "elementwise.cuh"

struct Pointwise {
    // [count]
    const float *x;
    // [count], or null: then the operation is one of x alone
    const float *up;
    // [count], of the type `out_type`
    void *out;
    uint32_t count;
    OutputType out_type;
    ElementwiseOp op;
};
LAYOUT(Pointwise, FIELD(x), FIELD(up), FIELD(out), FIELD(count), FIELD(out_type), FIELD(op))

KERNEL pointwise(const Pointwise work) {
    unsigned i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= work.count) {
        return;
    }
    bool whole = work.count - i >= 4 && is_aligned(work.x) && is_aligned(work.up) &&
                 is_aligned(work.out);
    float x[4], up[4], y[4];
    load_four_of(x, work.x, i, work.count, whole);
    if (work.up) {
        load_four_of(up, work.up, i, work.count, whole);
    }
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        y[j] = work.up ? apply_to_pair(work.op, x[j], up[j]) : apply(work.op, x[j]);
    }
    store_four_of(work.out, work.out_type, i, y, work.count - i, whole);
}
EXPORT(pointwise)
