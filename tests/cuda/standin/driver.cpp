// NVIDIA's driver for a machine without one: as many of its functions as the program calls, over the
// kernels compiled for the host. It is slow, strict and deterministic.
//
// What it refuses although a driver may accept it: memory of no bytes in a capture, and uploads from
// memory of the host that may be gone when the graph runs. What it does not model: several streams
// at once, and time.
#include "standin.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace standin {

namespace {

constexpr size_t ALIGNMENT = 256;
// Between allocations; what is written there is found when memory is freed.
constexpr size_t GAP = 256;
constexpr unsigned char FENCE = 0xa5;
// NaN as bf16 and as f32, and far out of range as an index.
constexpr unsigned char POISON = 0xff;

std::recursive_mutex lock;
Control own_control;

size_t from_env(const char *name, size_t otherwise) {
    const char *value = getenv(name);
    return value != nullptr ? strtoull(value, nullptr, 10) : otherwise;
}

struct Graph;

struct Allocation {
    uint64_t id;
    size_t bytes;
    Graph *graph; // or null
};

struct Memory {
    size_t total = from_env("STANDIN_MEMORY", size_t(1) << 30);
    unsigned char *start = nullptr;
    size_t end = 0;
    uint64_t next_id = 1;
    size_t in_use = 0;
    std::map<uint64_t, Allocation> live;   // by address
    std::map<uint64_t, uint64_t> by_id;    // address
    std::multimap<size_t, uint64_t> spare; // addresses by size

    Memory() {
        // Twice the memory, for what is lost between pieces.
        void *at = mmap(reinterpret_cast<void *>(0x7d0000000000), 2 * total,
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) {
            perror("stand-in driver: memory");
            abort();
        }
        start = static_cast<unsigned char *>(at);
    }

    static size_t padded(size_t bytes) {
        return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + GAP;
    }

    uint64_t allocate(size_t bytes, Graph *graph) {
        size_t whole = padded(bytes);
        if (in_use + whole > total) {
            return 0;
        }
        uint64_t address;
        auto found = spare.lower_bound(whole);
        if (found != spare.end() && found->first < 2 * whole) {
            address = found->second;
            whole = found->first;
            spare.erase(found);
        } else if (end + whole <= 2 * total) {
            address = reinterpret_cast<uint64_t>(start) + end;
            end += whole;
        } else {
            return 0;
        }
        in_use += whole;
        control->bytes_in_use = in_use;
        if (in_use > control->most_bytes) {
            control->most_bytes = in_use;
        }
        live[address] = {next_id, bytes, graph};
        sizes[address] = whole;
        by_id[next_id++] = address;
        return address;
    }

    std::map<uint64_t, size_t> sizes;

    void free(uint64_t address) {
        auto found = live.find(address);
        by_id.erase(found->second.id);
        live.erase(found);
        in_use -= sizes[address];
        control->bytes_in_use = in_use;
        spare.emplace(sizes[address], address);
    }

    // The allocation that holds an address, or ends there.
    std::pair<const uint64_t, Allocation> *find(uint64_t address) {
        auto after = live.upper_bound(address);
        if (after == live.begin()) {
            return nullptr;
        }
        auto &found = *std::prev(after);
        return address <= found.first + found.second.bytes ? &found : nullptr;
    }
};

Memory &memory() {
    static auto *all = new Memory();
    return *all;
}

void poison(uint64_t address, size_t bytes) {
    auto *at = reinterpret_cast<unsigned char *>(address);
    memset(at, POISON, bytes);
    memset(at + bytes, FENCE, Memory::padded(bytes) - bytes);
}

void check_fence(uint64_t address, size_t bytes) {
    auto *at = reinterpret_cast<unsigned char *>(address);
    for (size_t i = bytes; i < Memory::padded(bytes); i++) {
        if (at[i] != FENCE) {
            violation("something wrote behind " + std::to_string(bytes) + " bytes", SUCCESS);
            return;
        }
    }
}

// Pinned memory of the host.
std::map<uint64_t, size_t> pinned;

bool is_pinned(const void *address, size_t bytes) {
    auto at = reinterpret_cast<uint64_t>(address);
    auto after = pinned.upper_bound(at);
    if (after == pinned.begin()) {
        return false;
    }
    auto &found = *std::prev(after);
    return at + bytes <= found.first + found.second;
}

struct Event {
    // Work of the stream before it that is not done yet.
    uint64_t position = 0;
    Stream *stream = nullptr;
    bool captured = false;
};

struct Graph {
    std::vector<Work> work;
    std::set<uint64_t> own; // addresses of memory that it allocates
    ~Graph() {
        for (uint64_t address : own) {
            memory().free(address);
        }
    }
};

struct Module {
    std::string text; // PTX, or nothing
};

struct Function {
    std::string name;
    bool ours;
    size_t most_shared = 48 << 10;
};

int sticky = 0;
thread_local void *current_context = nullptr;

} // namespace

