/* Compiled kernels: read from the PTX behind the machine code (see linker.c), and launched. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* ---- what PTX says of its kernels ---- */

static int is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; }

/* Bytes of a parameter, from ".param" on: ".param .u64 .ptr .align 1 a" or ".param .b8 a[16]". */
static size_t size_of_parameter(const char *text) {
    size_t bits = 0, elements = 1;
    for (; *text && *text != ',' && *text != ')'; text++) {
        if (text[0] == '.' && strchr("busf", text[1]) && isdigit((unsigned char)text[2]) && !bits)
            bits = strtoul(text + 2, NULL, 10);
        if (*text == '[') elements = strtoul(text + 1, NULL, 10);
    }
    return bits / 8 * elements;
}

static struct Kernel *read_kernel(struct Library *library, const char *text) {
    struct Kernel *kernel = calloc(1, sizeof *kernel);
    size_t length = 0;
    while (isspace((unsigned char)*text)) text++;
    while (is_name(text[length])) length++;
    kernel->library = library;
    kernel->most_dynamic = SHARED_BYTES - (int)library->static_shared;
    kernel->name = strndup(text, length);
    const char *end = strchr(text, ')'), *body = strchr(text, '{');
    if (!end || (body && body < end)) return kernel; /* none in brackets: no parameters */
    for (const char *p = strstr(text, ".param"); p && p < end; p = strstr(p + 1, ".param")) {
        size_t n = (size_t)kernel->n_parameters++;
        kernel->sizes = realloc(kernel->sizes, (n + 1) * sizeof *kernel->sizes);
        kernel->sizes[n] = size_of_parameter(p);
    }
    return kernel;
}

static size_t static_shared_bytes(const char *ptx) {
    size_t total = 0;
    for (const char *p = strstr(ptx, ".shared"); p; p = strstr(p + 1, ".shared")) {
        size_t length = strcspn(p, ";[\n"); /* an instruction's ".shared" has no declaration */
        if (isspace((unsigned char)p[7]) && p[length] == '[' && memchr(p, '%', length) == NULL)
            total += strtoul(p + length + 1, NULL, 10);
    }
    return total;
}

CUresult cuLibraryLoadData(struct Library **library, const char *image, const void *options,
                           const void *values, unsigned n, const void *library_options,
                           const void *library_values, unsigned n_library) {
    WITH_CONTEXT(cuLibraryLoadData);
    (void)options, (void)values, (void)n;
    (void)library_options, (void)library_values, (void)n_library;
    const char *ptx = fake_ptx_of(image);
    if (!ptx) return INVALID_IMAGE;
    *library = calloc(1, sizeof **library);
    (*library)->image = strdup(ptx);
    (*library)->static_shared = static_shared_bytes(ptx);
    (*library)->alive = 1;
    for (const char *p = strstr(ptx, ".entry "); p; p = strstr(p + 1, ".entry ")) {
        struct Kernel *kernel = read_kernel(*library, p + strlen(".entry "));
        kernel->next = (*library)->kernels;
        (*library)->kernels = kernel;
    }
    return SUCCESS;
}

CUresult cuLibraryUnload(struct Library *library) {
    WITH_DRIVER(cuLibraryUnload);
    if (!library || !library->alive) return INVALID_HANDLE;
    library->alive = 0;
    return SUCCESS;
}

CUresult cuLibraryGetKernel(struct Kernel **kernel, struct Library *library, const char *name) {
    WITH_CONTEXT(cuLibraryGetKernel);
    if (!library || !library->alive) return INVALID_HANDLE;
    for (*kernel = library->kernels; *kernel; *kernel = (*kernel)->next)
        if (!strcmp((*kernel)->name, name)) return SUCCESS;
    return NOT_FOUND;
}

CUresult cuKernelGetFunction(struct Kernel **function, struct Kernel *kernel) {
    WITH_CONTEXT(cuKernelGetFunction);
    *function = kernel;
    return SUCCESS;
}

CUresult cuKernelGetLibrary(struct Library **library, struct Kernel *kernel) {
    WITH_CONTEXT(cuKernelGetLibrary);
    *library = kernel->library;
    return SUCCESS;
}

enum { MOST_DYNAMIC = 8 }; /* bytes of shared memory that a launch may add */

/* Registers and local memory are the machine code's, which this driver does not read: 0. */
static int attribute_of(int attribute, const struct Kernel *kernel) {
    switch (attribute) {
        case 0: return MAX_THREADS; /* threads a block */
        case 1: return (int)kernel->library->static_shared;
        case MOST_DYNAMIC: return kernel->most_dynamic;
        default: return 0;
    }
}

