// Token ids of a step, from what was drawn of the step before.
//
// Grid: [ceil(count / 256)]; block: 256 threads; no dynamic shared memory.
#include "device.cuh"

struct NextIds {
    // [count]: what `sample_rows` tells of each row, 8 words of 4 bytes, of which one is the token
    const uint32_t *sampled;
    // [count]
    uint32_t *ids;
    uint32_t count;
    // Ids are below this; what was not drawn is no id.
    uint32_t vocab;
};
LAYOUT(NextIds, FIELD(sampled), FIELD(ids), FIELD(count), FIELD(vocab))

constexpr uint32_t WORDS = 8, TOKEN = 4;

KERNEL next_ids(const NextIds work) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < work.count) {
        uint32_t token = work.sampled[i * WORDS + TOKEN];
        work.ids[i] = token < work.vocab ? token : 0;
    }
}
EXPORT(next_ids)
