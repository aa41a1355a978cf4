/* NVIDIA's linker, nvJitLink, with the PTX of the machine code that it makes behind that code.

   numba-cuda has each kernel linked before it hands it to the driver. cuda.bindings take this
   library's functions before NVIDIA's, because it is loaded first and for all to see. NVIDIA's does
   all the work, so that it refuses what it always refuses. Given PTX, that is what is kept; given
   LTO-IR, as numba-cuda does, the PTX is what the same linker makes of it on its way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { LINKED = 0, INTERNAL_ERROR = 6, INPUT_PTX = 2, INPUT_LTOIR = 3 };
enum { MAX_OPTIONS = 64 };

/* Machine code is an ELF file. In four bytes that its head leaves unused, this library writes where
   the PTX begins. */
static const char ELF[] = "\177ELF";
enum { UNUSED = 12 };

const char *fake_ptx_of(const char *image) {
    uint32_t offset;
    if (memcmp(image, ELF, strlen(ELF))) return image;
    memcpy(&offset, image + UNUSED, sizeof offset);
    if (offset) return image + offset;
    fputs("fake driver: machine code was loaded that has no PTX with it\n", stderr);
    return NULL;
}

struct Link {
    void *real; /* NVIDIA's handle */
    void *to_ptx; /* another one, for LTO-IR, that ends with PTX */
    const char *options[MAX_OPTIONS];
    uint32_t n_options;
    char *ptx;
};

static void *real_function(const char *name) {
    static void *library = NULL;
    const char *path = getenv("CUDA_ON_CPU_NVJITLINK");
    if (!library && path) library = dlopen(path, RTLD_LAZY | RTLD_DEEPBIND);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) fprintf(stderr, "fake driver: no %s in CUDA_ON_CPU_NVJITLINK\n", name);
    return found;
}

/* Calls NVIDIA's function of that name. */
#define REAL(name, types, ...)                     \
    int(*function) types = real_function(name);    \
    return function ? function(__VA_ARGS__) : INTERNAL_ERROR

int nvJitLinkVersion(unsigned *major, unsigned *minor) {
    REAL("nvJitLinkVersion", (unsigned *, unsigned *), major, minor);
}

static int create(void **handle, uint32_t n, const char **options) {
    REAL("nvJitLinkCreate", (void **, uint32_t, const char **), handle, n, options);
}

int nvJitLinkCreate(struct Link **link, uint32_t n, const char **options) {
    if (n >= MAX_OPTIONS) return INTERNAL_ERROR;
    *link = calloc(1, sizeof **link);
    for (uint32_t i = 0; i < n; i++) (*link)->options[i] = strdup(options[i]);
    (*link)->options[n] = strdup("-ptx");
    (*link)->n_options = n;
    return create(&(*link)->real, n, options);
}

static int destroy(void **handle) { REAL("nvJitLinkDestroy", (void **), handle); }

int nvJitLinkDestroy(struct Link **link) {
    int result = destroy(&(*link)->real);
    if ((*link)->to_ptx) destroy(&(*link)->to_ptx);
    for (uint32_t i = 0; i <= (*link)->n_options; i++) free((char *)(*link)->options[i]);
    free((*link)->ptx);
    free(*link);
    *link = NULL;
    return result;
}

static int add(void *handle, int type, const void *data, size_t bytes, const char *name) {
    REAL("nvJitLinkAddData", (void *, int, const void *, size_t, const char *), handle, type, data,
         bytes, name);
}

int nvJitLinkAddData(struct Link *link, int type, const void *data, size_t bytes,
                     const char *name) {
    int result = add(link->real, type, data, bytes, name);
    if (result != LINKED || (type != INPUT_PTX && type != INPUT_LTOIR)) return result;
    if (link->ptx || (link->to_ptx && type == INPUT_PTX)) {
        fputs("fake driver: only one piece of code can be linked that is no LTO-IR\n", stderr);
        return INTERNAL_ERROR;
    }
    if (type == INPUT_PTX) {
        link->ptx = strndup(data, bytes);
        return LINKED;
    }
    if (!link->to_ptx) result = create(&link->to_ptx, link->n_options + 1, link->options);
    return result == LINKED ? add(link->to_ptx, type, data, bytes, name) : result;
}

int nvJitLinkAddFile(struct Link *link, int type, const char *file) {
    REAL("nvJitLinkAddFile", (void *, int, const char *), link->real, type, file);
}

static int complete(void *handle) { REAL("nvJitLinkComplete", (void *), handle); }

static int ptx_size(void *handle, size_t *bytes) {
    REAL("nvJitLinkGetLinkedPtxSize", (void *, size_t *), handle, bytes);
}

static int ptx(void *handle, char *to) {
    REAL("nvJitLinkGetLinkedPtx", (void *, char *), handle, to);
}

int nvJitLinkComplete(struct Link *link) {
    size_t bytes;
    int result = complete(link->real);
    if (result != LINKED || !link->to_ptx) return result;
    if ((result = complete(link->to_ptx)) != LINKED) return result;
    if ((result = ptx_size(link->to_ptx, &bytes)) != LINKED) return result;
    link->ptx = calloc(1, bytes + 1);
    return ptx(link->to_ptx, link->ptx);
}

static int cubin_size(void *handle, size_t *bytes) {
    REAL("nvJitLinkGetLinkedCubinSize", (void *, size_t *), handle, bytes);
}

int nvJitLinkGetLinkedCubinSize(struct Link *link, size_t *bytes) {
    int result = cubin_size(link->real, bytes);
    if (result == LINKED && link->ptx) *bytes += strlen(link->ptx) + 1;
    return result;
}

static int cubin(void *handle, void *to) {
    REAL("nvJitLinkGetLinkedCubin", (void *, void *), handle, to);
}

int nvJitLinkGetLinkedCubin(struct Link *link, char *to) {
    size_t bytes;
    int result = cubin(link->real, to);
    if (result == LINKED && link->ptx && (result = cubin_size(link->real, &bytes)) == LINKED) {
        const uint32_t offset = (uint32_t)bytes;
        memcpy(to + UNUSED, &offset, sizeof offset);
        strcpy(to + bytes, link->ptx);
    }
    return result;
}

int nvJitLinkGetLinkedPtxSize(struct Link *link, size_t *bytes) {
    return ptx_size(link->real, bytes);
}

int nvJitLinkGetLinkedPtx(struct Link *link, char *to) { return ptx(link->real, to); }

int nvJitLinkGetErrorLogSize(struct Link *link, size_t *bytes) {
    REAL("nvJitLinkGetErrorLogSize", (void *, size_t *), link->real, bytes);
}

int nvJitLinkGetErrorLog(struct Link *link, char *to) {
    REAL("nvJitLinkGetErrorLog", (void *, char *), link->real, to);
}

int nvJitLinkGetInfoLogSize(struct Link *link, size_t *bytes) {
    REAL("nvJitLinkGetInfoLogSize", (void *, size_t *), link->real, bytes);
}

int nvJitLinkGetInfoLog(struct Link *link, char *to) {
    REAL("nvJitLinkGetInfoLog", (void *, char *), link->real, to);
}

int nvJitLinkGetLinkedLTOIRSize(struct Link *link, size_t *bytes) {
    REAL("nvJitLinkGetLinkedLTOIRSize", (void *, size_t *), link->real, bytes);
}

int nvJitLinkGetLinkedLTOIR(struct Link *link, char *to) {
    REAL("nvJitLinkGetLinkedLTOIR", (void *, char *), link->real, to);
}
