"""The sums of a window's products, with corrections: stage 2 of a sweep.

    forward:   a_t = A[t] - eta sum_{s<t} G[t, s] d_s,   y_t = 1.7159 tanh(0.6666 a_t)
    outputs:   a_t alike,   delta_t = softmax(a_t) - one_hot(label_t)
    backward:  e_t = E[t] - eta sum_{s<t} G[t, s] h_s,   delta_t = e_t y'(h_t)

for the window's images t. A, E and G are sums of the parts that `products` left in `partial`, from
the first to the last. The images s are those of the block before t. Forward, images in the
window use the deltas of the previous sweep; images not yet swept contribute nothing.

H (B, pad32(n_in + 1)), a layer's inputs, column 0 is 1; D (B, pad32(n_out)), its deltas; labels
uint8 (n,), order int64 (m,), losses float32 (m,); eta float32 (1,); changes: see `progress`.

`forward_states`, `backward_deltas`: a block of 256 threads takes 8 images and 64 neurons, a thread
two images of a neuron. First the block adds up the 8 rows of G, zero where nothing is to be
corrected. Threads past the last neuron load that neuron's numbers, because a warp's loads are under
way together only where all its threads load. `output_deltas`: a warp takes an image, a thread every
32nd class. It is a launch of its own, because all a_t need deltas that it overwrites.
"""

import math

import numpy as np

from deepbig_runtime.gpu import WARP, DeviceArray, Launch, cuda, device_function
from mlp_gpu.kernels.backward import scaled_tanh_derivative
from mlp_gpu.kernels.forward import scaled_tanh
from mlp_gpu.window.progress import (
    END,
    FIRST,
    START,
    SWEPT,
    as_bits,
    larger_of,
    largest_of_warp,
    most_images,
    sum_of_warp,
)

MAX_BLOCK = 512  # images: shared memory holds a scalar product with each
THREADS = 256
NEURONS = 64  # per block
IMAGES = 8  # per block
GROUPS = THREADS // NEURONS
EACH = IMAGES // GROUPS  # images per thread
LOADS = 16  # numbers whose loads are under way together, as in `kernels.partial`
ZERO = np.uint64(0)
DOTS = IMAGES * MAX_BLOCK  # of a block


@device_function
def sum_parts(partial, row, column):
    """The sum of a product's parts, from the first to the last."""
    total = np.float32(0)
    values = cuda.local.array(LOADS, np.float32)  # registers
    # One offset that runs, and comparisons of 32 bits: half the instructions between two loads.
    place, step = row * partial.shape[2] + column, partial.shape[1] * partial.shape[2]
    for first in range(0, partial.shape[0], LOADS):
        left = np.int32(partial.shape[0] - first)
        for i in range(LOADS):
            is_part = np.int32(i) < left
            values[i] = partial[ZERO, ZERO, np.uint64(place)] if is_part else np.float32(0)
            place += step
        cuda.syncwarp()
        for i in range(LOADS):
            total += values[i]
    return total


@device_function
def add_corrections(total, dots, M, column, end, group):
    """total += a thread's rows of dots times a column of M, up to row end - 1."""
    values = cuda.local.array(LOADS, np.float32)  # registers
    place = column
    for first in range(0, end, LOADS):
        left = np.int32(end - first)
        for i in range(LOADS):
            values[i] = M[ZERO, np.uint64(place)] if np.int32(i) < left else np.float32(0)
            place += M.shape[1]
        for i in range(LOADS):
            for r in range(EACH):
                row = (group + GROUPS * r) * MAX_BLOCK
                total[r] += dots[np.uint64(row + first + i)] * values[i]


@device_function
def sum_dots(dots, partial, offset, first, end, limit, thread):
    """IMAGES rows of G from the first image on, (IMAGES, MAX_BLOCK); zero from min(t, limit) on."""
    for place in range(thread, DOTS, THREADS):
        t, s = first + place // MAX_BLOCK, place % MAX_BLOCK
        n = min(t, limit) if t < end else 0
        total = np.float32(0)
        if s // WARP * WARP < n:
            total = sum_parts(partial, t & (partial.shape[1] - 1), offset + min(s, n - 1))
        dots[np.uint64(place)] = total if s < n else np.float32(0)


@device_function
def note_changes(changes, layer, image, change, size, thread):
    """Raise an image's largest change and largest delta to the largest of a warp's threads."""
    change, size = largest_of_warp(change), largest_of_warp(size)
    if thread % WARP == 0:
        where = np.uint64(layer), np.uint64(image)
        cuda.atomic.max(changes, (where[0], np.uint64(0), where[1]), as_bits(change))
        cuda.atomic.max(changes, (where[0], np.uint64(1), where[1]), as_bits(size))


@cuda.jit
def forward_states(H_next, partial, progress, D, eta, n_out, hidden):
    thread = cuda.threadIdx.x
    neuron, group = cuda.blockIdx.x * NEURONS + thread % NEURONS, thread // NEURONS
    end, swept = progress[END], progress[SWEPT]
    first = progress[FIRST] + cuda.blockIdx.y * IMAGES
    dots = cuda.shared.array(DOTS, np.float32)
    if first >= end:
        return
    sum_dots(dots, partial, D.shape[1], first, end, swept, thread)
    cuda.syncthreads()
    column = min(neuron, n_out - 1)
    total = cuda.local.array(EACH, np.float32)  # registers
    for r in range(EACH):
        total[r] = 0
    add_corrections(total, dots, D, column, min(swept, end - 1), group)
    for r in range(EACH):
        t = first + group + GROUPS * r
        if t < end:
            a = sum_parts(partial, t & (partial.shape[1] - 1), column) - eta[0] * total[r]
            if neuron < n_out:
                H_next[np.uint32(t), np.uint32(1 + neuron)] = scaled_tanh(a) if hidden else a


