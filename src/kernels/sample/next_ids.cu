// Token ids of a step, from what was drawn of the step before.
//
// Grid: [ceil(count / 256)]; block: 256 threads; no dynamic shared memory.
#include "rows.cuh"

struct NextIds {
    // [count]
    const SampledRow *sampled;
    // [count]
    uint32_t *ids;
    uint32_t count;
    // Ids are below this; what was not drawn is no id.
    uint32_t vocab;
};
LAYOUT(NextIds, FIELD(sampled), FIELD(ids), FIELD(count), FIELD(vocab))

KERNEL next_ids(const NextIds work) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < work.count) {
        uint32_t token = work.sampled[i].token;
        work.ids[i] = token < work.vocab ? token : 0;
    }
}
EXPORT(next_ids)