Control *control = &own_control;

struct Stream {
    std::deque<Work> queue;
    uint64_t added = 0, done = 0;
    Graph *capture = nullptr;
    bool invalidated = false;

    // Does all work up to a position.
    void drain(uint64_t position) {
        while (done < position && !queue.empty()) {
            Work work = std::move(queue.front());
            queue.pop_front();
            work.run();
            done++;
        }
    }
    void drain() { drain(added); }
    void push(Work work) {
        bool shared = work.shared;
        queue.push_back(std::move(work));
        added++;
        if (shared) {
            drain();
        }
    }
};

namespace {

std::set<Stream *> streams;

void open_control() {
    const char *path = getenv("STANDIN_CONTROL");
    if (path == nullptr) {
        return;
    }
    int file = open(path, O_RDWR);
    void *at = file < 0 ? MAP_FAILED
                        : mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror("stand-in driver: STANDIN_CONTROL");
        abort();
    }
    control = static_cast<Control *>(at);
}

// Counts down; whether it came to 0.
bool fires(uint64_t &count) { return count > 0 && --count == 0; }

// A call that a capture doesn't allow ends it.
Result refuse(Stream *stream, const std::string &what) {
    stream->invalidated = true;
    fprintf(stderr, "stand-in driver: refused in a capture: %s\n", what.c_str());
    return CAPTURE_UNSUPPORTED;
}

} // namespace

bool on_device(uint64_t address) {
    auto start = reinterpret_cast<uint64_t>(memory().start);
    return address >= start && address < start + 2 * memory().total;
}

Result violation(const std::string &what, Result result) {
    fprintf(stderr, "stand-in driver: VIOLATION: %s\n", what.c_str());
    control->violations++;
    if (result == ILLEGAL_ADDRESS) {
        sticky = result;
    }
    return result;
}

namespace {

Result add(Stream *stream, Work work, const std::vector<Touched> &touched) {
    if (stream->capture != nullptr && stream->invalidated) {
        return CAPTURE_INVALIDATED;
    }
    for (const Touched &one : touched) {
        auto address = reinterpret_cast<uint64_t>(one.address);
        auto *found = memory().find(address);
        if (found == nullptr || address + one.bytes > found->first + found->second.bytes) {
            std::string what = work.name + " touches " + std::to_string(one.bytes) + " bytes ";
            what += found == nullptr ? "of no allocation"
                                     : "of an allocation of " +
                                           std::to_string(found->second.bytes) + " from its byte " +
                                           std::to_string(address - found->first) + " on";
            return violation(what, ILLEGAL_ADDRESS);
        }
        Graph *graph = found->second.graph;
        if (graph != nullptr && graph != stream->capture) {
            return violation(work.name + " touches memory of a graph", ILLEGAL_ADDRESS);
        }
        if (graph == nullptr) {
            work.uses.push_back(found->second.id);
        }
    }
    if (stream->capture != nullptr) {
        stream->capture->work.push_back(std::move(work));
    } else {
        stream->push(work);
    }
    return SUCCESS;
}

} // namespace

Result add(Stream *stream, std::string name, const std::vector<Touched> &touched,
           std::function<void()> run) {
    return add(stream, Work{std::move(name), {}, std::move(run)}, touched);
}

