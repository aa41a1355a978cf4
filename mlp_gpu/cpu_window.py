"""On-line back-propagation by a window of images, on a team of threads.

See docs/online-in-blocks.md.

The weights before image t of a block are W - eta sum_{s<t} h_s d_s^T, where W is the matrix at the
start of the block, h_s the input of the layer for image s and d_s its delta. For all images of a
window at once, with the deltas of the sweep before in the corrections:

    A = H W + b - eta G D      forward; G[t, s] = 1 + h_s . h_t for s < t, else 0
    E = D W^T - eta G' H       backward; G'[t, s] = d_s . d_t for s < t, else 0
    W -= eta H^T D             after the block

All are products of matrices, see `vector_kernel`. A window of one image is one step.

Each layer's neurons are cut into panels, in groups. A thread owns some groups: columns of W forward
and in the update, rows of the next layer's W backward. It computes its groups' parts of G, of G'
and of the output layer's activations; after a barrier every thread sums all parts in the order of
the groups. So the bits do not depend on how many threads there are. The rest of the
output layer is small: every thread computes all of it, and waits for nobody.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import carray

from deepbig_runtime.jit import njit
from mlp_gpu import activation
from mlp_gpu.network import Network
from mlp_gpu.team import wait
from mlp_gpu.vector_kernel import (
    GAP,
    LINE,
    PANEL,
    add_product_at,
    add_product_nt_at,
    add_product_tn_at,
    aligned_zeros,
    floats_at,
    not_inlined,
    pointer,
    round_up,
    row_pointer,
    words_at,
)
from mlp_gpu.window_rule import Limits, Rounding, larger, next_window, tolerance

GROUPS = 8  # of panels in a layer, at most: as many threads can share it

# A division by zero must not end the loop: so it vectorises.
scaled_tanh = njit(activation.scaled_tanh, error_model="numpy")
scaled_tanh_derivative = njit(activation.scaled_tanh_derivative)
exp_of_negative = njit(activation.exp_of_negative)
log_of_sum = njit(activation.log_of_sum, error_model="numpy")
larger_of, window_after = njit(larger), njit(next_window)
tolerance_at = njit(tolerance, error_model="numpy")
whole_lines = njit(round_up)


class Stack(NamedTuple):
    """Float32 arrays of three dimensions in one memory: so code is compiled once for all nets.

    places: int64 (arrays, 4), the address and the shape of each; compiled code needs no more.
    """

    values: np.ndarray
    places: np.ndarray


class Weights(NamedTuple):
    """The weights of a net, an array of each kind for each layer.

    W: (panels, n_in, PANEL), each panel PANEL neurons of the layer; the output layer's is not cut
    but transposed, (1, n_out, n_in). b: the biases, (1, 1, n_out). Sizes are rounded up to LINE or
    PANEL, and each panel has GAP more rows.
    """

    W: Stack
    b: Stack


class Net(NamedTuple):
    """A net in training, for compiled code: addresses, so that calls count no references.

    sizes: address of int64 (layers + 1,). W, b, block, private: addresses of `Stack.places`. block:
    arrays of a block of images, see FIRST. private: arrays of each thread, see DOTS. The arrays
    must outlive the net.
    """

    layers: int
    sizes: int
    W: int
    b: int
    block: int
    private: int


class Thread(NamedTuple):
    """A thread: its number, and the number of threads in its team."""

    number: int
    team: int


class Window(NamedTuple):
    """The window of images `first` to `end` - 1 of a block; those before `swept` have deltas."""

    first: int
    end: int
    swept: int


class Settings(NamedTuple):
    """How a net is trained: float32 eta, images of a block; rounding, limits: see `window_rule`."""

    eta: np.float32
    n_block: int
    rounding: Rounding
    limits: Limits


# NumPy's integers: Numba would compile functions anew for each of Python's.
# Arrays of a block of B images, a Stack; B is rounded up so that vectors may end behind it.
#   FIRST: A of layer 1 with the weights at the start of the block, (panels, B, PANEL)
#   GRAM: -eta G of layer 1, (1, B, B)
#   PARTS: each group's part of G or G', of two layers in turn, (2, 1, GROUPS K B)
#   OUTPUTS: each group's part of the output layer's activations, (GROUPS, K, n_out)
#   CHANGES: the largest change of an image's deltas in a sweep, (threads, layers, K)
#   LARGEST: the largest delta, (threads, 1, layers)
#   SQUARES: |h|^2 of each image in layer 1, (1, 1, B)
# Then arrays of each layer: STATES that it reads, (1, B, n_in), and DELTAS of the hidden ones,
# (1, B, n_out).
FIRST, GRAM, PARTS, OUTPUTS, CHANGES, LARGEST, SQUARES, SINGLE = np.arange(8)
STATES, DELTAS = np.arange(2)

# Arrays of each thread, a Stack; the first dimension is the thread.
#   DOTS: -eta G or G' of one layer, (K, B)
#   SUMS: a panel's A or E; when the block ends, of D, with the sums of its columns, (B, PANEL)
#   DELTAS_OUT: of the output layer, (B, n_out)
#   A_OUT: activations of the output layer, then its deltas, (K, n_out)
#   SPREAD: changes of the window's k images' deltas by place in a panel; row k: the largest deltas
#   LOSSES: (1, K); ZEROS: (1, n), at least the columns of the widest product; ONES: (1, LINE)
DOTS, SUMS, DELTAS_OUT, A_OUT, SPREAD, LOSSES, ZEROS, ONES = np.arange(8)


def count_panels(n: int) -> int:
    """Panels of n neurons."""
    return -(-n // PANEL)


panels_in = njit(count_panels)


def make_stack(shapes: list[tuple[int, int, int]]) -> Stack:
    """Arrays of these shapes, of zeros."""
    sizes = [round_up(math.prod(shape)) for shape in shapes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    values = aligned_zeros(sum(sizes))
    at = [values.ctypes.data + 4 * start for start in starts]
    return Stack(values, np.array([(a, *shape) for a, shape in zip(at, shapes, strict=True)]))


def views(stack: Stack) -> list[np.ndarray]:
    """The arrays of a stack."""
    begin = stack.values.ctypes.data
    return [
        stack.values[(at - begin) // 4 :][: math.prod(shape)].reshape(shape)
        for at, *shape in stack.places.tolist()
    ]


@njit(nogil=True)
def array_at(places, i):
    """Array i of a stack, in compiled code. places: address of `Stack.places`."""
    entry = words_at(places + 32 * i)
    return carray(floats_at(entry[0]), (entry[1], entry[2], entry[3]))


def _pairs(network: Network, weights: Weights) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Views of the same numbers in both."""
    *hidden, output = network.unpadded()
    for W, b in zip((*hidden, output), views(weights.b), strict=True):
        yield W[0], b[0, 0, : W.shape[1]]
    *panels, transposed = views(weights.W)
    for W, layer in zip(hidden, panels, strict=True):
        for q, panel in enumerate(layer):
            part = W[1:, q * PANEL : (q + 1) * PANEL]
            yield part, panel[: part.shape[0], : part.shape[1]]
    yield output[1:].T, transposed[0, : output.shape[1], : output.shape[0] - 1]


