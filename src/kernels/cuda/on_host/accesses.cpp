// Finds races of CUDA threads that run on the host, by the accesses that the compiler reports where it
// is told to prepare for a race detector (`-fsanitize=thread`; the detector itself is not linked).
//
// What orders accesses: barriers, those of a warp for its lanes, and the end of a grid. A collective
// that exchanges registers orders nothing, and neither do blocks each other. So a moment is the
// number of barriers of a block, and of a warp since then; two accesses to a byte by different threads,
// one of them a write, race if no barrier lies between them. Every byte remembers its last write and
// the reads behind it as exactly as that needs, so no race of a schedule is missed.
//
// Beyond races: what lies past a block's shared memory, shared memory that is read before it is
// written, and targets of copies that are under way.
#include "accesses.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace on_host::accesses {
namespace {

constexpr uintptr_t PAGE = 4096;
constexpr unsigned WORD = 4;
// What a block can have on every GPU that there is code for.
constexpr unsigned MOST_SHARED = 99 << 10;

// Who touched a byte since which moment: `thread` alone, several lanes of its warp at `turn`, or
// threads of several warps.
enum class Spread : uint8_t { One, Warp, Block };

struct Touch {
    // Barriers of all blocks so far, and those of the warp since then.
    uint32_t time = 0, turn = 0;
    const void *code = nullptr;
    uint16_t thread = 0;
    Spread spread = Spread::One;
    bool atomic = false;
    // Whether another block of the same grid did too.
    bool blocks = false;
};

struct Cell {
    Touch write, read;
    // One more than the thread whose copy to here is under way.
    uint16_t flight = 0;
};

// Cells of a page: by words, or by bytes once anybody touched less than a word.
struct Page {
    std::vector<Cell> cells{PAGE / WORD};
    unsigned size = WORD;

