// Head norms and rotation of queries and keys, and keys and values on their way to the cache.
//
// Grid: [tokens, ceil(all / W)], where `all` heads are heads + 2 * kv_heads, or heads for queries alone;
// block: W warps, each of which takes one head of one token; dynamic shared memory: for each warp one
// float per element of the longest head.
#include "../cuda/device.cuh"

struct KvWrite {
    // Rows of tokens: [heads, key_dim], [kv_heads, key_dim], [kv_heads, value_dim]
    const float *q;
    const float *k;
    const float *v;
    // Elements between the rows of two tokens.
    uint32_t q_stride, k_stride, v_stride;
    // [tokens, pairs]
    const float *cos;
    const float *sin;
    // [key_dim] each, or null
    const float *query_weight;
    const float *key_weight;
    float eps;
    // Whether heads are rotated before the norm.
    uint32_t norm_after_rotation;
    // [tokens, heads, key_dim]
    float *queries;
    // The cache: keys [blocks, kv_heads, key_dim, 32], values [blocks, kv_heads, 32, value_dim]
    void *keys;
    void *values;
    // [tokens]: block * 32 + offset; all ones: the token is none and nothing of it is written
    const uint32_t *slots;
    uint32_t heads, kv_heads, key_dim, value_dim, pairs;
    // Of the cache: 0 f32, 1 f16, 2 bf16, 3 q8_0, 4 f8 (E4M3)
    uint32_t format;
};
LAYOUT(KvWrite, FIELD(q), FIELD(k), FIELD(v), FIELD(q_stride), FIELD(k_stride), FIELD(v_stride),
       FIELD(cos), FIELD(sin), FIELD(query_weight), FIELD(key_weight), FIELD(eps),
       FIELD(norm_after_rotation), FIELD(queries), FIELD(keys), FIELD(values), FIELD(slots),
       FIELD(heads), FIELD(kv_heads), FIELD(key_dim), FIELD(value_dim), FIELD(pairs),
       FIELD(format))

// Elements that share a scale in a q8_0 cache, and their bytes at one position.
constexpr unsigned GROUP = 32, GROUP_BYTES = 34;

INLINE unsigned lane() { return threadIdx.x % WARP; }

// The head in `head`, by one warp, normalized.
INLINE void normalize(float *head, const float *weight, float eps, unsigned width) {
    float squares = 0;
    for (unsigned i = lane(); i < width; i += WARP) {
        squares += head[i] * head[i];
    }
    float scale = 1 / sqrtf(warp_sum(squares) / float(width) + eps);
    for (unsigned i = lane(); i < width; i += WARP) {
        head[i] = head[i] * scale * weight[i];
    }
    __syncwarp();
}

INLINE void rotate(float *head, const float *cos, const float *sin, unsigned pairs) {
    for (unsigned i = lane(); i < pairs; i += WARP) {
        float a = head[i], b = head[i + pairs];
        head[i] = a * cos[i] - b * sin[i];
        head[i + pairs] = b * cos[i] + a * sin[i];
    }
    __syncwarp();
}

// A number of a group as 8 bits; the group's scale is rounded to f16 first. A group that holds
// anything but finite numbers becomes NaN as a whole.
INLINE int quantized(float x, f16_t &scale) {
    bool finite = x - x == 0;
    unsigned all = __ballot_sync(0xffffffff, finite);
    float largest = warp_max(fabsf(x));
    if (all != 0xffffffff) {
        scale = {0x7e00};
        return 0;
    }
    scale = from_float<f16_t>(fminf(largest / 127, 65504.f));
    float unit = to_float(scale);
    if (unit == 0) {
        return 0;
    }
    return int(fmaxf(-127, fminf(127, rintf(x / unit))));
}

template <typename T> INLINE void store_key(const KvWrite &work, const float *head, unsigned kv_head,
                                            uint32_t slot) {
    size_t index = (size_t(slot / KV_BLOCK) * work.kv_heads + kv_head) * work.key_dim;
    T *to = static_cast<T *>(work.keys) + index * KV_BLOCK + slot % KV_BLOCK;
    for (unsigned i = lane(); i < work.key_dim; i += WARP) {
        to[i * KV_BLOCK] = from_float<T>(head[i]);
    }
}

template <typename T> INLINE void store_value(const KvWrite &work, const float *head,
                                              unsigned kv_head, uint32_t slot) {
    size_t index = (size_t(slot / KV_BLOCK) * work.kv_heads + kv_head) * KV_BLOCK + slot % KV_BLOCK;
    T *to = static_cast<T *>(work.values) + index * work.value_dim;
    for (unsigned i = lane(); i < work.value_dim; i += WARP) {
        to[i] = from_float<T>(head[i]);
    }
}

