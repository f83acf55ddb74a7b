// A fading sum of any mix of prompts, pieces of prompts and single tokens, see `recurrence.cuh`. No
// output may be an input.
//
// fading_sum
//     grid     [S, ceil(channels / 64)]
//     threads  64
//     shared   0
#include "../recurrence.cuh"

struct FadingSum {
    // [T, channels], x_stride and decays_stride apart
    const float *x, *decays;
    // [slots, channels]
    float *states;
    // [T, channels]
    float *out;
    Sequences sequences;
    uint32_t x_stride, decays_stride, channels;
};
LAYOUT(FadingSum, FIELD(x), FIELD(decays), FIELD(states), FIELD(out), FIELD(sequences), FIELD(x_stride),
       FIELD(decays_stride), FIELD(channels))

constexpr unsigned CHANNELS = 64;
// Tokens that are loaded at a time.
constexpr unsigned LOADED = 8;

KERNEL __launch_bounds__(CHANNELS) fading_sum(const FadingSum work) {
    Sequence sequence(work.sequences, blockIdx.x);
    unsigned channel = blockIdx.y * CHANNELS + threadIdx.x;
    if (channel >= work.channels || sequence.count == 0) {
        return;
    }
    float *kept = work.states + size_t(sequence.slot) * work.channels + channel;
    float sum = sequence.starts ? 0 : *kept;
    for (unsigned first = 0; first < sequence.count; first += LOADED) {
        size_t row = sequence.first + first;
        unsigned count = min(LOADED, sequence.count - first);
        float inputs[LOADED], decays[LOADED];
#pragma unroll
        for (unsigned i = 0; i < LOADED; i++) {
            inputs[i] = i < count ? work.x[(row + i) * work.x_stride + channel] : 0;
            decays[i] = i < count ? work.decays[(row + i) * work.decays_stride + channel] : 1;
        }
#pragma unroll
        for (unsigned i = 0; i < LOADED; i++) {
            if (i < count) {
                sum = fmaf(decays[i], sum, inputs[i]);
                work.out[(row + i) * work.channels + channel] = sum;
            }
        }
    }
    if (sequence.slot != NO_SLOT) {
        *kept = sum;
    }
}
EXPORT(fading_sum)
