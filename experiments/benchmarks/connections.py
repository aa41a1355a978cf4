"""Convolutional nets on the CPU by loops over connections, the way that `cnn_gpu.cpu` does not go.

The engine multiplies patches with a matrix of all kernels, absent connections as zeros. Here only
connections that are there are computed, one after another. The innermost loops run over all neurons
of a map, so that they are as long as a map is large, and vectorise. To that end the neurons that
one weight of a kernel meets are copied next to each other first, once for all maps that read them.

Only convolutions and fully connected layers are supported. Fully connected layers are products of
matrices. The scalar formulas are the engine's functions. Trained in one thread.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from cnn_gpu.cpu import activate, through_activation
from cnn_gpu.layers import CONVOLUTION
from cnn_gpu.network import ConvNetwork, connection_kernels, weight_matrix
from deepbig_runtime.jit import njit
from experiments.benchmarks.baseline_nets import Trainer
from mlp_gpu.cpu_window import softmax_delta

# Lets sums be vectorised and multiply-adds be fused. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz"}

# A row of `geometry`, int64.
CONVOLVES, HEIGHT, WIDTH, N_SOURCE, SOURCE_WIDTH, KERNEL_Y, KERNEL_X, STEP_Y, STEP_X = range(9)

Arrays: TypeAlias = tuple[np.ndarray, ...]  # one for each layer


class Net(NamedTuple):
    """A net, and memory for one image; float32 but for geometry and pairs.

    pairs: int64 (connections, 2), map and source map; of no use in fully connected layers. weights:
    (connections, places of a kernel), and biases (maps,); of a fully connected layer (1 + neurons,
    maps), row 0 the biases, the others by map and position. states: (maps, positions) of the input
    and of each layer. patches: (source maps * places, positions), a row of inputs for each weight
    of a kernel; of a fully connected layer (1, 1 + neurons), a 1 and the states. Derivatives of the
    loss by states and patches: gradients and patch_gradients.
    """

    geometry: np.ndarray
    pairs: Arrays
    weights: Arrays
    biases: Arrays
    states: Arrays
    patches: Arrays
    gradients: Arrays
    patch_gradients: Arrays


@njit(nogil=True)
def gather(patches: np.ndarray, source: np.ndarray, shape: np.ndarray) -> None:
    """Copy the inputs of each weight of a kernel into a row of patches. Modifies patches."""
    for i in range(shape[N_SOURCE]):
        for v in range(shape[KERNEL_Y]):
            for u in range(shape[KERNEL_X]):
                row = patches[(i * shape[KERNEL_Y] + v) * shape[KERNEL_X] + u]
                for y in range(shape[HEIGHT]):
                    start = (y * shape[STEP_Y] + v) * shape[SOURCE_WIDTH] + u
                    for x in range(shape[WIDTH]):
                        row[y * shape[WIDTH] + x] = source[i, start + x * shape[STEP_X]]


@njit(nogil=True)
def scatter(source_gradient: np.ndarray, patch_gradient: np.ndarray, shape: np.ndarray) -> None:
    """Add each row to the places that `gather` read it from. Modifies source_gradient."""
    source_gradient[:] = 0
    for i in range(shape[N_SOURCE]):
        for v in range(shape[KERNEL_Y]):
            for u in range(shape[KERNEL_X]):
                row = patch_gradient[(i * shape[KERNEL_Y] + v) * shape[KERNEL_X] + u]
                for y in range(shape[HEIGHT]):
                    start = (y * shape[STEP_Y] + v) * shape[SOURCE_WIDTH] + u
                    for x in range(shape[WIDTH]):
                        source_gradient[i, start + x * shape[STEP_X]] += row[y * shape[WIDTH] + x]


@njit(nogil=True, fastmath=FASTMATH)
def convolve(
    state: np.ndarray,
    patches: np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
    pairs: np.ndarray,
) -> None:
    """Activations of a convolution, connection by connection. Modifies state."""
    n_places = weights.shape[1]
    for m in range(state.shape[0]):
        state[m] = biases[m]
    for c in range(pairs.shape[0]):
        out, first = state[pairs[c, 0]], pairs[c, 1] * n_places
        for k in range(n_places):
            w, row = weights[c, k], patches[first + k]
            for x in range(out.shape[0]):
                out[x] += w * row[x]


@njit(nogil=True, fastmath=FASTMATH)
def pull_back(
    patch_gradient: np.ndarray, delta: np.ndarray, weights: np.ndarray, pairs: np.ndarray
) -> None:
    """Derivatives by the patches, connection by connection. Modifies patch_gradient."""
    n_places = weights.shape[1]
    patch_gradient[:] = 0
    for c in range(pairs.shape[0]):
        from_map, first = delta[pairs[c, 0]], pairs[c, 1] * n_places
        for k in range(n_places):
            w, row = weights[c, k], patch_gradient[first + k]
            for x in range(row.shape[0]):
                row[x] += w * from_map[x]


@njit(nogil=True, fastmath=FASTMATH)
def adjust(
    weights: np.ndarray,
    biases: np.ndarray,
    patches: np.ndarray,
    delta: np.ndarray,
    pairs: np.ndarray,
    eta: np.float32,
) -> None:
    """One step of gradient descent, connection by connection. Modifies weights and biases."""
    n_places = weights.shape[1]
    for c in range(pairs.shape[0]):
        of_map, first = delta[pairs[c, 0]], pairs[c, 1] * n_places
        for k in range(n_places):
            row, total = patches[first + k], np.float32(0)
            for x in range(row.shape[0]):
                total += row[x] * of_map[x]
            weights[c, k] -= eta * total
    for m in range(delta.shape[0]):
        total = np.float32(0)
        for x in range(delta.shape[1]):
            total += delta[m, x]
        biases[m] -= eta * total


@njit(nogil=True, fastmath=FASTMATH)
def adjust_connected(
    weights: np.ndarray, patch: np.ndarray, delta: np.ndarray, eta: np.float32
) -> None:
    """One step of gradient descent on a fully connected layer. Modifies weights."""
    for i in range(weights.shape[0]):
        w, g = weights[i], eta * patch[i]
        for j in range(w.shape[0]):
            w[j] -= g * delta[j, 0]


@njit(nogil=True)
def forward(net: Net) -> None:
    """The states of all layers from that of the input; of the last, the activations."""
    n_layers = len(net.weights)
    for layer in range(n_layers):
        shape, patches, state = net.geometry[layer], net.patches[layer], net.states[layer + 1]
        if shape[CONVOLVES]:
            gather(patches, net.states[layer], shape)
            convolve(state, patches, net.weights[layer], net.biases[layer], net.pairs[layer])
        else:
            patches[0, 0] = 1
            patches[0, 1:] = net.states[layer].ravel()
            np.dot(patches, net.weights[layer], state.reshape(1, -1))
        if layer + 1 < n_layers:
            activate(state.ravel())


@njit(nogil=True)
def train_images(net: Net, images: np.ndarray, labels: np.ndarray, eta: np.float32) -> None:
    """One on-line step for each image. Modifies the net; see `cnn_gpu.cpu.train_images`."""
    n_layers = len(net.weights)
    for image in range(images.shape[0]):
        net.states[0][:] = images[image]
        forward(net)
        outputs, delta = net.states[n_layers].ravel(), net.gradients[n_layers].ravel()
        delta[:] = outputs
        softmax_delta(delta, labels[image], delta.shape[0])
        for layer in range(n_layers - 1, -1, -1):
            shape, weights, patches = net.geometry[layer], net.weights[layer], net.patches[layer]
            delta, below = net.gradients[layer + 1], net.gradients[layer]
            if layer + 1 < n_layers:
                through_activation(delta.ravel(), net.states[layer + 1].ravel())
            by_patches = net.patch_gradients[layer]
            if shape[CONVOLVES]:
                if layer > 0:
                    pull_back(by_patches, delta, weights, net.pairs[layer])
                    scatter(below, by_patches, shape)
                adjust(weights, net.biases[layer], patches, delta, net.pairs[layer], eta)
            else:
                if layer > 0:
                    np.dot(delta.reshape(1, -1), weights.T, by_patches)
                    below.ravel()[:] = by_patches[0, 1:]
                adjust_connected(weights, patches[0], delta, eta)


def _reordered(W: np.ndarray, n: int) -> np.ndarray:
    """W, its rows after row 0 taken from the order (others, n) to the order (n, others)."""
    rows = W[1:].reshape(-1, n, W.shape[1]).swapaxes(0, 1)
    return np.vstack((W[:1], rows.reshape(-1, W.shape[1])))


def _prepare(network: ConvNetwork) -> Net:
    """The net with copies of its weights."""
    geometry, pairs, weights, biases, patches = [], [], [], [], []
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        if W is None or table is None:
            raise ValueError(f"expected layers with weights, got {layer.kind}")
        maps, source, convolves = layer.maps, layer.source, layer.kind == CONVOLUTION
        shape = (maps.height, maps.width, source.n, source.width, *layer.kernel, *layer.step)
        geometry.append((convolves, *shape))
        pairs.append(np.argwhere(table.T))
        if convolves:
            weights.append(np.ascontiguousarray(connection_kernels(layer, W, table)))
            n_rows = source.n * layer.kernel[0] * layer.kernel[1]
            patches.append((n_rows, maps.height * maps.width))
        else:
            weights.append(_reordered(W, source.n))
            patches.append((1, len(W)))
        biases.append(W[0].copy())
    all_maps = [network.source, *(layer.maps for layer in network.layers)]
    states = [(maps.n, maps.height * maps.width) for maps in all_maps]

    def new(shapes: list[tuple[int, int]]) -> Arrays:
        return tuple(np.zeros(shape, np.float32) for shape in shapes)

    scratch = new(states), new(patches), new(states), new(patches)
    loaded = tuple(pairs), tuple(weights), tuple(biases)
    return Net(np.array(geometry, np.int64), *loaded, *scratch)


def _matrices(network: ConvNetwork, net: Net) -> list[np.ndarray]:
    """The weights of each layer as `cnn_gpu.network` has them."""
    layers = zip(network.layers, network.connections, net.weights, net.biases, strict=True)
    return [
        weight_matrix(layer, w, bias, table)
        if layer.kind == CONVOLUTION and table is not None
        else _reordered(w, layer.source.n_neurons // layer.source.n)
        for layer, table, w, bias in layers
    ]


def loops(network: ConvNetwork, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """The steps by loops over connections. Arguments as in `baseline_nets`.

    images: by y, x and map. Raises ValueError unless all layers have weights.
    """
    net, n = _prepare(network), len(images)
    flat = images.reshape(n, -1, network.source.n).transpose(0, 2, 1)
    maps = np.ascontiguousarray(flat)

    def train() -> None:
        with threadpool_limits(1, user_api="blas"):
            train_images(net, maps, labels, np.float32(eta))

    return Trainer(train, lambda: _matrices(network, net))
