"""On-line back-propagation in blocks, exactly: many images between two updates of the matrices.

The update of image s is rank one. So within a block the weights before image t are
W - eta sum_{s<t} h_s d_s^T, where W is the matrix at the start of the block, h_s what the layer
read of image s (the leading 1 included) and d_s its delta:

    a_t = W^T h_t - eta sum_{s<t} (h_s . h_t) d_s      forward
    e_t = W d_t - eta sum_{s<t} (d_s . d_t) h_s        backward
    W -= eta H^T D                                     after the block

It is the same sequence of updates, not a mini-batch: see docs/online-in-blocks.md. W is read twice
for each image and written once a block. For layer 1 it is read once a block, in a product of
matrices, because its h are known beforehand.

The neurons of each layer are cut in SLICES, and a member of a team of threads owns some of them:
columns of W forward and in the update, the rows of the next layer's W backward. The slices, and
with them every sum, are the same however many members there are.
"""

import math
from typing import NamedTuple

import numpy as np

from mlp_gpu import activation
from mlp_gpu.blas import add_product_of_transposed, product, product_with_transposed
from mlp_gpu.jit import njit
from mlp_gpu.network import Network
from mlp_gpu.team import wait

# Lets sums be vectorised and multiply-adds be fused. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz"}

PANEL = 64  # neurons: a constant, so that loops over them become a few vector instructions

# A division by zero must not end the loop: so it vectorises.
scaled_tanh = njit(activation.scaled_tanh, fastmath=FASTMATH, error_model="numpy")
scaled_tanh_derivative = njit(activation.scaled_tanh_derivative, fastmath=FASTMATH)


class Weights(NamedTuple):
    """The weights of a net, float32. A net without hidden layers has one without panels.

    hidden: of each hidden layer, cut by its neurons: (panels, n_in + 1, PANEL). outputs: of the
    output layer, turned: (n_out, n_in + 1).
    """

    hidden: tuple[np.ndarray, ...]
    outputs: np.ndarray


class Block(NamedTuple):
    """Memory for a block of B images, float32: a tuple has an array for each hidden layer.

    inputs: (B, n_in + 1), what a layer reads of each image, a leading 1 included; the last is that
    of the output layer. states, deltas: (panels, B, PANEL), of the layer's own neurons. first: as
    these, the activations of layer 1 with the weights at the start of the block. gram: (B, B), the
    scalar products of layer 1's inputs. state_dots, delta_dots: (2, panels, B), of image t modulo
    2, each panel's part of the scalar products of its states or deltas with those of the images
    before. private: (members, 3 + B, ...), what each member of a team needs for itself.

    A loop that the compiler has vectorised runs without vectors, and so rounds otherwise, where an
    array begins less than a few vectors behind one that it writes. To have the same bits wherever
    memory is found, arrays that are written have room around them.
    """

    inputs: tuple[np.ndarray, ...]
    states: tuple[np.ndarray, ...]
    deltas: tuple[np.ndarray, ...]
    first: np.ndarray
    gram: np.ndarray
    state_dots: tuple[np.ndarray, ...]
    delta_dots: tuple[np.ndarray, ...]
    private: np.ndarray


def _with_room(array: np.ndarray) -> np.ndarray:
    """A copy of an array with memory around it that nothing else uses."""
    copy = np.empty(array.size + 2 * PANEL, array.dtype)[PANEL:-PANEL].reshape(array.shape)
    copy[:] = array
    return copy