Result add_shared(Stream *stream, std::string name, const std::vector<Touched> &touched,
                  std::function<void()> run) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return add(stream, Work{std::move(name), {}, std::move(run), true}, touched);
}

} // namespace standin

using namespace standin;

#define ENTER                                                                                      \
    std::lock_guard<std::recursive_mutex> guard(lock);                                             \
    if (sticky != 0) {                                                                             \
        return Result(sticky);                                                                     \
    }
#define CALL extern "C" Result

CALL cuInit(unsigned) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    static bool opened = (open_control(), true);
    (void)opened;
    return Result(sticky);
}

CALL cuGetErrorName(int error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_STAND_IN";
    return SUCCESS;
}

CALL cuGetErrorString(int error, const char **text) {
    static thread_local std::string kept;
    kept = "error " + std::to_string(error) + " of the stand-in driver";
    *text = kept.c_str();
    return SUCCESS;
}

CALL cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

// A process has one of them.
static int devices() { return int(from_env("STANDIN_DEVICES", 1)); }

CALL cuDeviceGetCount(int *count) {
    *count = devices();
    return SUCCESS;
}

CALL cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < devices() ? SUCCESS : Result(101);
}

CALL cuDeviceGetName(char *name, int length, int) {
    snprintf(name, size_t(length), "stand-in");
    return SUCCESS;
}

CALL cuDeviceGetAttribute(int *value, int attribute, int) {
    ENTER
    switch (attribute) {
    case 16: // multiprocessors
        *value = 132;
        break;
    case 75: // compute capability
        *value = 9;
        break;
    case 76:
        *value = 0;
        break;
    case 97: // shared memory of a block, if asked for
        *value = 227 << 10;
        break;
    case 115: // memory pools
        *value = 1;
        break;
    default:
        *value = 1;
    }
    return SUCCESS;
}

CALL cuDeviceTotalMem_v2(size_t *bytes, int) {
    ENTER
    *bytes = memory().total;
    return SUCCESS;
}

CALL cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER
    *total = memory().total;
    *free = memory().total - memory().in_use;
    return SUCCESS;
}

CALL cuDevicePrimaryCtxRetain(void **context, int) {
    ENTER
    static int one;
    *context = &one;
    return SUCCESS;
}

extern "C" Result cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }

CALL cuCtxGetCurrent(void **context) {
    *context = current_context;
    return SUCCESS;
}

CALL cuCtxSetCurrent(void *context) {
    ENTER
    current_context = context;
    return SUCCESS;
}

CALL cuCtxSynchronize(void) {
    ENTER
    for (Stream *stream : streams) {
        if (stream->capture != nullptr) {
            return refuse(stream, "to wait for the context");
        }
        stream->drain();
    }
    return Result(sticky);
}

CALL cuDeviceGetDefaultMemPool(void **pool, int) {
    ENTER
    static int one;
    *pool = &one;
    return SUCCESS;
}

CALL cuMemPoolSetAttribute(void *, int, void *) {
    ENTER
    return SUCCESS;
}

CALL cuStreamCreate(Stream **stream, unsigned) {
    ENTER
    *stream = new Stream();
    streams.insert(*stream);
    return SUCCESS;
}

CALL cuStreamDestroy_v2(Stream *stream) {
    ENTER
    stream->drain();
    streams.erase(stream);
    delete stream;
    return SUCCESS;
}

CALL cuStreamSynchronize(Stream *stream) {
    ENTER
    if (stream->capture != nullptr) {
        return refuse(stream, "to wait for the stream");
    }
    stream->drain();
    return Result(sticky);
}

CALL cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    ENTER
    if (event->stream == nullptr) {
        return SUCCESS;
    }
    if (stream->capture != nullptr && !event->captured) {
        return refuse(stream, "to wait for an event from before");
    }
    if (event->stream != stream) {
        event->stream->drain(event->position);
    }
    return SUCCESS;
}

CALL cuEventCreate(Event **event, unsigned) {
    ENTER
    *event = new Event();
    return SUCCESS;
}

CALL cuEventDestroy_v2(Event *event) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    delete event;
    return Result(sticky);
}