def to_weights(network: Network) -> Weights:
    """A copy of a network's weights."""
    *hidden, (n_in, n_out) = pairwise(network.sizes)
    shapes = [(count_panels(n), round_up(m) + GAP, PANEL) for m, n in hidden]
    shapes_b = [(1, 1, round_up(n)) for n in network.sizes[1:]]
    weights = Weights(make_stack([*shapes, (1, round_up(n_out), _row(n_in))]), make_stack(shapes_b))
    for source, target in _pairs(network, weights):
        target[:] = source
    return weights


def to_network(sizes: tuple[int, ...], weights: Weights) -> Network:
    """The network with a copy of these weights."""
    network = Network.blank(sizes)
    for target, source in _pairs(network, weights):
        target[:] = source
    return network


def _row(n: int) -> int:
    """Floats from one row to the next: n or more, such that rows do not meet in a cache's sets."""
    return round_up(n, 2 * LINE) + LINE


def make_block(
    sizes: tuple[int, ...], n_block: int, n_window: int, threads: int
) -> tuple[Stack, Stack]:
    """The memory for blocks of n_block images and windows of up to n_window: see FIRST, DOTS."""
    B, K, n_out = round_up(n_block) + LINE, round_up(n_window), round_up(sizes[-1])
    layers, inputs, hidden, row = len(sizes) - 1, sizes[:-1], sizes[1:-1], _row(B)
    block = make_stack(
        [
            (count_panels(hidden[0]) if hidden else 0, B, PANEL),
            (1, B, row),
            (2, 1, GROUPS * K * B),
            (GROUPS, K, n_out),
            (threads, layers, K),
            (threads, 1, layers),
            (1, 1, B),
            *((1, B, _row(n)) for n in inputs),
            *((1, B, _row(n)) for n in (*hidden, 0)),
        ]
    )
    shapes = [(K, row), (B, PANEL), (B, n_out), (K, n_out)]  # B > n_block: a row more for sums
    shapes += [(K + 1, max(PANEL, n_out)), (1, K), (1, row + PANEL + n_out), (1, LINE)]
    private = make_stack([(threads, *shape) for shape in shapes])
    views(private)[ONES][:] = 1
    return block, private


