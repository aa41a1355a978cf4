"""The CPU engine for convolutional nets: on-line, one image after another, in one thread.

A convolution is a product of matrices: the patches of the layer before, gathered in a row for each
neuron of a map, times the weights of all maps. Absent connections are multiplied too, as zeros. No
memory is allocated for an image.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from cnn_gpu import filters
from cnn_gpu.layers import (
    CONVOLUTION,
    FULLY_CONNECTED,
    IMAGE_PROCESSING,
    MAX_POOLING,
    Layer,
)
from cnn_gpu.network import ConvNetwork, weight_mask
from mlp_gpu.blocks import FASTMATH, scaled_tanh_derivative, softmax_delta
from mlp_gpu.checks import check_training, flat_images
from mlp_gpu.cpu import activate, predict_in_threads, train_in_chunks
from mlp_gpu.jit import njit

# A row of `geometry`, int64: a layer's kind, its maps, its source, its kernel and its step.
KINDS = (CONVOLUTION, FULLY_CONNECTED, MAX_POOLING, IMAGE_PROCESSING)
KIND, HEIGHT, WIDTH, N_SOURCE, SOURCE_WIDTH, KERNEL_Y, KERNEL_X, STEP_Y, STEP_X = range(9)
POOLING, PROCESSING = KINDS.index(MAX_POOLING), KINDS.index(IMAGE_PROCESSING)

IMAGES_PER_TICK = 250  # some tenths of a second of the largest net

Arrays: TypeAlias = tuple[np.ndarray, ...]  # one for each layer


class Scratch(NamedTuple):
    """Memory for one image, float32 but for winners.

    states: (positions, maps) of the input and of each layer. patches: what `gather` makes, or what
    `process` needs, (1, 1) for max-pooling. winners: int32, what `pool` makes.
    """

    states: Arrays
    patches: Arrays
    winners: Arrays


class Gradients(NamedTuple):
    """Derivatives of the loss for one image, float32: by states, patches and weights."""

    states: Arrays
    patches: Arrays
    weights: Arrays


@njit(nogil=True)
def gather(patches, source, shape):
    """Copy what each neuron of a map reads into a row of patches, after a 1 for the bias.

    patches: float32 (positions, 1 + kernel * maps), modified. source: float32 (positions, maps) of
    the layer before. shape: a row of `geometry`.
    """
    flat, n_source = source.ravel(), shape[N_SOURCE]
    run = shape[KERNEL_X] * n_source  # neighbours in x are neighbours in memory
    for y in range(shape[HEIGHT]):
        for x in range(shape[WIDTH]):
            row = patches[y * shape[WIDTH] + x]
            for ky in range(shape[KERNEL_Y]):
                place = (y * shape[STEP_Y] + ky) * shape[SOURCE_WIDTH] + x * shape[STEP_X]
                start, to = place * n_source, 1 + ky * run
                for i in range(run):  # quicker than slices of a few pixels
                    row[to + i] = flat[start + i]


@njit(nogil=True)
def scatter(source_gradient, patch_gradient, shape):
    """Add what each row of patches holds to where `gather` took it from.

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
                start, begin = place * n_source, 1 + ky * run
                for i in range(run):
                    flat[start + i] += row[begin + i]


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


@njit(nogil=True, fastmath=FASTMATH)
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


@njit(nogil=True, fastmath=FASTMATH)
def update(W, mask, patches, delta, sums, eta):
    """W -= eta patches^T delta where there are connections. Modifies W; sums is scratch like W.

    mask: float32, 1 where there is a weight and 0 elsewhere, or (1, 1) where all are there.
    """
    np.dot(patches.T, delta, sums)
    w, m, s = W.ravel(), mask.ravel(), sums.ravel()
    if mask.shape[0] < W.shape[0]:
        for i in range(w.shape[0]):
            w[i] -= eta * s[i]
    else:
        for i in range(w.shape[0]):
            w[i] -= eta * m[i] * s[i]


@njit(nogil=True, fastmath=FASTMATH)
def back_and_update(patch_gradient, W, patch, delta, eta):
    """patch_gradient = W delta, then W -= eta patch delta^T, in one pass over W. Modifies both.

    For a single position and all connections. patch_gradient, patch: (rows of W,). delta (maps,).
    """
    for i in range(W.shape[0]):
        w, g, total = W[i], eta * patch[i], np.float32(0)
        for j in range(w.shape[0]):
            total += w[j] * delta[j]
            w[j] -= g * delta[j]
        patch_gradient[i] = total


@njit(nogil=True, fastmath=FASTMATH)
def through_activation(gradient, state):
    """gradient *= y'(a), from the states y. Modifies gradient. Both float32 (n,)."""
    for i in range(gradient.shape[0]):
        gradient[i] *= scaled_tanh_derivative(state[i])


@njit(nogil=True)
def forward(geometry, weights, scratch):
    """The states of all layers from that of the input, states[0]; of the last, the activations.

    Modifies scratch.
    """
    n_layers, states = len(weights), scratch.states
    for layer in range(n_layers):
        shape, patches, state = geometry[layer], scratch.patches[layer], states[layer + 1]
        if shape[KIND] == POOLING:
            pool(state, scratch.winners[layer], states[layer], shape)
            continue
        if shape[KIND] == PROCESSING:
            process(state, patches, states[layer], weights[layer], shape)
            continue
        gather(patches, states[layer], shape)
        np.dot(patches, weights[layer], state)
        if layer + 1 < n_layers:
            activate(state.ravel())


