// The short convolution of any mix of prompts, pieces of prompts and single tokens, see
// `recurrence.cuh`. No output may be an input.
//
// short_conv, any `taps` of 2 or more (2, 3 and 4 from registers)
//     grid     [S, ceil(channels / 128), Z], Z >= 1, with the same results for any Z. Every Z-th
//              tile of max(16, taps - 1) tokens of a sequence falls to the same threads: Z = 1 for
//              single tokens, else about ceil(longest / 16), at most 32
//     threads  128
//     shared   0
#include "../../pointwise/elementwise.cuh"
#include "../recurrence.cuh"

struct ShortConv {
    // [T, channels], x_stride apart
    const float *x;
    // [taps, channels], the oldest token's first
    const float *weight;
    // [channels], or null
    const float *bias;
    // [slots, (taps - 1) * channels]: the last inputs, the oldest first
    float *states;
    // [T, channels]
    float *out;
    Sequences sequences;
    uint32_t x_stride, channels, taps;
    // Of the sums; a function of all ones is none.
    ElementwiseOp activation;
};
LAYOUT(ShortConv, FIELD(x), FIELD(weight), FIELD(bias), FIELD(states), FIELD(out), FIELD(sequences),
       FIELD(x_stride), FIELD(channels), FIELD(taps), FIELD(activation))

constexpr unsigned CHANNELS = 128;
// Tokens that a thread takes at a time.
constexpr unsigned CONV_TOKENS = 16;

// One channel of one sequence.
struct Channel {
    const ShortConv &work;
    Sequence sequence;
    unsigned index;

    INLINE float *kept(unsigned row) const {
        unsigned rows = work.taps - 1;
        return work.states + (size_t(sequence.slot) * rows + row) * work.channels + index;
    }

    // The input `back` tokens before `token`.
    INLINE float input(unsigned token, unsigned back) const {
        if (token >= back) {
            return work.x[(sequence.first + token - back) * work.x_stride + index];
        }
        return sequence.starts ? 0 : *kept(work.taps - 1 + token - back);
    }

    INLINE float weight(unsigned tap) const {
        return work.weight[size_t(tap) * work.channels + index];
    }

    INLINE void write(unsigned token, float sum) const {
        work.out[(sequence.first + token) * work.channels + index] = apply(work.activation, sum);
    }
};

template <unsigned TAPS>
INLINE void convolve(const Channel &channel, unsigned first, unsigned end, float bias) {
    float weights[TAPS], inputs[TAPS];
#pragma unroll
    for (unsigned tap = 0; tap < TAPS; tap++) {
        weights[tap] = channel.weight(tap);
    }
    // What the first token needs, one place to the right.
#pragma unroll
    for (unsigned tap = 1; tap < TAPS; tap++) {
        inputs[tap] = channel.input(first, TAPS - tap);
    }
    float next = channel.input(first, 0);
#pragma unroll 1
    for (unsigned token = first; token < end; token++) {
#pragma unroll
        for (unsigned tap = 1; tap < TAPS; tap++) {
            inputs[tap - 1] = inputs[tap];
        }
        inputs[TAPS - 1] = next;
        if (token + 1 < end) {
            next = channel.input(token + 1, 0);
        }
        float sum = bias;
#pragma unroll
        for (unsigned tap = 0; tap < TAPS; tap++) {
            sum = fmaf(inputs[tap], weights[tap], sum);
        }
        channel.write(token, sum);
    }
}

INLINE void convolve_any(const Channel &channel, unsigned first, unsigned end, float bias) {
    unsigned taps = channel.work.taps;
    for (unsigned token = first; token < end; token++) {
        float sum = bias;
        for (unsigned tap = 0; tap < taps; tap++) {
            sum = fmaf(channel.input(token, taps - 1 - tap), channel.weight(tap), sum);
        }
        channel.write(token, sum);
    }
}

KERNEL __launch_bounds__(CHANNELS) short_conv(const ShortConv work) {
    Channel channel{work, Sequence(work.sequences, blockIdx.x), blockIdx.y * CHANNELS + threadIdx.x};
    const Sequence &sequence = channel.sequence;
    if (channel.index >= work.channels) {
        return;
    }
    float bias = work.bias ? work.bias[channel.index] : 0;
    // Tokens that need the old state are all in the first tile, whose thread writes the new one.
    unsigned tile = max(CONV_TOKENS, work.taps - 1);
    for (unsigned first = blockIdx.z * tile; first < sequence.count; first += gridDim.z * tile) {
        unsigned end = min(first + tile, sequence.count);
        switch (work.taps) {
        case 2:
            convolve<2>(channel, first, end, bias);
            break;
        case 3:
            convolve<3>(channel, first, end, bias);
            break;
        case 4:
            convolve<4>(channel, first, end, bias);
            break;
        default:
            convolve_any(channel, first, end, bias);
        }
    }
    if (blockIdx.z == 0 && sequence.count > 0 && sequence.slot != NO_SLOT) {
        // What is read of the old state stands behind what is written.
        for (unsigned row = 0; row + 1 < work.taps; row++) {
            *channel.kept(row) = channel.input(sequence.count, work.taps - 1 - row);
        }
    }
}
EXPORT(short_conv)