def net_of(sizes: np.ndarray, weights: Weights, block: Stack, private: Stack) -> Net:
    """The net with these weights and the memory of `make_block`. sizes: int64 (layers + 1,)."""
    arrays = sizes, weights.W.places, weights.b.places, block.places, private.places
    return Net(len(sizes) - 1, *(array.ctypes.data for array in arrays))


# Inlined always: each of these compiled by itself, with all that it calls, would take longer.
@njit(nogil=True, inline="always")
def size_of(net, layer):
    """The neurons that a layer reads; for layer net.layers the output layer's."""
    return words_at(net.sizes)[layer]


@njit(nogil=True)
def layer_array(net, kind, layer):
    """A layer's STATES or DELTAS, a matrix."""
    return array_at(net.block, SINGLE + kind * net.layers + layer)[0]


@njit(nogil=True, inline="always")
def thread_array(net, thread, kind):
    """A thread's array of one of the kinds DOTS, ..., a matrix."""
    return array_at(net.private, kind)[thread.number]


@njit(nogil=True, inline="always")
def thread_gram(net, thread, window):
    """A thread's DOTS of the window's images t and all images s < end, (k, whole lines of s)."""
    return thread_array(net, thread, DOTS)[: window.end - window.first, : whole_lines(window.end)]


@njit(nogil=True)
def thread_share(n, thread):
    """The first of n things that a thread does, and the one after the last."""
    return n * thread.number // thread.team, n * (thread.number + 1) // thread.team


@njit(nogil=True)
def thread_groups(panels, thread):
    """The first of a layer's groups of panels that a thread does, and the one after its last."""
    return thread_share(min(panels, GROUPS), thread)


@njit(nogil=True)
def panels_of(group, panels):
    """The first panel of a group, and the one after its last."""
    groups = min(panels, GROUPS)
    return group * panels // groups, (group + 1) * panels // groups


@njit(nogil=True)
def thread_panels(panels, thread):
    """The first of a layer's panels that a thread does, and the one after its last."""
    if panels == 0:  # of a net without hidden layers
        return 0, 0
    begin, end = thread_groups(panels, thread)
    return panels_of(begin, panels)[0], panels_of(end, panels)[0]


@njit(nogil=True)
def neurons_of(group, n):
    """The first neuron of a group of panels of a layer of n neurons, and the one after its last."""
    begin, end = panels_of(group, panels_in(n))
    return begin * PANEL, min(n, end * PANEL)


@njit(nogil=True, inline="always")
def panel_width(q, n):
    """Neurons of panel q of a layer of n neurons, rounded up to whole lines."""
    return whole_lines(min(PANEL, n - q * PANEL))


@njit(nogil=True)
def sum_parts(gram, parts, panels, start):
    """gram = start + the sum of all groups' parts. Modifies gram (k, n). parts: see PARTS."""
    not_inlined()
    k, n = gram.shape
    size = k * n
    for t in range(k):
        row = gram[t]
        for s in range(n):
            row[s] = start
        for group in range(min(panels, GROUPS)):
            part = parts[group * size + t * n : group * size + (t + 1) * n]
            for s in range(n):
                row[s] += part[s]


@njit(nogil=True)
def set_part(parts, zero, M, group, n, window):
    """The part of a group becomes M_k M^T: M_k of the window, M of all images before its end.

    M: states or deltas of a layer of n neurons. zero: `pointer` to zeros. Modifies parts, see
    PARTS.
    """
    not_inlined()
    k, columns = window.end - window.first, whole_lines(window.end)
    start, stop = neurons_of(group, n)
    part = np.int64(parts.ctypes.data + 4 * group * k * columns), np.int64(columns)
    M_k, M_s = pointer(M, window.first, start), pointer(M, 0, start)
    add_product_nt_at(part, zero, M_k, M_s, PANEL, k, columns, stop - start)


