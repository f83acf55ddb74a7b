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
    unsigned width = norm.width;
    size_t start = size_t(blockIdx.x) * width;
    const float *x = norm.x + start;
    float mean = 0;
    if (norm.centered) {
        mean = row_sum(x, width, sums, [](float sum, float own) { return sum + own; }) / float(width);
    }
    float scale = norm_factor(x, width, mean, norm.eps, sums);
    bool whole = width % 4 == 0 && is_aligned(norm.x) && is_aligned(norm.weight) &&
                 is_aligned(norm.bias) && is_aligned(norm.residual) && is_aligned(norm.out);
#pragma unroll 4
    for (unsigned i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
        float own[4], weight[4], bias[4] = {}, residual[4] = {}, y[4];
        load_four_of(own, x, i, width, whole);
        load_four_of(weight, norm.weight, i, width, whole);
        if (norm.bias) {
            load_four_of(bias, norm.bias, i, width, whole);
        }
        if (norm.residual) {
            load_four_of(residual, norm.residual + start, i, width, whole);
        }
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            y[j] = (own[j] - mean) * scale * weight[j];
            y[j] = norm.bias ? y[j] + bias[j] : y[j];
            y[j] = norm.residual ? y[j] + residual[j] : y[j];
        }
        store_four_of(norm.out, norm.out_type, start + i, y, width - i, whole);
    }
}
EXPORT(normalize)
