// Products with the packed quantized weights of experts. The order of sums is that of
// `packed/product.cuh`.
//
// experts_KIND_{8,64}, for KIND of `EACH_PACKED_FORMAT`: as `linear_KIND_*` in `linear/packed.cu` by
// capacity, tiles, block, stage and shared bytes; grid and `own` as for `experts_*` in `kernel.cu`.
#include "../packed/product.cuh"
#include "args.cuh"

EXPORT_LAYOUT(Experts)

template <typename F, unsigned COLUMNS>
INLINE void experts_packed(const Experts &experts) {
    PairTile own = experts.tiles[blockIdx.x];
    if (own.expert == NO_EXPERT) {
        return;
    }
    auto find = [&](Tile &tile, unsigned index) {
        return find_tile(tile, experts, own.expert, index, packed::ROWS);
    };
    PairRows rows = rows_of<8 * COLUMNS>(experts, own);
    packed::product<F, COLUMNS>(find, input_of(experts), rows);
}

// Two blocks of one tile have room on a multiprocessor.
#define EXPERTS(name, ...)                                                                         \
    KERNEL __launch_bounds__(2 * TILE_THREADS) name(const Experts experts) {                       \
        experts_packed<__VA_ARGS__>(experts);                                                      \
    }                                                                                              \
    EXPORT(name)
#define EXPERTS_OF(kind, format)                                                                   \
    EXPERTS(experts_##kind##_8, format, 1)                                                      \
    EXPERTS(experts_##kind##_64, format, 8)

EACH_PACKED_FORMAT(EXPERTS_OF)
