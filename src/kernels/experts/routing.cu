// Which experts tokens go to, and which tokens come to an expert, without the host knowing.
// T tokens, E experts, P of them for each token.
//
// route: grid [T], block 32, shared bytes 8 * E + 4 * groups.
// group: grid [1], block 256, shared bytes 32 * E.
// route_and_group: both, of at most 8 tokens. Grid [1], block 256, shared bytes those of route for each
//     token, or those of group if they are more.
// E <= 1024, P <= min(E, 32).
#include "../pointwise/elementwise.cuh"
#include "pair_tile.cuh"

constexpr unsigned WARPS = 8, THREADS = WARPS * WARP;
// Lanes take turns with experts, and have a bit for each turn.
constexpr unsigned MOST_EXPERTS = 1024;

enum Score : uint32_t {
    // Over all experts.
    SOFTMAX,
    SIGMOID_OF_EACH,
    // The same, but experts are chosen by the logits themselves.
    SIGMOID_OF_CHOSEN,
};

struct Route {
    // [T, E], what the router gives
    const float *scores;
    // [E], added to scores where experts are chosen; or null
    const float *bias;
    // [E], factors of weights; or null
    const float *expert_scale;
    // [T, P]
    uint32_t *ids;
    // [T, P]
    float *weights;
    uint32_t experts;
    uint32_t per_token;
    // A Score.
    uint32_t score;
    // Zero, or how many there are, how many are looked at, and how many scores count for one.
    uint32_t groups, groups_chosen, groups_best;
    uint32_t renormalize;
    float scale;
};
LAYOUT(Route, FIELD(scores), FIELD(bias), FIELD(expert_scale), FIELD(ids), FIELD(weights),
       FIELD(experts), FIELD(per_token), FIELD(score), FIELD(groups), FIELD(groups_chosen),
       FIELD(groups_best), FIELD(renormalize), FIELD(scale))

// Greater for what is greater in the total order of floats, NaNs included.
INLINE uint32_t order_of(float x) {
    uint32_t bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

INLINE uint64_t warp_most(uint64_t x) {
    for (unsigned distance = WARP / 2; distance > 0; distance /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffff, x, distance);
        x = other > x ? other : x;
    }
    return x;
}

// Makes experts outside of the best groups the last choice.
INLINE void drop_groups(const Route &route, unsigned lane, float *ranks, float *sums) {
    unsigned size = route.experts / route.groups;
    for (unsigned group = lane; group < route.groups; group += WARP) {
        float first = -INFINITY, second = -INFINITY;
        for (unsigned i = 0; i < size; i++) {
            float rank = ranks[group * size + i];
            if (rank > first) {
                second = first;
                first = rank;
            } else {
                second = fmaxf(second, rank);
            }
        }
        sums[group] = route.groups_best == 1 || second == -INFINITY ? first : first + second;
    }
    __syncwarp();
    for (unsigned group = lane; group < route.groups; group += WARP) {
        uint32_t own = order_of(sums[group]);
        unsigned before = 0;
        for (unsigned i = 0; i < route.groups; i++) {
            uint32_t other = order_of(sums[i]);
            before += other > own || (other == own && i < group);
        }
        for (unsigned i = 0; before >= route.groups_chosen && i < size; i++) {
            ranks[group * size + i] = -INFINITY;
        }
    }
    __syncwarp();
}

