/* Memory of the GPU, which is the host's, and copies. New memory is full of ones: NaN as floats. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { ALIGNMENT = 512 };
/* Bytes of pageable memory that a copy reads at the call. CUDA stages such small blocks, and
   numba-cuda's array[i] = x counts on it. */
enum { MOST_STAGED = 1 << 16 };

struct Allocation {
    struct Allocation *next;
    struct Context *context;
    unsigned char *address;
    size_t bytes;
    int on_host, postponed, registered; /* registered: the memory is not the driver's to free */
};

static struct Allocation *allocations = NULL;

static struct Allocation *find(const void *address, size_t bytes) {
    const unsigned char *first = address;
    for (struct Allocation *a = allocations; a; a = a->next)
        if (first >= a->address && first + bytes <= a->address + a->bytes) return a;
    return NULL;
}

int is_device_memory(const void *address, size_t bytes) { return find(address, bytes) != NULL; }

static CUresult allocate(void **address, size_t bytes, int on_host) {
    struct Context *context = current_context();
    if (!bytes) return INVALID_VALUE;
    if (!on_host && context->used + bytes > DEVICE_BYTES) return OUT_OF_MEMORY;
    unsigned char *memory;
    if (posix_memalign((void **)&memory, ALIGNMENT, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xFF, bytes);
    struct Allocation *allocation = malloc(sizeof *allocation);
    *allocation = (struct Allocation){allocations, context, memory, bytes, on_host, 0, 0};
    allocations = allocation;
    if (!on_host) context->used += bytes;
    *address = memory;
    tell(ALLOCATED, memory, bytes);
    if (on_host) tell(WROTE, memory, bytes); /* the host may write there at any time */
    return SUCCESS;
}

static void forget(struct Allocation *allocation) {
    struct Allocation **link = &allocations;
    while (*link != allocation) link = &(*link)->next;
    *link = allocation->next;
    if (!allocation->on_host) allocation->context->used -= allocation->bytes;
    tell(FREED, allocation->address, allocation->bytes);
    if (!allocation->registered) free(allocation->address);
    free(allocation);
}

/* Memory that was freed while a launch ran: Python collects garbage at any time. */
void free_postponed(void) {
    for (struct Allocation *a = allocations, *next; a; a = next) {
        next = a->next;
        if (a->postponed) forget(a);
    }
}

/* As CUDA does, wait first for everything that may use the memory. */
static CUresult release(void *address) {
    struct Allocation *allocation = find(address, 1);
    if (!address) return SUCCESS;
    if (!allocation || allocation->address != address) return INVALID_VALUE;
    CUresult result = finish_all();
    if (result == NOT_SUPPORTED) {
        allocation->postponed = 1;
        return SUCCESS;
    }
    forget(allocation);
    return result;
}

CUresult cuMemAlloc(void **address, size_t bytes) {
    WITH_CONTEXT(cuMemAlloc);
    return allocate(address, bytes, 0);
}

CUresult cuMemFree(void *address) {
    WITH_CONTEXT(cuMemFree);
    return release(address);
}

CUresult cuMemAllocHost(void **address, size_t bytes) {
    WITH_CONTEXT(cuMemAllocHost);
    return allocate(address, bytes, 1);
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    WITH_CONTEXT(cuMemHostAlloc);
    (void)flags;
    return allocate(address, bytes, 1);
}

CUresult cuMemFreeHost(void *address) {
    WITH_CONTEXT(cuMemFreeHost);
    return release(address);
}

CUresult cuMemAllocManaged(void **address, size_t bytes, unsigned flags) {
    WITH_CONTEXT(cuMemAllocManaged);
    (void)flags;
    return allocate(address, bytes, 1);
}

CUresult cuMemHostGetDevicePointer(void **address, void *host, unsigned flags) {
    WITH_CONTEXT(cuMemHostGetDevicePointer);
    (void)flags;
    *address = host;
    return find(host, 1) ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned flags) {
    WITH_CONTEXT(cuMemHostRegister);
    (void)flags;
    if (!bytes || find(address, 1)) return INVALID_VALUE;
    struct Allocation *allocation = malloc(sizeof *allocation);
    *allocation = (struct Allocation){allocations, current_context(), address, bytes, 1, 0, 1};
    allocations = allocation;
    tell(ALLOCATED, address, bytes);
    tell(WROTE, address, bytes);
    return SUCCESS;
}

CUresult cuMemHostUnregister(void *address) {
    WITH_CONTEXT(cuMemHostUnregister);
    return release(address);
}

CUresult cuProfilerStart(void) {
    WITH_CONTEXT(cuProfilerStart);
    return SUCCESS;
}

CUresult cuProfilerStop(void) {
    WITH_CONTEXT(cuProfilerStop);
    return SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    WITH_CONTEXT(cuMemGetInfo);
    *free_bytes = DEVICE_BYTES - current_context()->used;
    *total = DEVICE_BYTES;
    return SUCCESS;
}

CUresult cuMemGetAddressRange(void **first, size_t *bytes, void *address) {
    WITH_CONTEXT(cuMemGetAddressRange);
    struct Allocation *allocation = find(address, 1);
    if (!allocation) return NOT_FOUND;
    if (first) *first = allocation->address;
    if (bytes) *bytes = allocation->bytes;
    return SUCCESS;
}

/* ---- copies and fills. Those without a stream are on the default stream, and waited for. ---- */

enum { HOST, DEVICE };

static CUresult copy(void *to, int to_where, const void *from, int from_where, size_t bytes,
                     void *handle, int waits) {
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (!bytes) return SUCCESS;
    if ((to_where == DEVICE && !find(to, bytes)) || (from_where == DEVICE && !find(from, bytes)))
        return INVALID_VALUE;
    void *staged = NULL;
    if (from_where == HOST && bytes <= MOST_STAGED && !stream->captured && !find(from, bytes))
        from = staged = memcpy(malloc(bytes), from, bytes);
    put(stream, (struct Operation){
                    .kind = COPY, .to = to, .from = from, .bytes = bytes, .argument = staged});
    return waits ? finish(stream) : SUCCESS;
}

CUresult cuMemcpyHtoD(void *to, const void *from, size_t bytes) {
    WITH_CONTEXT(cuMemcpyHtoD);
    return copy(to, DEVICE, from, HOST, bytes, NULL, 1);
}

CUresult cuMemcpyDtoH(void *to, const void *from, size_t bytes) {
    WITH_CONTEXT(cuMemcpyDtoH);
    return copy(to, HOST, from, DEVICE, bytes, NULL, 1);
}

CUresult cuMemcpyDtoD(void *to, const void *from, size_t bytes) { /* the host need not wait */
    WITH_CONTEXT(cuMemcpyDtoD);
    return copy(to, DEVICE, from, DEVICE, bytes, NULL, 0);
}

CUresult cuMemcpyHtoDAsync(void *to, const void *from, size_t bytes, void *stream) {
    WITH_CONTEXT(cuMemcpyHtoDAsync);
    return copy(to, DEVICE, from, HOST, bytes, stream, 0);
}

CUresult cuMemcpyDtoHAsync(void *to, const void *from, size_t bytes, void *stream) {
    WITH_CONTEXT(cuMemcpyDtoHAsync);
    return copy(to, HOST, from, DEVICE, bytes, stream, 0);
}

CUresult cuMemcpyDtoDAsync(void *to, const void *from, size_t bytes, void *stream) {
    WITH_CONTEXT(cuMemcpyDtoDAsync);
    return copy(to, DEVICE, from, DEVICE, bytes, stream, 0);
}

static CUresult fill(void *to, unsigned value, unsigned width, size_t n, void *handle) {
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (!n) return SUCCESS;
    if (!find(to, n * width) || (uintptr_t)to % width) return INVALID_VALUE;
    return put(stream, (struct Operation){.kind = FILL, .to = to, .bytes = n * width,
                                          .value = value, .width = width});
}

CUresult cuMemsetD8(void *to, unsigned char value, size_t n) {
    WITH_CONTEXT(cuMemsetD8);
    return fill(to, value, 1, n, NULL);
}

CUresult cuMemsetD8Async(void *to, unsigned char value, size_t n, void *stream) {
    WITH_CONTEXT(cuMemsetD8Async);
    return fill(to, value, 1, n, stream);
}

CUresult cuMemsetD32(void *to, unsigned value, size_t n) {
    WITH_CONTEXT(cuMemsetD32);
    return fill(to, value, 4, n, NULL);
}

CUresult cuMemsetD32Async(void *to, unsigned value, size_t n, void *stream) {
    WITH_CONTEXT(cuMemsetD32Async);
    return fill(to, value, 4, n, stream);
}
