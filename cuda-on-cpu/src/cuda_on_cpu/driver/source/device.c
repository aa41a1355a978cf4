/* The GPUs, their contexts, how a function is found by its name, and which calls fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

CUresult lost = SUCCESS;
int n_devices = 0;
struct Context contexts[MAX_DEVICES];
int (*launcher)(const char *, const char *, const unsigned *, const unsigned *, unsigned, int,
                const size_t *, const unsigned char *);
void (*listener)(enum Happened, uintptr_t, size_t);

static int capabilities[MAX_DEVICES][2];
static pid_t initialized_by = 0;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct Function *called_functions = NULL;
long fake_calls = 0; /* of all functions, for tests */

void fake_set_launcher(void *function) { launcher = function; }

void fake_set_listener(void *function) { listener = function; }

void tell(enum Happened happened, const void *address, size_t bytes) {
    if (listener) listener(happened, (uintptr_t)address, bytes);
}

/* ---- which calls fail ---- */

static int is_final(CUresult code) { /* whether a GPU can no longer be used after this error */
    return code == 700 || code == 702 || code == 710 || code == 711 || (code >= 714 && code <= 719);
}

static CUresult wanted_failure(const struct Function *function) {
    const char *wanted = getenv("CUDA_ON_CPU_FAIL"); /* function:call:code, or any:call:code */
    char name[64];
    long call;
    int code;
    if (!wanted || sscanf(wanted, "%63[^:]:%ld:%d", name, &call, &code) != 3) return SUCCESS;
    int any = !strcmp(name, "any");
    if (!any && strcmp(name, function->name)) return SUCCESS;
    if (call != (any ? fake_calls : function->calls)) return SUCCESS;
    fprintf(stderr, "fake driver: call %ld of %s fails with %d\n", function->calls, function->name, code);
    if (is_final(code)) lost = code;
    return code;
}

/* The thread that waits for a launch holds the lock for it: Python may collect garbage in a launch,
   which frees memory. */
static _Thread_local int is_launch = 0;

void enter_launch(void) { is_launch = 1; }

CUresult enter(struct Function *function, enum Needs needs) {
    if (!is_launch) pthread_mutex_lock(&lock);
    fake_calls++;
    if (function->calls++ == 0) {
        function->next = called_functions;
        called_functions = function;
    }
    CUresult failure = wanted_failure(function);
    if (failure != SUCCESS) return failure;
    if (needs == NEEDS_NOTHING) return SUCCESS;
    if (initialized_by != getpid()) return NOT_INITIALIZED; /* a fork has no driver either */
    if (needs == NEEDS_DRIVER) return SUCCESS;
    if (lost != SUCCESS) return lost;
    return current_context() ? SUCCESS : INVALID_CONTEXT;
}

/* For tests: the GPU is usable again, nothing waits, and calls are counted anew. */
void fake_recover(void) {
    lost = UNKNOWN;
    finish_all(); /* which now runs nothing */
    lost = SUCCESS;
    for (struct Function *f = called_functions; f; f = f->next) f->calls = 0;
    called_functions = NULL;
    fake_calls = 0;
}

void leave(const int *held) {
    (void)held;
    if (!is_launch) pthread_mutex_unlock(&lock);
}

/* A line for each function that was called, in the file CUDA_ON_CPU_CALLS: process, name, calls. */
__attribute__((destructor)) static void write_calls(void) {
    const char *path = getenv("CUDA_ON_CPU_CALLS");
    FILE *file = path && called_functions ? fopen(path, "a") : NULL;
    if (!file) return;
    for (struct Function *f = called_functions; f; f = f->next)
        fprintf(file, "%d %s %ld\n", (int)getpid(), f->name, f->calls);
    fclose(file);
}

/* ---- functions by their names ---- */

enum { MAX_MISSING = 512 };
static struct Function missing[MAX_MISSING];

static CUresult report_missing(struct Function *function) {
    if (function->calls == 0)
        fprintf(stderr, "fake driver: the driver's function %s is missing\n", function->name);
    CUresult failure = enter(function, NEEDS_NOTHING);
    leave(NULL);
    return failure != SUCCESS ? failure : NOT_SUPPORTED;
}

/* A function of its own for each name, so that each knows its name. */
#define ONE(i) \
    static CUresult missing_##i(void) { return report_missing(&missing[0##i]); }
