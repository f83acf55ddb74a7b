// Blocks of CUDA threads on the host.
//
// The blocks of a grid run one after the other, the threads of a block as fibers that change places
// only where threads wait for each other: at barriers, and in collectives of a warp. Shared memory
// starts as NaNs in every block, and a copy that nobody waits for never arrives.
//
// Where the compiler reports accesses to memory, threads run in a random order, copies arrive as they
// begin and again as they are waited for, and threads that meet must meet in the same place; else all
// go on in order, and copies arrive late. How long anything takes is not modelled.
#include "block.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "accesses.h"

namespace on_host {
namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 256 << 10, PAGE = 64 << 10;
// Bytes at the end of a stack that say whose it is.
constexpr size_t STACK_END = 16;
// Bytes around shared memory that belong to no thread.
constexpr size_t ROOM = accesses::KNOWN ? 64 << 10 : 0;

enum class State { Ready, AtBarrier, AtWarp, AtWarpBarrier, Done };

struct Copy {
    void *to;
    const void *from;
    bool filled;
    // Where it was started.
    const void *code;
};

struct Block;

struct Fiber {
    Block *block;
    // Where it goes on, once it has begun: jumps, unlike changes of context, ask the system nothing.
    jmp_buf place;
    bool begun = false;
    ucontext_t context;
    State state;
    // The collective that it waits in.
    const void *site;
    unsigned turn;
    unsigned thread;
    std::vector<std::vector<Copy>> copies;
};

// The fibers of a thread of the host: kept, since their stacks are dear to make.
struct Fibers {
    // One stack more than fibers need, so that theirs can begin at a multiple of their size.
    char *memory = nullptr, *stacks = nullptr;
    std::vector<std::unique_ptr<Fiber>> all;

    ~Fibers() {
        if (memory != nullptr) {
            munmap(memory, (MOST_THREADS + 1) * STACK);
        }
    }
};
thread_local Fibers kept_fibers;

struct Block {
    Grid grid;
    dim3 blocks;
    const std::vector<std::unique_ptr<Fiber>> &fibers;
    // What lanes show each other.
    std::vector<uint64_t> shown;
    std::vector<unsigned> order;
    jmp_buf scheduler;
    void (*run)(void *);
    void *call;
};
// The block that runs, for messages.
thread_local Block *running = nullptr;

// The end of a fiber's stack, where its address lies.
Fiber **end_of_stack(void *inside) {
    auto address = reinterpret_cast<uintptr_t>(inside);
    return reinterpret_cast<Fiber **>((address | (STACK - 1)) + 1 - STACK_END);
}

// The fiber that asks, found by its stack: sooner than by a variable of the thread.
Fiber &current() { return **end_of_stack(__builtin_frame_address(0)); }

void wait(Fiber &own, State state, const void *site) {
    own.state = state;
    own.site = site;
    if (_setjmp(own.place) == 0) {
        _longjmp(own.block->scheduler, 1);
    }
}

// What a fiber does: its thread of one block after the other.
void enter() {
    Fiber &own = current();
    for (;;) {
        Block &block = *own.block;
        block.run(block.call);
        wait(own, State::Done, nullptr);
    }
}

void go_on(Fiber &fiber) {
    accesses::enter_thread(fiber.thread);
    if (_setjmp(fiber.block->scheduler) == 0) {
        if (fiber.begun) {
            _longjmp(fiber.place, 1);
        }
        fiber.begun = true;
        setcontext(&fiber.context);
    }
}

// Threads that meet must do so in the same place, and none of a warp may have ended before.
void check_meeting(const Block &block, State state, unsigned first, unsigned last) {
    const void *site = nullptr;
    for (unsigned i = first; i < last; i++) {
        const Fiber &fiber = *block.fibers[i];
        if (fiber.state == State::Done) {
            if (state != State::AtBarrier) {
                fail("a collective of a warp in which not all take part");
            }
        } else if (site == nullptr) {
            site = fiber.site;
        } else if (site != fiber.site) {
            accesses::print_place(site);
            accesses::print_place(fiber.site);
            fail("threads meet in different places");
        }
    }
}

// Lets those go on who wait at `state` in `[first, last)`, if nobody there is elsewhere.
bool release(const Block &block, State state, unsigned first, unsigned last) {
    bool any = false;
    for (unsigned i = first; i < last; i++) {
        State own = block.fibers[i]->state;
        if (own != state && own != State::Done) {
            return false;
        }
        any |= own == state;
    }
    if (any && accesses::KNOWN) {
        check_meeting(block, state, first, last);
    }
    for (unsigned i = first; any && i < last; i++) {
        if (block.fibers[i]->state == state) {
            block.fibers[i]->state = State::Ready;
        }
    }
    return any;
}

void begin_block(Block &block) {
    for (unsigned i = 0; i < block.grid.threads; i++) {
        Fiber &fiber = *block.fibers[i];
        fiber.block = &block;
        fiber.state = State::Ready;
        fiber.turn = 0;
        fiber.thread = i;
        fiber.copies.assign(1, {});
    }
    memset(block.grid.shared_start, 0xff, block.grid.shared);
    accesses::begin_block();
}

void run_block(Block &block) {
    unsigned threads = block.grid.threads;
    begin_block(block);
    for (;;) {
        bool ran = false, done = true;
        for (unsigned i = threads - 1; accesses::KNOWN && i > 0; i--) {
            std::swap(block.order[i], block.order[accesses::any_below(i + 1)]);
        }
        for (unsigned i : block.order) {
            Fiber &fiber = *block.fibers[i];
            if (fiber.state == State::Ready) {
                go_on(fiber);
                ran = true;
            }
            done &= fiber.state == State::Done;
        }
        if (done) {
            return;
        }
        bool released = false;
        for (unsigned first = 0; first < threads; first += LANES) {
            released |= release(block, State::AtWarp, first, first + LANES);
            if (release(block, State::AtWarpBarrier, first, first + LANES)) {
                accesses::order_warp(first / LANES);
                released = true;
            }
        }
        if (release(block, State::AtBarrier, 0, threads)) {
            accesses::order_block();
            released = true;
        }
        if (!ran && !released) {
            fail("threads wait for each other in different places");
        }
    }
}

void make_fibers(Fibers &fibers, unsigned threads) {
    if (fibers.memory == nullptr) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        size_t bytes = (MOST_THREADS + 1) * STACK;
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) {
            fail("there is no memory for stacks");
        }
        fibers.memory = static_cast<char *>(memory);
        fibers.stacks = fibers.memory + (-reinterpret_cast<uintptr_t>(memory) & (STACK - 1));
    }
    while (fibers.all.size() < threads) {
        auto fiber = std::make_unique<Fiber>();
        char *stack = fibers.stacks + fibers.all.size() * STACK;
        // What is too deep ends here, not in the stack of another.
        mprotect(stack, PAGE, PROT_NONE);
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = stack;
        fiber->context.uc_stack.ss_size = STACK - STACK_END;
        *end_of_stack(stack) = fiber.get();
        fiber->context.uc_link = nullptr;
        makecontext(&fiber->context, enter, 0);
        fibers.all.push_back(std::move(fiber));
    }
}

