/* Streams, events and graphs: operations that wait, and when they run.

   Without CUDA_ON_CPU_SEED an operation runs at the last moment: when the host waits for it, or for one
   that comes after it. With a seed, one of any stream may run at each call, drawn at random. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

/* ---- chance ---- */

static unsigned draw(unsigned n) { /* below n; n = 0: whether chance was asked for */
    static uint64_t state = 0;
    if (!state) {
        const char *seed = getenv("CUDA_ON_CPU_SEED");
        state = seed ? 2 * strtoull(seed, NULL, 10) + 1 : 0;
    }
    if (!n) return state != 0;
    state = state * 6364136223846793005u + 1442695040888963407u; /* stays odd or even in turn */
    return (unsigned)(state >> 33) % n;
}

/* ---- operations run ---- */

/* The stream whose operation runs, or NULL: a launch calls Python, which may call the driver. */
static struct Stream *running = NULL;

static void *call_launcher(void *argument) {
    const struct Launch *launch = argument;
    const struct Kernel *kernel = launch->kernel;
    enter_launch();
    push_context(running->context);
    return (void *)(intptr_t)launcher(
        kernel->library->image, kernel->name, launch->grid, launch->block, launch->shared_bytes,
        kernel->n_parameters, kernel->sizes, launch->parameters);
}

/* In a thread, because Python handles signals in the main one: an exception of a handler would end
   the kernel half way, and leave any number as its status. */
static CUresult run_launch(struct Launch *launch) {
    pthread_t thread;
    void *status;
    if (!launcher) return NOT_SUPPORTED;
    if (pthread_create(&thread, NULL, call_launcher, launch)) return OUT_OF_MEMORY;
    pthread_join(thread, &status);
    return (CUresult)(intptr_t)status;
}

static void run_fill(const struct Operation *operation) {
    for (size_t i = 0; i < operation->bytes; i += operation->width)
        memcpy(operation->to + i, &operation->value, operation->width);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void run_first(struct Stream *stream) {
    struct Operation *operation = stream->first;
    stream->first = operation->next;
    if (!stream->first) stream->last = NULL;
    running = stream;
    if (lost == SUCCESS) switch (operation->kind) {
        case COPY:
            memmove(operation->to, operation->from, operation->bytes);
            break;
        case FILL:
            run_fill(operation);
            break;
        case LAUNCH:
            lost = run_launch(operation->launch);
            break;
        case RECORD:
            if (operation->event->stream == stream && operation->event->number == stream->done + 1)
                operation->event->ms = now_ms();
            break;
        case CALL:
            operation->function(operation->argument);
            break;
        case WAIT:
            break;
    }
    if (lost == SUCCESS && (operation->kind == COPY || operation->kind == FILL))
        if (is_device_memory(operation->to, operation->bytes))
            tell(WROTE, operation->to, operation->bytes);
    running = NULL;
    stream->done++;
    free(operation->launch);
    if (operation->kind == COPY) free(operation->argument);
    free(operation);
}

/* The stream whose first operation has to run before this stream's can: mostly itself. */
static struct Stream *next_for(struct Stream *stream) {
    while (stream->first->kind == WAIT && stream->first->stream->done < stream->first->number)
        stream = stream->first->stream;
    return stream;
}

static struct Stream *any_waiting(void) {
    unsigned n = 0;
    struct Stream *found = NULL;
    for (int device = 0; device < n_devices; device++)
        for (struct Stream *s = contexts[device].streams; s; s = s->next)
            if (s->first && draw(++n) == 0) found = s;
    return found ? next_for(found) : NULL;
}

static void run_by_chance(void) { /* seldom, and then many: streams get far apart */
    struct Stream *stream;
    if (!draw(0) || draw(8)) return;
    for (unsigned n = draw(16); n && (stream = any_waiting()); n--) run_first(stream);
}

static CUresult finish_until(struct Stream *stream, uint64_t number) {
    if (running) return NOT_SUPPORTED; /* the host waits within a callback */
    while (stream->done < number) run_first(draw(0) ? any_waiting() : next_for(stream));
    free_postponed();
    return lost;
}

CUresult finish(struct Stream *stream) { return finish_until(stream, stream->put); }

CUresult finish_all(void) {
    CUresult result = SUCCESS, of_one;
    for (int device = 0; device < n_devices; device++)
        for (struct Stream *s = contexts[device].streams; s; s = s->next)
            if ((of_one = finish(s)) != SUCCESS) result = of_one;
    return result;
}

/* ---- operations are put on streams ---- */

struct Stream *stream_of(void *handle) {
    struct Context *context = current_context();
    if (handle == NULL || handle == (void *)1) return &context->legacy;
    if (handle == (void *)2) return &context->per_thread;
    for (int device = 0; device < n_devices; device++)
        for (struct Stream *s = contexts[device].streams; s; s = s->next)
            if (s == handle) return s->alive ? s : NULL;
    return NULL;
}

static void append(struct Stream *stream, struct Operation operation) {
    struct Operation *added = malloc(sizeof *added);
    *added = operation;
    added->next = NULL;
    if (stream->captured) {
        struct Graph *graph = stream->captured;
        if (graph->last) graph->last->next = added;
        else graph->first = added;
        graph->last = added;
        return;
    }
    if (stream->last) stream->last->next = added;
    else stream->first = added;
    stream->last = added;
    stream->put++;
}

static void wait_for(struct Stream *stream, struct Stream *other, uint64_t number) {
    if (other != stream && other->done < number)
        append(stream, (struct Operation){.kind = WAIT, .stream = other, .number = number});
}

/* The default stream and the others that are blocking wait for each other. */
static void order(struct Stream *stream) {
    struct Stream *legacy = &stream->context->legacy;
    if (stream == legacy) {
        for (struct Stream *s = stream->context->streams; s; s = s->next)
            if (s->blocking && !s->captured) wait_for(stream, s, s->put);
    } else if (stream->blocking && !stream->captured) {
        wait_for(stream, legacy, legacy->put);
    }
}

CUresult put(struct Stream *stream, struct Operation operation) {
    order(stream);
    append(stream, operation);
    if (!running && !stream->captured) run_by_chance();
    return SUCCESS;
}

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(struct Stream **stream, unsigned flags, int priority) {
    WITH_CONTEXT(cuStreamCreateWithPriority);
    (void)priority;
    struct Context *context = current_context();
    *stream = malloc(sizeof **stream);
    **stream = (struct Stream){.context = context, .blocking = !(flags & 1), .alive = 1};
    (*stream)->next = context->streams;
    context->streams = *stream;
    return SUCCESS;
}

CUresult cuStreamCreate(struct Stream **stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(void *handle) {
    WITH_DRIVER(cuStreamDestroy);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    CUresult result = running ? SUCCESS : finish(stream);
    stream->alive = 0;
    return result;
}

CUresult cuStreamSynchronize(void *handle) {
    WITH_CONTEXT(cuStreamSynchronize);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->captured) {
        stream->captured->broken = 1;
        return CAPTURE_UNSUPPORTED;
    }
    return finish(stream);
}

CUresult cuStreamQuery(void *handle) {
    WITH_CONTEXT(cuStreamQuery);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->first && !running) run_first(next_for(stream)); /* asked often, it gets ready */
    if (lost != SUCCESS) return lost;
    return stream->first ? NOT_READY : SUCCESS;
}