CUresult cuKernelGetAttribute(int *value, int attribute, struct Kernel *kernel, int device) {
    WITH_CONTEXT(cuKernelGetAttribute);
    (void)device;
    *value = attribute_of(attribute, kernel);
    return SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, struct Kernel *kernel) {
    WITH_CONTEXT(cuFuncGetAttribute);
    *value = attribute_of(attribute, kernel);
    return SUCCESS;
}

CUresult cuFuncSetAttribute(struct Kernel *kernel, int attribute, int value) {
    WITH_CONTEXT(cuFuncSetAttribute);
    if (attribute != MOST_DYNAMIC) return SUCCESS; /* others are hints */
    if (value < 0 || value > MOST_SHARED - (int)kernel->library->static_shared) return INVALID_VALUE;
    kernel->most_dynamic = value;
    return SUCCESS;
}

CUresult cuKernelSetAttribute(int attribute, int value, struct Kernel *kernel, int device) {
    (void)device;
    return cuFuncSetAttribute(kernel, attribute, value);
}

CUresult cuKernelGetParamInfo(struct Kernel *kernel, size_t index, size_t *offset, size_t *size) {
    WITH_CONTEXT(cuKernelGetParamInfo);
    if (index >= (size_t)kernel->n_parameters) return INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i <= index; i++) { /* each is aligned to its own size */
        size_t alignment = kernel->sizes[i] < 8 ? kernel->sizes[i] : 8;
        *offset = (*offset + alignment - 1) / alignment * alignment;
        if (i < index) *offset += kernel->sizes[i];
    }
    if (size) *size = kernel->sizes[index];
    return SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct Kernel *kernel,
                                                     int threads, size_t shared_bytes) {
    WITH_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    (void)kernel, (void)shared_bytes;
    *blocks = 2 * MAX_THREADS / threads;
    return SUCCESS;
}

/* ---- launches ---- */

struct LaunchConfig { /* of cuda.h */
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned n_attributes;
};

static int can_run(const struct LaunchConfig *config, const struct Kernel *kernel) {
    static const unsigned most_blocks[] = {0x7fffffff, 65535, 65535};
    static const unsigned most_threads[] = {MAX_THREADS, MAX_THREADS, 64};
    unsigned long long threads = 1;
    for (int i = 0; i < 3; i++) {
        if (!config->grid[i] || config->grid[i] > most_blocks[i]) return 0;
        if (!config->block[i] || config->block[i] > most_threads[i]) return 0;
        threads *= config->block[i];
    }
    return threads <= MAX_THREADS && (int)kernel->library->static_shared <= SHARED_BYTES &&
           config->shared_bytes <= (unsigned)kernel->most_dynamic;
}

static CUresult launch(const struct LaunchConfig *config, struct Kernel *kernel,
                       void **parameters) {
    struct Stream *stream = stream_of(config->stream);
    size_t bytes = 0;
    if (!stream || !kernel || !kernel->library->alive) return INVALID_HANDLE;
    if (!can_run(config, kernel)) return INVALID_VALUE;
    for (int i = 0; i < kernel->n_parameters; i++) bytes += kernel->sizes[i];
    struct Launch *launch = malloc(sizeof *launch + bytes);
    launch->kernel = kernel;
    launch->bytes = bytes;
    launch->shared_bytes = config->shared_bytes;
    memcpy(launch->grid, config->grid, sizeof launch->grid);
    memcpy(launch->block, config->block, sizeof launch->block);
    unsigned char *to = launch->parameters;
    for (int i = 0; i < kernel->n_parameters; to += kernel->sizes[i++])
        memcpy(to, parameters[i], kernel->sizes[i]);
    return put(stream, (struct Operation){.kind = LAUNCH, .launch = launch});
}

CUresult cuLaunchKernelEx(const struct LaunchConfig *config, struct Kernel *kernel,
                          void **parameters, void **extra) {
    WITH_CONTEXT(cuLaunchKernelEx);
    return extra ? NOT_SUPPORTED : launch(config, kernel, parameters);
}

CUresult cuLaunchKernel(struct Kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned shared_bytes, void *stream, void **parameters, void **extra) {
    WITH_CONTEXT(cuLaunchKernel);
    const struct LaunchConfig config = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, NULL, 0};
    return extra ? NOT_SUPPORTED : launch(&config, kernel, parameters);
}
