"""Kernels with a fault each, see README.md. As a program: on Numba's simulator."""

import numpy as np
from numba import cuda


def past_the_end(out, x):
    i = cuda.grid(1)
    out[i] = x[i + 1]


def uninitialised(out, x):
    i = cuda.threadIdx.x
    tile = cuda.shared.array(33, np.float32)
    tile[i] = x[i]
    cuda.syncthreads()
    out[i] = tile[i + 1]


def first_barrier_missing(out, x):
    i = cuda.threadIdx.x
    tile = cuda.shared.array(32, np.float32)
    tile[i] = x[i]
    out[i] = tile[31 - i]


def second_barrier_missing(out, x):
    i = cuda.threadIdx.x
    tile = cuda.shared.array(32, np.float32)
    tile[i] = x[i]
    cuda.syncthreads()
    mirrored = tile[31 - i]
    tile[i] = mirrored
    cuda.syncthreads()
    out[i] = tile[i]


def two_blocks(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i] + cuda.blockIdx.x


def lost_update(out, x):
    out[0] += x[cuda.threadIdx.x]


def barrier_in_a_branch(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i]
    if i < 16:
        cuda.syncthreads()


def overflow(out, x):
    power = 1
    for _ in range(70):
        power *= 2
    out[cuda.threadIdx.x] = power


# Each with the result that it would have without its fault.
X = np.arange(32, dtype=np.float32)
KERNELS = {
    "reads past the end of an array": (past_the_end, None),
    "reads shared memory that no thread has written": (uninitialised, np.append(X[1:], 7)),
    "has no barrier between write and read": (first_barrier_missing, X[::-1]),
    "has no barrier between read and the next write": (second_barrier_missing, X[::-1]),
    "writes the same element from two thread blocks": (two_blocks, X + 1),
    "adds to one element without an atomic": (lost_update, np.append(X.sum(), 0 * X[1:])),
    "puts a barrier inside of a branch": (barrier_in_a_branch, X),
    "lets an integer of 64 bits overflow": (overflow, 0 * X),
}


def on_simulator(kernel, expected):
    """The outcome of a kernel on Numba's simulator, in the words of the page."""
    out = np.zeros(32, np.float32)
    try:
        cuda.jit(kernel)[1 + (kernel is two_blocks), 32](out, X)
    except IndexError:
        return "IndexError"
    if (out == expected).all():
        return "runs"
    return "runs, another result" if kernel is overflow else "runs, wrong result"


if __name__ == "__main__":
    for words, (kernel, expected) in KERNELS.items():
        print(f"{words}: {on_simulator(kernel, expected)}")
