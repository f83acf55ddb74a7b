// Normalization of rows, with what is added to them afterwards.
//
// Grid: [rows]; block: 256 threads; no dynamic shared memory. A row is reduced by one block in one
// order, whatever other rows there are.
#include "../cuda/device.cuh"

struct Norm {
    // [rows, width]
    const float *x;
    // [width]
    const float *weight;
    // [width], or null
    const float *bias;
    // [rows, width], or null
    const float *residual;
    // [rows, width]
    void *out;
    OutputType out_type;
    uint32_t width;
    // Added to the mean square or the variance.
    float eps;
    // Whether the mean is taken off first.
    uint32_t centered;
};
LAYOUT(Norm, FIELD(x), FIELD(weight), FIELD(bias), FIELD(residual), FIELD(out),
       FIELD(out_type), FIELD(width), FIELD(eps), FIELD(centered))

KERNEL normalize(const Norm norm) {
    __shared__ float sums[WARP];
    size_t start = size_t(blockIdx.x) * norm.width;
    const float *x = norm.x + start;
    float mean = 0;
    if (norm.centered) {
        float sum = 0;
        for (unsigned i = threadIdx.x; i < norm.width; i += blockDim.x) {
            sum += x[i];
        }
        mean = block_sum(sum, sums) / float(norm.width);
    }
    float scale = norm_factor(x, norm.width, mean, norm.eps, sums);
    for (unsigned i = threadIdx.x; i < norm.width; i += blockDim.x) {
        float y = (x[i] - mean) * scale * norm.weight[i];
        if (norm.bias) {
            y += norm.bias[i];
        }
        if (norm.residual) {
            y += norm.residual[start + i];
        }
        store(norm.out, norm.out_type, start + i, y);
    }
}
EXPORT(normalize)
