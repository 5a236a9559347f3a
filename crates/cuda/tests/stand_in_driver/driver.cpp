// A stand-in for the CUDA driver: the functions of libcuda.so.1 that `larder-cuda` calls, with the kernels compiled for
// the host, and failures on demand. Streams are threads that do their work late, so that code fails if it relies on an
// order it did not request. Addresses, contexts and sizes are checked where a real driver would fail or corrupt memory.
//
// Failures are requested by the environment variable STAND_IN (`devices=0,init=803`) and by stand_in_set().
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hitmap.cu"

enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    UNKNOWN = 999,
};

static const char *const DEVICE_NAME = "stand-in";

struct Event {
    u64 recorded = 0;
    u64 done = 0;
    bool timed = false;
    std::chrono::steady_clock::time_point at;
};

struct Stream {
    std::deque<std::function<void()>> work;
    bool busy = false;
    bool closed = false;
};

struct Function {
    std::string name;
};

// The whole state. It is never destroyed, because a stream that hangs outlives main().
struct World {
    std::mutex lock;
    std::condition_variable changed;
    std::map<std::string, long long> orders;
    std::map<u64, size_t> device_memory;
    std::map<u64, size_t> pinned_memory;
    std::multimap<u64, size_t> host_in_use;
    std::set<std::shared_ptr<Stream>> streams;
    std::map<void *, std::shared_ptr<Stream>> stream_of;
    std::map<void *, std::shared_ptr<Event>> event_of;
    std::vector<std::unique_ptr<Function>> functions;
    size_t device_bytes = 0;
    size_t device_bytes_max = 0;
    long long contexts = 0;
    long long modules = 0;
    long long launches = 0;
    long long ended = 0;
    std::atomic<int> lost{0};
};

static World &world()
{
    static World *const it = [] {
        World *made = new World;
        made->orders["devices"] = 1;
        const char *orders = getenv("STAND_IN");
        std::string rest = orders ? orders : "";
        while (!rest.empty()) {
            const size_t end = rest.find(',');
            const std::string order = rest.substr(0, end);
            const size_t equals = order.find('=');
            if (equals != std::string::npos)
                made->orders[order.substr(0, equals)] = atoll(order.c_str() + equals + 1);
            rest = end == std::string::npos ? "" : rest.substr(end + 1);
        }
        return made;
    }();
    return *it;
}

static thread_local void *current_context = nullptr;
static int the_context;

[[noreturn]] static void broken(const char *what)
{
    fprintf(stderr, "stand-in driver: %s\n", what);
    abort();
}

// Whether this is the call that a request like `lose=3` names: the third one after the request.
static bool due(const char *order)
{
    auto found = world().orders.find(order);
    if (found == world().orders.end() || found->second <= 0)
        return false;
    return --found->second == 0;
}

static long long ordered(const char *order)
{
    auto found = world().orders.find(order);
    return found == world().orders.end() ? 0 : found->second;
}

static bool within(const std::map<u64, size_t> &memory, u64 address, size_t bytes)
{
    auto next = memory.upper_bound(address);
    if (next == memory.begin())
        return false;
    --next;
    return address - next->first <= next->second && bytes <= next->second - (address - next->first);
}

#define ENTER                                        \
    std::unique_lock<std::mutex> held(world().lock); \
    if (world().lost)                                \
        return world().lost;                         \
    if (!current_context)                            \
        return INVALID_CONTEXT;

// Ends only when the process ends.
static void serve(std::shared_ptr<Stream> stream)
{
    std::unique_lock<std::mutex> held(world().lock);
    for (;;) {
        world().changed.wait(held, [&] { return stream->closed || !stream->work.empty(); });
        if (stream->work.empty())
            return;
        std::function<void()> next = std::move(stream->work.front());
        stream->work.pop_front();
        stream->busy = true;
        held.unlock();
        // Late, so that a caller that does not wait sees the old contents.
        std::this_thread::yield();
        if (!world().lost)
            next();
        held.lock();
        stream->busy = false;
        world().changed.notify_all();
    }
}

static int give(void *handle, std::function<void()> work)
{
    auto found = world().stream_of.find(handle);
    if (found == world().stream_of.end())
        return INVALID_HANDLE;
    found->second->work.push_back(std::move(work));
    world().changed.notify_all();
    return SUCCESS;
}

