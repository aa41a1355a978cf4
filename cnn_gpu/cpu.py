"""The CPU engine for convolutional nets: on-line, one image after another, in one thread.

A convolution is a product of matrices: the patches of the layer before, gathered in a row for each
neuron of a map, times the weights of all maps. Absent connections are multiplied too, as zeros.
Gradients are those of -eta times the loss, so that an update only adds. No memory is allocated for
an image.

    forward     state = y(patches W)         patches (positions, n_in + 1), the last column is 1
    backward    by_patches = delta W^T       W (n_in + 1, width), the last row holds the biases
    update      W += patches^T delta         delta (positions, width)

width: the number of maps, rounded up to a multiple of LINE; the columns of padding stay zero. The
bits do not depend on the width of vectors: see `mlp_gpu.vector_kernel`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from cnn_gpu import filters
from cnn_gpu.layers import CONVOLUTION, FULLY_CONNECTED, IMAGE_PROCESSING, MAX_POOLING, Layer
from cnn_gpu.network import ConvNetwork
from deepbig_runtime.arrays import check_training, flat_images
from deepbig_runtime.jit import njit
from mlp_gpu.cpu import predict_in_threads, train_in_chunks
from mlp_gpu.cpu_window import scaled_tanh, scaled_tanh_derivative, softmax, softmax_delta
from mlp_gpu.vector_kernel import CHUNK, LINE, add_product, aligned_zeros, round_up, transpose

# A row of `geometry`, int64: a layer's kind, its maps, its source, its kernel and its step.
KINDS = (CONVOLUTION, FULLY_CONNECTED, MAX_POOLING, IMAGE_PROCESSING)
KIND, HEIGHT, WIDTH, N_SOURCE, SOURCE_WIDTH, KERNEL_Y, KERNEL_X, STEP_Y, STEP_X = range(9)
POOLING, PROCESSING = KINDS.index(MAX_POOLING), KINDS.index(IMAGE_PROCESSING)

IMAGES_PER_TICK = 250  # some tenths of a second of the largest net
PANEL = 64  # rows of a weight matrix that are transposed at a time: they stay near
PANEL_ROW = PANEL + LINE  # an odd number of lines: rows do not meet in a few sets of the cache

Arrays: TypeAlias = tuple[np.ndarray, ...]  # one for each layer


class Scratch(NamedTuple):
    """Memory for one image, float32 but for winners; an array for each layer.

    states: (positions, maps) of the input and of each layer; that of the last is not computed.
    patches: see `gather`, the border of `process`, or (1, 1) for max-pooling. winners: int32, see
    `pool`. sums: (positions, width), forward patches W, backward delta; (1, 1) without weights.
    zeros: (1, n), as many as the widest product has columns.
    """

    states: Arrays
    patches: Arrays
    winners: Arrays
    sums: Arrays
    zeros: np.ndarray


class Gradients(NamedTuple):
    """Derivatives of -eta times the loss for one image, float32: by states, patches and weights.

    Those by weights are stored only where `update` needs it. panel: scratch of `through_weights`.
    """

    states: Arrays
    patches: Arrays
    weights: Arrays
    panel: np.ndarray


@njit(nogil=True)
def gather(patches, source, shape):
    """Copy the states that each neuron of a map reads into a row of patches. Modifies patches.

    patches: float32 (positions, kernel * maps + 1 or more), with a 1 after the states. source:
    float32 (positions, maps) of the layer before. shape: a row of `geometry`.
    """
    flat, n_source = source.ravel(), shape[N_SOURCE]
    run = shape[KERNEL_X] * n_source  # neighbours in x are neighbours in memory
    for y in range(shape[HEIGHT]):
        for x in range(shape[WIDTH]):
            row = patches[y * shape[WIDTH] + x]
            for ky in range(shape[KERNEL_Y]):
                place = (y * shape[STEP_Y] + ky) * shape[SOURCE_WIDTH] + x * shape[STEP_X]
                to = row[ky * run : (ky + 1) * run]
                read = flat[place * n_source : place * n_source + run]
                for i in range(run):  # quicker than an assignment of a few pixels
                    to[i] = read[i]


@njit(nogil=True)
def scatter(source_gradient, patch_gradient, shape):
    """Add each row of patch_gradient to the states that `gather` copied there.

    source_gradient: float32 (positions, maps) of the layer before, modified. patch_gradient:
    float32, of the shape of patches.
    """
    flat, n_source = source_gradient.ravel(), shape[N_SOURCE]
    run = shape[KERNEL_X] * n_source
    flat[:] = 0
    for y in range(shape[HEIGHT]):
        for x in range(shape[WIDTH]):
            row = patch_gradient[y * shape[WIDTH] + x]
            for ky in range(shape[KERNEL_Y]):
                place = (y * shape[STEP_Y] + ky) * shape[SOURCE_WIDTH] + x * shape[STEP_X]
                read = row[ky * run : (ky + 1) * run]
                to = flat[place * n_source : place * n_source + run]
                for i in range(run):
                    to[i] += read[i]


@njit(nogil=True)
def pool(state, winners, source, shape):
    """The largest of each rectangle, and which pixel that was. Modifies state and winners.

    state: float32 (positions, maps). winners: int32, of the same shape, positions of the source.
    Guess: of equal pixels the first by y, then x.
    """
    for y in range(shape[HEIGHT]):
        for x in range(shape[WIDTH]):
            position = y * shape[WIDTH] + x
            for m in range(shape[N_SOURCE]):
                best = y * shape[STEP_Y] * shape[SOURCE_WIDTH] + x * shape[STEP_X]
                for ky in range(shape[KERNEL_Y]):
                    for kx in range(shape[KERNEL_X]):
                        place = (y * shape[STEP_Y] + ky) * shape[SOURCE_WIDTH]
                        place += x * shape[STEP_X] + kx
                        if source[place, m] > source[best, m]:
                            best = place
                winners[position, m] = best
                state[position, m] = source[best, m]


@njit(nogil=True)
def unpool(source_gradient, gradient, winners):
    """Give each rectangle's gradient to its winner. Modifies source_gradient."""
    source_gradient[:] = 0
    for position in range(gradient.shape[0]):
        for m in range(gradient.shape[1]):
            source_gradient[winners[position, m], m] = gradient[position, m]