def _count_panels(sizes: tuple[int, ...]) -> list[int]:
    """Panels of each hidden layer."""
    return [-(-n // PANEL) for n in sizes[1:-1]] or [0]


def to_weights(network: Network) -> Weights:
    """A copy of a network's weights."""
    *hidden, outputs = network.unpadded()
    found = [np.zeros((0, 1, PANEL), np.float32)] if not hidden else []
    for W, n in zip(hidden, _count_panels(network.sizes), strict=False):
        wide = np.zeros((len(W), n * PANEL), np.float32)
        wide[:, : W.shape[1]] = W
        found.append(np.ascontiguousarray(wide.reshape(len(W), n, PANEL).swapaxes(0, 1)))
    return Weights(tuple(found), np.ascontiguousarray(outputs.T))


def to_network(sizes: tuple[int, ...], weights: Weights) -> Network:
    """The network with a copy of these weights."""
    network = Network.blank(sizes)
    *hidden, outputs = network.unpadded()
    for W, panels in zip(hidden, weights.hidden, strict=False):
        W[:] = panels.swapaxes(0, 1).reshape(len(W), -1)[:, : W.shape[1]]
    outputs[:] = weights.outputs.T
    return network


def make_block(sizes: tuple[int, ...], n_images: int, members: int) -> Block:
    """The memory for blocks of so many images of a net, and for a team, without any image."""
    panels = _count_panels(sizes)

    def zeros(*shape: int) -> np.ndarray:
        return _with_room(np.zeros(shape, np.float32))

    def of_neurons() -> tuple[np.ndarray, ...]:
        return tuple(zeros(n, n_images, PANEL) for n in panels)

    def dots() -> tuple[np.ndarray, ...]:
        return tuple(zeros(2, n, n_images) for n in panels)

    return Block(
        inputs=tuple(_with_room(np.ones((n_images, n + 1), np.float32)) for n in sizes[:-1]),
        states=of_neurons(),
        deltas=of_neurons(),
        first=of_neurons()[0],
        gram=zeros(n_images, n_images),
        state_dots=dots(),
        delta_dots=dots(),
        private=zeros(members, 3 + n_images, max(PANEL, n_images, sizes[-1]) + PANEL),
    )


@njit(nogil=True, fastmath=FASTMATH)
def add_combination(total, coefficients, rows):
    """total += coefficients @ rows. Modifies total (PANEL,). coefficients (m,), rows (m, PANEL)."""
    m = coefficients.shape[0]
    whole = m - m % 8
    for i in range(0, whole, 8):
        # Eight rows are taken together, so that total is loaded and stored once for eight.
        c0, c1, c2, c3 = (
            coefficients[i],
            coefficients[i + 1],
            coefficients[i + 2],
            coefficients[i + 3],
        )
        c4, c5, c6, c7 = (
            coefficients[i + 4],
            coefficients[i + 5],
            coefficients[i + 6],
            coefficients[i + 7],
        )
        for j in range(PANEL):
            total[j] += (
                c0 * rows[i, j]
                + c1 * rows[i + 1, j]
                + c2 * rows[i + 2, j]
                + c3 * rows[i + 3, j]
                + c4 * rows[i + 4, j]
                + c5 * rows[i + 5, j]
                + c6 * rows[i + 6, j]
                + c7 * rows[i + 7, j]
            )
    for i in range(whole, m):
        c = coefficients[i]
        for j in range(PANEL):
            total[j] += c * rows[i, j]


@njit(nogil=True, fastmath=FASTMATH)
def add_products(out, rows, v):
    """out += rows @ v. Modifies out (m,). rows (m, PANEL), v (PANEL,)."""
    for i in range(out.shape[0]):
        total = np.float32(0)
        for j in range(PANEL):
            total += rows[i, j] * v[j]
        out[i] += total


@njit(nogil=True)
def products(out, rows, v):
    """out = rows @ v. Modifies out (m,). rows (m or more, PANEL), v (PANEL,)."""
    out[:] = 0
    add_products(out, rows, v)


@njit(nogil=True, fastmath=FASTMATH)
def sum_dots(out, parts, start, scale):
    """out = scale (start + the sum of all panels' parts). Modifies out (m,). parts (panels, B)."""
    n = out.shape[0]
    for s in range(n):
        out[s] = start
    for q in range(parts.shape[0]):
        for s in range(n):
            out[s] += parts[q, s]
    for s in range(n):
        out[s] *= scale


GRAM_GROUPS = 8  # of rows, in which the members share the scalar products of a block's images


@njit(nogil=True)
def own_part(n, member, members):
    """The first of n things that a member does, and the one after the last."""
    return n * member // members, n * (member + 1) // members


@njit(nogil=True)
def softmax_delta(delta, a, label):
    """delta = softmax(a) - one_hot(label) and the cross-entropy of the two. Modifies delta.

    Guess: the papers name the softmax (2012, section 3) and no loss.
    """
    highest = a[0]
    for j in range(1, a.shape[0]):
        highest = max(highest, a[j])
    total = np.float32(0)
    for j in range(a.shape[0]):
        delta[j] = math.exp(a[j] - highest)
        total += delta[j]
    for j in range(a.shape[0]):
        delta[j] /= total
    delta[label] -= np.float32(1)
    return math.log(total) - (a[label] - highest)


@njit(nogil=True, fastmath=FASTMATH)
def output_layer(a, W, h, scales, deltas):
    """Activations a of the output layer. Modifies a (n_out,).

    W (n_out, n_in + 1), h (n_in + 1,); scales (t,): of the deltas (t or more, n_out) before.
    """
    for c in range(a.shape[0]):
        w, total = W[c], np.float32(0)
        for i in range(h.shape[0]):
            total += w[i] * h[i]
        a[c] = total
    for s in range(scales.shape[0]):
        for c in range(a.shape[0]):
            a[c] += scales[s] * deltas[s, c]


@njit(nogil=True)
def begin_block(member, members, block, weights, images, now, sgemm, meeting, times):
    """Gather a block's images; make what layer 1 needs of all of them. Modifies block and meeting.

    Other members' part of gram is not needed before the second image, and so not waited for here.
    now: indices of the block's images. The other arguments and the result: see `train_blocks`.
    """
    B, H = now.shape[0], block.inputs[0]
    begin, end = own_part(B, member, members)
    for t in range(begin, end):
        H[t, 1:] = images[now[t]]
    times = wait(meeting, members, times)
    begin, end = own_part(block.first.shape[0], member, members)
    for q in range(begin, end):
        product(sgemm, block.first[q, :B], H[:B], weights.hidden[0][q])
    begin, end = own_part(GRAM_GROUPS, member, members)
    for group in range(begin, end):
        rows = slice(B * group // GRAM_GROUPS, B * (group + 1) // GRAM_GROUPS)
        if rows.start < rows.stop:
            product_with_transposed(sgemm, block.gram[rows, :B], H[rows], H[:B])
    return times


@njit(nogil=True, fastmath=FASTMATH)
def train_blocks(
    member, meeting, members, sizes, weights, block, images, labels, order, eta, sgemm
):
    """What one member of a team does of the on-line steps on images[order]. Returns their loss.

    The summed loss is float64, the same for each member. Modifies weights, block and meeting.
    meeting, members: see `team`. sizes: int64 (L + 1,). weights: `Weights`. block: `Block`. images
    float32 (n, n_in), labels (n,), order (m,), indices of images; eta float32; sgemm: blas.SGEMM.
    """
    n_hidden, n_out, n_images = sizes.shape[0] - 2, sizes[-1], block.gram.shape[0]
    inputs, states, deltas = block.inputs, block.states, block.deltas
    mine = block.private[member]
    a, scales, outputs = mine[0, :PANEL], mine[1, :n_images], mine[2, :n_out]
    output_deltas = mine[3:]  # each member computes them all, so that nobody waits
    loss, times = 0.0, 0
    for start in range(0, order.shape[0], n_images):
        now = order[start : start + n_images]
        B = now.shape[0]
        times = begin_block(member, members, block, weights, images, now, sgemm, meeting, times)
        for t in range(B):
            parity = t % 2
            for s in range(t):
                scales[s] = -eta * block.gram[t, s]
            for layer in range(n_hidden):
                begin, end = own_part(states[layer].shape[0], member, members)
                for q in range(begin, end):
                    a[:] = 0
                    if layer == 0:
                        a[:] = block.first[q, t]
                    else:
                        add_combination(a, inputs[layer][t], weights.hidden[layer][q])
                    add_combination(a, scales[:t], deltas[layer][q])
                    state = states[layer][q, t]
                    for j in range(PANEL):
                        state[j] = scaled_tanh(a[j])
                    n = min(PANEL, sizes[layer + 1] - q * PANEL)
                    inputs[layer + 1][t, 1 + q * PANEL : 1 + q * PANEL + n] = state[:n]
                    products(block.state_dots[layer][parity, q, :t], states[layer][q], state)
                times = wait(meeting, members, times)
                dots = block.state_dots[layer][parity]
                sum_dots(scales[:t], dots, np.float32(1), -eta)
            h, delta = inputs[n_hidden][t], output_deltas[t, :n_out]
            output_layer(outputs, weights.outputs, h, scales[:t], output_deltas)
            loss += softmax_delta(delta, outputs, labels[now[t]])
            for s in range(t):
                scales[s] = 0
                for c in range(n_out):
                    scales[s] -= eta * output_deltas[s, c] * delta[c]
            for layer in range(n_hidden - 1, -1, -1):
                begin, end = own_part(states[layer].shape[0], member, members)
                for q in range(begin, end):
                    first, n = 1 + q * PANEL, min(PANEL, sizes[layer + 1] - q * PANEL)
                    e = a[:n]
                    a[:] = 0
                    add_combination(a, scales[:t], states[layer][q])
                    if layer + 1 == n_hidden:
                        for c in range(n_out):
                            w, d = weights.outputs[c, first : first + n], delta[c]
                            for j in range(n):
                                e[j] += d * w[j]
                    else:
                        for p in range(states[layer + 1].shape[0]):
                            rows = weights.hidden[layer + 1][p, first : first + n]
                            add_products(e, rows, deltas[layer + 1][p, t])
                    state, d = states[layer][q, t], deltas[layer][q, t]
                    for j in range(n):
                        d[j] = e[j] * scaled_tanh_derivative(state[j])
                    if layer > 0:
                        products(block.delta_dots[layer][parity, q, :t], deltas[layer][q], d)
                if layer > 0:
                    times = wait(meeting, members, times)
                    dots = block.delta_dots[layer][parity]
                    sum_dots(scales[:t], dots, np.float32(0), -eta)
        times = wait(meeting, members, times)
        for layer in range(n_hidden):
            begin, end = own_part(states[layer].shape[0], member, members)
            for q in range(begin, end):
                W, D = weights.hidden[layer][q], deltas[layer][q, :B]
                add_product_of_transposed(sgemm, W, -eta, inputs[layer][:B], D)
        if member == 0:
            H, D = inputs[n_hidden][:B], output_deltas[:B, :n_out]
            add_product_of_transposed(sgemm, weights.outputs, -eta, D, H)
        times = wait(meeting, members, times)
    return loss