static bool idle()
{
    for (const auto &stream : world().streams)
        if (stream->busy || !stream->work.empty())
            return false;
    return true;
}

// ---- Requests and questions of the test.

extern "C" void stand_in_set(const char *order, long long value)
{
    std::unique_lock<std::mutex> held(world().lock);
    world().orders[order] = value;
    world().changed.notify_all();
    if (!strcmp(order, "lost"))
        world().lost = (int)value;
}

// The number of objects and allocations that still exist.
extern "C" long long stand_in_live()
{
    std::unique_lock<std::mutex> held(world().lock);
    World &all = world();
    return (long long)(all.device_memory.size() + all.pinned_memory.size() + all.stream_of.size() +
                       all.event_of.size()) + all.contexts + all.modules;
}

extern "C" long long stand_in_device_bytes_max()
{
    std::unique_lock<std::mutex> held(world().lock);
    return (long long)world().device_bytes_max;
}

extern "C" long long stand_in_launches()
{
    std::unique_lock<std::mutex> held(world().lock);
    return world().launches;
}

extern "C" long long stand_in_ended()
{
    std::unique_lock<std::mutex> held(world().lock);
    return world().ended;
}

// ---- The driver's functions.

extern "C" int cuInit(unsigned)
{
    std::unique_lock<std::mutex> held(world().lock);
    return (int)ordered("init");
}

