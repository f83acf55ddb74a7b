// Elementwise operations of one tensor, and of a gate and what it gates.
//
// Grid: [ceil(count / 256)]; block: 256 threads; no dynamic shared memory.
#include "elementwise.cuh"

struct Pointwise {
    // [count]
    const float *x;
    // [count], or null: then the operation is one of x alone
    const float *up;
    // [count]
    float *out;
    uint32_t count;
    ElementwiseOp op;
};
LAYOUT(Pointwise, FIELD(x), FIELD(up), FIELD(out), FIELD(count), FIELD(op))

KERNEL pointwise(const Pointwise work) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < work.count) {
        work.out[i] = work.up ? apply_to_pair(work.op, work.x[i], work.up[i])
                              : apply(work.op, work.x[i]);
    }
}
EXPORT(pointwise)
