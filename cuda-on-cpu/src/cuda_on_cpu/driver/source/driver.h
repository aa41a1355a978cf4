/* A library in place of NVIDIA's driver, for a machine without a GPU: what its parts share.

   Memory is the host's. What is put on a stream waits there until CUDA guarantees that it is done,
   or, with CUDA_ON_CPU_SEED, runs at a random moment before. A launch calls what Python registered.
   All handles are pointers to the structures below. None but graphs and memory is ever given back,
   so that one used after it was destroyed is found. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* numbers of cuda.h */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    UNKNOWN = 999,
};

struct Function { /* of the driver, with how often this process called it */
    const char *name;
    long calls;
    struct Function *next;
};

/* Every function of the driver begins with one of these: it counts the call, takes the lock until
   the function returns, and returns early where the call has to fail. */
enum Needs { NEEDS_NOTHING, NEEDS_DRIVER, NEEDS_CONTEXT };
CUresult enter(struct Function *function, enum Needs needs);
void leave(const int *held);
void enter_launch(void); /* this thread runs a launch */
#define BEGIN(function, needs)                                  \
    static struct Function called = {#function, 0, NULL};       \
    const int held __attribute__((cleanup(leave), unused)) = 1; \
    const CUresult refused = enter(&called, needs);             \
    if (refused != SUCCESS) return refused
#define WITHOUT_DRIVER(function) BEGIN(function, NEEDS_NOTHING)
#define WITH_DRIVER(function) BEGIN(function, NEEDS_DRIVER)
#define WITH_CONTEXT(function) BEGIN(function, NEEDS_CONTEXT)

struct Kernel {
    struct Kernel *next;
    struct Library *library;
    char *name;
    int n_parameters;
    size_t *sizes; /* of the parameters, in bytes */
    int most_dynamic; /* bytes of shared memory that a launch may add */
};

struct Library {
    char *image; /* PTX */
    size_t static_shared; /* bytes that a block has before the launch adds its own */
    struct Kernel *kernels;
    int alive;
};

struct Launch {
    struct Kernel *kernel;
    unsigned grid[3], block[3], shared_bytes;
    size_t bytes; /* of all parameters */
    unsigned char parameters[]; /* one after another, without gaps */
};

struct Operation {
    struct Operation *next;
    enum { COPY, FILL, LAUNCH, RECORD, WAIT, CALL } kind;
    unsigned char *to; /* COPY, FILL */
    const unsigned char *from; /* COPY */
    size_t bytes; /* COPY, FILL */
    unsigned value, width; /* FILL: what is repeated, and its bytes */
    struct Launch *launch;
    struct Event *event; /* RECORD */
    struct Stream *stream; /* WAIT: until so many operations of it are done */
    uint64_t number;
    void (*function)(void *); /* CALL */
    void *argument; /* of the function; of COPY what was read at the call, or NULL */
};

struct Graph {
    struct Operation *first, *last;
    struct Held *held; /* what lives as long as the graph */
    int broken; /* something was asked for that no graph can hold */
};

struct Stream {
    struct Stream *next;
    struct Context *context;
    struct Operation *first, *last; /* what waits */
    uint64_t put, done; /* operations, since the stream was made */
    int blocking; /* whether it and the default stream wait for each other */
    int alive;
    struct Graph *captured; /* while a graph is captured */
    unsigned long long capture_id;
};

struct Event {
    struct Stream *stream; /* where it was recorded last, NULL if never */
    uint64_t number; /* of that record on the stream */
    double ms;
    int timed, alive;
};

struct Context {
    int device, retained;
    struct Stream legacy, per_thread;
    struct Stream *streams; /* all of them */
    size_t used; /* bytes of memory */
};

enum { MAX_DEVICES = 16, MAX_THREADS = 1024, SHARED_BYTES = 48 << 10, MOST_SHARED = 227 << 10 };
static const size_t DEVICE_BYTES = (size_t)16 << 30;

extern CUresult lost; /* why the GPU can no longer be used, or SUCCESS */
extern int n_devices;
extern struct Context contexts[MAX_DEVICES];
struct Context *current_context(void);
void push_context(struct Context *context);

/* What Python registers. */
enum Happened { ALLOCATED, FREED, WROTE };
extern int (*launcher)(const char *image, const char *kernel, const unsigned *grid,
                       const unsigned *block, unsigned shared_bytes, int n_parameters,
                       const size_t *sizes, const unsigned char *parameters);
extern void (*listener)(enum Happened happened, uintptr_t address, size_t bytes);
void tell(enum Happened happened, const void *address, size_t bytes);

const char *fake_ptx_of(const char *image); /* NULL if it has none */

struct Stream *stream_of(void *handle); /* NULL if there is no such stream */
CUresult put(struct Stream *stream, struct Operation operation);
CUresult finish(struct Stream *stream);
CUresult finish_all(void);

/* Whether bytes from an address lie within one array of the GPU. */
int is_device_memory(const void *address, size_t bytes);
void free_postponed(void);

#endif