extern "C" int cuGetErrorName(int code, const char **name)
{
    *name = nullptr;
    switch (code) {
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; break;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; break;
    case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case LAUNCH_OUT_OF_RESOURCES: *name = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"; break;
    case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

extern "C" int cuDeviceGetCount(int *count)
{
    std::unique_lock<std::mutex> held(world().lock);
    *count = (int)ordered("devices");
    return SUCCESS;
}

extern "C" int cuDeviceGet(int *device, int number)
{
    std::unique_lock<std::mutex> held(world().lock);
    if (number < 0 || number >= ordered("devices"))
        return INVALID_DEVICE;
    *device = number;
    return SUCCESS;
}

extern "C" int cuDeviceGetName(char *name, int bytes, int)
{
    snprintf(name, (size_t)bytes, "%s", DEVICE_NAME);
    return SUCCESS;
}

extern "C" int cuDevicePrimaryCtxRetain(void **context, int)
{
    std::unique_lock<std::mutex> held(world().lock);
    world().contexts++;
    *context = &the_context;
    return world().lost;
}

extern "C" int cuDevicePrimaryCtxRelease_v2(int)
{
    std::unique_lock<std::mutex> held(world().lock);
    if (--world().contexts < 0)
        broken("a context was released twice");
    return world().lost;
}

extern "C" int cuCtxSetCurrent(void *context)
{
    current_context = context;
    return world().lost;
}

template <class... Arguments> static std::string signature(void (*)(Arguments...))
{
    std::string text;
    ((text += " .u" + std::to_string(8 * sizeof(Arguments))), ...);
    return text;
}

static const std::map<std::string, std::string> &signatures()
{
    static const std::map<std::string, std::string> *const all = new std::map<std::string, std::string>{
        {"line_zones", signature(line_zones)},           {"line_mark", signature(line_mark)},
        {"line_fold", signature(line_fold)},             {"published_zones", signature(published_zones)},
        {"published_mark", signature(published_mark)},   {"published_fold", signature(published_fold)},
    };
    return *all;
}

// Whether the text contains this kernel, with arguments of the same sizes as in the source compiled here.
static bool has_kernel(const std::string &text, const std::string &name, const std::string &wanted)
{
    const size_t begin = text.find(".visible .entry " + name + "(");
    if (begin == std::string::npos)
        return false;
    const std::string head = text.substr(begin, text.find(')', begin) - begin);
    std::string found;
    for (size_t at = 0; (at = head.find(".param", at)) != std::string::npos; at += 6)
        found += head.substr(at + 6, 5);
    return found == wanted;
}

extern "C" int cuModuleLoadData(void **module, const void *image)
{
    ENTER
    const std::string text = (const char *)image;
    if (text.find(".target sm_50") == std::string::npos)
        return INVALID_PTX;
    for (const auto &kernel : signatures())
        if (!has_kernel(text, kernel.first, kernel.second))
            return INVALID_PTX;
    world().modules++;
    *module = &world().modules;
    return SUCCESS;
}

extern "C" int cuModuleUnload(void *)
{
    ENTER
    if (--world().modules < 0)
        broken("a module was unloaded twice");
    return SUCCESS;
}

extern "C" int cuModuleGetFunction(void **function, void *, const char *name)
{
    ENTER
    if (!signatures().count(name))
        return NOT_FOUND;
    world().functions.push_back(std::unique_ptr<Function>(new Function{name}));
    *function = world().functions.back().get();
    return SUCCESS;
}

extern "C" int cuMemAlloc_v2(u64 *address, size_t bytes)
{
    ENTER
    if (bytes == 0)
        return INVALID_VALUE;
    const long long limit = ordered("memory");
    if (limit > 0 && world().device_bytes + bytes > (size_t)limit)
        return OUT_OF_MEMORY;
    void *memory = malloc(bytes);
    if (!memory)
        return OUT_OF_MEMORY;
    // Fresh memory of a device is not cleared.
    memset(memory, 0xA5, bytes);
    *address = (u64)memory;
    world().device_memory[*address] = bytes;
    world().device_bytes += bytes;
    if (world().device_bytes > world().device_bytes_max)
        world().device_bytes_max = world().device_bytes;
    return SUCCESS;
}

extern "C" int cuMemAllocManaged(u64 *address, size_t bytes, unsigned flags)
{
    return flags == 1 ? cuMemAlloc_v2(address, bytes) : INVALID_VALUE;
}

extern "C" int cuMemFree_v2(u64 address)
{
    ENTER
    auto found = world().device_memory.find(address);
    if (found == world().device_memory.end())
        return INVALID_VALUE;
    world().changed.wait(held, idle);
    memset((void *)address, 0xDD, found->second);
    world().device_bytes -= found->second;
    world().device_memory.erase(found);
    free((void *)address);
    return SUCCESS;
}

extern "C" int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER
    if (bytes == 0 || flags != 0)
        return INVALID_VALUE;
    *memory = malloc(bytes);
    memset(*memory, 0xA5, bytes);
    world().pinned_memory[(u64)*memory] = bytes;
    return SUCCESS;
}

extern "C" int cuMemFreeHost(void *memory)
{
    ENTER
    auto found = world().pinned_memory.find((u64)memory);
    if (found == world().pinned_memory.end())
        return INVALID_VALUE;
    for (const auto &used : world().host_in_use)
        if (used.first < found->first + found->second && found->first < used.first + used.second)
            broken("pinned memory was freed while a copy used it");
    memset(memory, 0xDD, found->second);
    world().pinned_memory.erase(found);
    free(memory);
    return SUCCESS;
}

static int copy(void *stream, u64 to, u64 from, size_t bytes, u64 host)
{
    auto used = world().host_in_use.end();
    if (host)
        used = world().host_in_use.insert({host, bytes});
    return give(stream, [=] {
        memcpy((void *)to, (const void *)from, bytes);
        if (host) {
            std::unique_lock<std::mutex> held(world().lock);
            world().host_in_use.erase(used);
        }
    });
}

extern "C" int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *stream)
{
    ENTER
    if (!within(world().device_memory, to, bytes) || !within(world().pinned_memory, (u64)from, bytes))
        return INVALID_VALUE;
    if (due("refuse_copy"))
        return UNKNOWN;
    return copy(stream, to, (u64)from, bytes, (u64)from);
}

extern "C" int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *stream)
{
    ENTER
    if (!within(world().pinned_memory, (u64)to, bytes) || !within(world().device_memory, from, bytes))
        return INVALID_VALUE;
    if (ordered("refuse_answers") || due("refuse_answer"))
        return UNKNOWN;
    return copy(stream, (u64)to, from, bytes, (u64)to);
}

extern "C" int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void *stream)
{
    ENTER
    if (!within(world().device_memory, to, bytes) || !within(world().device_memory, from, bytes))
        return INVALID_VALUE;
    if (to < from + bytes && from < to + bytes)
        return INVALID_VALUE;
    return copy(stream, to, from, bytes, 0);
}

// CUDA_MEMCPY2D of the driver's interface.
struct Copy2D {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    u64 from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void *to_host;
    u64 to;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};

