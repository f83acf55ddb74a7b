// What a thread of a CUDA block sees of its block where the block runs on the host: see `block.cpp`.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct dim3 {
    unsigned x, y, z;
};

namespace on_host {

constexpr unsigned LANES = 32;

// Runs all blocks of a grid, each thread calling `run(call)`. `name` is for messages.
void launch(const char *name, void (*run)(void *), void *call, const unsigned *grid, unsigned threads,
            unsigned shared);

// The same in all calls of one thread of one block.
__attribute__((const)) dim3 thread_index();
__attribute__((const)) dim3 block_index();
__attribute__((const)) dim3 block_size();
__attribute__((const)) dim3 grid_size();
__attribute__((const)) unsigned char *shared_memory();

// Ends the process with a message about the kernel that runs.
[[noreturn]] void fail(const char *what);

// The place of the call is that of the collective, which all threads must come to: so whatever calls
// these must be inlined.
void barrier();
void warp_barrier();
// The value of the lane `from`.
uint64_t exchange(uint64_t value, unsigned from);
// The values of all lanes.
void gather(uint64_t value, uint64_t (&all)[LANES]);

// Copies of 16 bytes to shared memory, which arrive when they are waited for or earlier.
void start_copy(void *to, const void *from, bool filled);
void end_group_of_copies();
void wait_for_copies(unsigned groups_left);

} // namespace on_host
