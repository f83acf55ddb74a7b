// Tells the caller of a kernel how the compiler laid out the structs that both share; see
// `layout.rs`.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace layout {

// Fowler, Noll and Vo's hash (1a, 32 bits), by numbers of 32 bits.
constexpr uint32_t mixed(uint32_t hash, uint32_t number) { return (hash ^ number) * 0x01000193; }
constexpr uint32_t hash_of(const char *name) {
    uint32_t hash = 0x811c9dc5;
    for (; *name != 0; name++) {
        hash = mixed(hash, uint32_t(*name));
    }
    return hash;
}

struct Field {
    uint32_t name, offset, kind;
};
template <size_t COUNT>
constexpr uint32_t hash_of(const char *name, uint32_t size, const Field (&fields)[COUNT]) {
    uint32_t hash = mixed(hash_of(name), size);
    for (const Field &field : fields) {
        hash = mixed(mixed(mixed(hash, field.name), field.offset), field.kind);
    }
    return hash;
}

// A type of fields as a number; `DESCRIBE` adds its struct to them.
template <typename T> struct Kind;
template <> struct Kind<uint32_t> {
    static constexpr uint32_t VALUE = hash_of("u32");
};
template <> struct Kind<float> {
    static constexpr uint32_t VALUE = hash_of("f32");
};
template <> struct Kind<double> {
    static constexpr uint32_t VALUE = hash_of("f64");
};
template <typename T> struct Kind<T *> {
    static constexpr uint32_t VALUE = hash_of("address");
};
template <typename T, size_t COUNT> struct Kind<T[COUNT]> {
    static constexpr uint32_t VALUE = mixed(Kind<T>::VALUE, COUNT);
};

} // namespace layout

// Hashes a struct: all of its fields, each as a FIELD, in the order of their declaration.
#define DESCRIBE(Struct, ...)                                                                      \
    namespace layout {                                                                             \
    namespace of_##Struct {                                                                        \
        using S = Struct;                                                                          \
        constexpr Field FIELDS[] = {__VA_ARGS__};                                                  \
    }                                                                                              \
    template <> struct Kind<Struct> {                                                              \
        static constexpr uint32_t VALUE = hash_of(#Struct, sizeof(Struct), of_##Struct::FIELDS);   \
    };                                                                                             \
    }
#define FIELD(field) {hash_of(#field), offsetof(S, field), Kind<decltype(S::field)>::VALUE}

// Exports the hash of a described struct to the caller of kernels. On a GPU it is part of a kernel's
// name, since those are what drivers find by name for certain. On the host sources that have a struct in
// common are one library.
#ifdef __CUDACC__
#define EXPORT_LAYOUT(Struct)                                                                      \
    template <uint32_t LAYOUT> __global__ void layout_of_##Struct() {}                             \
    template __global__ void layout_of_##Struct<layout::Kind<Struct>::VALUE>();
#else
#define EXPORT_LAYOUT(Struct)                                                                      \
    extern "C" __attribute__((weak)) const uint32_t layout_of_##Struct =                           \
        layout::Kind<Struct>::VALUE;
#endif

#define LAYOUT(Struct, ...)                                                                        \
    DESCRIBE(Struct, __VA_ARGS__)                                                                  \
    EXPORT_LAYOUT(Struct)
