// Kernels of the tensor library that the program launches, on the host: those of its operations that
// have no kernel of our own. One loop each, over the same parameters.
#include "standin.h"

#include <map>
#include <tuple>
#include <utility>

namespace standin {

namespace {

struct bf16 {
    uint16_t bits;
    bf16() = default;
    bf16(float x) {
        uint32_t all;
        memcpy(&all, &x, 4);
        bool nan = (all & 0x7fffffff) > 0x7f800000;
        bits = nan ? 0x7fff : uint16_t((all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    operator float() const {
        uint32_t all = uint32_t(bits) << 16;
        float x;
        memcpy(&x, &all, 4);
        return x;
    }
};

// The element of a strided tensor that comes `i`-th.
size_t at(size_t i, size_t dims, const size_t *info, size_t strides_of = 0) {
    if (info == nullptr) {
        return i;
    }
    const size_t *strides = info + dims * (1 + strides_of);
    size_t place = 0;
    for (size_t d = dims; d-- > 0;) {
        place += i % info[d] * strides[d];
        i /= info[d];
    }
    return place;
}

template <typename S, typename T>
void cast(size_t count, size_t dims, const size_t *info, const S *from, T *to) {
    for (size_t i = 0; i < count; i++) {
        to[i] = T(from[at(i, dims, info)]);
    }
}

template <typename T> void copy(size_t count, size_t dims, const size_t *info, const T *from, T *to) {
    cast<T, T>(count, dims, info, from, to);
}

template <typename T>
void copy2d(const T *from, T *to, uint32_t rows, uint32_t columns, uint32_t from_stride,
            uint32_t to_stride) {
    for (size_t i = 0; i < size_t(rows) * columns; i++) {
        size_t row = i / columns, column = i % columns;
        to[row * to_stride + column] = from[row * from_stride + column];
    }
}

template <typename T> void fill(T *to, T value, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = value;
    }
}

template <typename T> void const_set(size_t count, size_t dims, const size_t *info, T value, T *to) {
    for (size_t i = 0; i < count; i++) {
        to[at(i, dims, info)] = value;
    }
}

template <typename T>
void affine(size_t count, size_t dims, const size_t *info, const T *from, T *to, T mul, T add) {
    for (size_t i = 0; i < count; i++) {
        T x = from != nullptr ? from[at(i, dims, info)] : to[i];
        to[i] = T(float(x) * float(mul) + float(add));
    }
}

enum Operation { ADD, SUB, MUL, DIV };

template <typename T, Operation operation>
void binary(size_t count, size_t dims, const size_t *info, const T *a, const T *b, T *to) {
    for (size_t i = 0; i < count; i++) {
        T x = a[at(i, dims, info)], y = b[at(i, dims, info, 1)];
        to[i] = operation == ADD   ? x + y
                : operation == SUB ? x - y
                : operation == MUL ? x * y
                                   : x / y;
    }
}

// The dimensions are those of the ids; what is selected from is contiguous.
template <typename T, typename I>
void index_select(size_t count, size_t, const size_t *, const I *ids, const T *from, T *to, size_t,
                  size_t from_rows, size_t ids_count, size_t width) {
    for (size_t i = 0; i < count; i++) {
        size_t left = i / (ids_count * width);
        I id = ids[i / width % ids_count];
        if (id == I(~I(0))) {
            to[i] = T(0);
        } else if (size_t(id) >= from_rows) {
            violation("index_select of row " + std::to_string(id) + " of " +
                          std::to_string(from_rows),
                      ILLEGAL_ADDRESS);
            return;
        } else {
            to[i] = from[(left * from_rows + size_t(id)) * width + i % width];
        }
    }
}

template <typename... A> Kernel kernel(void (*function)(A...)) {
    auto call = [function](void **parameters, const unsigned *, unsigned, unsigned) {
        auto each = [&]<size_t... I>(std::index_sequence<I...>) {
            function(*static_cast<A *>(parameters[I])...);
        };
        each(std::index_sequence_for<A...>());
    };
    return {{sizeof(A)...}, call};
}

std::map<std::string, Kernel> all_kernels() {
    return {
        {"cast_f32_bf16", kernel(cast<float, bf16>)},
        {"cast_bf16_f32", kernel(cast<bf16, float>)},
        {"cast_u32_f32", kernel(cast<uint32_t, float>)},
        {"cast_u32_i64", kernel(cast<uint32_t, int64_t>)},
        {"cast_i64_u32", kernel(cast<int64_t, uint32_t>)},
        {"cast_f32_f64", kernel(cast<float, double>)},
        {"ucopy_f32", kernel(copy<float>)},
        {"ucopy_bf16", kernel(copy<uint16_t>)},
        {"ucopy_f16", kernel(copy<uint16_t>)},
        {"ucopy_u32", kernel(copy<uint32_t>)},
        {"ucopy_i64", kernel(copy<int64_t>)},
        {"ucopy_u8", kernel(copy<uint8_t>)},
        {"copy2d_f32", kernel(copy2d<float>)},
        {"copy2d_bf16", kernel(copy2d<uint16_t>)},
        {"copy2d_f16", kernel(copy2d<uint16_t>)},
        {"copy2d_u32", kernel(copy2d<uint32_t>)},
        {"copy2d_u8", kernel(copy2d<uint8_t>)},
        {"copy2d_i64", kernel(copy2d<int64_t>)},
        {"fill_f32", kernel(fill<float>)},
        {"fill_u32", kernel(fill<uint32_t>)},
        {"const_set_f32", kernel(const_set<float>)},
        {"const_set_bf16", kernel(const_set<uint16_t>)},
        {"const_set_u32", kernel(const_set<uint32_t>)},
        {"affine_f32", kernel(affine<float>)},
        {"badd_f32", kernel(binary<float, ADD>)},
        {"bsub_f32", kernel(binary<float, SUB>)},
        {"bmul_f32", kernel(binary<float, MUL>)},
        {"bdiv_f32", kernel(binary<float, DIV>)},
        {"is_u32_f32", kernel(index_select<float, uint32_t>)},
        {"is_u32_bf16", kernel(index_select<uint16_t, uint32_t>)},
        {"is_u32_u8", kernel(index_select<uint8_t, uint32_t>)},
    };
}

} // namespace

const Kernel *find_candle_kernel(const std::string &name) {
    static const auto *all = new std::map<std::string, Kernel>(all_kernels());
    auto found = all->find(name);
    return found == all->end() ? nullptr : &found->second;
}

} // namespace standin
