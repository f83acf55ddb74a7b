// What every kernel includes: element types, loads, reductions over a warp, tensor-core products.
//
// The same source is compiled by nvcc for GPUs and by a C++ compiler for tests on the host, where
// `on_host.h` stands in for the language of CUDA: a block runs as fibers of one thread.
// Kernels have blocks of one dimension, and warps that take part in a collective as a whole.
#pragma once

#include <stdint.h>

#include "layout.cuh"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Makes a kernel callable by its name on the host; nothing on a GPU.
#define EXPORT(kernel)
// The block's dynamic shared memory, aligned to 16 bytes.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#else
#include "on_host.h"
#endif

#define KERNEL extern "C" __global__ void
#define INLINE __device__ __forceinline__

constexpr unsigned WARP = 32;
// Positions of a KV block.
constexpr unsigned KV_BLOCK = 32;
// The slot of a token that is not written to the cache, and of a sequence that has no state.
constexpr uint32_t NO_SLOT = 0xffffffff;

// Elements as they lie in memory.
struct bf16_t {
    uint16_t bits;
};
struct f16_t {
    uint16_t bits;
};
// E4M3: a sign, 4 bits of exponent, 3 of mantissa. Nothing is infinite, all ones are NaN, and the
// largest number is 448.
struct f8_t {
    uint8_t bits;
};

INLINE float to_float(float x) { return x; }
INLINE float to_float(bf16_t x) { return __uint_as_float(uint32_t(x.bits) << 16); }
INLINE float to_float(f16_t x) { return __half2float(__ushort_as_half(x.bits)); }

// Rounded to the nearest, ties to even.
template <typename T> INLINE T from_float(float x);
template <> INLINE float from_float<float>(float x) { return x; }
template <> INLINE bf16_t from_float<bf16_t>(float x) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <> INLINE f16_t from_float<f16_t>(float x) {
    return {__half_as_ushort(__float2half_rn(x))};
}

// What is too large, infinities too, becomes the largest number.
template <> INLINE f8_t from_float<f8_t>(float x) {
    uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        return {uint8_t(sign | 0x7f)};
    }
    if (bits >= 0x43e00000) {
        return {uint8_t(sign | 0x7e)};
    }
    if (bits < 0x3c800000) {
        // The smallest number is 2^-9, which is the last bit of what is added.
        float shifted = __fadd_rn(__uint_as_float(bits), 0x1p14f);
        return {uint8_t(sign | (__float_as_uint(shifted) - 0x46800000))};
    }
    uint32_t rounded = bits + 0x7ffff + (bits >> 20 & 1);
    return {uint8_t(sign | (rounded - 0x3c000000) >> 20)};
}

// The type of outputs, where the caller chooses it: 0 f32, 1 bf16, 2 f16.
using OutputType = uint32_t;

INLINE void store(void *out, OutputType type, size_t index, float x) {
    switch (type) {
    case 0:
        static_cast<float *>(out)[index] = x;
        break;
    case 1:
        static_cast<bf16_t *>(out)[index] = from_float<bf16_t>(x);
        break;
    default:
        static_cast<f16_t *>(out)[index] = from_float<f16_t>(x);
    }
}

// Two elements in one register, the first one low.
template <typename T> INLINE uint32_t pack(float low, float high) {
    return uint32_t(from_float<T>(low).bits) | uint32_t(from_float<T>(high).bits) << 16;
}

// Two neighbours, the first of an even index.
INLINE void store_pair(void *out, OutputType type, size_t index, float first, float second) {
    switch (type) {
    case 0:
        static_cast<float2 *>(out)[index / 2] = {first, second};
        break;
    case 1:
        static_cast<uint32_t *>(out)[index / 2] = pack<bf16_t>(first, second);
        break;
    default:
        static_cast<uint32_t *>(out)[index / 2] = pack<f16_t>(first, second);
    }
}

// Of two pairs of f16: products and differences, rounded as above.
#ifdef __CUDACC__
INLINE uint32_t multiply_halves(uint32_t a, uint32_t b) {
    uint32_t products;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
    return products;
}
INLINE uint32_t subtract_halves(uint32_t a, uint32_t b) {
    uint32_t differences;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(differences) : "r"(a), "r"(b));
    return differences;
}
#else
INLINE float low_half(uint32_t pair) { return to_float(f16_t{uint16_t(pair)}); }
INLINE uint32_t multiply_halves(uint32_t a, uint32_t b) {
    return pack<f16_t>(low_half(a) * low_half(b), low_half(a >> 16) * low_half(b >> 16));
}
INLINE uint32_t subtract_halves(uint32_t a, uint32_t b) {
    return pack<f16_t>(low_half(a) - low_half(b), low_half(a >> 16) - low_half(b >> 16));
}
#endif

// Four f8 as two pairs of f16, exact.
INLINE uint2 halves_of_f8(uint32_t four) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint2 pairs;
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;}"
        : "=r"(pairs.x), "=r"(pairs.y)
        : "r"(four));
    return pairs;
#else
    // Of codes in the upper bytes of two halves. Shifted by one bit, exponent and mantissa are at
    // their places in an f16, whose exponents count from 8 less. Only NaN carries.
    auto pair = [](uint32_t codes) {
        uint32_t size = codes >> 1 & 0x3f803f80, carry = (size + 0x00800080) & 0x40004000;
        uint32_t nan = (carry << 1) - (carry >> 14);
        return multiply_halves((codes & 0x80008000) | size | nan, 0x5c005c00);
    };
    return {pair(__byte_perm(four, 0, 0x1404)), pair(__byte_perm(four, 0, 0x3424))};
#endif
}