extern "C" int cuMemcpy2DAsync_v2(const Copy2D *order, void *stream)
{
    ENTER
    const Copy2D it = *order;
    const size_t pitch_max = 0x7fffffff;
    if (it.from_type != 2 || it.to_type != 2 || it.from_x || it.from_y || it.to_x || it.to_y || !it.height ||
        it.width > it.from_pitch || it.width > it.to_pitch || it.from_pitch > pitch_max || it.to_pitch > pitch_max)
        return INVALID_VALUE;
    if (!within(world().device_memory, it.to, (it.height - 1) * it.to_pitch + it.width) ||
        !within(world().device_memory, it.from, (it.height - 1) * it.from_pitch + it.width))
        return INVALID_VALUE;
    return give(stream, [it] {
        for (size_t row = 0; row < it.height; row++)
            memcpy((void *)(it.to + row * it.to_pitch), (const void *)(it.from + row * it.from_pitch), it.width);
    });
}

extern "C" int cuMemsetD8Async(u64 address, unsigned char value, size_t bytes, void *stream)
{
    ENTER
    if (!within(world().device_memory, address, bytes))
        return INVALID_VALUE;
    return give(stream, [=] { memset((void *)address, value, bytes); });
}

extern "C" int cuStreamCreate(void **handle, unsigned flags)
{
    ENTER
    if (flags > 1)
        return INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    world().streams.insert(stream);
    world().stream_of[stream.get()] = stream;
    *handle = stream.get();
    std::thread(serve, stream).detach();
    return SUCCESS;
}

extern "C" int cuStreamDestroy_v2(void *handle)
{
    ENTER
    auto found = world().stream_of.find(handle);
    if (found == world().stream_of.end())
        return INVALID_HANDLE;
    found->second->closed = true;
    world().stream_of.erase(found);
    world().changed.notify_all();
    return SUCCESS;
}

extern "C" int cuStreamWaitEvent(void *stream, void *handle, unsigned)
{
    ENTER
    auto found = world().event_of.find(handle);
    if (found == world().event_of.end())
        return INVALID_HANDLE;
    std::shared_ptr<Event> event = found->second;
    const u64 wanted = event->recorded;
    return give(stream, [event, wanted] {
        std::unique_lock<std::mutex> held(world().lock);
        world().changed.wait(held, [&] { return event->done >= wanted || world().lost; });
    });
}

extern "C" int cuEventCreate(void **handle, unsigned flags)
{
    ENTER
    auto event = std::make_shared<Event>();
    event->timed = !(flags & 2);
    world().event_of[event.get()] = event;
    *handle = event.get();
    return SUCCESS;
}

extern "C" int cuEventDestroy_v2(void *handle)
{
    ENTER
    return world().event_of.erase(handle) ? SUCCESS : INVALID_HANDLE;
}

extern "C" int cuEventRecord(void *handle, void *stream)
{
    ENTER
    auto found = world().event_of.find(handle);
    if (found == world().event_of.end())
        return INVALID_HANDLE;
    std::shared_ptr<Event> event = found->second;
    const u64 number = ++event->recorded;
    return give(stream, [event, number] {
        std::unique_lock<std::mutex> held(world().lock);
        event->at = std::chrono::steady_clock::now();
        event->done = number;
        world().changed.notify_all();
    });
}

extern "C" int cuEventQuery(void *handle)
{
    ENTER
    auto found = world().event_of.find(handle);
    if (found == world().event_of.end())
        return INVALID_HANDLE;
    return found->second->done == found->second->recorded ? SUCCESS : NOT_READY;
}

extern "C" int cuEventElapsedTime(float *milliseconds, void *begin, void *end)
{
    ENTER
    auto first = world().event_of.find(begin);
    auto last = world().event_of.find(end);
    if (first == world().event_of.end() || last == world().event_of.end() || !first->second->timed ||
        !last->second->timed)
        return INVALID_HANDLE;
    const std::chrono::duration<float, std::milli> time = last->second->at - first->second->at;
    *milliseconds = time.count();
    return SUCCESS;
}

// Runs a kernel once for each thread of the grid. A large grid is divided between two threads of the host.
template <class Kernel> static void run(u64 threads, Kernel kernel)
{
    const auto part = [&](u64 begin, u64 end) {
        for (u64 number = begin; number < end; number++) {
            set_thread_number(number);
            kernel();
        }
    };
    if (threads <= 4096)
        return part(0, threads);
    std::thread other(part, threads / 2, threads);
    part(0, threads / 2);
    other.join();
}