@njit(nogil=True)
def scale_gram(gram, first, eta):
    """gram[t, s] *= -eta for the images s < first + t before image t, else 0. Modifies gram."""
    for t in range(gram.shape[0]):
        row = gram[t]
        for s in range(row.shape[0]):
            row[s] *= -eta
        for s in range(first + t, row.shape[0]):
            row[s] = 0


@njit(nogil=True)
def softmax(a, n_classes):
    """a becomes softmax(a); returns log(sum_j exp(a_j)), float64. Modifies a (n_classes or more,).

    Elements from n_classes on become 0.
    """
    not_inlined()
    highest = a[0]
    for j in range(1, n_classes):
        highest = max(highest, a[j])
    for j in range(a.shape[0]):
        a[j] = exp_of_negative(a[j] - highest)
    total = np.float32(0)
    for j in range(n_classes):
        total += a[j]
    for j in range(a.shape[0]):
        a[j] /= total
    for j in range(n_classes, a.shape[0]):
        a[j] = 0
    return highest + log_of_sum(total)


@njit(nogil=True)
def softmax_delta(a, label, n_classes):
    """a becomes softmax(a) - one_hot(label); returns the cross-entropy of the two. Modifies a.

    a: (n_classes or more,); elements from n_classes on become 0.
    Guess: the papers name the softmax (2012, section 3) and no loss.
    """
    activation_of_label = a[label]
    loss = softmax(a, n_classes) - activation_of_label
    a[label] -= np.float32(1)
    return loss


@njit(nogil=True)
def largest_of(values):
    """The largest of a multiple of LINE numbers; NaN if one is. Modifies values."""
    for start in range(LINE, values.shape[0], LINE):
        for j in range(LINE):
            values[j] = larger_of(values[j], values[start + j])
    most = values[0]
    for j in range(1, LINE):
        most = larger_of(most, values[j])
    return most