INLINE float to_float(f8_t x) { return to_float(f16_t{uint16_t(halves_of_f8(x.bits).x)}); }

INLINE float warp_sum(float x) {
#pragma unroll
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, distance);
    }
    return x;
}

INLINE float warp_max(float x) {
#pragma unroll
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, distance));
    }
    return x;
}

// The sum over a block of whole warps, the same for all threads and for any schedule. `shared` has
// room for one float per warp; all threads take part, twice in a row if they like.
INLINE float block_sum(float x, float *shared) {
    unsigned warps = blockDim.x / WARP;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        shared[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    float sum = 0;
    for (unsigned warp = 0; warp < warps; warp++) {
        sum += shared[warp];
    }
    return sum;
}

// Whether four floats from here on can be read or written at once.
INLINE bool is_aligned(const void *at) { return reinterpret_cast<size_t>(at) % 16 == 0; }

// Elements `[i, i + 4)` of a row of `width`, zeros behind its end; at once if the row is `whole`.
INLINE void load_four_of(float (&to)[4], const float *row, unsigned i, unsigned width, bool whole) {
    if (whole) {
        float4 all = __ldg(reinterpret_cast<const float4 *>(row + i));
        to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
        return;
    }
#pragma unroll
    for (unsigned j = 0; j < 4; j++) {
        to[j] = i + j < width ? row[i + j] : 0;
    }
}

// The same of what is written.
INLINE void store_four_of(void *out, OutputType type, size_t at, const float (&y)[4], unsigned left,
                          bool whole) {
    if (whole && type == 0) {
        *reinterpret_cast<float4 *>(static_cast<float *>(out) + at) = {y[0], y[1], y[2], y[3]};
    } else if (whole) {
        uint2 pairs = type == 1 ? uint2{pack<bf16_t>(y[0], y[1]), pack<bf16_t>(y[2], y[3])}
                                : uint2{pack<f16_t>(y[0], y[1]), pack<f16_t>(y[2], y[3])};
        *reinterpret_cast<uint2 *>(static_cast<bf16_t *>(out) + at) = pairs;
    } else {
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            if (j < left) {
                store(out, type, at + j, y[j]);
            }
        }
    }
}

// The sum of a function of a row's elements, for all threads of a block of 256, which take part: a thread adds
// four neighbours of each 1,024. `shared` as for `block_sum`.
template <typename Term>
INLINE float row_sum(const float *x, unsigned width, float *shared, const Term &term) {
    bool whole = width % 4 == 0 && is_aligned(x);
    float sum = 0;
#pragma unroll 4
    for (unsigned i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) {
        float own[4];
        load_four_of(own, x, i, width, whole);
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            if (i + j < width) {
                sum = term(sum, own[j]);
            }
        }
    }
    return block_sum(sum, shared);
}

// 1 / sqrt(variance + eps) of a row whose mean is known, or 0 for its mean square; as `row_sum`.
INLINE float norm_factor(const float *x, unsigned width, float mean, float eps, float *shared) {
    float squares = row_sum(x, width, shared, [&](float sum, float own) {
        float distance = own - mean;
        return fmaf(distance, distance, sum);
    });
    return 1 / sqrtf(squares / float(width) + eps);
}

// d [16, 8] += a [16, 16] * b [16, 8] over a warp, sums in f32. Lane 4 g + t holds
// a: rows g, g + 8, g, g + 8 of columns 2t.., 2t.., 2t + 8.., 2t + 8..;
// b: column g of rows 2t.., 2t + 8..; d: columns 2t, 2t + 1 of rows g and g + 8.
template <typename T>
INLINE void mma_16_8_16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

// The same with bytes, unsigned ones of a and signed ones of b, and sums in integers:
// d [16, 8] += a [16, 32] * b [32, 8]. Lane 4 g + t holds
// a: rows g, g + 8, g, g + 8 of columns 4t.., 4t.., 4t + 16.., 4t + 16..;
// b: column g of rows 4t.., 4t + 16..; d: as above.
INLINE void mma_16_8_32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
// Of a's first, or last, 16 columns alone, and as many rows of b.
INLINE void mma_16_8_16(int (&d)[4], uint32_t a, uint32_t a_below, uint32_t b);

// Four matrices [8, 8] of 2-byte elements from shared memory, each lane naming a row of 16 bytes:
// lanes 8i.. those of matrix i. Lane 4 g + t gets columns 2t, 2t + 1 of row g of each.
INLINE void load_matrices(uint32_t (&to)[4], const void *row);
// The same, each matrix transposed: rows 2t, 2t + 1 of column g.
INLINE void load_matrices_transposed(uint32_t (&to)[4], const void *row);

// Starts to copy 16 bytes from global to shared memory; nothing is read if `filled` is false, the
// bytes are zeros then.
INLINE void copy_async(void *shared, const void *global, bool filled = true);
// Ends a group of copies.
INLINE void copy_commit();
// Waits until at most `LEFT` of this thread's latest groups are under way.
template <int LEFT> INLINE void copy_wait();

#ifdef __CUDACC__
template <>
INLINE void mma_16_8_16<bf16_t>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
INLINE void mma_16_8_16<f16_t>(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void mma_16_8_32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void mma_16_8_16(int (&d)[4], uint32_t a, uint32_t a_below, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a), "r"(a_below), "r"(b));
}
INLINE void load_matrices(uint32_t (&to)[4], const void *row) {
    unsigned from = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
INLINE void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
    unsigned from = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
INLINE void copy_async(void *shared, const void *global, bool filled) {
    unsigned to = __cvta_generic_to_shared(shared);
    unsigned bytes = filled ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
}
INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> INLINE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif
