// Elementwise operations of one tensor, and of a gate and what it gates.
//
// Grid: [ceil(count / 256)]; block: 256 threads; no dynamic shared memory.
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
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < work.count) {
        float y = work.up ? apply_to_pair(work.op, work.x[i], work.up[i]) : apply(work.op, work.x[i]);
        store(work.out, work.out_type, i, y);
    }
}
EXPORT(pointwise)