CALL cuEventRecord(Event *event, Stream *stream) {
    ENTER
    *event = {stream->added, stream, stream->capture != nullptr};
    return SUCCESS;
}

CALL cuEventQuery(Event *event) {
    ENTER
    if (event->captured) {
        return refuse(event->stream, "to ask for an event");
    }
    bool done = event->stream == nullptr || event->stream->done >= event->position;
    return done ? SUCCESS : NOT_READY;
}

CALL cuEventSynchronize(Event *event) {
    ENTER
    if (event->captured) {
        return refuse(event->stream, "to wait for an event");
    }
    if (event->stream != nullptr) {
        event->stream->drain(event->position);
    }
    return Result(sticky);
}

CALL cuMemHostAlloc(void **at, size_t bytes, unsigned) {
    ENTER
    *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*at, POISON, bytes);
    pinned[reinterpret_cast<uint64_t>(*at)] = bytes;
    return SUCCESS;
}

CALL cuMemFreeHost(void *at) {
    ENTER
    // A driver waits for copies from and to it.
    for (Stream *stream : streams) {
        if (stream->capture == nullptr) {
            stream->drain();
        }
    }
    pinned.erase(reinterpret_cast<uint64_t>(at));
    free(at);
    return SUCCESS;
}

CALL cuMemAllocAsync(uint64_t *address, size_t bytes, Stream *stream) {
    ENTER
    control->allocations++;
    if (fires(control->allocation_fails_in)) {
        return OUT_OF_MEMORY;
    }
    if (stream->capture != nullptr && stream->invalidated) {
        return CAPTURE_INVALIDATED;
    }
    if (bytes == 0) {
        *address = 0;
        return stream->capture != nullptr ? refuse(stream, "memory of no bytes") : SUCCESS;
    }
    Graph *graph = stream->capture;
    *address = memory().allocate(bytes, graph);
    if (*address == 0) {
        return OUT_OF_MEMORY;
    }
    uint64_t at = *address;
    if (graph != nullptr) {
        graph->own.insert(at);
    }
    return add(stream, "allocation", {}, [=] { poison(at, bytes); });
}

CALL cuMemFreeAsync(uint64_t address, Stream *stream) {
    ENTER
    if (address == 0) {
        return SUCCESS;
    }
    auto found = memory().live.find(address);
    if (found == memory().live.end()) {
        return violation("memory is freed that is not allocated", INVALID_VALUE);
    }
    Allocation own = found->second;
    if (stream->capture != nullptr && own.graph != stream->capture) {
        return refuse(stream, "to free memory from before");
    }
    auto end = [=] {
        check_fence(address, own.bytes);
        memset(reinterpret_cast<void *>(address), POISON, own.bytes);
    };
    Result result = add(stream, "free", {}, end);
    if (own.graph == nullptr) {
        memory().free(address);
    }
    // Memory of a graph stays its own until it is destroyed.
    return result;
}

CALL cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, Stream *stream) {
    ENTER
    if (bytes == 0) {
        return stream->capture != nullptr ? refuse(stream, "to set no bytes") : SUCCESS;
    }
    auto *at = reinterpret_cast<void *>(address);
    return add(stream, "memset", {{at, bytes}}, [=] { memset(at, value, bytes); });
}

CALL cuMemcpyHtoDAsync_v2(uint64_t address, const void *from, size_t bytes, Stream *stream) {
    ENTER
    auto *to = reinterpret_cast<void *>(address);
    if (stream->capture != nullptr) {
        return refuse(stream, "a copy from the host, whose memory may be gone at the replay");
    }
    if (bytes == 0) {
        return SUCCESS;
    }
    if (is_pinned(from, bytes)) {
        return add(stream, "copy to device", {{to, bytes}}, [=] { memcpy(to, from, bytes); });
    }
    auto copy = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                    static_cast<const char *>(from) + bytes);
    return add(stream, "copy to device", {{to, bytes}},
               [=] { memcpy(to, copy->data(), bytes); });
}

