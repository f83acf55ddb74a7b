// Rows of one matrix to chosen rows of another.
//
// Grid: [rows]; block: 256 threads; no dynamic shared memory.
#include "../cuda/device.cuh"

struct PutRows {
    // [rows], different from each other
    const uint32_t *rows;
    // [rows, width]
    const float *from;
    // [.., width]
    float *to;
    uint32_t width;
};
LAYOUT(PutRows, FIELD(rows), FIELD(from), FIELD(to), FIELD(width))

KERNEL put_rows(const PutRows work) {
    const float *from = work.from + size_t(blockIdx.x) * work.width;
    float *to = work.to + size_t(work.rows[blockIdx.x]) * work.width;
    for (unsigned i = threadIdx.x; i < work.width; i += blockDim.x) {
        to[i] = from[i];
    }
}
EXPORT(put_rows)