// Chooses the experts of a token, by one warp.
INLINE void route_token(const Route &route, size_t token, unsigned char *scratch) {
    unsigned lane = threadIdx.x % WARP, experts = route.experts;
    float *scores = reinterpret_cast<float *>(scratch), *ranks = scores + experts;
    const float *logits = route.scores + token * experts;
    float most = -INFINITY, sum = 0;
    for (unsigned i = lane; i < experts; i += WARP) {
        most = fmaxf(most, logits[i]);
    }
    most = warp_max(most);
    for (unsigned i = lane; i < experts; i += WARP) {
        scores[i] = route.score == SOFTMAX ? expf(logits[i] - most) : sigmoid_of(logits[i]);
        sum += scores[i];
    }
    sum = warp_sum(sum);
    // A lane reads and writes its own experts alone, up to where groups are looked at.
    for (unsigned i = lane; i < experts; i += WARP) {
        scores[i] = route.score == SOFTMAX ? scores[i] / sum : scores[i];
        float rank = route.score == SIGMOID_OF_CHOSEN ? logits[i] : scores[i];
        ranks[i] = route.bias != nullptr ? rank + route.bias[i] : rank;
    }
    __syncwarp();
    if (route.groups > 0) {
        drop_groups(route, lane, ranks, ranks + experts);
    }

    // The best of those that are left, one after the other; of equal ones the first.
    unsigned taken = 0, id = ~0u;
    float chosen_sum = 0;
    for (unsigned slot = 0; slot < route.per_token; slot++) {
        uint64_t best = 0;
        for (unsigned turn = 0; turn * WARP + lane < experts; turn++) {
            unsigned expert = turn * WARP + lane;
            uint64_t own = uint64_t(order_of(ranks[expert])) << 32 | (MOST_EXPERTS - expert);
            best = !(taken >> turn & 1) && own > best ? own : best;
        }
        unsigned expert = MOST_EXPERTS - unsigned(warp_most(best) & 0xffffffff);
        taken |= unsigned(expert % WARP == lane) << expert / WARP;
        id = slot == lane ? expert : id;
        chosen_sum += scores[expert];
    }
    float divisor = 1;
    if (route.renormalize) {
        divisor = route.score == SOFTMAX ? chosen_sum : chosen_sum + 1e-20f;
    }
    // Lanes without one have an id that no expert comes behind.
    unsigned rank = 0;
    for (unsigned slot = 0; slot < route.per_token; slot++) {
        rank += __shfl_sync(0xffffffff, id, slot) < id;
    }
    if (lane < route.per_token) {
        float weight = scores[id] / divisor * route.scale;
        size_t at = token * route.per_token + rank;
        route.ids[at] = id;
        weight *= route.expert_scale != nullptr ? route.expert_scale[id] : 1;
        route.weights[at] = weight;
    }
}

KERNEL __launch_bounds__(WARP) route(const Route route) {
    DYNAMIC_SHARED(scratch);
    route_token(route, blockIdx.x, scratch);
}
EXPORT(route)

struct Group {
    // [T, P]
    const uint32_t *ids;
    // [E + 1], where each expert's pairs begin
    uint32_t *offsets;
    // [T * P], by expert, then ascending
    uint32_t *pairs;
    // [most_tiles]
    PairTile *tiles;
    // T * P
    uint32_t count;
    uint32_t experts;
    // Pairs of a tile.
    uint32_t capacity;
    uint32_t most_tiles;
};
LAYOUT(Group, FIELD(ids), FIELD(offsets), FIELD(pairs), FIELD(tiles), FIELD(count), FIELD(experts),
       FIELD(capacity), FIELD(most_tiles))
EXPORT_LAYOUT(PairTile)

// The sum of what the threads before have; the sum of all goes to `total`.
INLINE uint64_t sum_before(uint64_t own, uint64_t *total) {
    __shared__ uint64_t warps[WARPS];
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint64_t sum = own;
    for (unsigned distance = 1; distance < WARP; distance *= 2) {
        uint64_t other = __shfl_up_sync(0xffffffff, sum, distance);
        sum += lane >= distance ? other : 0;
    }
    if (lane == WARP - 1) {
        warps[warp] = sum;
    }
    __syncthreads();
    sum -= own;
    *total = 0;
    for (unsigned i = 0; i < WARPS; i++) {
        sum += i < warp ? warps[i] : 0;
        *total += warps[i];
    }
    return sum;
}