@njit(nogil=True)
def process(state, border, source, bank, shape):
    """The maps of the source, then those of each filter. Modifies state; border is scratch.

    border: float32 (height + K, (width + K - 1) * n), for K x K filters and the n maps of the
    source: room for the source with its nearest pixels around it, and a row more. bank: float32
    (filters, K * K).
    """
    n, height, width, size = shape[N_SOURCE], shape[HEIGHT], shape[WIDTH], shape[KERNEL_X]
    margin, total = size // 2, border[-1]
    for y in range(height + size - 1):
        first = min(max(y - margin, 0), height - 1) * width
        for x in range(width + size - 1):
            place = first + min(max(x - margin, 0), width - 1)
            for i in range(n):
                border[y, x * n + i] = source[place, i]
    state[:, :n] = source
    for y in range(height):
        for f in range(bank.shape[0]):
            total[:] = 0
            for v in range(size):
                for u in range(size):
                    weight, row = bank[f, v * size + u], border[y + v, u * n :]
                    for j in range(width * n):
                        total[j] += weight * row[j]
            for x in range(width):
                for i in range(n):
                    state[y * width + x, (1 + f) * n + i] = total[x * n + i]


@njit(nogil=True)
def copy_columns(target, source):
    """Copy the columns that both have. Modifies target. Both float32 (positions, maps or width)."""
    n = min(target.shape[1], source.shape[1])
    for position in range(target.shape[0]):
        to, row = target[position], source[position]
        for i in range(n):
            to[i] = row[i]


@njit(nogil=True)
def through_weights(by_patches, delta, W, n_maps, panel, zeros):
    """by_patches = delta W^T, without the biases. Modifies by_patches and panel.

    by_patches: (positions, n_in or more). panel: (width, PANEL_ROW), PANEL rows of W transposed.
    zeros: see `Scratch`.
    """
    n_in = W.shape[0] - 1
    for start in range(0, n_in, PANEL):
        rows = min(PANEL, n_in - start)
        columns = (rows + LINE - 1) // LINE * LINE
        transpose(panel, W[start : start + rows])
        part = by_patches[:, start : start + columns]
        add_product(part, zeros[:, :columns], delta[:, :n_maps], panel[:n_maps, :columns])


@njit(nogil=True)
def update(W, mask, patches, delta, change, zeros):
    """W += patches^T delta where there are connections. Modifies W; change is scratch like W.

    mask: int32 (maps of the source, width), -1, all bits, where a map reads another, else 0; (0, 1)
    if all do. The products of more than CHUNK positions are summed in `change`, so that W is
    rounded once.
    """
    w, c, m, n = W.ravel(), change.ravel(), mask.ravel(), mask.shape[0]
    if patches.shape[0] <= CHUNK:
        add_product(W, W, patches.T, delta)
    else:
        add_product(change, zeros, patches.T, delta)
        for i in range(w.shape[0]):
            w[i] += c[i]
    if n > 0:
        for start in range(0, W.shape[0] - 1, n):
            rows = W[start : start + n].ravel().view(np.int32)
            for i in range(rows.shape[0]):  # a condition becomes masked stores, slow on AMD's AVX2
                rows[i] &= m[i]


