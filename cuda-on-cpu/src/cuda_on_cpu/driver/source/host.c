/* NumPy's memory, spoilt when it is freed.

   A copy from an array of the host may be late. If the array is gone by then, its memory mostly
   still holds what it held, and nobody notices. Here it holds ones: NaN as floats, -1 as integers.
   NumPy's own allocator keeps small arrays' memory and would hide them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct Handler { /* PyDataMem_Handler of NumPy */
    char name[127];
    uint8_t version;
    void *context;
    void *(*allocate)(void *, size_t);
    void *(*allocate_zeros)(void *, size_t, size_t);
    void *(*resize)(void *, void *, size_t);
    void (*release)(void *, void *, size_t);
};

static void *allocate(void *context, size_t bytes) {
    (void)context;
    return malloc(bytes);
}

static void *allocate_zeros(void *context, size_t n, size_t bytes) {
    (void)context;
    return calloc(n, bytes);
}

static void *resize(void *context, void *memory, size_t bytes) {
    (void)context;
    return realloc(memory, bytes);
}

static void release(void *context, void *memory, size_t bytes) {
    (void)context;
    if (memory) memset(memory, 0xFF, bytes);
    free(memory);
}

struct Handler fake_host_memory = {
    "spoilt_when_freed", 1, NULL, allocate, allocate_zeros, resize, release};
