// What connects the choice of experts and their products: a pair is a token and one of its experts,
// pair = token * experts_per_token + slot, slots in ascending order of the token's experts.
#pragma once

#include "../cuda/layout.cuh"

// Some pairs of one expert.
struct PairTile {
    // NO_EXPERT behind the last tile.
    uint32_t expert;
    // Where they are in the list of pairs.
    uint32_t first, last;
};
DESCRIBE(PairTile, FIELD(expert), FIELD(first), FIELD(last))
constexpr uint32_t NO_EXPERT = 0xffffffff;