CALL cuMemcpyDtoHAsync_v2(void *to, uint64_t address, size_t bytes, Stream *stream) {
    ENTER
    auto *from = reinterpret_cast<const void *>(address);
    if (stream->capture != nullptr) {
        return refuse(stream, "a copy to the host");
    }
    if (bytes == 0) {
        return SUCCESS;
    }
    Result result = add(stream, "copy to host", {{from, bytes}}, [=] { memcpy(to, from, bytes); });
    if (result != SUCCESS) {
        return result;
    }
    if (is_pinned(to, bytes)) {
        memset(to, POISON, bytes);
    } else {
        stream->drain();
    }
    return Result(sticky);
}

CALL cuMemcpyDtoDAsync_v2(uint64_t to_address, uint64_t from_address, size_t bytes,
                          Stream *stream) {
    ENTER
    auto *to = reinterpret_cast<void *>(to_address);
    auto *from = reinterpret_cast<const void *>(from_address);
    if (bytes == 0) {
        return stream->capture != nullptr ? refuse(stream, "to copy no bytes") : SUCCESS;
    }
    return add(stream, "copy on device", {{to, bytes}, {from, bytes}},
               [=] { memmove(to, from, bytes); });
}

CALL cuModuleLoadData(Module **module, const void *image) {
    ENTER
    for (Stream *stream : streams) {
        if (stream->capture != nullptr) {
            return refuse(stream, "to load code");
        }
    }
    const char *text = static_cast<const char *>(image);
    // The compiler's fat binaries begin with this.
    bool binary = *static_cast<const uint32_t *>(image) == 0xba55ed50;
    *module = new Module{binary ? "" : text};
    return SUCCESS;
}

extern "C" Result cuModuleUnload(Module *) { return SUCCESS; }

CALL cuModuleGetFunction(Function **function, Module *module, const char *name) {
    ENTER
    bool ours = module->text.empty();
    if (!ours) {
        std::string entry = std::string(".entry ") + name + "(";
        if (module->text.find(entry) == std::string::npos) {
            return violation(std::string("no such kernel: ") + name, NOT_FOUND);
        }
    } else if (strncmp(name, "_Z", 2) == 0) {
        // `_Z<length><symbol>ILj<hash>EEvv`: a layout and its hash.
        char *symbol;
        unsigned long length = strtoul(name + 2, &symbol, 10);
        std::string kind(symbol, length);
        auto *hash = static_cast<uint32_t *>(dlsym(RTLD_DEFAULT, kind.c_str()));
        unsigned long wanted = strtoul(symbol + length + strlen("ILj"), nullptr, 10);
        if (hash == nullptr || *hash != wanted) {
            return NOT_FOUND;
        }
    } else if (dlsym(RTLD_DEFAULT, (std::string(name) + "_on_host").c_str()) == nullptr) {
        return NOT_FOUND;
    }
    static auto *all = new std::map<std::pair<bool, std::string>, Function *>();
    Function *&known = (*all)[{ours, name}];
    if (known == nullptr) {
        known = new Function{name, ours};
    }
    *function = known;
    return SUCCESS;
}

CALL cuFuncSetAttribute(Function *function, int attribute, int value) {
    ENTER
    if (attribute == 8) { // most dynamic shared memory
        if (value > 227 << 10) {
            return violation(function->name + " asks for too much shared memory", INVALID_VALUE);
        }
        function->most_shared = size_t(value);
    }
    return SUCCESS;
}

namespace {

using OnHost = void (*)(void **arguments, const unsigned *grid, unsigned threads, unsigned shared);

// The parameters of a launch, copied: they may be gone when it runs.
struct Parameters {
    std::vector<std::vector<char>> copies;
    std::vector<void *> pointers;

    Parameters(void **parameters, const std::vector<size_t> &sizes) {
        for (size_t i = 0; i < sizes.size(); i++) {
            const char *from = static_cast<const char *>(parameters[i]);
            copies.emplace_back(from, from + sizes[i]);
        }
        for (auto &copy : copies) {
            pointers.push_back(copy.data());
        }
    }