// Each warp has a run of the pairs. It counts its experts; then it knows where its pairs of each go
// behind those of the warps before.
INLINE void list_by_expert(const Group &group, unsigned char *scratch) {
    // [WARPS, E]
    auto *next = reinterpret_cast<uint32_t *>(scratch);
    unsigned experts = group.experts, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned run = ((group.count + WARPS - 1) / WARPS + WARP - 1) / WARP * WARP;
    unsigned first = min(warp * run, group.count), last = min(first + run, group.count);
    for (unsigned i = threadIdx.x; i < WARPS * experts; i += THREADS) {
        next[i] = 0;
    }
    __syncthreads();
    for (unsigned i = first + lane; i < last; i += WARP) {
        atomicAdd(&next[warp * experts + group.ids[i]], 1u);
    }
    __syncthreads();

    // A thread has neighbouring experts. Pairs are counted in the low half, tiles in the high one.
    unsigned each = (experts + THREADS - 1) / THREADS;
    unsigned own = min(threadIdx.x * each, experts), end = min(own + each, experts);
    auto count = [&](unsigned expert) {
        uint64_t pairs = 0;
        for (unsigned i = 0; i < WARPS; i++) {
            pairs += next[i * experts + expert];
        }
        return pairs | (pairs + group.capacity - 1) / group.capacity << 32;
    };
    uint64_t sum = 0, total;
    for (unsigned expert = own; expert < end; expert++) {
        sum += count(expert);
    }
    sum = sum_before(sum, &total);
    for (unsigned expert = own; expert < end; expert++) {
        uint64_t both = count(expert);
        uint32_t at = uint32_t(sum), behind = at + uint32_t(both), tile = uint32_t(sum >> 32);
        group.offsets[expert] = at;
        for (uint32_t i = at; i < behind; i += group.capacity) {
            group.tiles[tile++] = {expert, i, min(i + group.capacity, behind)};
        }
        for (unsigned i = 0; i < WARPS; i++) {
            uint32_t pairs = next[i * experts + expert];
            next[i * experts + expert] = at;
            at += pairs;
        }
        sum += both;
    }
    for (uint32_t i = uint32_t(total >> 32) + threadIdx.x; i < group.most_tiles; i += THREADS) {
        group.tiles[i] = {NO_EXPERT, 0, 0};
    }
    if (threadIdx.x == 0) {
        group.offsets[experts] = group.count;
    }
    __syncthreads();

    for (unsigned start = first; start < last; start += WARP) {
        unsigned pair = start + lane;
        // What is behind the end has an expert of its own.
        uint32_t expert = pair < last ? group.ids[pair] : NO_EXPERT;
        unsigned alike = __match_any_sync(0xffffffff, expert);
        unsigned before = __popc(alike & ((1u << lane) - 1));
        uint32_t *at = &next[warp * experts + (pair < last ? expert : 0)];
        if (pair < last) {
            group.pairs[*at + before] = pair;
        }
        __syncwarp();
        if (pair < last && before == 0) {
            *at += __popc(alike);
        }
        __syncwarp();
    }
}

KERNEL __launch_bounds__(THREADS) group(const Group group) {
    DYNAMIC_SHARED(scratch);
    list_by_expert(group, scratch);
}
EXPORT(group)

struct RouteAndGroup {
    Route route;
    Group group;
};
LAYOUT(RouteAndGroup, FIELD(route), FIELD(group))

KERNEL __launch_bounds__(THREADS) route_and_group(const RouteAndGroup both) {
    DYNAMIC_SHARED(scratch);
    unsigned warp = threadIdx.x / WARP, own = 8 * both.route.experts + 4 * both.route.groups;
    if (warp * both.route.per_token < both.group.count) {
        route_token(both.route, warp, scratch + warp * own);
    }
    // All have chosen, and nobody looks at scores any more.
    __syncthreads();
    list_by_expert(both.group, scratch);
}
EXPORT(route_and_group)
