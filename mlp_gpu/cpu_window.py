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
    place,
    round_up,
    row_place,
)
from mlp_gpu.window_rule import Limits, larger, next_window, tolerance

GROUPS = 8  # of panels in a layer, at most: as many threads can share it

# A division by zero must not end the loop: so it vectorises.
scaled_tanh = njit(activation.scaled_tanh, error_model="numpy")
scaled_tanh_derivative = njit(activation.scaled_tanh_derivative)
exp_of_negative = njit(activation.exp_of_negative)
log_of_sum = njit(activation.log_of_sum, error_model="numpy")
larger_of, window_after = njit(larger), njit(next_window)
tolerance_at = njit(tolerance, error_model="numpy")


class Stack(NamedTuple):
    """Float32 arrays of three dimensions in one memory: so code is compiled once for all nets.

    places: int64 (arrays, 4), where each begins in values, and its shape.
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


def make_stack(shapes: list[tuple[int, int, int]]) -> Stack:
    """Arrays of these shapes, of zeros."""
    sizes = [round_up(math.prod(shape)) for shape in shapes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    places = [(start, *shape) for start, shape in zip(starts, shapes, strict=True)]
    return Stack(aligned_zeros(sum(sizes)), np.array(places))


def views(stack: Stack) -> list[np.ndarray]:
    """The arrays of a stack."""
    return [
        stack.values[start : start + math.prod(shape)].reshape(shape)
        for start, *shape in stack.places.tolist()
    ]


@njit(nogil=True)
def item(stack, i):
    """Array i of a stack, in compiled code."""
    start, n, rows, columns = stack.places[i]
    return carray(floats_at(stack.values.ctypes.data + 4 * start), (n, rows, columns))


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


@njit(nogil=True)
def of_layer(block, kind, layer):
    """A layer's array of one of the kinds STATES, ..., a matrix."""
    layers = (block.places.shape[0] - SINGLE) // 2
    return item(block, SINGLE + kind * layers + layer)[0]


@njit(nogil=True)
def own(private, thread, kind):
    """A thread's array of one of the kinds DOTS, ..., a matrix."""
    return item(private, kind)[thread]


@njit(nogil=True)
def own_part(n, thread, threads):
    """The first of n things that a thread does, and the one after the last."""
    return n * thread // threads, n * (thread + 1) // threads


@njit(nogil=True)
def up(n):
    """n rounded up to a multiple of LINE."""
    return (n + LINE - 1) // LINE * LINE


@njit(nogil=True)
def own_groups(panels, thread, threads):
    """The first of a layer's groups of panels that a thread does, and the one after its last."""
    return own_part(min(panels, GROUPS), thread, threads)


@njit(nogil=True)
def panels_of(group, panels):
    """The first panel of a group, and the one after its last."""
    groups = min(panels, GROUPS)
    return group * panels // groups, (group + 1) * panels // groups


