// What the parts of the stand-in for NVIDIA's driver share: memory, streams and captures.
//
// Work of a stream waits in a queue until somebody waits for it, so that whoever reads too early finds
// what was there before. Memory is reused as soon as it is freed, in the order of the stream.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace standin {

// Results of calls, by the driver's numbers.
enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    ILLEGAL_STATE = 401,
};

// What a test sets and reads, in a file that both map: words of 8 bytes in this order.
struct Control {
    // Counts down at each allocation, each launch and each begin of a capture; at 0 it fails. 0: never.
    uint64_t allocation_fails_in, launch_breaks_in, capture_fails_in;
    // What the driver has seen.
    uint64_t violations, allocations, captures, replays, launches, bytes_in_use, most_bytes;
};
extern Control *control;

// One piece of work: what it is, the memory it touches, and how it is done.
struct Work {
    std::string name;
    // Memory that it must find allocated, by identity.
    std::vector<uint64_t> uses;
    std::function<void()> run;
    // Whether other processes wait for it.
    bool shared = false;
};

struct Stream;

// Adds work to a stream, or to what it captures. `touched` are addresses and lengths.
struct Touched {
    const void *address;
    size_t bytes;
};
Result add(Stream *stream, std::string name, const std::vector<Touched> &touched,
           std::function<void()> run);

// The same for work that other processes wait for: it is done at once, since nobody may ever wait for it here.
Result add_shared(Stream *stream, std::string name, const std::vector<Touched> &touched,
                  std::function<void()> run);

// Notes that the program did what no driver accepts, and gives the error that it gets for it.
Result violation(const std::string &what, Result result);

// Whether an address is of the device's memory.
bool on_device(uint64_t address);

// A kernel on the host: bytes of each parameter, and what it does with a copy of them.
struct Kernel {
    std::vector<size_t> parameters;
    std::function<void(void **parameters, const unsigned *grid, unsigned threads, unsigned shared)> run;
};
// A kernel of the tensor library's by name; null where it was not written yet.
const Kernel *find_candle_kernel(const std::string &name);

} // namespace standin