    void split() {
        std::vector<Cell> fine;
        fine.reserve(PAGE);
        for (const Cell &cell : cells) {
            fine.insert(fine.end(), WORD, cell);
        }
        cells.swap(fine);
        size = 1;
    }
};

struct Range {
    uintptr_t start = 0, end = 0;
    bool has(uintptr_t address) const { return start <= address && address < end; }
};

Range range(const void *start, const void *end) {
    return {reinterpret_cast<uintptr_t>(start), reinterpret_cast<uintptr_t>(end)};
}

std::mutex one_grid;
// Whether this thread of the host runs the grid: others may be on their way to one.
thread_local bool inside = false;
const Grid *grid = nullptr;
Range room, shared, stacks, statics;
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
// The pages that were looked up last.
struct Known {
    uintptr_t number = ~uintptr_t(0);
    Page *page = nullptr;
} known[1024];
// Moments: of now, of the block's begin, of the grid's.
uint32_t now = 1, block_begin = 1, grid_begin = 1;
unsigned own = 0;
uint32_t turns[32];
// Bytes of static shared memory that the grid has touched.
size_t static_bytes = 0;
uint64_t random_state = 0x9e3779b97f4a7c15;

Page &page_of(uintptr_t address) {
    uintptr_t number = address / PAGE;
    Known &near = known[number % (sizeof(known) / sizeof(Known))];
    if (near.number != number) {
        auto &page = pages[number];
        if (!page) {
            page = std::make_unique<Page>();
        }
        near = {number, page.get()};
    }
    return *near.page;
}

bool is_static(uintptr_t address) { return statics.has(address); }
bool is_shared(uintptr_t address) { return shared.has(address) || is_static(address); }

// Whether an access of this thread now races with what a touch stands for.
bool races(const Touch &touch, bool shared) {
    if (touch.time < grid_begin) {
        return false;
    }
    if (touch.time < block_begin || touch.blocks) {
        // Shared memory was another one then.
        if (!shared) {
            return true;
        }
    }
    if (touch.time < now) {
        return false;
    }
    bool same_warp = touch.thread / LANES == own / LANES, same_turn = touch.turn == turns[own / LANES];
    switch (touch.spread) {
    case Spread::One:
        return touch.thread != own && (!same_warp || same_turn);
    case Spread::Warp:
        return !same_warp || same_turn;
    default:
        return true;
    }
}

// This thread's access now, which races with none of those before.
void set(Touch &touch, const void *code, bool atomic) {
    touch = {now, turns[own / LANES], code, uint16_t(own), Spread::One, atomic, false};
}

// This thread's access now beside those before.
void add(Touch &touch, const void *code, bool atomic) {
    uint32_t turn = turns[own / LANES];
    if (touch.time < now) {
        bool blocks = touch.time >= grid_begin && (touch.time < block_begin || touch.blocks);
        set(touch, code, atomic);
        touch.blocks = blocks;
    } else if (touch.spread == Spread::Block) {
        return;
    } else if (touch.thread / LANES != own / LANES) {
        touch.spread = Spread::Block;
    } else if (touch.turn < turn || (touch.spread == Spread::One && touch.thread == own)) {
        touch = {now, turn, code, uint16_t(own), Spread::One, atomic, touch.blocks};
    } else {
        touch.spread = Spread::Warp;
    }
}

enum class Kind { Read, Write, Atomic };

[[noreturn]] void report(Kind kind, uintptr_t address, const void *code, const Touch &before,
                         const char *did) {
    const char *does = kind == Kind::Read ? "reads" : kind == Kind::Write ? "writes" : "adds to";
    char where[64];
    if (shared.has(address)) {
        snprintf(where, sizeof where, "shared memory at %zu", size_t(address - shared.start));
    } else {
        const char *memory = is_static(address) ? "a static shared variable" : "memory";
        snprintf(where, sizeof where, "%s at %#zx", memory, size_t(address));
    }
    fprintf(stderr, "thread %u %s %s, which thread %u%s %s, and nothing orders the two\n", own, does,
            where, unsigned(before.thread),
            before.time < block_begin ? " of another block"
            : before.spread != Spread::One ? " and others"
                                           : "",
            did);
    print_place(code);
    print_place(before.code);
    fail("a race");
}

void check_flight(const Cell &cell, const void *code) {
    if (cell.flight != 0) {
        fprintf(stderr, "thread %u touches what a copy of thread %u is on its way to\n", own,
                cell.flight - 1u);
        print_place(code);
        fail("a race with a copy");
    }
}

void touch(Cell &cell, Kind kind, uintptr_t address, unsigned size, const void *code) {
    bool shared = is_shared(address);
    check_flight(cell, code);
    bool both_atomic = kind == Kind::Atomic && cell.write.atomic;
    if (!both_atomic && races(cell.write, shared)) {
        report(kind, address, code, cell.write, "wrote");
    }
    if (kind == Kind::Read) {
        if (on_host::accesses::shared.has(address) && cell.write.time < block_begin) {
            print_place(code);
            fail("shared memory is read that nobody wrote");
        }
        add(cell.read, code, false);
        return;
    }
    if (races(cell.read, shared)) {
        report(kind, address, code, cell.read, "read");
    }
    if (is_static(address) && cell.write.time < grid_begin) {
        static_bytes += size;
    }
    if (both_atomic) {
        add(cell.write, code, true);
    } else {
        set(cell.write, code, kind == Kind::Atomic);
    }
}

// All cells of some bytes; whether there are any to speak of.
template <typename F> void each_cell(const void *at, size_t bytes, F each) {
    auto address = reinterpret_cast<uintptr_t>(at);
    if (!inside || stacks.has(address)) {
        return;
    }
    if (room.has(address) && (address < shared.start || address + bytes > shared.end)) {
        fprintf(stderr, "thread %u touches %zu bytes at %td of its shared memory\n", own, bytes,
                ptrdiff_t(address - shared.start));
        fail("not its shared memory");
    }
    for (uintptr_t end = address + bytes; address < end;) {
        Page &page = page_of(address);
        if (page.size == WORD && (address % WORD != 0 || end - address < WORD)) {
            page.split();
        }
        each(page.cells[address % PAGE / page.size], address, page.size);
        address += page.size;
    }
}

__attribute__((noinline)) void access(Kind kind, const void *at, size_t bytes, const void *code) {
    each_cell(at, bytes, [&](Cell &cell, uintptr_t address, unsigned size) {
        touch(cell, kind, address, size, code);
    });
}

// Static shared variables are variables of a thread of the host: where this library has its own.
int find_statics(dl_phdr_info *info, size_t, void *) {
    Dl_info library;
    if (dladdr(reinterpret_cast<void *>(find_statics), &library) == 0 ||
        reinterpret_cast<uintptr_t>(library.dli_fbase) != info->dlpi_addr) {
        return 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
            auto *start = static_cast<char *>(info->dlpi_tls_data);
            statics = range(start, start + info->dlpi_phdr[i].p_memsz);
        }
    }
    return 1;
}

} // namespace