// For each group the scales of 32 positions, then a row of 32 positions per element.
INLINE void store_quantized_key(const KvWrite &work, const float *head, unsigned kv_head,
                                uint32_t slot) {
    unsigned groups = work.key_dim / GROUP, offset = slot % KV_BLOCK;
    size_t index = (size_t(slot / KV_BLOCK) * work.kv_heads + kv_head) * groups;
    uint8_t *to = static_cast<uint8_t *>(work.keys) + index * GROUP_BYTES * KV_BLOCK;
    for (unsigned group = 0; group < groups; group++, to += GROUP_BYTES * KV_BLOCK) {
        f16_t scale;
        int number = quantized(head[group * GROUP + lane()], scale);
        if (lane() == 0) {
            to[2 * offset] = uint8_t(scale.bits);
            to[2 * offset + 1] = uint8_t(scale.bits >> 8);
        }
        to[2 * KV_BLOCK + lane() * KV_BLOCK + offset] = uint8_t(number);
    }
}

// For each position its groups, the scale first.
INLINE void store_quantized_value(const KvWrite &work, const float *head, unsigned kv_head,
                                  uint32_t slot) {
    unsigned groups = work.value_dim / GROUP;
    size_t index = (size_t(slot / KV_BLOCK) * work.kv_heads + kv_head) * KV_BLOCK + slot % KV_BLOCK;
    uint8_t *to = static_cast<uint8_t *>(work.values) + index * groups * GROUP_BYTES;
    for (unsigned group = 0; group < groups; group++, to += GROUP_BYTES) {
        f16_t scale;
        int number = quantized(head[group * GROUP + lane()], scale);
        if (lane() == 0) {
            to[0] = uint8_t(scale.bits);
            to[1] = uint8_t(scale.bits >> 8);
        }
        to[2 + lane()] = uint8_t(number);
    }
}

INLINE void load(float *head, const float *from, unsigned width) {
    for (unsigned i = lane(); i < width; i += WARP) {
        head[i] = from[i];
    }
    __syncwarp();
}

INLINE void prepare(const KvWrite &work, float *head, const float *weight) {
    size_t angles = size_t(blockIdx.x) * work.pairs;
    if (weight && !work.norm_after_rotation) {
        normalize(head, weight, work.eps, work.key_dim);
    }
    rotate(head, work.cos + angles, work.sin + angles, work.pairs);
    if (weight && work.norm_after_rotation) {
        normalize(head, weight, work.eps, work.key_dim);
    }
}

KERNEL kv_write(const KvWrite work) {
    DYNAMIC_SHARED(shared);
    unsigned warp = threadIdx.x / WARP, index = blockIdx.y * (blockDim.x / WARP) + warp;
    if (index >= work.heads + 2 * work.kv_heads) {
        return;
    }
    float *head = reinterpret_cast<float *>(shared) + warp * max(work.key_dim, work.value_dim);
    size_t token = blockIdx.x;
    if (index < work.heads) {
        load(head, work.q + token * work.q_stride + index * work.key_dim, work.key_dim);
        prepare(work, head, work.query_weight);
        float *to = work.queries + (token * work.heads + index) * work.key_dim;
        for (unsigned i = lane(); i < work.key_dim; i += WARP) {
            to[i] = head[i];
        }
        return;
    }
    uint32_t slot = work.slots[token];
    if (slot == NO_SLOT) {
        return;
    }
    unsigned kv_head = index - work.heads;
    if (kv_head < work.kv_heads) {
        load(head, work.k + token * work.k_stride + kv_head * work.key_dim, work.key_dim);
        prepare(work, head, work.key_weight);
        switch (work.format) {
        case 0:
            return store_key<float>(work, head, kv_head, slot);
        case 1:
            return store_key<f16_t>(work, head, kv_head, slot);
        case 2:
            return store_key<bf16_t>(work, head, kv_head, slot);
        case 4:
            return store_key<f8_t>(work, head, kv_head, slot);
        default:
            return store_quantized_key(work, head, kv_head, slot);
        }
    }
    kv_head -= work.kv_heads;
    load(head, work.v + token * work.v_stride + kv_head * work.value_dim, work.value_dim);
    switch (work.format) {
    case 0:
        return store_value<float>(work, head, kv_head, slot);
    case 1:
        return store_value<f16_t>(work, head, kv_head, slot);
    case 2:
        return store_value<bf16_t>(work, head, kv_head, slot);
    case 4:
        return store_value<f8_t>(work, head, kv_head, slot);
    default:
        return store_quantized_value(work, head, kv_head, slot);
    }
}
EXPORT(kv_write)
