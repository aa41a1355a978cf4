/* Graphs: the operations that were put on one stream, to be put on another as often as wanted. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static struct Operation copy_of(const struct Operation *operation) {
    struct Operation copy = *operation;
    if (operation->launch) {
        size_t bytes = sizeof *copy.launch + operation->launch->bytes;
        copy.launch = memcpy(malloc(bytes), operation->launch, bytes);
    }
    return copy;
}

/* ---- user objects: what is destroyed when no graph holds it any more ---- */

struct UserObject {
    void *object;
    void (*destroy)(void *);
    unsigned references;
};

struct Held {
    struct Held *next;
    struct UserObject *object;
    unsigned references;
};

static void release(struct UserObject *object, unsigned n) {
    object->references -= n;
    if (object->references) return;
    object->destroy(object->object);
    free(object);
}

static void hold(struct Graph *graph, struct UserObject *object, unsigned n) {
    struct Held *held = malloc(sizeof *held);
    *held = (struct Held){graph->held, object, n};
    graph->held = held;
}

CUresult cuUserObjectCreate(struct UserObject **object, void *what, void (*destroy)(void *),
                            unsigned references, unsigned flags) {
    WITH_DRIVER(cuUserObjectCreate);
    (void)flags;
    *object = malloc(sizeof **object);
    **object = (struct UserObject){what, destroy, references};
    return SUCCESS;
}

CUresult cuUserObjectRetain(struct UserObject *object, unsigned n) {
    WITH_DRIVER(cuUserObjectRetain);
    object->references += n;
    return SUCCESS;
}

CUresult cuUserObjectRelease(struct UserObject *object, unsigned n) {
    WITH_DRIVER(cuUserObjectRelease);
    release(object, n);
    return SUCCESS;
}

CUresult cuGraphRetainUserObject(struct Graph *graph, struct UserObject *object, unsigned n,
                                 unsigned flags) {
    WITH_DRIVER(cuGraphRetainUserObject);
    if (!(flags & 1)) object->references += n; /* 1: the caller gives up its own references */
    hold(graph, object, n);
    return SUCCESS;
}

CUresult cuGraphReleaseUserObject(struct Graph *graph, struct UserObject *object, unsigned n) {
    WITH_DRIVER(cuGraphReleaseUserObject);
    for (struct Held **link = &graph->held; *link; link = &(*link)->next) {
        struct Held *held = *link;
        if (held->object != object || held->references < n) continue;
        held->references -= n;
        release(object, n);
        if (!held->references) {
            *link = held->next;
            free(held);
        }
        return SUCCESS;
    }
    return INVALID_VALUE;
}

/* ---- graphs ---- */

static void free_graph(struct Graph *graph) {
    for (struct Held *held = graph->held, *next; held; held = next) {
        next = held->next;
        release(held->object, held->references);
        free(held);
    }
    while (graph->first) {
        struct Operation *operation = graph->first;
        graph->first = operation->next;
        free(operation->launch);
        free(operation);
    }
    free(graph);
}

CUresult cuStreamBeginCapture(void *handle, int mode) {
    WITH_CONTEXT(cuStreamBeginCapture);
    (void)mode;
    static unsigned long long n_captures = 0;
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->captured || stream == &stream->context->legacy) return CAPTURE_UNSUPPORTED;
    stream->captured = calloc(1, sizeof *stream->captured);
    stream->capture_id = ++n_captures;
    return SUCCESS;
}

CUresult cuStreamEndCapture(void *handle, struct Graph **graph) {
    WITH_CONTEXT(cuStreamEndCapture);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (!stream->captured) return INVALID_VALUE;
    *graph = stream->captured;
    stream->captured = NULL;
    if (!(*graph)->broken) return SUCCESS;
    free_graph(*graph);
    *graph = NULL;
    return CAPTURE_INVALIDATED;
}

enum { NOT_CAPTURING, CAPTURING, BROKEN };

CUresult cuStreamIsCapturing(void *handle, int *status) {
    WITH_CONTEXT(cuStreamIsCapturing);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    *status = !stream->captured ? NOT_CAPTURING : stream->captured->broken ? BROKEN : CAPTURING;
    return SUCCESS;
}

CUresult cuStreamGetCaptureInfo(void *handle, int *status, uint64_t *id, struct Graph **graph,
                                const void ***dependencies, size_t *n) {
    CUresult result = cuStreamIsCapturing(handle, status);
    if (result != SUCCESS || *status == NOT_CAPTURING) return result;
    struct Stream *stream = stream_of(handle);
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->captured;
    if (dependencies) *dependencies = NULL;
    if (n) *n = 0;
    return SUCCESS;
}

CUresult cuStreamGetCaptureInfo_12030(void *handle, int *status, uint64_t *id,
                                      struct Graph **graph, const void ***dependencies,
                                      const void **edges, size_t *n) {
    if (edges) *edges = NULL;
    return cuStreamGetCaptureInfo(handle, status, id, graph, dependencies, n);
}

/* What is instantiated is a copy, so that the graph may be destroyed. */
static struct Graph *instance_of(const struct Graph *graph) {
    struct Graph *instance = calloc(1, sizeof *instance);
    for (const struct Operation *o = graph->first; o; o = o->next) {
        struct Operation *copy = malloc(sizeof *copy);
        *copy = copy_of(o);
        copy->next = NULL;
        if (instance->last) instance->last->next = copy;
        else instance->first = copy;
        instance->last = copy;
    }
    for (const struct Held *held = graph->held; held; held = held->next) {
        held->object->references++;
        hold(instance, held->object, 1);
    }
    return instance;
}

CUresult cuGraphInstantiateWithFlags(struct Graph **instance, const struct Graph *graph,
                                     unsigned long long flags) {
    WITH_CONTEXT(cuGraphInstantiateWithFlags);
    (void)flags;
    *instance = instance_of(graph);
    return SUCCESS;
}

struct InstantiateParameters { /* of cuda.h */
    uint64_t flags;
    void *stream, *error_node;
    int result;
};

CUresult cuGraphInstantiateWithParams(struct Graph **instance, const struct Graph *graph,
                                      struct InstantiateParameters *parameters) {
    WITH_CONTEXT(cuGraphInstantiateWithParams);
    *instance = instance_of(graph);
    parameters->error_node = NULL;
    parameters->result = 0;
    return SUCCESS;
}

CUresult cuGraphUpload(const struct Graph *instance, void *handle) {
    WITH_CONTEXT(cuGraphUpload);
    (void)instance;
    return stream_of(handle) ? SUCCESS : INVALID_HANDLE;
}

CUresult cuGraphLaunch(const struct Graph *instance, void *handle) {
    WITH_CONTEXT(cuGraphLaunch);
    struct Stream *stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    for (const struct Operation *o = instance->first; o; o = o->next) put(stream, copy_of(o));
    return SUCCESS;
}

CUresult cuGraphDestroy(struct Graph *graph) {
    WITH_DRIVER(cuGraphDestroy);
    free_graph(graph);
    return SUCCESS;
}

CUresult cuGraphExecDestroy(struct Graph *instance) {
    WITH_DRIVER(cuGraphExecDestroy);
    free_graph(instance);
    return SUCCESS;
}