@njit(nogil=True)
def train_images(geometry, weights, masks, scratch, gradients, images, labels, order, eta):
    """One on-line step for each image of `order`; returns the summed loss, float64.

    Modifies weights, scratch and gradients. weights, masks: `Arrays`, (1, 1) for max-pooling, see
    `update`; of image processing weights has the filters. images float32 (n, pixels),
    labels (n,), order (m,), indices of images; eta float32.
    """
    n_layers, states, loss = len(weights), scratch.states, 0.0
    lowest = 0  # layer with weights: below it no gradient is needed
    while geometry[lowest, KIND] == POOLING or geometry[lowest, KIND] == PROCESSING:
        lowest += 1
    for image in order:
        states[0].ravel()[:] = images[image]
        forward(geometry, weights, scratch)
        loss += softmax_delta(gradients.states[n_layers][0], states[n_layers][0], labels[image])
        for layer in range(n_layers - 1, lowest - 1, -1):
            patches, gradient = scratch.patches[layer], gradients.states[layer + 1]
            if geometry[layer, KIND] == POOLING:
                unpool(gradients.states[layer], gradient, scratch.winners[layer])
                continue
            if layer + 1 < n_layers:
                through_activation(gradient.ravel(), states[layer + 1].ravel())
            W, by_patches = weights[layer], gradients.patches[layer]
            if patches.shape[0] == 1 and masks[layer].shape[0] == 1:
                back_and_update(by_patches[0], W, patches[0], gradient[0], eta)
            else:
                if layer > lowest:  # with the weights as they were
                    np.dot(gradient, W.T, by_patches)
                update(W, masks[layer], patches, gradient, gradients.weights[layer], eta)
            if layer > lowest:
                scatter(gradients.states[layer], by_patches, geometry[layer])
    return loss


@njit(nogil=True)
def output_activations(outputs, geometry, weights, scratch, images):
    """Activations of the last layer for each image. Modifies outputs, float32 (n, n_classes)."""
    for image in range(images.shape[0]):
        scratch.states[0].ravel()[:] = images[image]
        forward(geometry, weights, scratch)
        outputs[image] = scratch.states[len(weights)][0]


class ConvCpuEngine:
    """Training and prediction of convolutional nets on the CPU; methods as in `mlp_gpu.engines`.

    Images are float32, C order, of n times the pixels of the net's input, by y, x and map.
    """

    name = "cpu"
    schedule = None

    def set_network(self, network: ConvNetwork) -> None:
        self._network = network
        self._geometry = np.array(
            [
                (
                    KINDS.index(layer.kind),
                    layer.maps.height,
                    layer.maps.width,
                    layer.source.n,
                    layer.source.width,
                    *layer.kernel,
                    *layer.step,
                )
                for layer in network.layers
            ]
        )
        pairs = list(zip(network.layers, network.weights, strict=True))
        self._weights = tuple(self._fixed(layer) if W is None else W.copy() for layer, W in pairs)
        nothing = np.zeros((1, 1), np.float32)
        self._masks = tuple(
            nothing
            if table is None or table.all()
            else weight_mask(layer, table).astype(np.float32)
            for layer, table in zip(network.layers, network.connections, strict=True)
        )

    @staticmethod
    def _fixed(layer: Layer) -> np.ndarray:
        """What a layer that is not trained has in place of weights."""
        if layer.kind == MAX_POOLING:
            return np.zeros((1, 1), np.float32)
        return filters.bank(layer.filters)

    def get_network(self) -> ConvNetwork:
        weights = tuple(
            None if mine is None else W.copy()
            for W, mine in zip(self._weights, self._network.weights, strict=True)
        )
        return replace(self._network, weights=weights)

    def _scratch(self) -> Scratch:
        layers = self._network.layers
        maps = [self._network.source, *(layer.maps for layer in layers)]
        states = tuple(np.zeros((m.height * m.width, m.n), np.float32) for m in maps)
        patches = tuple(np.ones(self._patches_shape(layer), np.float32) for layer in layers)
        return Scratch(states, patches, tuple(np.zeros(h.shape, np.int32) for h in states[1:]))

    @staticmethod
    def _patches_shape(layer: Layer) -> tuple[int, int]:
        maps, source, (height, width) = layer.maps, layer.source, layer.kernel
        if layer.kind == MAX_POOLING:
            return 1, 1
        if layer.kind == IMAGE_PROCESSING:
            return maps.height + height, (maps.width + width - 1) * source.n
        return maps.height * maps.width, 1 + height * width * source.n

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
        like = scratch.states, scratch.patches, self._weights
        gradients = Gradients(*(tuple(map(np.zeros_like, arrays)) for arrays in like))

        def train(chunk: np.ndarray) -> float:
            return train_images(
                self._geometry,
                self._weights,
                self._masks,
                scratch,
                gradients,
                images,
                labels,
                chunk,
                np.float32(eta),
            )

        with threadpool_limits(1, user_api="blas"):
            return train_in_chunks(train, order, IMAGES_PER_TICK, tick)

    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._network.source.n_neurons)
        return predict_in_threads(self._last_activations, images, self._network.n_classes)

    def _last_activations(self, images: np.ndarray) -> np.ndarray:
        outputs = np.empty((len(images), self._network.n_classes), np.float32)
        output_activations(outputs, self._geometry, self._weights, self._scratch(), images)
        return outputs

    def states(self, image: np.ndarray) -> list[np.ndarray]:
        """What the input and each layer have for an image: float32 (height, width, maps) each.

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
