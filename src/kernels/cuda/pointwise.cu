// A function of each number, or of each pair of numbers.
//
// Grid: [ceil(count / 256)]; block: 256 threads; no dynamic shared memory.
#include "activations.cuh"

struct Pointwise {
    // [count]
    const float *x;
    // [count], or null: then it is a function of x alone
    const float *up;
    // [count]
    float *out;
    uint32_t count;
    Numbers numbers;
};
LAYOUT(Pointwise, FIELD(x), FIELD(up), FIELD(out), FIELD(count), FIELD(numbers))

KERNEL pointwise(const Pointwise work) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < work.count) {
        work.out[i] = work.up ? apply_to_pair(work.numbers, work.x[i], work.up[i])
                              : apply(work.numbers, work.x[i]);
    }
}
EXPORT(pointwise)
