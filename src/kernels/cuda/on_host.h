// The language of CUDA for a C++ compiler, so that kernels can be tested where there is no GPU: threads
// of a block are those of `on_host/block.h`.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <utility>

#include "on_host/block.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__
#define __launch_bounds__(...)
// Fibers of a block share a thread.
#define __shared__ static thread_local
#define __align__(bytes) alignas(bytes)

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

namespace on_host {

template <typename... A> struct Call {
    void (*kernel)(A...);
    void **arguments;
    template <size_t... I> void apply(std::index_sequence<I...>) {
        kernel(*static_cast<A *>(arguments[I])...);
    }
    static void run(void *call) {
        static_cast<Call *>(call)->apply(std::index_sequence_for<A...>());
    }
};

template <typename... A>
void launch(const char *name, void (*kernel)(A...), void **arguments, const unsigned *grid,
            unsigned threads, unsigned shared) {
    Call<A...> call{kernel, arguments};
    launch(name, Call<A...>::run, &call, grid, threads, shared);
}

// Bytes of a kernel's only argument, which who launches it later keeps a copy of.
template <typename A> constexpr size_t argument_bytes(void (*)(A)) { return sizeof(A); }

__forceinline__ unsigned lane() { return thread_index().x % LANES; }

// The value of the lane `from`.
template <typename T> __forceinline__ T exchange(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "lanes show 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = exchange(bits, from);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// What all lanes of the warp hold.
template <typename T> __forceinline__ void gather(T value, T (&all)[LANES]) {
    uint64_t bits = 0, each[LANES];
    memcpy(&bits, &value, sizeof(T));
    gather(bits, each);
    for (unsigned lane = 0; lane < LANES; lane++) {
        memcpy(&all[lane], &each[lane], sizeof(T));
    }
}

} // namespace on_host

#define EXPORT(kernel)                                                                             \
    extern "C" void kernel##_on_host(void **arguments, const unsigned *grid, unsigned threads,     \
                                     unsigned shared) {                                            \
        on_host::launch(#kernel, kernel, arguments, grid, threads, shared);                        \
    }                                                                                              \
    extern "C" {                                                                                   \
    size_t kernel##_argument_bytes = on_host::argument_bytes(kernel);                              \
    }
#define DYNAMIC_SHARED(name) unsigned char *name = on_host::shared_memory()

#define threadIdx (on_host::thread_index())
#define blockIdx (on_host::block_index())
#define blockDim (on_host::block_size())
#define gridDim (on_host::grid_size())

// Inlined, as all that meets: see `on_host/block.h`.
__forceinline__ void __syncthreads() { on_host::barrier(); }
__forceinline__ void __syncwarp(unsigned = ~0u) { on_host::warp_barrier(); }
template <typename T>
__forceinline__ T __shfl_xor_sync(unsigned, T value, unsigned distance) {
    return on_host::exchange(value, on_host::lane() ^ distance);
}
template <typename T>
__forceinline__ T __shfl_sync(unsigned, T value, unsigned from) {
    return on_host::exchange(value, from);
}
template <typename T>
__forceinline__ T __shfl_down_sync(unsigned, T value, unsigned distance) {
    unsigned lane = on_host::lane();
    return on_host::exchange(value, lane + distance < on_host::LANES ? lane + distance : lane);
}
template <typename T>
__forceinline__ T __shfl_up_sync(unsigned, T value, unsigned distance) {
    unsigned lane = on_host::lane();
    return on_host::exchange(value, lane >= distance ? lane - distance : lane);
}
__forceinline__ unsigned __ballot_sync(unsigned, int predicate) {
    int all[on_host::LANES];
    on_host::gather(predicate, all);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < on_host::LANES; lane++) {
        bits |= unsigned(all[lane] != 0) << lane;
    }
    return bits;
}
template <typename T>
__forceinline__ unsigned __match_any_sync(unsigned, T value) {
    T all[on_host::LANES];
    on_host::gather(value, all);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < on_host::LANES; lane++) {
        bits |= unsigned(all[lane] == value) << lane;
    }
    return bits;
}
__forceinline__ unsigned atomicAdd(unsigned *to, unsigned value) {
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <typename T> T __ldg(const T *from) { return *from; }

inline float __uint_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
inline double __longlong_as_double(long long bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
inline long long __double_as_longlong(double x) {
    long long bits;
    memcpy(&bits, &x, 8);
    return bits;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    uint64_t bytes = uint64_t(high) << 32 | low;
    unsigned chosen = 0;
    for (unsigned i = 0; i < 4; i++) {
        chosen |= unsigned(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    }
    return chosen;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline int __clzll(long long bits) { return bits == 0 ? 64 : __builtin_clzll(bits); }
// Without the fused operations that a compiler may make of a product and a sum.
inline float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}
inline float __fadd_rn(float a, float b) {
    volatile float sum = a + b;
    return sum;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float2int_rn(float x) { return int(lrintf(x)); }
inline double __dmul_rn(double a, double b) {
    volatile double product = a * b;
    return product;
}
inline double __dadd_rn(double a, double b) {
    volatile double sum = a + b;
    return sum;
}
inline float __double2float_ru(double x) {
    auto nearest = float(x);
    return double(nearest) < x ? nextafterf(nearest, INFINITY) : nearest;
}
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }

struct HalfBits {
    uint16_t bits;
};
inline HalfBits __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(HalfBits x) { return x.bits; }
inline uint16_t __bfloat16_as_ushort(HalfBits x) { return x.bits; }

inline float __half2float(HalfBits half) {
    uint32_t sign = uint32_t(half.bits & 0x8000) << 16;
    uint32_t magnitude = half.bits & 0x7fff;
    if (magnitude >= 0x7c00) {
        return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    }
    // As if the exponent were that of an f32, then by the difference of the two biases.
    float x = __uint_as_float(magnitude << 13) * 0x1p112f;
    return __uint_as_float(sign | __float_as_uint(x));
}
inline HalfBits __float2half_rn(float x) {
    uint32_t bits = __float_as_uint(x);
    auto sign = uint16_t(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        return {uint16_t(sign | 0x7e00)};
    }
    if (bits >= 0x477ff000) {
        return {uint16_t(sign | 0x7c00)};
    }
    if (bits < 0x38800000) {
        // Adding a half shifts a small number's bits to where its mantissa belongs, rounded.
        float shifted = __uint_as_float(bits) + 0.5f;
        return {uint16_t(sign | (__float_as_uint(shifted) - 0x3f000000))};
    }
    uint32_t rounded = bits + 0xfff + (bits >> 13 & 1);
    return {uint16_t(sign | (rounded - 0x38000000) >> 13)};
}
inline HalfBits __float2bfloat16_rn(float x) {
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return {0x7fff};
    }
    return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

struct bf16_t;
struct f16_t;
template <typename T> float to_float_of_bits(uint16_t bits);
template <> inline float to_float_of_bits<bf16_t>(uint16_t bits) {
    return __uint_as_float(uint32_t(bits) << 16);
}
template <> inline float to_float_of_bits<f16_t>(uint16_t bits) { return __half2float({bits}); }

template <typename T>
__forceinline__ void mma_16_8_16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    uint32_t all_a[4][32], all_b[2][32];
    for (int i = 0; i < 4; i++) {
        on_host::gather(a[i], all_a[i]);
    }
    for (int i = 0; i < 2; i++) {
        on_host::gather(b[i], all_b[i]);
    }
    auto half = [](uint32_t pair, unsigned odd) {
        return to_float_of_bits<T>(uint16_t(odd ? pair >> 16 : pair));
    };
    unsigned g = on_host::lane() / 4, t = on_host::lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned lower = i / 2, column = 2 * t + i % 2;
        double sum = d[i];
        for (unsigned k = 0; k < 16; k++) {
            unsigned far = k / 8, own = k % 8 / 2;
            float x = half(all_a[2 * far + lower][4 * g + own], k % 2);
            float y = half(all_b[far][4 * column + own], k % 2);
            sum += double(x) * double(y);
        }
        d[i] = float(sum);
    }
}

__forceinline__ void mma_of_bytes(int (&d)[4], const uint32_t *a, const uint32_t *b, unsigned halves) {
    uint32_t all_a[4][32], all_b[2][32];
    for (unsigned i = 0; i < 2 * halves; i++) {
        on_host::gather(a[i], all_a[i]);
    }
    for (unsigned i = 0; i < halves; i++) {
        on_host::gather(b[i], all_b[i]);
    }
    unsigned g = on_host::lane() / 4, t = on_host::lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned lower = i / 2, column = 2 * t + i % 2;
        for (unsigned k = 0; k < 16 * halves; k++) {
            unsigned far = k / 16, own = k % 16 / 4, byte = 8 * (k % 4);
            auto x = int(all_a[2 * far + lower][4 * g + own] >> byte & 0xff);
            d[i] += x * int8_t(all_b[far][4 * column + own] >> byte & 0xff);
        }
    }
}
__forceinline__ void mma_16_8_32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    mma_of_bytes(d, a, b, 2);
}
__forceinline__ void mma_16_8_16(int (&d)[4], uint32_t a, uint32_t a_below, uint32_t b) {
    const uint32_t both[2] = {a, a_below};
    mma_of_bytes(d, both, &b, 1);
}

__forceinline__ void load_matrices_of(uint32_t (&to)[4], const void *row, bool transposed) {
    const void *rows[32];
    on_host::gather(row, rows);
    unsigned g = on_host::lane() / 4, t = on_host::lane() % 4;
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        auto at = [&](unsigned row, unsigned column) {
            return uint32_t(static_cast<const uint16_t *>(rows[8 * matrix + row])[column]);
        };
        uint32_t low = transposed ? at(2 * t, g) : at(g, 2 * t);
        uint32_t high = transposed ? at(2 * t + 1, g) : at(g, 2 * t + 1);
        to[matrix] = low | high << 16;
    }
    // Nobody may write there before all have read.
    __syncwarp();
}
__forceinline__ void load_matrices(uint32_t (&to)[4], const void *row) { load_matrices_of(to, row, false); }
__forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const void *row) {
    load_matrices_of(to, row, true);
}
__forceinline__ void copy_async(void *shared, const void *global, bool filled) {
    on_host::start_copy(shared, global, filled);
}
inline void copy_commit() { on_host::end_group_of_copies(); }
template <int LEFT> inline void copy_wait() { on_host::wait_for_copies(LEFT); }