@njit(nogil=True)
def begin_block(net, thread, images, now, eta, barrier, times):
    """Gather a block's images; compute layer 1's products for all of them. Modifies net.

    Other threads' part of gram is not needed before the second sweep, and so not waited for here.
    now: indices of the block's images. The other arguments and the result: see `train_blocks`.
    """
    not_inlined()
    n, n_in, H = now.shape[0], size_of(net, 0), layer_array(net, STATES, 0)
    begin, end = thread_share(n, thread)
    for t in range(begin, end):
        h, image = H[t], images[now[t]]
        for i in range(n_in):
            h[i] = image[i]
    times = wait(barrier, thread.team, times)
    begin, end = thread_panels(array_at(net.block, FIRST).shape[0], thread)
    for q in range(begin, end):
        width, b = panel_width(q, size_of(net, 1)), row_pointer(array_at(net.b, 0)[0, 0], q * PANEL)
        A, W = pointer(array_at(net.block, FIRST)[q], 0, 0), pointer(array_at(net.W, 0)[q], 0, 0)
        add_product_at(A, b, pointer(H, 0, 0), W, n, width, n_in)
    squares = whole_lines(n) // LINE
    begin, end = thread_share(squares * (squares + 1) // 2, thread)
    square = 0
    for t in range(0, n, LINE):
        for s in range(0, t + LINE, LINE):  # only of images before
            if begin <= square < end:
                set_gram_square(net, thread, t, s, eta)
            square += 1
    return times


@njit(nogil=True, inline="always")
def set_gram_square(net, thread, first_t, first_s, eta):
    """Layer 1's -eta G[t, s] for LINE images t and LINE images s, and |h_t|^2. Modifies net."""
    H, G, side = layer_array(net, STATES, 0), array_at(net.block, GRAM)[0], np.int64(LINE)
    one, square = row_pointer(thread_array(net, thread, ONES)[0], 0), pointer(G, first_t, first_s)
    H_t, H_s = pointer(H, first_t, 0), pointer(H, first_s, 0)
    add_product_nt_at(square, one, H_t, H_s, PANEL, side, side, size_of(net, 0))
    for t in range(first_t, first_t + LINE):
        if first_s == first_t:
            array_at(net.block, SQUARES)[0, 0, t] = G[t, t]
        for s in range(first_s, first_s + LINE):
            G[t, s] = -eta * G[t, s] if s < t else np.float32(0)


@njit(nogil=True, error_model="numpy")
def forward(net, thread, window, eta, barrier, times):
    """The window's states, and the output layer's activations. Modifies net.

    The other arguments and the result: see `train_blocks`.
    """
    not_inlined()
    last = net.layers - 1  # the output layer
    gram = thread_gram(net, thread, window)
    zero = row_pointer(thread_array(net, thread, ZEROS)[0], 0)
    for layer in range(last):
        n_out, H_next = size_of(net, layer + 1), layer_array(net, STATES, layer + 1)
        parts, panels = array_at(net.block, PARTS)[times % 2, 0], panels_in(n_out)
        begin, end = thread_groups(panels, thread)
        for group in range(begin, end):
            q, q_end = panels_of(group, panels)
            while q < q_end:
                set_states(net, thread, window, layer, q)
                q += 1
            set_part(parts, zero, H_next, group, n_out, window)
            if layer + 1 == last:
                set_outputs(net, zero, group, window)
        times = wait(barrier, thread.team, times)
        sum_parts(gram, parts, panels, np.float32(1))
        scale_gram(gram, window.first, eta)
    if last == 0:
        begin, end = thread_groups(panels_in(size_of(net, 0)), thread)
        for group in range(begin, end):
            set_outputs(net, zero, group, window)
        times = wait(barrier, thread.team, times)
        for t in range(gram.shape[0]):
            for s in range(gram.shape[1]):
                gram[t, s] = array_at(net.block, GRAM)[0][window.first + t, s]
    sum_outputs(net, thread, gram, window.swept)
    return times


@njit(nogil=True, inline="always", error_model="numpy")
def set_states(net, thread, window, layer, q):
    """The window's states y(A), A = H W + b - eta G D, of panel q of a layer. Modifies net."""
    first, end, swept = window
    k, start, width = end - first, q * PANEL, panel_width(q, size_of(net, layer + 1))
    sums, Y = thread_array(net, thread, SUMS), layer_array(net, STATES, layer + 1)
    A, D = pointer(sums, 0, 0), pointer(layer_array(net, DELTAS, layer), 0, start)
    if layer > 0:
        b, W = (
            row_pointer(array_at(net.b, layer)[0, 0], start),
            pointer(array_at(net.W, layer)[q], 0, 0),
        )
        H = pointer(layer_array(net, STATES, layer), first, 0)
        add_product_at(A, b, H, W, k, width, size_of(net, layer))
        if swept > 0:
            G = pointer(thread_array(net, thread, DOTS), 0, 0)
            add_product_at(A, A, G, D, k, width, swept)
    elif swept > 0:
        A_first = pointer(array_at(net.block, FIRST)[q], first, 0)
        G = pointer(array_at(net.block, GRAM)[0], first, 0)
        add_product_at(A, A_first, G, D, k, width, swept)
    for t in range(k):
        a = sums[t] if layer > 0 or swept > 0 else array_at(net.block, FIRST)[q, first + t]
        y = Y[first + t][start : start + PANEL]
        for j in range(width):
            y[j] = scaled_tanh(a[j])


@njit(nogil=True)
def set_outputs(net, zero, group, window):
    """A group's part of the output layer's H W, for the window. Modifies net."""
    not_inlined()
    last = net.layers - 1
    start, stop = neurons_of(group, size_of(net, last))
    A, W = pointer(array_at(net.block, OUTPUTS)[group], 0, 0), array_at(net.W, last)[0]
    h = pointer(layer_array(net, STATES, last), window.first, start)
    k, n_out = window.end - window.first, W.shape[0]
    add_product_nt_at(A, zero, h, pointer(W, 0, start), PANEL, k, n_out, stop - start)


@njit(nogil=True, inline="always")
def sum_outputs(net, thread, gram, swept):
    """A_OUT = the sum of all groups' parts + b - eta G D, of the output layer. Modifies net."""
    last = net.layers - 1
    A, b = thread_array(net, thread, A_OUT), array_at(net.b, last)[0, 0]
    k, n_out, panels = gram.shape[0], A.shape[1], panels_in(size_of(net, last))
    for t in range(k):
        a = A[t]
        for j in range(n_out):
            a[j] = b[j]
        for group in range(min(panels, GROUPS)):
            part = array_at(net.block, OUTPUTS)[group, t]
            for j in range(n_out):
                a[j] += part[j]
    if swept > 0:
        a, D = pointer(A, 0, 0), pointer(thread_array(net, thread, DELTAS_OUT), 0, 0)
        add_product_at(a, a, pointer(gram, 0, 0), D, k, n_out, swept)


@njit(nogil=True)
def replace_deltas(old, new, is_known, change, size):
    """old = new; change and size become the largest |new - old| and |new| so far, by place.

    Modifies old (n,), change and size. The others: (n or more,). If not is_known, old counts as 0.
    """
    for j in range(old.shape[0]):
        before = old[j] if is_known else np.float32(0)
        change[j] = larger_of(change[j], abs(new[j] - before))
        size[j] = larger_of(size[j], abs(new[j]))
        old[j] = new[j]


@njit(nogil=True)
def note_changes(net, thread, layer, k):
    """Reduce SPREAD to CHANGES, one for each of k images, and LARGEST. Modifies net."""
    not_inlined()
    spread, number = thread_array(net, thread, SPREAD), thread.number
    for t in range(k):
        array_at(net.block, CHANGES)[number, layer, t] = largest_of(spread[t])
    array_at(net.block, LARGEST)[number, 0, layer] = largest_of(spread[k])
    for t in range(k + 1):
        row = spread[t]
        for j in range(row.shape[0]):
            row[j] = 0


@njit(nogil=True, error_model="numpy")
def backward(net, thread, window, labels, eta, barrier, times):
    """The window's losses and deltas, and how far these changed. Modifies net.

    labels: of the block's images. The other arguments and the result: as `forward`.
    """
    not_inlined()
    first, end, swept = window
    last, n_out, k = net.layers - 1, size_of(net, net.layers), end - first
    gram = thread_gram(net, thread, window)
    zero = row_pointer(thread_array(net, thread, ZEROS)[0], 0)
    changes, D_out = thread_array(net, thread, SPREAD), thread_array(net, thread, DELTAS_OUT)
    for t in range(k):
        a = thread_array(net, thread, A_OUT)[t]
        loss = softmax_delta(a, labels[first + t], n_out)
        thread_array(net, thread, LOSSES)[0][t] = loss
        replace_deltas(D_out[first + t], a, first + t < swept, changes[t], changes[k])
    note_changes(net, thread, last, k)
    D_k, D_s = pointer(D_out, first, 0), pointer(D_out, 0, 0)
    add_product_nt_at(pointer(gram, 0, 0), zero, D_k, D_s, PANEL, k, gram.shape[1], n_out)
    scale_gram(gram, first, eta)
    for layer in range(last - 1, -1, -1):
        n, D = size_of(net, layer + 1), layer_array(net, DELTAS, layer)
        parts, panels = array_at(net.block, PARTS)[times % 2, 0], panels_in(n)
        begin, stop = thread_groups(panels, thread)
        for group in range(begin, stop):
            q, q_end = panels_of(group, panels)
            while q < q_end:
                set_deltas(net, thread, window, zero, layer, q)
                q += 1
            if layer > 0:
                set_part(parts, zero, D, group, n, window)
        note_changes(net, thread, layer, k)
        if layer > 0:
            times = wait(barrier, thread.team, times)
            sum_parts(gram, parts, panels, np.float32(0))
            scale_gram(gram, first, eta)
    return wait(barrier, thread.team, times)


@njit(nogil=True, inline="always", error_model="numpy")
def set_deltas(net, thread, window, zero, layer, q):
    """The window's deltas E y'(A), E = D W^T - eta G' H, of panel q of a layer. Modifies net.

    D, W and G' are those of the next layer, and H is what it reads. zero: `pointer` to zeros.
    """
    first, end, swept = window
    k, start, width = end - first, q * PANEL, panel_width(q, size_of(net, layer + 1))
    sums, changes = thread_array(net, thread, SUMS), thread_array(net, thread, SPREAD)
    H, W = layer_array(net, STATES, layer + 1), array_at(net.W, layer + 1)
    E, G = pointer(sums, 0, 0), pointer(thread_array(net, thread, DOTS), 0, 0)
    n_next = size_of(net, layer + 2)
    if layer + 2 == net.layers:
        D_next = pointer(thread_array(net, thread, DELTAS_OUT), first, 0)
        add_product_at(E, zero, D_next, pointer(W[0], 0, start), k, width, n_next)
    else:
        D_next = pointer(layer_array(net, DELTAS, layer + 1), first, 0)
        rows, panel = pointer(W[0], start, 0), W.shape[1] * PANEL
        add_product_nt_at(E, zero, D_next, rows, panel, k, width, n_next)
    add_product_at(E, E, G, pointer(H, 0, start), k, width, end)
    D = layer_array(net, DELTAS, layer)
    for t in range(k):
        e, y = sums[t], H[first + t][start : start + PANEL]
        for j in range(width):
            e[j] *= scaled_tanh_derivative(y[j])
        d = D[first + t][start : start + width]
        replace_deltas(d, e, first + t < swept, changes[t], changes[k])


@njit(nogil=True)
def count_done(net, team, n, k, settings):
    """How many images at the front of a window of k are done, of a block of n images.

    The first is corrected by images that are done. Another one is done if the deltas of all images
    of the window before it stayed, in every layer: it was corrected by what they were before.
    team: number of threads.
    """
    if k == 1:
        return 1
    done, square, changes = k, np.float32(0), array_at(net.block, CHANGES)
    for t in range(n):
        square = larger_of(square, array_at(net.block, SQUARES)[0, 0, t])
    for layer in range(changes.shape[1]):
        size, n_in = np.float32(0), np.float32(1 + size_of(net, layer))
        for thread in range(team):
            size = larger_of(size, array_at(net.block, LARGEST)[thread, 0, layer])
        # States of hidden layers are about 1.
        square_of_layer = n_in if layer > 0 else square
        least = tolerance_at(settings.eta, n_in, square_of_layer, settings.rounding) * size
        t = 0
        while t + 1 < done:
            for thread in range(team):
                if not changes[thread, layer, t] <= least:
                    done = t + 1
            t += 1
    return done


@njit(nogil=True)
def end_block(net, thread, n, eta, barrier, times):
    """Update all weights by a block of n images. Modifies net."""
    not_inlined()
    last = net.layers - 1
    for layer in range(last):
        begin, end = thread_panels(panels_in(size_of(net, layer + 1)), thread)
        for q in range(begin, end):
            update_panel(net, thread, n, eta, layer, q)
    update_outputs(net, thread, n, eta)
    return wait(barrier, thread.team, times)


@njit(nogil=True, inline="always")
def update_panel(net, thread, n, eta, layer, q):
    """W -= eta H^T D for panel q of a hidden layer and n images. Modifies net."""
    start, width = q * PANEL, panel_width(q, size_of(net, layer + 1))
    D, b = layer_array(net, DELTAS, layer)[:n], array_at(net.b, layer)[0, 0]
    copy = thread_array(net, thread, SUMS)  # contiguous: each row of D has a page of its own
    scale_and_sum(D, b, start, width, copy[n], -eta)
    for t in range(n):
        for j in range(width):
            copy[t, j] = D[t, start + j]
    W, H = pointer(array_at(net.W, layer)[q], 0, 0), layer_array(net, STATES, layer)
    add_product_tn_at(W, W, pointer(H, 0, 0), pointer(copy, 0, 0), size_of(net, layer), width, n)


@njit(nogil=True, inline="always")
def update_outputs(net, thread, n, eta):
    """W -= eta H^T D for a thread's inputs of the output layer and n images. Modifies net."""
    last = net.layers - 1
    n_in, W = size_of(net, last), array_at(net.W, last)[0]
    H, D = layer_array(net, STATES, last), thread_array(net, thread, DELTAS_OUT)[:n]
    b = array_at(net.b, last)[0, 0] if thread.number == 0 else thread_array(net, thread, A_OUT)[0]
    for start in range(0, b.shape[0], LINE):
        scale_and_sum(D, b, start, LINE, thread_array(net, thread, SUMS)[0], -eta)
    begin, end = thread_panels(panels_in(n_in), thread)
    start, stop = begin * PANEL, min(n_in, end * PANEL)
    if start < stop:
        columns, h = pointer(W, 0, start), pointer(H, 0, start)
        width = whole_lines(stop - start)
        add_product_tn_at(columns, columns, pointer(D, 0, 0), h, size_of(net, net.layers), width, n)


@njit(nogil=True)
def scale_and_sum(D, b, start, width, total, factor):
    """D *= factor in `width` columns from `start`, and b += their sums. Modifies D, b and total."""
    for j in range(width):
        total[j] = 0
    for t in range(D.shape[0]):
        d = D[t][start : start + width]
        for j in range(width):
            d[j] *= factor
            total[j] += d[j]
    b = b[start : start + width]
    for j in range(width):
        b[j] += total[j]


@njit(nogil=True)
def train_blocks(net, thread, barrier, images, labels, order, settings, progress):
    """One thread's share of the on-line steps on images[order]. Returns their loss.

    The summed loss is float64, the same for each thread. Modifies net, barrier and
    progress. barrier: of the team. images float32 (n, n_in), labels (n,), order (m,), indices of
    images. progress: of `new_progress`. The parts of a block take and return `times`, which counts
    this thread's arrivals at the barrier.
    """
    loss, times, n_window, all_passes, sweeps = 0.0, np.int64(0), progress[0], 0, 0
    now_labels = np.empty(settings.n_block, np.int64)
    for start in range(0, order.shape[0], settings.n_block):
        now = order[start : start + settings.n_block]
        n, first, swept, passes = now.shape[0], 0, 0, 0
        for t in range(n):
            now_labels[t] = labels[now[t]]
        times = begin_block(net, thread, images, now, settings.eta, barrier, times)
        while first < n:
            window = Window(first, min(first + n_window, n), swept)
            k = window.end - first
            times = forward(net, thread, window, settings.eta, barrier, times)
            times = backward(net, thread, window, now_labels, settings.eta, barrier, times)
            done = count_done(net, thread.team, n, k, settings)
            for t in range(done):
                loss += thread_array(net, thread, LOSSES)[0][t]
            passes += k
            sweeps += 1
            first, swept = first + done, window.end
        times = end_block(net, thread, n, settings.eta, barrier, times)
        all_passes += passes
        if n == settings.n_block:  # the last one of an epoch may be short
            n_window = window_after(n_window, passes, n, settings.limits)
    if thread.number == 0:
        progress[0] = n_window
        progress[1] += all_passes
        progress[2] += sweeps
    return loss


def new_progress(limits: Limits) -> np.ndarray:
    """At the start of an epoch, int64 (3,): images of a window, passes of images, sweeps.

    A pass is one image that went forward and backward once; both are counted in all blocks.
    """
    return np.array([limits.smallest, 0, 0])


def make_states(sizes: tuple[int, ...], n: int) -> Stack:
    """The memory that `predict` needs for n images: the inputs and the states of each layer."""
    return make_stack([(1, n, _row(size)) for size in sizes])


@njit(nogil=True, error_model="numpy")
def predict(outputs, images, net):
    """Class probabilities of images. Modifies outputs, float32 (n, n_classes), and net.

    images float32 (n, n_in). net: its block is of `make_states`.
    """
    n, last, H = images.shape[0], net.layers - 1, array_at(net.block, 0)[0]
    for t in range(n):
        h, image = H[t], images[t]
        for i in range(size_of(net, 0)):
            h[i] = image[i]
    for layer in range(last):
        W, b = array_at(net.W, layer), array_at(net.b, layer)[0, 0]
        A = array_at(net.block, layer + 1)[0]
        for q in range(W.shape[0]):
            start, width = q * PANEL, panel_width(q, size_of(net, layer + 1))
            a, rows = pointer(A, 0, start), pointer(W[q], 0, 0)
            h, n_in = pointer(H, 0, 0), size_of(net, layer)
            add_product_at(a, row_pointer(b, start), h, rows, n, width, n_in)
            for t in range(n):
                a = A[t][start : start + PANEL]
                for j in range(width):
                    a[j] = scaled_tanh(a[j])
        H = A
    A, b, n_out = array_at(net.block, last + 1)[0], array_at(net.b, last)[0, 0], outputs.shape[1]
    a, h, W = pointer(A, 0, 0), pointer(H, 0, 0), pointer(array_at(net.W, last)[0], 0, 0)
    add_product_nt_at(a, row_pointer(b, 0), h, W, PANEL, n, n_out, size_of(net, last))
    for t in range(n):
        softmax(A[t][: whole_lines(n_out)], n_out)
        for j in range(n_out):
            outputs[t, j] = A[t, j]
