// Quantized weights as `formats` beside this file packs them: panels of 64 matrix rows, runs of cells
// along the inputs, in each the parts that its sub-blocks of 32 inputs share, then the sub-blocks.
//
// Bytes of a matrix row are what a lane holds of it in `mma_16_8_32`: lane 4 g + t has inputs 4t.. and
// 4t + 16.. of a sub-block, and two matrix rows that are neighbours. No number is changed: scales are
// those of the file, values are unsigned, `OFFSET` above what they stand for.
#pragma once

#include "../cuda/device.cuh"

namespace packed {

// Matrix rows of a panel; inputs of a sub-block; bytes of four values for each row.
constexpr unsigned PANEL = 64, SUB_BLOCK = 32, GROUP = 4 * PANEL;
// Bytes of an f16 for each row.
constexpr unsigned HALF_EACH = 2 * PANEL;

// Loads of what lies at `at`, which is of their size.
INLINE uint32_t load_byte(const unsigned char *at) { return __ldg(at); }
INLINE uint32_t load_short(const unsigned char *at) {
    return __ldg(reinterpret_cast<const uint16_t *>(at));
}
INLINE uint32_t load_word(const unsigned char *at) {
    return __ldg(reinterpret_cast<const uint32_t *>(at));
}
// Values, which nobody else reads, stay out of the first cache.
#ifdef __CUDACC__
INLINE uint2 load_words(const unsigned char *at) {
    uint2 words;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.x), "=r"(words.y)
                 : "l"(at));
    return words;
}
#else
INLINE uint2 load_words(const unsigned char *at) { return *reinterpret_cast<const uint2 *>(at); }
#endif

// One of two.
INLINE uint32_t of_two(const uint2 &words, unsigned row) { return row ? words.y : words.x; }
INLINE float half_of(uint32_t two, unsigned row) {
    return to_float(f16_t{uint16_t(row ? two >> 16 : two)});
}
INLINE uint32_t byte_of(uint32_t two, unsigned row) { return two >> 8 * row & 0xff; }
INLINE float signed_byte_of(uint32_t two, unsigned row) { return float(int8_t(byte_of(two, row))); }

// Values of a sub-block. `load` brings what a lane needs of two neighbouring rows, `get` gives four values
// of one of them: inputs 4t.. if `half` is 0, inputs 4t + 16.. if it is 1.
struct Eight {
    static constexpr unsigned BYTES = 8 * GROUP;
    uint2 words[2];

    INLINE void load(const unsigned char *values, unsigned row, unsigned t) {
        words[0] = load_words(values + t * GROUP + 4 * row);
        words[1] = load_words(values + (t + 4) * GROUP + 4 * row);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned) const {
        return of_two(words[half], row);
    }
};

struct Four {
    static constexpr unsigned BYTES = 4 * GROUP;
    uint2 both;

    INLINE void load(const unsigned char *values, unsigned row, unsigned t) {
        both = load_words(values + t * GROUP + 4 * row);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned) const {
        return of_two(both, row) >> 4 * half & 0x0f0f0f0f;
    }
};

// Four bits, and one more behind those of all values, of four inputs in a row.
struct Five {
    static constexpr unsigned BYTES = Four::BYTES + 4 * PANEL;
    Four four;
    uint32_t fifth[2];

    INLINE void load(const unsigned char *values, unsigned row, unsigned t) {
        four.load(values, row, t);
        const unsigned char *bits = values + Four::BYTES + 32 * t + row / 2;
        fifth[0] = load_byte(bits);
        fifth[1] = load_byte(bits + 4 * 32);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned t) const {
        uint32_t bits = fifth[half] >> 4 * row & 15;
        // To the fifth bits of four bytes; no two of the copies overlap.
        return four.get(row, half, t) | (bits * 0x00204081 & 0x01010101) << 4;
    }
};

// Four bits, and two more behind those of all values, of four groups in a byte.
struct Six {
    static constexpr unsigned BYTES = Four::BYTES + 2 * GROUP;
    Four four;
    uint2 upper[2];

    INLINE void load(const unsigned char *values, unsigned row, unsigned t) {
        four.load(values, row, t);
        upper[0] = load_words(values + Four::BYTES + 4 * row);
        upper[1] = load_words(values + Four::BYTES + GROUP + 4 * row);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned t) const {
        uint32_t two = of_two(upper[half], row) >> 2 * t & 0x03030303;
        return four.get(row, half, t) | two << 4;
    }
};

// Trits, one above what they stand for, of four groups in a byte.
struct Trits {
    static constexpr unsigned BYTES = 2 * GROUP;
    uint2 words[2];

    INLINE void load(const unsigned char *values, unsigned row, unsigned) {
        words[0] = load_words(values + 4 * row);
        words[1] = load_words(values + GROUP + 4 * row);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned t) const {
        return of_two(words[half], row) >> 2 * t & 0x03030303;
    }
};