@njit(nogil=True, error_model="numpy")
def activate(a):
    """The scaled tanh of every element of a, float32 (n,), in place."""
    for i in range(a.shape[0]):
        a[i] = scaled_tanh(a[i])


@njit(nogil=True)
def through_activation(gradient, state):
    """gradient *= y'(a), from the states y. Modifies gradient. Both float32 (n,)."""
    for i in range(gradient.shape[0]):
        gradient[i] *= scaled_tanh_derivative(state[i])


@njit(nogil=True)
def forward(geometry, weights, scratch):
    """The states of all layers from that of the input, states[0]. Modifies scratch.

    The activations of the last layer are in scratch.sums.
    """
    n_layers, states = len(weights), scratch.states
    for layer in range(n_layers):
        shape, patches, state = geometry[layer], scratch.patches[layer], states[layer + 1]
        W, sums = weights[layer], scratch.sums[layer]
        if shape[KIND] == POOLING:
            pool(state, scratch.winners[layer], states[layer], shape)
            continue
        if shape[KIND] == PROCESSING:
            process(state, patches, states[layer], W, shape)
            continue
        gather(patches, states[layer], shape)
        add_product(sums, scratch.zeros[:, : W.shape[1]], patches[:, : W.shape[0]], W)
        if layer + 1 < n_layers:
            copy_columns(state, sums)
            activate(state.ravel())


@njit(nogil=True)
def train_images(geometry, weights, masks, scratch, gradients, images, labels, order, eta):
    """One on-line step for each image of `order`; returns the summed loss, float64.

    Modifies weights, scratch and gradients. weights: W (n_in + 1, width) of a layer with weights,
    (1, 1) for max-pooling, the filters of image processing. masks: see `update`. images float32
    (n, pixels), labels (n,), order (m,), indices of images; eta float32.
    """
    n_layers, states, loss = len(weights), scratch.states, 0.0
    output, n_classes = scratch.sums[n_layers - 1][0], states[n_layers].shape[1]
    lowest = 0  # layer with weights: below it no gradient is needed
    while geometry[lowest, KIND] == POOLING or geometry[lowest, KIND] == PROCESSING:
        lowest += 1
    for image in order:
        states[0].ravel()[:] = images[image]
        forward(geometry, weights, scratch)
        loss += softmax_delta(output, labels[image], n_classes)
        for j in range(n_classes):
            output[j] *= -eta
        for layer in range(n_layers - 1, lowest - 1, -1):
            gradient, state = gradients.states[layer + 1], states[layer + 1]
            if geometry[layer, KIND] == POOLING:
                unpool(gradients.states[layer], gradient, scratch.winners[layer])
                continue
            W, delta, patches = weights[layer], scratch.sums[layer], scratch.patches[layer]
            if layer + 1 < n_layers:
                through_activation(gradient.ravel(), state.ravel())
                copy_columns(delta, gradient)
            if layer > lowest:  # with the weights before the update
                by_patches, n_maps = gradients.patches[layer], state.shape[1]
                through_weights(by_patches, delta, W, n_maps, gradients.panel, scratch.zeros)
                scatter(gradients.states[layer], by_patches, geometry[layer])
            zeros, change = scratch.zeros[:, : W.shape[1]], gradients.weights[layer]
            update(W, masks[layer], patches[:, : W.shape[0]], delta, change, zeros)
    return loss


@njit(nogil=True)
def class_probabilities(outputs, geometry, weights, scratch, images):
    """The softmax of the last layer for each image. Modifies outputs, float32 (n, n_classes)."""
    last, n_classes = scratch.sums[len(weights) - 1][0], outputs.shape[1]
    for image in range(images.shape[0]):
        scratch.states[0].ravel()[:] = images[image]
        forward(geometry, weights, scratch)
        softmax(last, n_classes)
        outputs[image] = last[:n_classes]


