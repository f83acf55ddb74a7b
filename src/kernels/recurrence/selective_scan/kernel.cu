// The selective scan of any mix of prompts, pieces of prompts and single tokens, see
// `recurrence.cuh`. No output may be an input.
//
// selective_scan
//     grid     [S, ceil(channels / 64)]
//     threads  64
//     shared   0
#include "../recurrence.cuh"

struct SelectiveScan {
    // [T, channels], x_stride and steps_stride apart
    const float *x, *steps;
    // [T, 2 * size], vectors_stride apart: what writes the states of all channels, then what reads them
    const float *vectors;
    // [size, channels]
    const float *decay;
    // [channels]
    const float *skip;
    // [slots, size, channels]
    float *states;
    // [T, channels]
    float *out;
    Sequences sequences;
    uint32_t x_stride, steps_stride, vectors_stride;
    uint32_t channels, size;
};
LAYOUT(SelectiveScan, FIELD(x), FIELD(steps), FIELD(vectors), FIELD(decay), FIELD(skip), FIELD(states),
       FIELD(out), FIELD(sequences), FIELD(x_stride), FIELD(steps_stride), FIELD(vectors_stride),
       FIELD(channels), FIELD(size))

constexpr unsigned CHANNELS = 64;
// States of a channel that its thread holds at a time: all that Mamba has.
constexpr unsigned HELD = 16;

// Takes the tokens of a sequence through states `first..first + held` of a channel, and adds what they
// give to what earlier ones gave.
INLINE void scan(const SelectiveScan &work, const Sequence &sequence, unsigned channel, unsigned first) {
    unsigned held = min(work.size - first, HELD);
    bool is_last = first + held == work.size;
    size_t place = (size_t(sequence.slot) * work.size + first) * work.channels + channel;
    float state[HELD], decay[HELD];
#pragma unroll
    for (unsigned i = 0; i < HELD; i++) {
        bool own = i < held;
        decay[i] = own ? work.decay[size_t(first + i) * work.channels + channel] : 0;
        state[i] = own && !sequence.starts ? work.states[place + size_t(i) * work.channels] : 0;
    }
    float skip = is_last ? work.skip[channel] : 0;
    size_t row = sequence.first, end = row + sequence.count;
    float input = work.x[row * work.x_stride + channel];
    float step = work.steps[row * work.steps_stride + channel];
#pragma unroll 1
    for (; row < end; row++) {
        float own_input = input, own_step = softplus(step);
        if (row + 1 < end) {
            input = work.x[(row + 1) * work.x_stride + channel];
            step = work.steps[(row + 1) * work.steps_stride + channel];
        }
        float taken = __fmul_rn(own_step, own_input);
        const float *writes = work.vectors + row * work.vectors_stride + first;
        const float *reads = writes + work.size;
        float *out = work.out + row * work.channels + channel;
        float sum = first > 0 ? *out : 0;
#pragma unroll
        for (unsigned i = 0; i < HELD; i++) {
            if (i < held) {
                float fading = expf(__fmul_rn(own_step, decay[i]));
                state[i] = fmaf(state[i], fading, __fmul_rn(writes[i], taken));
                sum = fmaf(state[i], reads[i], sum);
            }
        }
        *out = is_last ? fmaf(own_input, skip, sum) : sum;
    }
#pragma unroll
    for (unsigned i = 0; i < HELD; i++) {
        if (i < held && sequence.slot != NO_SLOT) {
            work.states[place + size_t(i) * work.channels] = state[i];
        }
    }
}

KERNEL __launch_bounds__(CHANNELS) selective_scan(const SelectiveScan work) {
    Sequence sequence(work.sequences, blockIdx.x);
    unsigned channel = blockIdx.y * CHANNELS + threadIdx.x;
    if (channel >= work.channels || sequence.count == 0) {
        return;
    }
    for (unsigned first = 0; first < work.size; first += HELD) {
        scan(work, sequence, channel, first);
    }
}
EXPORT(selective_scan)