// Codes of four bits, by a table of sixteen bytes.
template <uint32_t T0, uint32_t T1, uint32_t T2, uint32_t T3> struct Coded {
    static constexpr unsigned BYTES = Four::BYTES;
    Four four;

    INLINE void load(const unsigned char *values, unsigned row, unsigned t) {
        four.load(values, row, t);
    }
    INLINE uint32_t get(unsigned row, unsigned half, unsigned t) const {
        uint32_t codes = four.get(row, half, t), three = codes & 0x07070707;
        // Three bits of each code, side by side as a selector of bytes.
        uint32_t selector = __byte_perm(three | three >> 4, 0, 0x4420);
        uint32_t low = __byte_perm(T0, T1, selector), high = __byte_perm(T2, T3, selector);
        uint32_t is_high = (codes >> 3 & 0x01010101) * 0xff;
        return (low & ~is_high) | (high & is_high);
    }
};
// Sixteen unevenly spaced numbers, 128 above what they stand for:
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113.
using Uneven = Coded<0x3f2d1801, 0x766a5d4f, 0xa6998d81, 0xf1d9c5b5>;
// Floats of four bits, 12 above twice what they stand for: 0 1 2 3 4 6 8 12, and as much less.
using Floats = Coded<0x0f0e0d0c, 0x18141210, 0x090a0b0c, 0x00040608>;

// A block of 32 inputs: a scale, perhaps a minimum, and the values. What formats have in common:
// `load` brings what a lane needs of two neighbouring rows of a sub-block, `head` being what the cell's
// sub-blocks share; `scale` is of a row, and of each half of the inputs where HALVES is 2.
template <typename V, int OFFSET_, bool MINS_ = false> struct Simple {
    using Values = V;
    static constexpr unsigned HEAD = 0, SUBS = 1, HALVES = 1;
    static constexpr unsigned SCALES = (MINS_ ? 2 : 1) * HALF_EACH;
    static constexpr int OFFSET = OFFSET_;
    static constexpr bool MINS = MINS_;
    V values;
    uint32_t scales, mins;

    INLINE void load(const unsigned char *, const unsigned char *sub, unsigned row, unsigned t) {
        scales = load_word(sub + 2 * row);
        if constexpr (MINS) {
            mins = load_word(sub + HALF_EACH + 2 * row);
        }
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned) const { return half_of(scales, row); }
    INLINE float min(unsigned row) const { return MINS ? half_of(mins, row) : 0; }
};

// scale * sub_scale * value - min * sub_min, in blocks of 256.
template <typename V> struct WithMins {
    using Values = V;
    static constexpr unsigned HEAD = 2 * HALF_EACH, SUBS = 8, HALVES = 1, SCALES = 2 * PANEL;
    static constexpr int OFFSET = 0;
    static constexpr bool MINS = true;
    V values;
    uint32_t scales, mins, sub_scales, sub_mins;

    INLINE void load(const unsigned char *head, const unsigned char *sub, unsigned row, unsigned t) {
        scales = load_word(head + 2 * row);
        mins = load_word(head + HALF_EACH + 2 * row);
        sub_scales = load_short(sub + row);
        sub_mins = load_short(sub + PANEL + row);
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned) const {
        return __fmul_rn(half_of(scales, row), float(byte_of(sub_scales, row)));
    }
    INLINE float min(unsigned row) const {
        return -__fmul_rn(half_of(mins, row), float(byte_of(sub_mins, row)));
    }
};

// scale * (value - 32), with a signed sub-scale for each sixteen inputs.
struct Q6K {
    using Values = Six;
    static constexpr unsigned HEAD = HALF_EACH, SUBS = 8, HALVES = 2, SCALES = 2 * PANEL;
    static constexpr int OFFSET = 32;
    static constexpr bool MINS = false;
    Six values;
    uint32_t scales, sub_scales[2];

    INLINE void load(const unsigned char *head, const unsigned char *sub, unsigned row, unsigned t) {
        scales = load_word(head + 2 * row);
        sub_scales[0] = load_short(sub + row);
        sub_scales[1] = load_short(sub + PANEL + row);
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned half) const {
        return __fmul_rn(half_of(scales, row), signed_byte_of(sub_scales[half], row));
    }
    INLINE float min(unsigned) const { return 0; }
};

// Codes of unevenly spaced numbers, with a signed sub-scale.
struct Iq4Xs {
    using Values = Uneven;
    static constexpr unsigned HEAD = HALF_EACH, SUBS = 8, HALVES = 1, SCALES = PANEL;
    static constexpr int OFFSET = 128;
    static constexpr bool MINS = false;
    Uneven values;
    uint32_t scales, sub_scales;