    // What looks like an address of the device's memory must be of an allocation.
    std::vector<Touched> touched() const {
        std::vector<Touched> all;
        for (const auto &copy : copies) {
            for (size_t i = 0; i + 8 <= copy.size(); i += 8) {
                uint64_t word;
                memcpy(&word, copy.data() + i, 8);
                if (on_device(word)) {
                    all.push_back({reinterpret_cast<const void *>(word), 0});
                }
            }
        }
        return all;
    }
};

Result launch(Stream *stream, const std::string &name, const Kernel &kernel, void **parameters,
              const unsigned *grid, unsigned threads, unsigned shared) {
    control->launches++;
    static const bool traced = getenv("STANDIN_TRACE") != nullptr;
    if (traced) {
        fprintf(stderr, "stand-in driver: %s [%u %u %u] %u %u\n", name.c_str(), grid[0], grid[1],
                grid[2], threads, shared);
    }
    if (fires(control->launch_breaks_in)) {
        sticky = ILLEGAL_ADDRESS;
        return ILLEGAL_ADDRESS;
    }
    auto copied = std::make_shared<Parameters>(parameters, kernel.parameters);
    std::vector<unsigned> blocks(grid, grid + 3);
    auto work = kernel.run;
    auto run = [=] { work(copied->pointers.data(), blocks.data(), threads, shared); };
    return add(stream, name, copied->touched(), run);
}

} // namespace

CALL cuLaunchKernel(Function *function, unsigned x, unsigned y, unsigned z, unsigned threads,
                    unsigned threads_y, unsigned threads_z, unsigned shared, Stream *stream,
                    void **parameters, void **) {
    ENTER
    const std::string &name = function->name;
    unsigned grid[3] = {x, y, z};
    uint64_t all = uint64_t(threads) * threads_y * threads_z;
    if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || all == 0 || all > 1024 ||
        shared > function->most_shared) {
        return violation("a launch of " + name + " that no GPU takes", INVALID_VALUE);
    }
    if (!function->ours) {
        const Kernel *kernel = find_candle_kernel(name);
        if (kernel == nullptr) {
            return violation("the stand-in has no kernel " + name, NOT_FOUND);
        }
        return launch(stream, name, *kernel, parameters, grid, threads, shared);
    }
    auto *bytes = static_cast<size_t *>(dlsym(RTLD_DEFAULT, (name + "_argument_bytes").c_str()));
    void *at = dlsym(RTLD_DEFAULT, (name + "_on_host").c_str());
    if (bytes == nullptr || at == nullptr) {
        return violation("the stand-in has no kernel " + name, NOT_FOUND);
    }
    Kernel kernel{{*bytes}, reinterpret_cast<OnHost>(at)};
    return launch(stream, name, kernel, parameters, grid, threads, shared);
}

CALL cuStreamBeginCapture_v2(Stream *stream, int) {
    ENTER
    if (stream->capture != nullptr) {
        return ILLEGAL_STATE;
    }
    stream->drain();
    stream->capture = new Graph();
    stream->invalidated = fires(control->capture_fails_in);
    return SUCCESS;
}

CALL cuStreamEndCapture(Stream *stream, Graph **graph) {
    ENTER
    *graph = nullptr;
    if (stream->capture == nullptr) {
        return ILLEGAL_STATE;
    }
    std::unique_ptr<Graph> captured(stream->capture);
    stream->capture = nullptr;
    if (stream->invalidated) {
        return CAPTURE_INVALIDATED;
    }
    control->captures++;
    *graph = captured.release();
    return SUCCESS;
}

CALL cuStreamIsCapturing(Stream *stream, int *status) {
    ENTER
    *status = stream->capture == nullptr ? 0 : stream->invalidated ? 2 : 1;
    return SUCCESS;
}

CALL cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, unsigned long long) {
    ENTER
    *executable = graph;
    return SUCCESS;
}

CALL cuGraphLaunch(Graph *graph, Stream *stream) {
    ENTER
    control->replays++;
    if (fires(control->launch_breaks_in)) {
        sticky = ILLEGAL_ADDRESS;
        return ILLEGAL_ADDRESS;
    }
    for (const Work &work : graph->work) {
        for (uint64_t id : work.uses) {
            if (memory().by_id.count(id) == 0) {
                return violation("a graph replays " + work.name + " with memory that was freed",
                                 ILLEGAL_ADDRESS);
            }
        }
    }
    for (const Work &work : graph->work) {
        stream->push(work);
    }
    return SUCCESS;
}