#define EIGHT(use, i) \
    use(i##0) use(i##1) use(i##2) use(i##3) use(i##4) use(i##5) use(i##6) use(i##7)
#define EACH(use)                                                                             \
    EIGHT(use, 0) EIGHT(use, 1) EIGHT(use, 2) EIGHT(use, 3) EIGHT(use, 4) EIGHT(use, 5)       \
    EIGHT(use, 6) EIGHT(use, 7) EIGHT(use, 10) EIGHT(use, 11) EIGHT(use, 12) EIGHT(use, 13)   \
    EIGHT(use, 14) EIGHT(use, 15) EIGHT(use, 16) EIGHT(use, 17) EIGHT(use, 20) EIGHT(use, 21) \
    EIGHT(use, 22) EIGHT(use, 23) EIGHT(use, 24) EIGHT(use, 25) EIGHT(use, 26) EIGHT(use, 27) \
    EIGHT(use, 30) EIGHT(use, 31) EIGHT(use, 32) EIGHT(use, 33) EIGHT(use, 34) EIGHT(use, 35) \
    EIGHT(use, 36) EIGHT(use, 37) EIGHT(use, 40) EIGHT(use, 41) EIGHT(use, 42) EIGHT(use, 43) \
    EIGHT(use, 44) EIGHT(use, 45) EIGHT(use, 46) EIGHT(use, 47) EIGHT(use, 50) EIGHT(use, 51) \
    EIGHT(use, 52) EIGHT(use, 53) EIGHT(use, 54) EIGHT(use, 55) EIGHT(use, 56) EIGHT(use, 57) \
    EIGHT(use, 60) EIGHT(use, 61) EIGHT(use, 62) EIGHT(use, 63) EIGHT(use, 64) EIGHT(use, 65) \
    EIGHT(use, 66) EIGHT(use, 67) EIGHT(use, 70) EIGHT(use, 71) EIGHT(use, 72) EIGHT(use, 73) \
    EIGHT(use, 74) EIGHT(use, 75) EIGHT(use, 76) EIGHT(use, 77)
EACH(ONE)
#define ITS_ADDRESS(i) missing_##i,
static CUresult (*const missing_functions[MAX_MISSING])(void) = {EACH(ITS_ADDRESS)};

static void *stub_of(const char *name) {
    for (int i = 0; i < MAX_MISSING; i++) {
        if (!missing[i].name) missing[i].name = strdup(name);
        if (!strcmp(missing[i].name, name)) return missing_functions[i];
    }
    return NULL;
}

/* A function that a later CUDA declares with other parameters has that version in its name here. */
CUresult cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags,
                             int *status) {
    (void)flags;
    WITHOUT_DRIVER(cuGetProcAddress);
    Dl_info own;
    char versioned[128];
    dladdr(&lost, &own);
    void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    snprintf(versioned, sizeof versioned, "%s_%d", name, version);
    *found = dlsym(library, versioned);
    if (!*found) *found = dlsym(library, name);
    if (!*found) *found = stub_of(name);
    dlclose(library);
    if (status) *status = 0;
    return *found ? SUCCESS : NOT_FOUND;
}

void *cuGetProcAddress = cuGetProcAddress_v2;

/* ---- devices ---- */

CUresult cuInit(unsigned flags) {
    (void)flags;
    WITHOUT_DRIVER(cuInit);
    if (initialized_by == getpid()) return SUCCESS;
    if (initialized_by) return NOT_INITIALIZED;
    const char *wanted = getenv("CUDA_ON_CPU_GPUS"); /* their compute capabilities: 7.5,10.0 */
    if (!wanted) wanted = "9.0";
    for (; wanted && *wanted && n_devices < MAX_DEVICES; n_devices++) {
        int *capability = capabilities[n_devices];
        if (sscanf(wanted, "%d.%d", &capability[0], &capability[1]) != 2) return INVALID_VALUE;
        wanted = strchr(wanted, ',');
        if (wanted) wanted++;
    }
    for (int i = 0; i < n_devices; i++) {
        struct Context *context = &contexts[i];
        context->device = i;
        context->legacy = (struct Stream){.context = context, .blocking = 1, .alive = 1};
        context->per_thread = (struct Stream){.context = context, .blocking = 1, .alive = 1};
        context->legacy.next = &context->per_thread;
        context->streams = &context->legacy;
    }
    initialized_by = getpid();
    fputs("a fake driver runs CUDA kernels on the CPU, with checks: never fast\n", stderr);
    return SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    WITHOUT_DRIVER(cuDriverGetVersion);
    *version = 13000;
    return SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    WITH_DRIVER(cuDeviceGetCount);
    *count = n_devices;
    return SUCCESS;
}

CUresult cuDeviceGet(int *device, int ordinal) {
    WITH_DRIVER(cuDeviceGet);
    *device = ordinal;
    return ordinal >= 0 && ordinal < n_devices ? SUCCESS : INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int length, int device) {
    WITH_DRIVER(cuDeviceGetName);
    (void)device;
    snprintf(name, (size_t)length, "fake GPU on a CPU");
    return SUCCESS;
}

CUresult cuDeviceGetUuid(unsigned char *uuid, int device) {
    WITH_DRIVER(cuDeviceGetUuid);
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)device;
    return SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, int device) {
    WITH_DRIVER(cuDeviceTotalMem);
    (void)device;
    *bytes = DEVICE_BYTES;
    return SUCCESS;
}

static int attribute_of(int attribute, int device) {
    switch (attribute) {
        case 1: case 2: case 3: return MAX_THREADS; /* threads a block; in x; in y */
        case 4: return 64; /* threads a block in z */
        case 5: return 0x7fffffff; /* blocks a grid in x; in y; in z */
        case 6: case 7: return 65535;
        case 8: return SHARED_BYTES; /* of a block */
        case 9: return 65536; /* bytes of constants */
        case 10: return 32; /* threads a warp */
        case 11: return 0x7fffffff; /* bytes of a pitch */
        case 12: case 82: return 65536; /* registers of a block; of a multiprocessor */
        case 13: case 36: return 1; /* kHz of the clock; of the memory's clock */
        case 14: return 512; /* alignment of textures */
        case 15: case 40: return 1; /* copies beside kernels; engines for copies */
        case 16: return 1; /* multiprocessors */
        case 19: case 31: case 41: return 1; /* mapped memory; kernels side by side; one space */
        case 34: return device; /* on the bus */
        case 37: return 8; /* bits of the memory's bus */
        case 38: return 1 << 20; /* bytes of the L2 cache */
        case 39: return 2 * MAX_THREADS; /* threads of a multiprocessor */
        case 75: return capabilities[device][0];
        case 76: return capabilities[device][1];
        case 81: return MOST_SHARED + 1024; /* of a multiprocessor */
        case 95: return 1; /* cooperative launches */
        case 97: return MOST_SHARED; /* of a block that asks for more */
        case 106: return 16; /* blocks of a multiprocessor */
        default: return 0;
    }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    WITH_DRIVER(cuDeviceGetAttribute);
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    *value = attribute_of(attribute, device);
    return SUCCESS;
}