    INLINE void load(const unsigned char *head, const unsigned char *sub, unsigned row, unsigned t) {
        scales = load_word(head + 2 * row);
        sub_scales = load_short(sub + row);
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned) const {
        return __fmul_rn(half_of(scales, row), signed_byte_of(sub_scales, row));
    }
    INLINE float min(unsigned) const { return 0; }
};

// 4-bit floats, of which sixteen share an unsigned 8-bit float whose code of NaN is zero.
struct Nvfp4 {
    using Values = Floats;
    static constexpr unsigned HEAD = 0, SUBS = 2, HALVES = 2, SCALES = 2 * PANEL;
    static constexpr int OFFSET = 12;
    static constexpr bool MINS = false;
    Floats values;
    uint32_t scales[2];

    INLINE void load(const unsigned char *, const unsigned char *sub, unsigned row, unsigned t) {
        scales[0] = load_short(sub + row);
        scales[1] = load_short(sub + PANEL + row);
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned half) const {
        uint32_t code = byte_of(scales[half], row) & 0x7f;
        return code == 0x7f ? 0.0f : __fmul_rn(to_float(f8_t{uint8_t(code)}), 0.5f);
    }
    INLINE float min(unsigned) const { return 0; }
};

// 4-bit floats, of which 32 share half of a power of two, by its exponent.
struct Mxfp4 {
    using Values = Floats;
    static constexpr unsigned HEAD = 0, SUBS = 1, HALVES = 1, SCALES = PANEL;
    static constexpr int OFFSET = 12;
    static constexpr bool MINS = false;
    Floats values;
    uint32_t exponents;

    INLINE void load(const unsigned char *, const unsigned char *sub, unsigned row, unsigned t) {
        exponents = load_short(sub + row);
        values.load(sub + SCALES, row, t);
    }
    INLINE float scale(unsigned row, unsigned) const {
        uint32_t exponent = byte_of(exponents, row);
        // The two smallest have no exponent of their own in a float.
        return __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
    }
    INLINE float min(unsigned) const { return 0; }
};

// Trits with a scale for 256 of them.
struct Ternary {
    using Values = Trits;
    static constexpr unsigned HEAD = HALF_EACH, SUBS = 8, HALVES = 1, SCALES = 0;
    static constexpr int OFFSET = 1;
    static constexpr bool MINS = false;
    Trits values;
    uint32_t scales;

    INLINE void load(const unsigned char *head, const unsigned char *sub, unsigned row, unsigned t) {
        scales = load_word(head + 2 * row);
        values.load(sub, row, t);
    }
    INLINE float scale(unsigned row, unsigned) const { return half_of(scales, row); }
    INLINE float min(unsigned) const { return 0; }
};

using Q8_0 = Simple<Eight, 128>;
using Q4_0 = Simple<Four, 8>;
using Q4_1 = Simple<Four, 0, true>;
using Q5_0 = Simple<Five, 16>;
using Q5_1 = Simple<Five, 0, true>;
using Q4K = WithMins<Four>;
using Q5K = WithMins<Five>;
using Iq4Nl = Simple<Uneven, 128>;

// A matrix of `inputs` columns, as two neighbouring rows of it are read by a lane.
template <typename F> struct Rows {
    static constexpr unsigned SUB = F::SCALES + F::Values::BYTES, CELL = F::HEAD + F::SUBS * SUB;
    const unsigned char *panel;
    unsigned row;

    INLINE Rows(const void *matrix, unsigned first, unsigned inputs)
        : panel(static_cast<const unsigned char *>(matrix) +
                size_t(first / PANEL) * (inputs / SUB_BLOCK / F::SUBS) * CELL),
          row(first % PANEL) {}
    INLINE void load(F &to, unsigned sub_block, unsigned t) const {
        const unsigned char *head = panel + size_t(sub_block / F::SUBS) * CELL;
        const unsigned char *sub = head + F::HEAD + sub_block % F::SUBS * SUB;
        to.load(head, sub, row, t);
    }
};

} // namespace packed

// Runs `macro(name, format)` for each format, as `Kind` of `quantized.rs` names them.
#define EACH_PACKED_FORMAT(macro)                                                                  \
    macro(q8_0, packed::Q8_0) macro(q4_0, packed::Q4_0) macro(q4_1, packed::Q4_1)                  \
    macro(q5_0, packed::Q5_0) macro(q5_1, packed::Q5_1) macro(q4_k, packed::Q4K)                   \
    macro(q5_k, packed::Q5K) macro(q6_k, packed::Q6K) macro(iq4_nl, packed::Iq4Nl)                 \
    macro(iq4_xs, packed::Iq4Xs) macro(nvfp4, packed::Nvfp4) macro(mxfp4, packed::Mxfp4)                   \
    macro(ternary, packed::Ternary)