@njit(nogil=True)
def own_panels(panels, thread, threads):
    """The first of a layer's panels that a thread does, and the one after its last."""
    if panels == 0:  # of a net without hidden layers
        return 0, 0
    begin, end = own_groups(panels, thread, threads)
    return panels_of(begin, panels)[0], panels_of(end, panels)[0]


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
def set_part(parts, group, zeros, rows, others, k, n, m):
    """The part of a group becomes rows @ others.T. Modifies parts, see PARTS.

    rows (k, m), others (n, m): each given by its `place`.
    """
    not_inlined()
    part = np.int64(parts.ctypes.data + 4 * group * k * n), np.int64(n)
    add_product_nt_at(part, row_place(zeros, 0), rows, others, PANEL, k, n, m)


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
def begin_block(thread, threads, block, private, weights, sizes, images, now, eta, barrier, times):
    """Gather a block's images; compute layer 1's products for all of them. Modifies block.

    Other threads' part of gram is not needed before the second sweep, and so not waited for here.
    now: indices of the block's images. The other arguments and the result: see `train_blocks`.
    """
    not_inlined()
    n, n_in, G = now.shape[0], sizes[0], item(block, GRAM)[0]
    H = of_layer(block, STATES, 0)
    begin, end = own_part(n, thread, threads)
    for t in range(begin, end):
        h, image = H[t], images[now[t]]
        for i in range(n_in):
            h[i] = image[i]
    times = wait(barrier, threads, times)
    begin, end = own_panels(item(block, FIRST).shape[0], thread, threads)
    for q in range(begin, end):
        width = up(min(PANEL, sizes[1] - q * PANEL))
        add_product_at(
            place(item(block, FIRST)[q], 0, 0),
            row_place(item(weights.b, 0)[0, 0], q * PANEL),
            place(H, 0, 0),
            place(item(weights.W, 0)[q], 0, 0),
            n,
            width,
            n_in,
        )
    squares = up(n) // LINE
    begin, end = own_part(squares * (squares + 1) // 2, thread, threads)
    square, side = 0, np.int64(LINE)
    for t in range(0, n, LINE):
        for s in range(0, t + LINE, LINE):  # only of images before
            if begin <= square < end:
                gram, one = place(G, t, s), row_place(own(private, thread, ONES)[0], 0)
                rows, others = place(H, t, 0), place(H, s, 0)
                add_product_nt_at(gram, one, rows, others, PANEL, side, side, n_in)
                for i in range(t, t + LINE):
                    if s == t:
                        item(block, SQUARES)[0, 0, i] = G[i, i]
                    for j in range(s, s + LINE):
                        G[i, j] = -eta * G[i, j] if j < i else np.float32(0)
            square += 1
    return times


@njit(nogil=True)
def neurons_of(group, n):
    """The first neuron of a group of panels of a layer of n neurons, and the one after its last."""
    begin, end = panels_of(group, (n + PANEL - 1) // PANEL)
    return begin * PANEL, min(n, end * PANEL)


@njit(nogil=True)
def set_outputs(block, zeros, weights, group, n_in, first, end):
    """A group's part of the output layer's activations. Modifies block."""
    not_inlined()
    start, stop = neurons_of(group, n_in)
    last = weights.W.places.shape[0] - 1
    H, W = of_layer(block, STATES, last), item(weights.W, last)[0]
    add_product_nt_at(
        place(item(block, OUTPUTS)[group], 0, 0),
        row_place(zeros, 0),
        place(H, first, start),
        place(W, 0, start),
        PANEL,
        end - first,
        W.shape[0],
        stop - start,
    )


@njit(nogil=True, error_model="numpy")
def forward(thread, threads, block, private, weights, sizes, window, eta, barrier, times):
    """The window's states, and the output layer's activations. Modifies block and private.

    window: see `train_blocks`, as for the other arguments and the result.
    """
    not_inlined()
    first, end, swept = window
    n_hidden, k, wide = sizes.shape[0] - 2, end - first, up(end)
    gram, sums = own(private, thread, DOTS)[:k, :wide], own(private, thread, SUMS)
    zeros, outputs = own(private, thread, ZEROS)[0], own(private, thread, A_OUT)
    for layer in range(n_hidden):
        n_in, n_out, W = sizes[layer], sizes[layer + 1], item(weights.W, layer)
        H, H_next = of_layer(block, STATES, layer), of_layer(block, STATES, layer + 1)
        D, parts, panels = (
            of_layer(block, DELTAS, layer),
            item(block, PARTS)[times % 2, 0],
            W.shape[0],
        )
        begin, stop = own_groups(panels, thread, threads)
        for group in range(begin, stop):
            q, q_end = panels_of(group, panels)
            while q < q_end:
                start = q * PANEL
                width = up(min(PANEL, n_out - start))
                A, deltas = place(sums, 0, 0), place(D, 0, start)
                if layer > 0:
                    b = row_place(item(weights.b, layer)[0, 0], start)
                    rows, columns = place(H, first, 0), place(W[q], 0, 0)
                    add_product_at(A, b, rows, columns, k, width, n_in)
                    if swept > 0:
                        add_product_at(A, A, place(gram, 0, 0), deltas, k, width, swept)
                elif swept > 0:
                    A_first, dots = (
                        place(item(block, FIRST)[q], first, 0),
                        place(item(block, GRAM)[0], first, 0),
                    )
                    add_product_at(A, A_first, dots, deltas, k, width, swept)
                for t in range(k):
                    a = sums[t] if layer > 0 or swept > 0 else item(block, FIRST)[q, first + t]
                    y = H_next[first + t][start : start + PANEL]
                    for j in range(width):
                        y[j] = scaled_tanh(a[j])
                q += 1
            start, end_ = neurons_of(group, n_out)
            h, others = place(H_next, first, start), place(H_next, 0, start)
            set_part(parts, group, zeros, h, others, k, wide, end_ - start)
            if layer + 1 == n_hidden:
                set_outputs(block, zeros, weights, group, n_out, first, end)
        times = wait(barrier, threads, times)
        sum_parts(gram, parts, panels, np.float32(1))
        scale_gram(gram, first, eta)
    n_groups = min(GROUPS, (sizes[n_hidden] + PANEL - 1) // PANEL)
    if n_hidden == 0:
        begin, stop = own_part(n_groups, thread, threads)
        for group in range(begin, stop):
            set_outputs(block, zeros, weights, group, sizes[0], first, end)
        times = wait(barrier, threads, times)
        for t in range(k):
            for s in range(wide):
                gram[t, s] = item(block, GRAM)[0][first + t, s]
    for t in range(k):
        a = outputs[t]
        b = item(weights.b, n_hidden)[0, 0]
        for j in range(a.shape[0]):
            a[j] = b[j]
        for group in range(n_groups):
            part = item(block, OUTPUTS)[group, t]
            for j in range(a.shape[0]):
                a[j] += part[j]
    if swept > 0:
        a, deltas = place(outputs, 0, 0), place(own(private, thread, DELTAS_OUT), 0, 0)
        add_product_at(a, a, place(gram, 0, 0), deltas, k, outputs.shape[1], swept)
    return times


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
def note_changes(thread, block, private, layer, k):
    """Reduce SPREAD to CHANGES, one for each of k images, and LARGEST. Modifies block, private."""
    not_inlined()
    for t in range(k):
        item(block, CHANGES)[thread, layer, t] = largest_of(own(private, thread, SPREAD)[t])
    item(block, LARGEST)[thread, 0, layer] = largest_of(own(private, thread, SPREAD)[k])
    for t in range(k + 1):
        spread = own(private, thread, SPREAD)[t]
        for j in range(spread.shape[0]):
            spread[j] = 0


@njit(nogil=True, error_model="numpy")
def backward(thread, threads, block, private, weights, sizes, window, labels, eta, barrier, times):
    """The window's losses and deltas, and how far these changed. Modifies block and private.

    labels: of the window's images. The other arguments and the result: as `forward`.
    """
    not_inlined()
    first, end, swept = window
    n_hidden, n_out, k, wide = sizes.shape[0] - 2, sizes[-1], end - first, up(end)
    gram, sums = own(private, thread, DOTS)[:k, :wide], own(private, thread, SUMS)
    changes, zeros = own(private, thread, SPREAD), own(private, thread, ZEROS)[0]
    D_out = own(private, thread, DELTAS_OUT)
    for t in range(k):
        a = own(private, thread, A_OUT)[t]
        own(private, thread, LOSSES)[0][t] = softmax_delta(a, labels[t], n_out)
        replace_deltas(D_out[first + t], a, first + t < swept, changes[t], changes[k])
    note_changes(thread, block, private, n_hidden, k)
    zero, dots = row_place(zeros, 0), place(gram, 0, 0)
    rows, others = place(D_out, first, 0), place(D_out, 0, 0)
    add_product_nt_at(dots, zero, rows, others, PANEL, k, wide, n_out)
    scale_gram(gram, first, eta)
    for layer in range(n_hidden - 1, -1, -1):
        H, D, parts = (
            of_layer(block, STATES, layer + 1),
            of_layer(block, DELTAS, layer),
            item(block, PARTS)[times % 2, 0],
        )
        W, n = item(weights.W, layer + 1), sizes[layer + 1]
        panels = (n + PANEL - 1) // PANEL
        begin, stop = own_groups(panels, thread, threads)
        for group in range(begin, stop):
            q, q_end = panels_of(group, panels)
            while q < q_end:
                start = q * PANEL
                width = up(min(PANEL, n - start))
                E = place(sums, 0, 0)
                if layer + 1 == n_hidden:
                    deltas, columns = place(D_out, first, 0), place(W[0], 0, start)
                    add_product_at(E, zero, deltas, columns, k, width, n_out)
                else:
                    deltas = place(of_layer(block, DELTAS, layer + 1), first, 0)
                    rows, panel, m = place(W[0], start, 0), W.shape[1] * PANEL, sizes[layer + 2]
                    add_product_nt_at(E, zero, deltas, rows, panel, k, width, m)
                add_product_at(E, E, dots, place(H, 0, start), k, width, end)
                for t in range(k):
                    e, y = sums[t], H[first + t][start : start + PANEL]
                    for j in range(width):
                        e[j] *= scaled_tanh_derivative(y[j])
                    d = D[first + t][start : start + width]
                    replace_deltas(d, e, first + t < swept, changes[t], changes[k])
                q += 1
            if layer > 0:
                start, end_ = neurons_of(group, n)
                d, others = place(D, first, start), place(D, 0, start)
                set_part(parts, group, zeros, d, others, k, wide, end_ - start)
        note_changes(thread, block, private, layer, k)
        if layer > 0:
            times = wait(barrier, threads, times)
            sum_parts(gram, parts, panels, np.float32(0))
            scale_gram(gram, first, eta)
    return wait(barrier, threads, times)


@njit(nogil=True)
def count_done(block, threads, sizes, n, k, eta, rounding):
    """How many images at the front of a window of k are done, of a block of n images.

    The first is corrected by images that are done. Another one is done if the deltas of all images
    of the window before it stayed, in every layer: it was corrected by what they were before.
    """
    if k == 1:
        return 1
    done, square = k, np.float32(0)
    for t in range(n):
        square = larger_of(square, item(block, SQUARES)[0, 0, t])
    for layer in range(item(block, CHANGES).shape[1]):
        size, n_in = np.float32(0), np.float32(1 + sizes[layer])
        for thread in range(threads):
            size = larger_of(size, item(block, LARGEST)[thread, 0, layer])
        # States of hidden layers are about 1.
        least = tolerance_at(eta, n_in, n_in if layer > 0 else square, rounding) * size
        t = 0
        while t + 1 < done:
            for thread in range(threads):
                if not item(block, CHANGES)[thread, layer, t] <= least:
                    done = t + 1
            t += 1
    return done


@njit(nogil=True)
def end_block(thread, threads, block, private, weights, sizes, n, eta, barrier, times):
    """Update all weights by a block of n images. Modifies block, private and weights."""
    not_inlined()
    n_hidden = sizes.shape[0] - 2
    for layer in range(n_hidden):
        n_in, W = sizes[layer], item(weights.W, layer)
        begin, stop = own_panels(W.shape[0], thread, threads)
        for q in range(begin, stop):
            width = up(min(PANEL, sizes[layer + 1] - q * PANEL))
            D, b = of_layer(block, DELTAS, layer)[:n], item(weights.b, layer)[0, 0]
            copy = own(private, thread, SUMS)  # contiguous: each row of D has a page of its own
            scale_and_sum(D, b, q * PANEL, width, copy[n], -eta)
            for t in range(n):
                for j in range(width):
                    copy[t, j] = D[t, q * PANEL + j]
            panel, h = place(W[q], 0, 0), place(of_layer(block, STATES, layer), 0, 0)
            add_product_tn_at(panel, panel, h, place(copy, 0, 0), n_in, width, n)
    n_in, W = sizes[n_hidden], item(weights.W, n_hidden)[0]
    H, D = of_layer(block, STATES, n_hidden), own(private, thread, DELTAS_OUT)[:n]
    b = item(weights.b, n_hidden)[0, 0] if thread == 0 else own(private, thread, A_OUT)[0]
    for start in range(0, b.shape[0], LINE):
        scale_and_sum(D, b, start, LINE, own(private, thread, SUMS)[0], -eta)
    begin, stop = own_panels((n_in + PANEL - 1) // PANEL, thread, threads)
    start, end = begin * PANEL, min(n_in, stop * PANEL)
    if start < end:
        columns, h = place(W, 0, start), place(H, 0, start)
        add_product_tn_at(columns, columns, place(D, 0, 0), h, sizes[-1], up(end - start), n)
    return wait(barrier, threads, times)


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
def train_blocks(
    thread,
    barrier,
    threads,
    sizes,
    weights,
    block,
    private,
    images,
    labels,
    order,
    eta,
    rounding,
    n_block,
    limits,
    progress,
):
    """One thread's share of the on-line steps on images[order]. Returns their loss.

    The summed loss is float64, the same for each thread. Modifies weights, block, private, barrier
    and progress. barrier, threads: see `team`. sizes: int64 (L + 1,). images float32 (n, n_in),
    labels (n,), order (m,), indices of images; eta float32. rounding, limits: see `window_rule`.
    n_block: images of a block. progress: of `new_progress`.
    """
    loss, times, per_window, all_passes, sweeps = 0.0, np.int64(0), progress[0], 0, 0
    now_labels = np.empty(n_block, np.int64)
    for start in range(0, order.shape[0], n_block):
        now = order[start : start + n_block]
        n, first, swept, passes = now.shape[0], np.int64(0), np.int64(0), 0
        for t in range(n):
            now_labels[t] = labels[now[t]]
        times = begin_block(
            thread, threads, block, private, weights, sizes, images, now, eta, barrier, times
        )
        while first < n:
            end = min(first + per_window, n)
            window = (first, end, swept)
            times = forward(
                thread, threads, block, private, weights, sizes, window, eta, barrier, times
            )
            times = backward(
                thread,
                threads,
                block,
                private,
                weights,
                sizes,
                window,
                now_labels[first:end],
                eta,
                barrier,
                times,
            )
            done = count_done(block, threads, sizes, n, end - first, eta, rounding)
            for t in range(done):
                loss += own(private, thread, LOSSES)[0][t]
            passes += end - first
            sweeps += 1
            first, swept = first + done, end
        times = end_block(thread, threads, block, private, weights, sizes, n, eta, barrier, times)
        all_passes += passes
        if n == n_block:  # the last one of an epoch may be short
            per_window = window_after(per_window, passes, n, limits)
    if thread == 0:
        progress[0] = per_window
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
def predict(outputs, images, sizes, weights, states):
    """Class probabilities of images. Modifies outputs, float32 (n, n_classes), and states.

    images float32 (n, n_in); states: of `make_states`.
    """
    n, n_hidden, H = images.shape[0], sizes.shape[0] - 2, item(states, 0)[0]
    for t in range(n):
        h, image = H[t], images[t]
        for i in range(sizes[0]):
            h[i] = image[i]
    for layer in range(n_hidden):
        W, b, A = item(weights.W, layer), item(weights.b, layer)[0, 0], item(states, layer + 1)[0]
        for q in range(W.shape[0]):
            start = q * PANEL
            width = up(min(PANEL, sizes[layer + 1] - start))
            a, rows = place(A, 0, start), place(W[q], 0, 0)
            add_product_at(a, row_place(b, start), place(H, 0, 0), rows, n, width, sizes[layer])
            for t in range(n):
                a = A[t][start : start + PANEL]
                for j in range(width):
                    a[j] = scaled_tanh(a[j])
        H = A
    A, b, n_out = item(states, n_hidden + 1)[0], item(weights.b, n_hidden)[0, 0], outputs.shape[1]
    columns, h = place(item(weights.W, n_hidden)[0], 0, 0), place(H, 0, 0)
    add_product_nt_at(place(A, 0, 0), row_place(b, 0), h, columns, PANEL, n, n_out, sizes[n_hidden])
    for t in range(n):
        softmax(A[t][: up(n_out)], n_out)
        for j in range(n_out):
            outputs[t, j] = A[t, j]