// What all lanes of the warp show, of which the caller shows `value`.
const uint64_t *show(uint64_t value, const void *site) {
    Fiber &own = current();
    // One place and another by turns, so that nobody has to wait for those that still look at the last.
    own.turn ^= 1;
    uint64_t *shown = &own.block->shown[2 * (own.thread / LANES * LANES) + own.turn * LANES];
    shown[own.thread % LANES] = value;
    wait(own, State::AtWarp, site);
    return shown;
}

void arrive(const Copy &copy) {
    if (copy.filled) {
        memcpy(copy.to, copy.from, 16);
    } else {
        memset(copy.to, 0, 16);
    }
}

} // namespace

void launch(const char *name, void (*run)(void *), void *call, const unsigned *grid, unsigned threads,
            unsigned shared) {
    Fibers &fibers = kept_fibers;
    Block own{{}, {}, fibers.all, {}, {}, {}, run, call};
    own.grid.kernel = name;
    own.grid.threads = threads;
    own.grid.shared = shared;
    running = &own;
    if (threads == 0 || threads > MOST_THREADS || threads % LANES != 0) {
        fail("blocks are not of 1 to 32 whole warps");
    }
    if (grid[1] > 65'535 || grid[2] > 65'535) {
        fail("no GPU has so many blocks");
    }
    make_fibers(fibers, threads);
    // To the byte, so that whoever checks accesses sees one that is past the end.
    void *memory = nullptr;
    if (posix_memalign(&memory, 128, 2 * ROOM + shared) != 0) {
        fail("there is no shared memory");
    }
    std::unique_ptr<unsigned char, decltype(&free)> kept(static_cast<unsigned char *>(memory), free);
    own.grid.room_start = kept.get();
    own.grid.shared_start = kept.get() + ROOM;
    own.grid.room_end = kept.get() + 2 * ROOM + shared;
    own.grid.stacks_start = fibers.stacks;
    own.grid.stacks_end = fibers.stacks + MOST_THREADS * STACK;
    own.blocks = {grid[0], grid[1], grid[2]};
    own.shown.assign(2 * threads, 0);
    for (unsigned i = 0; i < threads; i++) {
        own.order.push_back(i);
    }
    accesses::begin_grid(&own.grid);
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                own.grid.block = {x, y, z};
                run_block(own);
            }
        }
    }
    accesses::end_grid();
    running = nullptr;
}

dim3 thread_index() { return {current().thread, 0, 0}; }
dim3 block_index() { return current().block->grid.block; }
dim3 block_size() { return {current().block->grid.threads, 1, 1}; }
dim3 grid_size() { return current().block->blocks; }
unsigned char *shared_memory() { return current().block->grid.shared_start; }

void fail(const char *what) {
    const Grid &grid = running->grid;
    fprintf(stderr, "a kernel on the host: %s, block %u %u %u of %u threads with %u bytes: %s\n",
            grid.kernel, grid.block.x, grid.block.y, grid.block.z, grid.threads, grid.shared, what);
    abort();
}

void barrier() { wait(current(), State::AtBarrier, __builtin_return_address(0)); }

void warp_barrier() { wait(current(), State::AtWarpBarrier, __builtin_return_address(0)); }

uint64_t exchange(uint64_t value, unsigned from) {
    return show(value, __builtin_return_address(0))[from % LANES];
}

void gather(uint64_t value, uint64_t (&all)[LANES]) {
    const uint64_t *shown = show(value, __builtin_return_address(0));
    std::copy(shown, shown + LANES, all);
}

void start_copy(void *to, const void *from, bool filled) {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
        (filled && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
        fail("a copy of 16 bytes that are not aligned");
    }
    Copy copy{to, from, filled, __builtin_return_address(0)};
    current().copies.back().push_back(copy);
    accesses::copy_begins(to, from, filled, copy.code);
    if (accesses::KNOWN) {
        arrive(copy);
    }
}

void end_group_of_copies() { current().copies.push_back({}); }

void wait_for_copies(unsigned groups_left) {
    auto &groups = current().copies;
    // The last one is still open.
    while (groups.size() > groups_left + 1) {
        for (const Copy &copy : groups.front()) {
            accesses::copy_ends(copy.to, copy.from, copy.filled, copy.code);
            arrive(copy);
        }
        groups.erase(groups.begin());
    }
}

} // namespace on_host