@cuda.jit
def output_deltas(D, changes, losses, progress, A, labels, order, n_out):
    thread, image = cuda.threadIdx.x, cuda.blockIdx.y
    t = progress[FIRST] + image
    if t >= progress[END]:
        return
    a = A[np.uint32(t)]  # from its second number on
    highest = a[np.uint32(1 + min(thread, n_out - 1))]
    for j in range(thread, n_out, WARP):
        highest = max(highest, a[np.uint32(1 + j)])
    highest = largest_of_warp(highest)
    total = np.float32(0)
    for j in range(thread, n_out, WARP):
        total += math.exp(a[np.uint32(1 + j)] - highest)
    total = sum_of_warp(total)
    now = np.uint32(progress[START] + t)
    label = np.uint32(labels[np.uint32(order[now])])
    if thread == 0:
        losses[now] = math.log(total) - (a[label + np.uint32(1)] - highest)
    change = most = np.float32(0)
    for j in range(thread, n_out, WARP):
        delta = math.exp(a[np.uint32(1 + j)] - highest) / total - np.float32(j == label)
        before = D[np.uint32(t), np.uint32(j)] if t < progress[SWEPT] else np.float32(0)
        D[np.uint32(t), np.uint32(j)] = delta
        change, most = larger_of(change, abs(delta - before)), larger_of(most, abs(delta))
    note_changes(changes, changes.shape[0] - 1, image, change, most, thread)


@cuda.jit
def backward_deltas(D, changes, partial, progress, H, eta, layer, n):
    thread = cuda.threadIdx.x
    neuron, group = cuda.blockIdx.x * NEURONS + thread % NEURONS, thread // NEURONS
    end, swept = progress[END], progress[SWEPT]
    first = progress[FIRST] + cuda.blockIdx.y * IMAGES
    dots = cuda.shared.array(DOTS, np.float32)
    if first >= end:
        return
    sum_dots(dots, partial, H.shape[1], first, end, end, thread)
    cuda.syncthreads()
    column = 1 + min(neuron, n - 1)
    total = cuda.local.array(EACH, np.float32)  # registers
    for r in range(EACH):
        total[r] = 0
    add_corrections(total, dots, H, column, min(first + IMAGES, end) - 1, group)
    for r in range(EACH):
        image = group + GROUPS * r
        t = first + image
        if t < end:
            e = sum_parts(partial, t & (partial.shape[1] - 1), column) - eta[0] * total[r]
            delta = e * scaled_tanh_derivative(H[np.uint32(t), np.uint32(column)])
            change = most = np.float32(0)
            if neuron < n:
                before = D[np.uint32(t), np.uint32(neuron)] if t < swept else np.float32(0)
                D[np.uint32(t), np.uint32(neuron)] = delta
                change, most = abs(delta - before), abs(delta)
            note_changes(changes, layer, cuda.blockIdx.y * IMAGES + image, change, most, thread)


SIGNATURES = {
    forward_states: "void(float32[:, ::1], float32[:, :, ::1], int32[::1], float32[:, ::1], "
    "float32[::1], int32, boolean)",
    output_deltas: "void(float32[:, ::1], int32[:, :, ::1], float32[::1], int32[::1], "
    "float32[:, ::1], uint8[::1], int64[::1], int32)",
    backward_deltas: "void(float32[:, ::1], int32[:, :, ::1], float32[:, :, ::1], int32[::1], "
    "float32[:, ::1], float32[::1], int32, int32)",
}


def forward(
    H_next: DeviceArray,
    partial: DeviceArray,
    progress: DeviceArray,
    D: DeviceArray,
    eta: DeviceArray,
    n_out: int,
    hidden: bool,
) -> list[Launch]:
    """States of the window's images in a layer of n_out neurons. Modifies H_next.

    D: the layer's deltas. hidden: whether it has the activation; otherwise H_next gets a.
    """
    grid = -(-n_out // NEURONS), -(-most_images(H_next.shape[0]) // IMAGES)
    arguments = H_next, partial, progress, D, eta, np.int32(n_out), hidden
    return [Launch(forward_states, grid, THREADS, arguments)]


def outputs(
    D: DeviceArray,
    changes: DeviceArray,
    progress: DeviceArray,
    A: DeviceArray,
    epoch: dict[str, DeviceArray],
    n_out: int,
) -> list[Launch]:
    """Deltas and losses of the window's images in the output layer. Modifies D, changes, losses.

    A: the activations from `forward`. epoch: labels, order and losses.
    """
    data = epoch["losses"], progress, A, epoch["labels"], epoch["order"]
    grid = 1, most_images(D.shape[0])
    return [Launch(output_deltas, grid, WARP, (D, changes, *data, np.int32(n_out)))]


def backward(
    D: DeviceArray,
    changes: DeviceArray,
    partial: DeviceArray,
    progress: DeviceArray,
    H: DeviceArray,
    eta: DeviceArray,
    layer: int,
    n: int,
) -> list[Launch]:
    """Deltas of the window's images in a hidden layer of n neurons. Modifies D and changes.

    H: the inputs of the next layer. layer: the number of this one, from 0.
    """
    grid = -(-n // NEURONS), -(-most_images(D.shape[0]) // IMAGES)
    arguments = D, changes, partial, progress, H, eta, np.int32(layer), np.int32(n)
    return [Launch(backward_deltas, grid, THREADS, arguments)]