CALL cuGraphExecDestroy(Graph *) { return SUCCESS; }

CALL cuGraphDestroy(Graph *graph) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    for (Stream *stream : streams) {
        if (stream->capture == nullptr) {
            stream->drain();
        }
    }
    delete graph;
    return Result(sticky);
}

// cuBLAS and cuRAND.

namespace {

struct Blas {
    Stream *stream = nullptr;
};

float half_value(const void *at, size_t i, int type) {
    switch (type) {
    case 0: // f32
        return static_cast<const float *>(at)[i];
    case 14: { // bf16
        uint32_t bits = uint32_t(static_cast<const uint16_t *>(at)[i]) << 16;
        float x;
        memcpy(&x, &bits, 4);
        return x;
    }
    case 2: { // f16
        _Float16 x;
        memcpy(&x, static_cast<const uint16_t *>(at) + i, 2);
        return float(x);
    }
    }
    violation("a product of type " + std::to_string(type), SUCCESS);
    return 0;
}

size_t bytes_of(int type) { return type == 0 ? 4 : 2; }

} // namespace

extern "C" int cublasCreate_v2(Blas **handle) {
    *handle = new Blas();
    return 0;
}
extern "C" int cublasDestroy_v2(Blas *handle) {
    delete handle;
    return 0;
}
extern "C" int cublasSetStream_v2(Blas *handle, Stream *stream) {
    handle->stream = stream;
    return 0;
}

extern "C" int cublasGemmEx(Blas *handle, int transa, int transb, int m, int n, int k,
                            const void *alpha, const void *a, int a_type, int lda, const void *b,
                            int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                            int, int) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (sticky != 0) {
        return 13;
    }
    float factor = *static_cast<const float *>(alpha), old = *static_cast<const float *>(beta);
    auto size = [](int rows, int columns, int stride, int type) {
        return (size_t(columns - 1) * size_t(stride) + size_t(rows)) * bytes_of(type);
    };
    std::vector<Touched> touched = {
        {a, transa ? size(k, m, lda, a_type) : size(m, k, lda, a_type)},
        {b, transb ? size(n, k, ldb, b_type) : size(k, n, ldb, b_type)},
        {c, size(m, n, ldc, c_type)},
    };
    if (c_type != 0) {
        violation("a product to type " + std::to_string(c_type), SUCCESS);
        return 15;
    }
    auto run = [=] {
        for (int column = 0; column < n; column++) {
            for (int row = 0; row < m; row++) {
                double sum = 0;
                for (int i = 0; i < k; i++) {
                    size_t in_a = transa ? size_t(row) * lda + i : size_t(i) * lda + row;
                    size_t in_b = transb ? size_t(i) * ldb + column : size_t(column) * ldb + i;
                    sum += double(half_value(a, in_a, a_type)) * half_value(b, in_b, b_type);
                }
                float *to = static_cast<float *>(c) + size_t(column) * ldc + row;
                *to = float(factor * sum) + (old != 0 ? old * *to : 0);
            }
        }
    };
    return add(handle->stream, "cublasGemmEx", touched, run) == SUCCESS ? 0 : 13;
}

extern "C" int curandCreateGenerator(void **generator, int) {
    static int one;
    *generator = &one;
    return 0;
}
extern "C" int curandSetPseudoRandomGeneratorSeed(void *, unsigned long long) { return 0; }
extern "C" int curandSetStream(void *, void *) { return 0; }
extern "C" int curandDestroyGenerator(void *) { return 0; }

// The runtime's, for kernels of the tensor library that the compiler launches.

extern "C" void **__cudaRegisterFatBinary(void *) {
    static void *one;
    return &one;
}
extern "C" void __cudaRegisterFatBinaryEnd(void **) {}
extern "C" void __cudaUnregisterFatBinary(void **) {}
extern "C" void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *,
                                       void *, void *, void *, int *) {}
extern "C" void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