static u64 wide(void **arguments, int number)
{
    return *(const u64 *)arguments[number];
}

static u32 narrow(void **arguments, int number)
{
    return *(const u32 *)arguments[number];
}

// The work of a launch, or none if a thread of it would access memory that is not allocated.
static std::function<void()> work_of(const std::string &name, u64 threads, void **arguments)
{
    const auto is_there = [](u64 address, u64 bytes) { return within(world().device_memory, address, bytes); };
    const u64 first = wide(arguments, 0);
    if (name == "line_zones" || name == "line_mark") {
        const bool zones_only = name == "line_zones";
        const u64 lines = wide(arguments, 1), references = wide(arguments, 2);
        const u64 zones = wide(arguments, zones_only ? 4 : 3);
        const u32 count = narrow(arguments, zones_only ? 3 : 4);
        if (!is_there(first, lines * 64) || !is_there(references, 4ull * count) || !is_there(zones, count) ||
            threads < count)
            return {};
        if (zones_only)
            return [=] {
                run(threads, [=] { line_zones((u64 *)first, lines, (u32 *)references, count, (u8 *)zones); });
            };
        return [=] { run(threads, [=] { line_mark((u64 *)first, lines, (u32 *)references, (u8 *)zones, count); }); };
    }
    if (name == "line_fold") {
        const u64 from = wide(arguments, 1), count = wide(arguments, 2);
        if (!is_there(first + from * 64, count * 64) || threads < count)
            return {};
        return [=] { run(threads, [=] { line_fold((u64 *)first, from, count); }); };
    }
    if (name == "published_fold") {
        const u64 above = wide(arguments, 1), also = wide(arguments, 2), words = wide(arguments, 3);
        if (!is_there(first, words * 8) || !is_there(above, words * 16) || (also && !is_there(also, words * 8)) ||
            threads < words)
            return {};
        return [=] { run(threads, [=] { published_fold((u64 *)first, (u64 *)above, (u64 *)also, words); }); };
    }
    const bool zones_only = name == "published_zones";
    const u64 bits = wide(arguments, 1);
    const u32 levels = narrow(arguments, 2), hashes = narrow(arguments, 3);
    const u32 set_counter = zones_only ? 0 : narrow(arguments, 4);
    const u64 references = wide(arguments, zones_only ? 4 : 5), zones = wide(arguments, 6);
    const u32 count = narrow(arguments, zones_only ? 5 : 7);
    if (!is_there(first, bits / 8 * ((1ull << levels) - 1 + (set_counter ? 1 : 0))) ||
        !is_there(references, 4ull * count) || !is_there(zones, count) || threads < count)
        return {};
    if (zones_only)
        return [=] {
            run(threads, [=] {
                published_zones((u64 *)first, bits, levels, hashes, (u32 *)references, count, (u8 *)zones);
            });
        };
    return [=] {
        run(threads, [=] {
            published_mark((u64 *)first, bits, levels, hashes, set_counter, (u32 *)references, (u8 *)zones, count);
        });
    };
}

extern "C" int cuLaunchKernel(void *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned block,
                              unsigned block_y, unsigned block_z, unsigned, void *stream, void **arguments, void **)
{
    ENTER
    if (!blocks || !block || block > 1024 || blocks_y != 1 || blocks_z != 1 || block_y != 1 || block_z != 1)
        return INVALID_VALUE;
    if (due("refuse_launch"))
        return ordered("launch_code") ? (int)ordered("launch_code") : LAUNCH_OUT_OF_RESOURCES;
    world().launches++;
    if (due("hang"))
        return give(stream, [] {
            for (;;)
                std::this_thread::sleep_for(std::chrono::hours(1));
        });
    std::function<void()> work = work_of(((Function *)function)->name, (u64)blocks * block, arguments);
    const int failure = !work ? (int)ILLEGAL_ADDRESS : due("lose") ? (int)LAUNCH_FAILED : 0;
    const long long delay = ordered("delay_us");
    return give(stream, [work, failure, delay] {
        std::unique_lock<std::mutex> held(world().lock);
        world().changed.wait(held, [] { return !ordered("hold"); });
        held.unlock();
        if (delay)
            std::this_thread::sleep_for(std::chrono::microseconds(delay));
        if (!failure)
            work();
        held.lock();
        world().ended++;
        if (!failure)
            return;
        world().lost = failure;
        world().changed.notify_all();
    });
}
