// Tells the caller of a kernel how the compiler laid out the structs that both share; see
// `layout.rs`.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace layout {

// Fowler, Noll and Vo's hash (1a, 32 bits), by words.
constexpr uint32_t START = 0x811c9dc5;
constexpr uint32_t mixed(uint32_t hash, uint32_t word) { return (hash ^ word) * 0x01000193; }
constexpr uint32_t hash_of(const char *name) {
    uint32_t hash = START;
    for (; *name != 0; name++) {
        hash = mixed(hash, uint32_t(*name));
    }
    return hash;
}

// A line of a table: a field's name, offset and type.
struct Line {
    uint32_t name, offset, kind;
};
// The first line is of the whole struct: its name, its size in place of an offset, and how many
// fields there are.
template <size_t COUNT> struct Table {
    Line head, fields[COUNT];
};

constexpr uint32_t mixed(uint32_t hash, const Line &line) {
    return mixed(mixed(mixed(hash, line.name), line.offset), line.kind);
}
template <size_t COUNT> constexpr uint32_t folded(const Table<COUNT> &table) {
    uint32_t hash = mixed(START, table.head);
    for (const Line &field : table.fields) {
        hash = mixed(hash, field);
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

// Makes the table of a struct: all of its fields, each as a FIELD, in the order of their
// declaration.
#define DESCRIBE(Struct, ...)                                                                      \
    namespace layout {                                                                             \
    namespace of_##Struct {                                                                        \
        using S = Struct;                                                                          \
        constexpr Line FIELDS[] = {__VA_ARGS__};                                                   \
        constexpr uint32_t COUNT = sizeof(FIELDS) / sizeof(Line);                                  \
        constexpr Table<COUNT> TABLE = {{hash_of(#Struct), sizeof(S), COUNT}, {__VA_ARGS__}};      \
    }                                                                                              \
    template <> struct Kind<Struct> {                                                              \
        static constexpr uint32_t VALUE = folded(of_##Struct::TABLE);                              \
    };                                                                                             \
    }
#define FIELD(field) {hash_of(#field), offsetof(S, field), Kind<decltype(S::field)>::VALUE}

// Exports a described struct's table to the caller of kernels.
#define EXPORT_LAYOUT(Struct)                                                                      \
    extern "C" LAYOUT_MEMORY const layout::Table<layout::of_##Struct::COUNT> layout_of_##Struct =  \
        layout::of_##Struct::TABLE;
#ifdef __CUDACC__
#define LAYOUT_MEMORY __device__
#else
#define LAYOUT_MEMORY
#endif

#define LAYOUT(Struct, ...)                                                                        \
    DESCRIBE(Struct, __VA_ARGS__)                                                                  \
    EXPORT_LAYOUT(Struct)