void begin_grid(const Grid *begun) {
    one_grid.lock();
    grid = begun;
    room = range(begun->room_start, begun->room_end);
    shared = range(begun->shared_start, begun->shared_start + begun->shared);
    stacks = range(begun->stacks_start, begun->stacks_end);
    dl_iterate_phdr(find_statics, nullptr);
    static_bytes = 0;
    // The memory may have been anybody's since.
    grid_begin = ++now;
    inside = true;
}

void end_grid() {
    if (static_bytes + grid->shared > MOST_SHARED) {
        fail("static and dynamic shared memory together are more than every GPU has");
    }
    inside = false;
    one_grid.unlock();
}

void begin_block() {
    block_begin = ++now;
    std::fill(std::begin(turns), std::end(turns), 0);
}

void enter_thread(unsigned thread) { own = thread; }

void order_block() {
    now++;
    std::fill(std::begin(turns), std::end(turns), 0);
}

void order_warp(unsigned warp) { turns[warp]++; }

void copy_begins(void *to, const void *from, bool filled, const void *code) {
    if (filled) {
        access(Kind::Read, from, 16, code);
    }
    access(Kind::Write, to, 16, code);
    each_cell(to, 16, [](Cell &cell, uintptr_t, unsigned) { cell.flight = uint16_t(own + 1); });
}

void copy_ends(void *to, const void *from, bool filled, const void *code) {
    each_cell(to, 16, [](Cell &cell, uintptr_t, unsigned) { cell.flight = 0; });
    if (filled) {
        access(Kind::Read, from, 16, code);
    }
    access(Kind::Write, to, 16, code);
}

unsigned any_below(unsigned count) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return unsigned(random_state % count);
}

void print_place(const void *code) {
    Dl_info library;
    if (code == nullptr || dladdr(code, &library) == 0) {
        return;
    }
    size_t offset = static_cast<const char *>(code) - static_cast<const char *>(library.dli_fbase) - 1;
    char command[4096];
    snprintf(command, sizeof command, "addr2line -Cfpie '%s' %#zx", library.dli_fname, offset);
    // Without the tool the name of the kernel has to do.
    if (FILE *lines = popen(command, "r")) {
        char line[512];
        while (fgets(line, sizeof line, lines) != nullptr) {
            fprintf(stderr, "    %s", line);
        }
        pclose(lines);
    }
}

} // namespace on_host::accesses

// What compilers call where they prepare for a race detector.
#define PLACE __builtin_return_address(0)
#define REPORTS(bytes)                                                                             \
    void __tsan_read##bytes(void *at) { access(Kind::Read, at, bytes, PLACE); }                    \
    void __tsan_write##bytes(void *at) { access(Kind::Write, at, bytes, PLACE); }                  \
    void __tsan_unaligned_read##bytes(void *at) { access(Kind::Read, at, bytes, PLACE); }          \
    void __tsan_unaligned_write##bytes(void *at) { access(Kind::Write, at, bytes, PLACE); }

namespace on_host::accesses {
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
REPORTS(1)
REPORTS(2)
REPORTS(4)
REPORTS(8)
REPORTS(16)
void __tsan_read_range(void *at, size_t bytes) { access(Kind::Read, at, bytes, PLACE); }
void __tsan_write_range(void *at, size_t bytes) { access(Kind::Write, at, bytes, PLACE); }
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t *to, uint32_t value, int) {
    access(Kind::Atomic, const_cast<uint32_t *>(to), 4, PLACE);
    uint32_t before = *to;
    *to = before + value;
    return before;
}
}
} // namespace on_host::accesses