CUresult cuStreamGetFlags(void *handle, unsigned *flags) {
    WITH_CONTEXT(cuStreamGetFlags);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    *flags = !stream->blocking;
    return SUCCESS;
}

CUresult cuStreamGetPriority(void *handle, int *priority) {
    WITH_CONTEXT(cuStreamGetPriority);
    *priority = 0;
    return stream_of(handle) ? SUCCESS : INVALID_HANDLE;
}

CUresult cuStreamGetCtx(void *handle, struct Context **context) {
    WITH_CONTEXT(cuStreamGetCtx);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    *context = stream->context;
    return SUCCESS;
}

CUresult cuStreamGetCtx_12050(void *handle, struct Context **context, void **green) {
    if (green) *green = NULL;
    return cuStreamGetCtx(handle, context);
}

CUresult cuLaunchHostFunc(void *handle, void (*function)(void *), void *argument) {
    WITH_CONTEXT(cuLaunchHostFunc);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    return put(stream,
               (struct Operation){.kind = CALL, .function = function, .argument = argument});
}

/* ---- events ---- */

CUresult cuEventCreate(struct Event **event, unsigned flags) {
    WITH_CONTEXT(cuEventCreate);
    *event = malloc(sizeof **event);
    **event = (struct Event){.timed = !(flags & 2), .alive = 1};
    return SUCCESS;
}

CUresult cuEventDestroy(struct Event *event) {
    WITH_DRIVER(cuEventDestroy);
    if (!event || !event->alive) return INVALID_HANDLE;
    event->alive = 0;
    return SUCCESS;
}

CUresult cuEventRecord(struct Event *event, void *handle) {
    WITH_CONTEXT(cuEventRecord);
    struct Stream *stream = stream_of(handle);
    if (!event || !event->alive || !stream) return INVALID_HANDLE;
    if (stream->captured) {
        stream->captured->broken = 1;
        return CAPTURE_UNSUPPORTED; /* no graph has forks here */
    }
    order(stream);
    append(stream, (struct Operation){.kind = RECORD, .event = event});
    event->stream = stream;
    event->number = stream->put;
    if (!running) run_by_chance();
    return SUCCESS;
}

static int is_done(const struct Event *event) {
    return !event->stream || event->stream->done >= event->number;
}

CUresult cuEventQuery(struct Event *event) {
    WITH_CONTEXT(cuEventQuery);
    if (!event || !event->alive) return INVALID_HANDLE;
    if (!is_done(event) && !running) run_first(next_for(event->stream));
    if (lost != SUCCESS) return lost;
    return is_done(event) ? SUCCESS : NOT_READY;
}

CUresult cuEventSynchronize(struct Event *event) {
    WITH_CONTEXT(cuEventSynchronize);
    if (!event || !event->alive) return INVALID_HANDLE;
    return event->stream ? finish_until(event->stream, event->number) : SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, struct Event *start, struct Event *end) {
    WITH_CONTEXT(cuEventElapsedTime);
    if (!start || !end || !start->alive || !end->alive) return INVALID_HANDLE;
    if (!start->timed || !end->timed || !start->stream || !end->stream) return INVALID_HANDLE;
    if (!is_done(start) || !is_done(end)) return NOT_READY;
    *ms = (float)(end->ms - start->ms);
    return SUCCESS;
}

CUresult cuStreamWaitEvent(void *handle, struct Event *event, unsigned flags) {
    WITH_CONTEXT(cuStreamWaitEvent);
    (void)flags;
    struct Stream *stream = stream_of(handle);
    if (!event || !event->alive || !stream) return INVALID_HANDLE;
    if (stream->captured) {
        stream->captured->broken = 1;
        return CAPTURE_UNSUPPORTED;
    }
    if (event->stream) wait_for(stream, event->stream, event->number);
    return SUCCESS;
}