class ConvCpuEngine:
    """Training and prediction of convolutional nets on the CPU; methods as in `mlp_gpu.engine`.

    Images are float32 (n, ...), C order; each has the pixels of the net's input, by y, x and map.
    """

    name = "cpu"
    schedule = None

    def set_network(self, network: ConvNetwork) -> None:
        self._network = network
        self._geometry = np.array([self._shape(layer) for layer in network.layers])
        self._weights = tuple(map(self._padded_weights, network.layers, network.weights))
        self._masks = tuple(
            np.zeros((0, 1), np.int32)
            if table is None or table.all()
            else -self._padded(table).astype(np.int32)
            for table in network.connections
        )

    @staticmethod
    def _shape(layer: Layer) -> tuple[int, ...]:
        """A row of `geometry`."""
        maps, source = layer.maps, layer.source
        sizes = maps.height, maps.width, source.n, source.width, *layer.kernel, *layer.step
        return KINDS.index(layer.kind), *sizes

    @staticmethod
    def _padded(W: np.ndarray) -> np.ndarray:
        """A float32 copy of W with zero columns up to a multiple of LINE, and memory behind it."""
        copy = aligned_zeros(round_up(W.shape[0]), round_up(W.shape[1]))[: W.shape[0]]
        copy[:, : W.shape[1]] = W
        return copy

    @classmethod
    def _padded_weights(cls, layer: Layer, W: np.ndarray | None) -> np.ndarray:
        """See weights of `train_images`. W: as in `ConvNetwork`, the biases in its first row."""
        if W is not None:
            return cls._padded(np.roll(W, -1, axis=0))
        if layer.kind == MAX_POOLING:
            return np.zeros((1, 1), np.float32)
        return filters.bank(layer.filters)

    def get_network(self) -> ConvNetwork:
        weights = tuple(
            None if W is None else np.roll(padded[:, : W.shape[1]], 1, axis=0)
            for padded, W in zip(self._weights, self._network.weights, strict=True)
        )
        return replace(self._network, weights=weights)

    def _scratch(self) -> Scratch:
        layers = self._network.layers
        maps = [self._network.source, *(layer.maps for layer in layers)]
        states = tuple(np.zeros((m.height * m.width, m.n), np.float32) for m in maps)
        patches, sums = [], []
        for layer, state, W in zip(layers, states[1:], self._weights, strict=True):
            patches.append(aligned_zeros(*self._patches_shape(layer)))
            sums.append(aligned_zeros(*((len(state), W.shape[1]) if layer.has_weights else (1, 1))))
            if layer.has_weights:
                patches[-1][:, len(W) - 1] = 1
        winners = tuple(np.zeros(state.shape, np.int32) for state in states[1:])
        zeros = aligned_zeros(1, max(PANEL, *(W.shape[1] for W in self._weights)))
        return Scratch(states, tuple(patches), winners, tuple(sums), zeros)

    @staticmethod
    def _patches_shape(layer: Layer) -> tuple[int, int]:
        maps, source, (height, width) = layer.maps, layer.source, layer.kernel
        if layer.kind == MAX_POOLING:
            return 1, 1
        if layer.kind == IMAGE_PROCESSING:
            return maps.height + height, (maps.width + width - 1) * source.n
        row = round_up(height * width * source.n + 1, 2 * LINE) + LINE  # see `PANEL_ROW`
        return maps.height * maps.width, row

    def train(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        images = flat_images(images, self._network.source.n_neurons)
        check_training(labels, order, len(images), self._network.n_classes)
        scratch = self._scratch()
        gradients = Gradients(
            tuple(map(np.zeros_like, scratch.states)),
            tuple(aligned_zeros(*patches.shape) for patches in scratch.patches),
            tuple(aligned_zeros(*W.shape) for W in self._weights),
            aligned_zeros(scratch.zeros.shape[1], PANEL_ROW),
        )
        net = self._geometry, self._weights, self._masks, scratch, gradients

        def train(chunk: np.ndarray) -> float:
            return train_images(*net, images, labels, chunk, np.float32(eta))

        return train_in_chunks(train, order, IMAGES_PER_TICK, IMAGES_PER_TICK, tick)

    def keep(self, images: np.ndarray) -> np.ndarray:
        return images

    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._network.source.n_neurons)

        def fill(outputs: np.ndarray, images: np.ndarray) -> None:
            class_probabilities(outputs, self._geometry, self._weights, self._scratch(), images)

        return predict_in_threads(fill, images, self._network.n_classes)

    def states(self, image: np.ndarray) -> list[np.ndarray]:
        """The states of the input and of each layer, float32 (height, width, maps) each.

        image: float32, the pixels of the net's input, by y, x and map. The last array has the class
        probabilities.
        """
        scratch, layers = self._scratch(), self._network.layers
        scratch.states[0].ravel()[:] = flat_images(image[None], self._network.source.n_neurons)[0]
        forward(self._geometry, self._weights, scratch)
        scratch.states[-1][:] = self.predict(image[None])
        maps = self._network.source, *(layer.maps for layer in layers)
        return [
            state.reshape(m.height, m.width, m.n)
            for state, m in zip(scratch.states, maps, strict=True)
        ]
