// Accesses to memory of the threads of a grid, where the compiler reports them: see `accesses.cpp`.
// Otherwise nothing is known of them, and everything here does nothing.
#pragma once

#include "block.h"

namespace on_host {

// A grid as it begins.
struct Grid {
    const char *kernel;
    // The block that runs, the size of a block, and bytes of dynamic shared memory.
    dim3 block;
    unsigned threads, shared;
    // Shared memory and, around it, memory that belongs to no thread.
    unsigned char *shared_start, *room_start, *room_end;
    // Where the threads' stacks are.
    char *stacks_start, *stacks_end;
};

namespace accesses {

#ifdef ON_HOST_CHECKED
constexpr bool KNOWN = true;

// The memory in which a block of threads runs; it stays where it is until the grid ends. Grids of
// several threads of the host run one after the other.
void begin_grid(const Grid *grid);
void end_grid();
// All accesses of the last block are over.
void begin_block();
// A thread goes on.
void enter_thread(unsigned thread);
// What the threads did before comes before what they do next.
void order_block();
void order_warp(unsigned warp);
// A copy that `code` started is under way between these two: nobody may touch its target.
void copy_begins(void *to, const void *from, bool filled, const void *code);
void copy_ends(void *to, const void *from, bool filled, const void *code);
// A number below `count`, the same ones in each run.
unsigned any_below(unsigned count);
// Writes where in the sources some code is.
void print_place(const void *code);
#else
constexpr bool KNOWN = false;

inline void begin_grid(const Grid *) {}
inline void end_grid() {}
inline void begin_block() {}
inline void enter_thread(unsigned) {}
inline void order_block() {}
inline void order_warp(unsigned) {}
inline void copy_begins(void *, const void *, bool, const void *) {}
inline void copy_ends(void *, const void *, bool, const void *) {}
inline unsigned any_below(unsigned) { return 0; }
inline void print_place(const void *) {}
#endif

} // namespace accesses
} // namespace on_host
