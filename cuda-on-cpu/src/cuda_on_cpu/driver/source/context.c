/* Contexts, one for each GPU, and the names of errors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "driver.h"

/* ---- contexts: each thread has a stack of them ---- */

enum { MAX_DEPTH = 64 };
static _Thread_local struct Context *stack[MAX_DEPTH];
static _Thread_local int depth = 0;

struct Context *current_context(void) { return depth ? stack[depth - 1] : NULL; }

void push_context(struct Context *context) { stack[depth++] = context; }

/* With CUDA_ON_CPU_EXCLUSIVE, a folder, each GPU is in exclusive-process mode: it has a file there,
   which the process that has a context on it keeps locked. */
static int lock_of[MAX_DEVICES];

static int is_taken(int device) {
    const char *folder = getenv("CUDA_ON_CPU_EXCLUSIVE");
    char path[4096];
    if (!folder || lock_of[device]) return 0;
    snprintf(path, sizeof path, "%s/%d", folder, device);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return 1;
    if (flock(file, LOCK_EX | LOCK_NB)) {
        close(file);
        return 1;
    }
    lock_of[device] = file;
    return 0;
}

static void give_back(int device) {
    if (lock_of[device]) close(lock_of[device]);
    lock_of[device] = 0;
}

CUresult cuDevicePrimaryCtxRetain(struct Context **context, int device) {
    WITH_DRIVER(cuDevicePrimaryCtxRetain);
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    if (is_taken(device)) return DEVICE_UNAVAILABLE;
    *context = &contexts[device];
    (*context)->retained++;
    return SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(int device) {
    WITH_DRIVER(cuDevicePrimaryCtxRelease);
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    if (!contexts[device].retained) return INVALID_CONTEXT;
    if (!--contexts[device].retained) give_back(device);
    return SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(int device) {
    WITH_DRIVER(cuDevicePrimaryCtxReset);
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    give_back(device);
    return finish_all();
}

CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    WITH_DRIVER(cuDevicePrimaryCtxGetState);
    if (device < 0 || device >= n_devices) return INVALID_DEVICE;
    *flags = 0;
    *active = contexts[device].retained > 0;
    return SUCCESS;
}

CUresult cuCtxGetCurrent(struct Context **context) {
    WITH_DRIVER(cuCtxGetCurrent);
    *context = current_context();
    return SUCCESS;
}

CUresult cuCtxSetCurrent(struct Context *context) {
    WITH_DRIVER(cuCtxSetCurrent);
    if (depth) depth--;
    if (context) push_context(context);
    return SUCCESS;
}

CUresult cuCtxPushCurrent(struct Context *context) {
    WITH_DRIVER(cuCtxPushCurrent);
    if (!context || depth == MAX_DEPTH) return INVALID_CONTEXT;
    push_context(context);
    return SUCCESS;
}

CUresult cuCtxPopCurrent(struct Context **context) {
    WITH_DRIVER(cuCtxPopCurrent);
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return SUCCESS;
}

CUresult cuCtxGetDevice(int *device) {
    WITH_DRIVER(cuCtxGetDevice);
    if (!depth) return INVALID_CONTEXT;
    *device = current_context()->device;
    return SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    WITH_DRIVER(cuCtxGetStreamPriorityRange);
    if (!depth) return INVALID_CONTEXT;
    if (least) *least = 0;
    if (greatest) *greatest = 0;
    return SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    WITH_CONTEXT(cuCtxSynchronize);
    return finish_all();
}

/* ---- errors ---- */

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a capture error"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult cuGetErrorName(CUresult code, const char **name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return *name = errors[i].name, SUCCESS;
    return *name = NULL, INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return *text = errors[i].text, SUCCESS;
    return *text = NULL, INVALID_VALUE;
}
