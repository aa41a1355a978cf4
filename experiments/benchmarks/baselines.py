"""The programs of others that the benchmarks time: the strongest of each kind, in one table.

NumPy, PyTorch and JAX train the benchmarks' nets, one image per step, each written as its regular
users would write it; PyTorch's step is a CUDA graph. In PyTorch also the window of
docs/online-in-blocks.md, and cuBLAS for the products of its kernels. SciPy and kornia deform the
same digits: rotation or shear and scaling about the centre, and Simard's elastic displacement.
PyTorch, JAX and kornia need not be installed: they are imported only where they run.

All makers of a `Trainer` have these arguments. network: the initial net, whose weights are copied.
images: float32 (n, n_inputs). labels: uint8 (n,). eta: the learning rate.
"""

import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from cnn_gpu.layers import FULLY_CONNECTED, Layer
from cnn_gpu.network import ConvNetwork, weight_mask
from deepbig_runtime.errors import tell
from deepbig_runtime.gpu import Stream
from deform_gpu import Deformation
from deform_gpu.field import KERNEL
from deform_gpu.parameters import SIDE
from experiments.benchmarks.host import Workload
from experiments.benchmarks.window import activate, output_delta, slope, train_plainly
from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.ladder import formulas
from mlp_gpu.ladder.net import N_OUTPUTS, Net
from mlp_gpu.network import Network, pad32
from mlp_gpu.window_rule import GPU_ROUNDING, tolerance

# PyTorch's or JAX's, which need not be installed.
Tensor: TypeAlias = Any
Module: TypeAlias = Any
Step: TypeAlias = Callable[[], None]  # of a training, as often as it is called

# Packages that need not be installed, and the names of their libraries.
PACKAGES = {"torch": "PyTorch", "jax": "JAX", "kornia": "kornia"}
CPU, GPU = "cpu", "cuda"  # devices of baselines

WARM_UP_STEPS = 3  # before PyTorch captures a graph, as in its documentation
CENTRE = (SIDE - 1) / 2  # of an image that is deformed


@dataclass(frozen=True)
class Trainer:
    """A net that a baseline trains.

    train: trains it once on all images. weights: returns the current weights, a matrix per layer.
    settings: with which it trains, where it has a choice.
    """

    train: Callable[[], object]
    weights: Callable[[], list[np.ndarray]]
    settings: str = ""


# --- NumPy


def matrices(network: Network) -> list[np.ndarray]:
    """Copies of the weights without their padding, (n_in + 1, n_out), row 0 the bias."""
    return [W.copy() for W in network.unpadded()]


def numpy_loop(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """A perceptron in NumPy, float32."""
    weights = matrices(network)
    return Trainer(partial(train_plainly, weights, images, labels, eta), lambda: weights)


def patch_places(layer: Layer) -> np.ndarray:
    """The neurons of its source that a layer reads, int (positions, weights of a map)."""
    source = layer.source
    neurons = np.arange(source.n_neurons).reshape(source.height, source.width, source.n)
    windows = np.lib.stride_tricks.sliding_window_view(neurons, layer.kernel, axis=(0, 1))
    steps = windows[:: layer.step[0], :: layer.step[1]]  # by y, x, map, and place of the kernel
    return steps.transpose(0, 1, 3, 4, 2).reshape(layer.maps.height * layer.maps.width, -1)


def numpy_convolutional(
    network: ConvNetwork, images: np.ndarray, labels: np.ndarray, eta: float
) -> Trainer:
    """A convolutional net in NumPy, float32, in one thread: products of patches with all kernels.

    network: all its layers have weights.
    """
    weights, masks = zip(*trained_layers(network), strict=True)
    places = [patch_places(layer) for layer in network.layers]

    def train() -> None:
        with threadpool_limits(1, user_api="blas"):
            for image, label in zip(images, labels, strict=True):
                step(image, label)

    def step(image: np.ndarray, label: int) -> None:
        state, states, patches = image, [], []
        for W, at in zip(weights, places, strict=True):
            patches.append(state.ravel()[at])
            a = patches[-1] @ W[1:] + W[0]
            state = activate(a)
            states.append(state)
        delta = output_delta(a, np.array([label]))
        for k in reversed(range(len(weights))):
            W, gradient = weights[k], np.vstack((delta.sum(axis=0), patches[k].T @ delta))
            if k:
                y, by_patches = states[k - 1], delta @ W[1:].T
                by_states = np.bincount(places[k].ravel(), by_patches.ravel(), y.size)
                delta = by_states.astype(np.float32).reshape(y.shape) * slope(y)
            W -= np.float32(eta) * gradient * masks[k]

    return Trainer(train, lambda: list(weights))


def trained_layers(network: ConvNetwork) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each layer a copy of its weights, and factors of 0 for connections that it lacks."""
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        assert W is not None  # no layer of Table 1 (2011) lacks weights
        assert table is not None
        yield W.copy(), weight_mask(layer, table).astype(np.float32)


def one_hot(labels: np.ndarray) -> np.ndarray:
    """The targets of the ladder's net, float32 (n, N_OUTPUTS)."""
    return np.eye(N_OUTPUTS, dtype=np.float32)[labels]


def numpy_ladder(net: Net, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """The ladder's net in NumPy, float32."""
    W1, W2, V1, V2 = (W.copy() for W in net.arrays)
    rate, momentum, one = np.float32(eta), formulas.MOMENTUM, formulas.ONE

    def train() -> None:
        for h, target in zip(images, one_hot(labels), strict=True):
            y1 = one / (one + np.exp(-(W1 @ h)))
            y2 = one / (one + np.exp(-(W2 @ y1)))
            delta2 = y2 * (one - y2) * (target - y2)
            delta1 = y1 * (one - y1) * (delta2 @ W2)
            for W, V, delta, state in ((W2, V2, delta2, y1), (W1, V1, delta1, h)):
                V *= momentum
                V += rate * delta[:, None] * state
                W += V

    return Trainer(train, lambda: [W1, W2])


# --- PyTorch


def capture_step(step: Step) -> Step:
    """A function that repeats a step as a CUDA graph. The step runs some times before."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(_owner: Step = step) -> None:  # of the tensors that the graph reads and writes
        graph.replay()

    return replay


class TorchNet(NamedTuple):
    """A net in PyTorch on the CPU.

    images: as the model takes them, float32, a row for each step. weights: as of `Trainer`. masks:
    weights that have zeros to keep, each with the factors that keep them.
    """

    model: Module
    images: np.ndarray
    weights: Callable[[], list[np.ndarray]]
    masks: Sequence[tuple[Tensor, Tensor]] = ()


def with_scaled_tanh(layers: Sequence[Module]) -> Module:
    """A model: the layers, and between them the scaled tanh."""
    import torch

    class ScaledTanh(torch.nn.Module):
        def forward(self, a: Tensor) -> Tensor:
            return float(A) * torch.tanh(float(B) * a)

    modules = [module for layer in layers for module in (layer, ScaledTanh())]
    return torch.nn.Sequential(*modules[:-1])


def torch_perceptron(network: Network, images: np.ndarray) -> TorchNet:
    """A perceptron in PyTorch."""
    import torch

    layers = []
    for W in matrices(network):
        layers.append(torch.nn.Linear(W.shape[0] - 1, W.shape[1]))
        with torch.no_grad():
            layers[-1].bias.copy_(torch.from_numpy(W[0]))
            layers[-1].weight.copy_(torch.from_numpy(W[1:].T))

    def weights() -> list[np.ndarray]:
        with torch.no_grad():
            return [torch.vstack((layer.bias, layer.weight.T)).cpu().numpy() for layer in layers]

    return TorchNet(with_scaled_tanh(layers), images, weights)


def kernels_of(layer: Layer, W: np.ndarray) -> np.ndarray:
    """Weights without their biases as PyTorch has them, (maps, source maps, height, width)."""
    return W[1:].reshape(*layer.kernel, layer.source.n, layer.maps.n).transpose(3, 2, 0, 1).copy()


def matrix_of(layer: Layer, kernels: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A layer's weights as `cnn_gpu.network` has them; the inverse of `kernels_of`."""
    kernels = kernels.reshape(layer.maps.n, layer.source.n, *layer.kernel)
    return np.vstack((bias, kernels.transpose(2, 3, 1, 0).reshape(-1, layer.maps.n)))


def torch_convolutional(network: ConvNetwork, images: np.ndarray) -> TorchNet:
    """A convolutional net in PyTorch. network: all its layers have weights.

    Connections that are not there are weights that are masked.
    """
    import torch

    torch.backends.cudnn.allow_tf32 = False  # else convolutions multiply in less than float32
    torch.backends.cudnn.benchmark = True  # tries cuDNN's algorithms, takes the fastest
    layers: list[Module] = []
    modules: list[Module] = []
    masks: list[tuple[Tensor, Tensor]] = []
    for layer, (W, mask) in zip(network.layers, trained_layers(network), strict=True):
        kernels = torch.from_numpy(kernels_of(layer, W))
        if layer.kind == FULLY_CONNECTED:
            module = torch.nn.Linear(layer.source.n_neurons, layer.maps.n)
            kernels = kernels.reshape(module.weight.shape)
            layers.append(torch.nn.Sequential(torch.nn.Flatten(), module))
        else:
            module = torch.nn.Conv2d(layer.source.n, layer.maps.n, layer.kernel, layer.step)
            layers.append(module)
        with torch.no_grad():
            module.weight.copy_(kernels)
            module.bias.copy_(torch.from_numpy(W[0]))
        if not mask.all():
            masks.append((module.weight, torch.from_numpy(kernels_of(layer, mask))))
        modules.append(module)

    def weights() -> list[np.ndarray]:
        return [
            matrix_of(layer, *(p.detach().cpu().numpy() for p in (module.weight, module.bias)))
            for layer, module in zip(network.layers, modules, strict=True)
        ]

    source = network.source
    maps = images.reshape(-1, source.height, source.width, source.n).transpose(0, 3, 1, 2).copy()
    return TorchNet(with_scaled_tanh(layers), maps, weights, masks)


def torch_graph(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    build: Callable[[Any, np.ndarray], TorchNet] = torch_perceptron,
    device: str = GPU,
    capture: Callable[[Step], Step] = capture_step,
) -> Trainer:
    """PyTorch's step as a CUDA graph, replayed for each image: forward, autograd, SGD.

    build: makes the net. capture: runs a step some times and returns a function that repeats it.
    """
    import torch

    net = build(network, images)
    model = net.model.to(device)
    masks = [(weight, mask.to(device)) for weight, mask in net.masks]
    optimizer = torch.optim.SGD(model.parameters(), lr=eta)
    inputs = torch.from_numpy(net.images).to(device)
    classes = torch.from_numpy(labels.astype(np.int64)).to(device)
    current = torch.zeros(1, dtype=torch.int64, device=device)  # image, which a graph can count up

    def step() -> None:
        image, label = inputs.index_select(0, current), classes.index_select(0, current)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(image), label).backward()
        optimizer.step()
        with torch.no_grad():
            for weight, mask in masks:
                weight.mul_(mask)
        current.add_(1).remainder_(len(inputs))

    before = [parameter.detach().clone() for parameter in model.parameters()]
    replay = capture(step)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), before, strict=True):
            parameter.copy_(value)
    current.zero_()

    def train() -> None:
        for _ in range(len(images)):
            replay()
        if device == GPU:
            torch.cuda.synchronize()

    return Trainer(train, net.weights)


# --- PyTorch's window


LIKELY = 0.75  # part of the sweeps that the last block suggests, launched before reading progress


class TorchWindow:
    """Trains a perceptron by the steps of `experiments/benchmarks/window.py`, with torch.mm.

    A sweep is a CUDA graph, so its shapes never change: rows past the end of a block are images
    without deltas, and a mask selects the images before each.

    per_window, per_block: images, many because a sweep is many launches that do little each.
    device: 'cpu' or 'cuda'. capture: runs a step some times and returns a function that repeats it.
    """

    settings = ""  # as of a `Trainer`

    def __init__(
        self,
        network: Network,
        images: np.ndarray,
        labels: np.ndarray,
        eta: float,
        per_window: int = 64,
        per_block: int = 256,
        device: str = GPU,
        capture: Callable[[Step], Step] = capture_step,
    ):
        import torch

        self._torch, self._device = torch, device
        self._n_window, self._n_block = per_window, per_block
        self._done_by_sweep = float(per_window)  # images, in the last block
        n_rows, sizes = per_block + per_window, network.sizes
        # Matrices have padded rows, as inputs have padded columns.
        pairs = zip(network.weights, sizes[1:], strict=True)
        self._initial = [self._put(W[:, :n_out].copy()) for W, n_out in pairs]
        self._weights, self._sizes = [W.clone() for W in self._initial], sizes
        picked = np.zeros((len(images), pad32(sizes[0] + 1)), np.float32)
        picked[:, 0], picked[:, 1 : sizes[0] + 1] = 1, images
        self._images = self._put(picked)
        self._one_hot = self._put(np.eye(sizes[-1], dtype=np.float32)[labels])
        # Of a block, with rows for a window that reaches past it.
        self._inputs = [self._zeros(n_rows, pad32(n + 1)) for n in sizes[:-1]]
        for inputs in self._inputs:
            inputs[:, 0] = 1
        self._deltas = [self._zeros(n_rows, n) for n in sizes[1:]]
        self._targets = self._zeros(n_rows, sizes[-1])
        self._product, self._gram = self._zeros(n_rows, sizes[1]), self._zeros(n_rows, per_block)
        # Images of earlier blocks, of this one, those of them that are done; sweeps of all blocks.
        self._state = self._put(np.zeros(4, np.int64))
        self._start, self._end, self._first, self._sweeps = self._state.split(1)
        self._of_window, self._of_block = map(self._put, map(np.arange, (per_window, per_block)))
        self._minus_eta = self._put(np.full(1, -eta, np.float32))
        starts, n = range(0, len(picked), per_block), np.array(sizes[:-1], np.float32) + 1
        squares = np.maximum.reduceat(np.square(picked).sum(axis=1), starts)
        # Of layer 1 in each block, and of each layer in the current one.
        self._first_tolerances, *later = (
            self._put(np.array([tolerance(np.float32(eta), m, s, GPU_ROUNDING) for s in of_layer]))
            for m, of_layer in zip(n, (squares, *n[1:, None]), strict=True)
        )
        self._tolerances = [self._zeros(1), *later]
        self._steepest = self._put(np.full(1, SLOPE * A * A, np.float32))
        self._next, self._sweep = capture(self._next_block), capture(self._sweep_once)

    def weights(self) -> list[np.ndarray]:
        """The current weights, a matrix (n_in + 1, n_out) per layer."""
        pairs = zip(self._weights, self._sizes, strict=False)
        return [W[: n_in + 1].cpu().numpy() for W, n_in in pairs]

    def train(self) -> None:
        """Train the network on all images, from its weights on: others need fewer sweeps."""
        n, window, block = len(self._images), self._n_window, self._n_block
        for W, initial in zip(self._weights, self._initial, strict=True):
            W.copy_(initial)
        for array in (self._state, *self._deltas):
            array.zero_()
        self._next()
        swept = 0
        for started in range(0, n, block):
            n_images, first, sweeps = min(block, n - started), 0, swept
            while first < n_images:
                left = n_images - first
                likely = int(LIKELY * left / self._done_by_sweep)
                for _ in range(max(-(-left // window), likely)):
                    self._sweep()
                *_, first, sweeps = self._state.tolist()  # waits for the GPU
            self._done_by_sweep, swept = n_images / (sweeps - swept), sweeps
            self._next()
        self._state.tolist()

    def _put(self, array: np.ndarray) -> Tensor:
        return self._torch.from_numpy(array).to(self._device)

    def _zeros(self, *shape: int) -> Tensor:
        return self._torch.zeros(shape, device=self._device)

    def _next_block(self) -> None:
        """Update the weights by the block, if one was begun, and begin the next, if one is left."""
        torch, block = self._torch, slice(self._n_block)
        for W, h, delta in zip(self._weights, self._inputs, self._deltas, strict=True):
            W.addmm_(h[block].T, delta[block].mul_(self._minus_eta))
            delta.zero_()
        n = len(self._images)
        self._start.add_(self._end)
        self._end.copy_((n - self._start).clamp(max=self._n_block))
        self._first.zero_()
        number = (self._start // self._n_block).clamp(max=len(self._first_tolerances) - 1)
        torch.index_select(self._first_tolerances, 0, number, out=self._tolerances[0])
        index = (self._start + self._of_block).clamp(max=n - 1)
        h = torch.index_select(self._images, 0, index, out=self._inputs[0][block])
        torch.index_select(self._one_hot, 0, index, out=self._targets[block])
        torch.mm(h, self._weights[0], out=self._product[block])
        torch.mm(h, h.T, out=self._gram[block])

    def _sweep_once(self) -> None:
        """All images of the window once forward and backward; then it slides."""
        torch, block = self._torch, slice(self._n_block)
        rows = self._first + self._of_window
        is_image = rows < self._end
        earlier = (self._of_block < rows[:, None]) * self._minus_eta  # (window, block)
        a, gram = self._product.index_select(0, rows), self._gram.index_select(0, rows)
        states: list[Tensor] = []
        for layer, delta in enumerate(self._deltas):
            if layer:
                states.append(float(A) * torch.tanh(float(B) * a))
                n, inputs = a.shape[1], self._inputs[layer]
                inputs[:, 1 : n + 1].index_copy_(0, rows, states[-1])
                h = inputs.index_select(0, rows)
                a, gram = torch.mm(h, self._weights[layer]), torch.mm(h, inputs[block].T)
            a = torch.addmm(a, gram * earlier, delta[block])
        new = (torch.softmax(a, 1) - self._targets.index_select(0, rows)) * is_image[:, None]
        same = is_image
        for layer in reversed(range(len(self._deltas))):
            delta, norm = self._deltas[layer], torch.linalg.vector_norm
            change = norm(new - delta.index_select(0, rows), math.inf, dim=1)
            same = same & (change <= self._tolerances[layer] * norm(new, math.inf))
            delta.index_copy_(0, rows, new)
            if layer:
                y, inputs = states[layer - 1], self._inputs[layer]
                gram = torch.mm(new, delta[block].T)
                e = torch.mm(new, self._weights[layer].T)
                e = torch.addmm(e, gram * earlier, inputs[block])[:, 1 : y.shape[1] + 1]
                new = e * torch.addcmul(self._steepest, y, y, value=-float(SLOPE))
        # An image is done if all before it in the window kept their deltas.
        is_before = torch.cat((is_image[:1], same[:-1]))
        done = (is_before & is_image).cumprod(0).sum()
        self._first.add_(done)
        self._sweeps.add_(is_image[:1])


# --- cuBLAS


def products(
    n_in: int, n_out: int, n: int, end: int, n_block: int, *, device: str = "cuda"
) -> dict[str, Callable[[], object]]:
    """Products of the window's kernels, of random matrices padded as theirs, by the kernels' names.

    Of a layer and n images, the last of which is image end - 1 of its block of n_block images.
    """
    import torch

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device) - 0.5

    W = random(pad32(n_in + 1), pad32(n_out))
    H, D = random(n_block, W.shape[0]), random(n_block, W.shape[1])
    h, d, earlier = H[end - n : end], D[end - n : end], slice(end)
    return {
        "forward": lambda: (torch.mm(h, W), torch.mm(h, H[earlier].T)),
        "backward": lambda: (torch.mm(d, W.T), torch.mm(d, D[earlier].T)),
        "update": lambda: torch.addmm(W, H.T, D, alpha=-1e-3, out=W),
    }


def cublas(precision: str, product: str, *shape: int) -> Callable[[Stream], None]:
    """A function that puts one of `products` into a stream. shape: the arguments of `products`.

    precision: 'highest' for float32, 'high' for TF32.
    """
    made = cache(lambda: products(*shape)[product])  # when it is first called

    def enqueue(stream: Stream) -> None:
        import torch

        torch.set_float32_matmul_precision(precision)
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
                made()()
        finally:
            torch.set_float32_matmul_precision("highest")  # as it is by default

    return enqueue


# --- JAX, on its default device


def import_jax() -> Any:
    """JAX, without its preallocation of three quarters of the GPU's memory."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    return jax


def jax_scan(
    step: Callable[[Any, Tensor, Tensor], Any],
    state: Any,
    examples: tuple[np.ndarray, np.ndarray],
    weights: Callable[[Any], list[np.ndarray]],
) -> Trainer:
    """Train by a compiled `lax.scan`. step: of a state, an image and its target the next state."""
    jax = import_jax()
    there = tuple(map(jax.numpy.array, examples))

    @partial(jax.jit, donate_argnums=0)
    def scan(state: Any, *examples: Tensor) -> Any:
        return jax.lax.scan(lambda now, example: (step(now, *example), None), state, examples)[0]

    def train() -> None:
        nonlocal state
        state = jax.block_until_ready(scan(state, *there))

    return Trainer(train, lambda: weights(state))


def jax_perceptron(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """A perceptron in JAX."""
    jax = import_jax()
    jnp = jax.numpy

    def layer(h: Tensor, b: Tensor, W: Tensor) -> Tensor:
        # Without "highest" a GPU may multiply in less than float32.
        return b + jnp.matmul(h, W, precision="highest")

    def loss(weights: Any, image: Tensor, label: Tensor) -> Tensor:
        h = image
        for b, W in weights[:-1]:
            h = A * jnp.tanh(B * layer(h, b, W))
        a = layer(h, *weights[-1])
        return jax.nn.logsumexp(a) - a[label]

    def step(weights: Any, image: Tensor, label: Tensor) -> Any:
        gradients = jax.grad(loss)(weights, image, label)
        return jax.tree.map(lambda W, g: W - np.float32(eta) * g, weights, gradients)

    initial = [(jnp.array(W[0]), jnp.array(W[1:])) for W in matrices(network)]
    return jax_scan(
        step, initial, (images, labels), lambda weights: [np.vstack(pair) for pair in weights]
    )


def jax_ladder(net: Net, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """The ladder's net in JAX."""
    jax = import_jax()
    jnp, momentum = jax.numpy, float(formulas.MOMENTUM)

    def loss(weights: Any, image: Tensor, target: Tensor) -> Tensor:
        h = image
        for W in weights:
            h = jax.nn.sigmoid(jnp.matmul(W, h, precision="highest"))
        return 0.5 * ((h - target) ** 2).sum()

    def step(state: Any, image: Tensor, target: Tensor) -> Any:
        weights, velocities = state
        gradients = jax.grad(loss)(weights, image, target)
        velocities = [momentum * v - eta * g for v, g in zip(velocities, gradients, strict=True)]
        return [w + v for w, v in zip(weights, velocities, strict=True)], velocities

    initial = [jnp.array(net.W1), jnp.array(net.W2)], [jnp.array(net.V1), jnp.array(net.V2)]
    examples = images, one_hot(labels)
    return jax_scan(step, initial, examples, lambda state: [np.asarray(W) for W in state[0]])


# --- deformations, each called as those of `scipy_recipe`


def scipy_recipe(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation
) -> Callable[[], np.ndarray]:
    """The widely copied SciPy recipe for Simard's deformation, one image at a time.

    One interpolation, as in ours. Arguments of all baselines: images, float32 (n, 29, 29); labels,
    uint8 (n,), which choose beta; deformation. The function that is returned deforms all images
    anew at each call and returns them, float32 (n, 29, 29). Unlike ours, the random field of a
    baseline ends at the edge of an image, so pixels there move by less.
    """
    from scipy import ndimage  # takes a third of a second to import

    rng = np.random.default_rng(0)
    target = np.indices((SIDE, SIDE)).reshape(2, -1) - CENTRE  # y and x, from the centre
    blur = partial(
        ndimage.gaussian_filter, sigma=deformation.sigma, mode="constant", radius=KERNEL // 2
    )

    def deform() -> np.ndarray:
        out = np.empty_like(images)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            angle = np.deg2rad(deformation.beta[label]) * rng.uniform(-1, 1)
            scale_y = 1 + deformation.gamma_y / 100 * rng.uniform(-1, 1)
            scale_x = 1 + deformation.gamma_x / 100 * rng.uniform(-1, 1)
            if rng.random() < deformation.shear_probability:
                turn = np.array([[1, 0], [np.tan(angle), 1]])
            else:
                turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            source = np.linalg.inv(turn @ np.diag([scale_y, scale_x])) @ target + CENTRE
            field = rng.uniform(-1, 1, (2, SIDE, SIDE))
            shift = np.array([blur(axis) for axis in field])
            ndimage.map_coordinates(
                image,
                source.reshape(2, SIDE, SIDE) + deformation.alpha * shift,
                order=1,
                mode="grid-constant",  # "constant" does not interpolate beyond the edge
                cval=deformation.background,
                output=out[i],
            )
        return out

    return deform


def kornia_batch(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation, device: str = "cpu"
) -> Callable[[], np.ndarray | Tensor]:
    """kornia: RandomAffine, then RandomElasticTransform, on all images at once.

    Two interpolations; shear comes before scaling, not after it. device: 'cpu' or 'cuda'. On 'cuda'
    the images stay on the GPU, as does the result, a tensor, which is complete on return.
    """
    import torch
    from kornia.augmentation import RandomAffine, RandomElasticTransform

    gamma_x, gamma_y = deformation.gamma_x / 100, deformation.gamma_y / 100
    affine = RandomAffine(
        degrees=1.0,
        shear=1.0,
        scale=(1 - gamma_x, 1 + gamma_x, 1 - gamma_y, 1 + gamma_y),
        align_corners=True,
        p=1,
    )  # draws its few numbers on the CPU, even for images on a GPU
    # Its displacements are in halves of the image's width, from corner pixel to corner pixel.
    alpha = deformation.alpha / CENTRE
    elastic = RandomElasticTransform(
        kernel_size=(KERNEL, KERNEL),
        sigma=(deformation.sigma, deformation.sigma),
        alpha=(alpha, alpha),
        align_corners=True,
        p=1,
    ).to(device)  # where it draws its fields
    # Both fill with 0 outside the image, so they get the difference from the background.
    source = torch.from_numpy(images - np.float32(deformation.background))[:, None].to(device)
    beta = torch.tensor(deformation.beta)[torch.from_numpy(labels.astype(np.int64))]

    def deform() -> np.ndarray | Tensor:
        parameters = affine.forward_parameters(source.shape)
        # Drawn for every image, both in [-1, 1] degrees. An image gets one, times its own beta.
        sheared = torch.rand(len(beta)) < deformation.shear_probability
        parameters["angle"] = parameters["angle"] * beta * ~sheared
        parameters["shear_x"] = parameters["shear_x"] * beta * sheared
        result = elastic(affine(source, params=parameters))[:, 0] + deformation.background
        if device == "cpu":
            return result.numpy()
        torch.cuda.synchronize()
        return result

    return deform


# --- the table


@dataclass(frozen=True)
class Baseline:
    """A program of others. group: of the rows of bench.csv; "ladder" of the ladder's net.

    package: in PACKAGES, "" if it needs none. device: CPU or GPU. make: returns a `Trainer` of a
    net; in the group `deformation` a function that deforms images; in `product` a function that
    multiplies on a stream.
    """

    group: str
    name: str
    package: str
    device: str
    make: Callable[..., Any]


_CNN_GRAPH = partial(torch_graph, build=torch_convolutional)
BASELINES = (
    Baseline("net", "NumPy loop, CPU", "", CPU, numpy_loop),
    Baseline("net", "JAX scan, CPU", "jax", CPU, jax_perceptron),
    Baseline("net", "PyTorch graph, GPU", "torch", GPU, torch_graph),
    Baseline("net", "PyTorch window, GPU", "torch", GPU, TorchWindow),
    Baseline("net", "JAX scan, GPU", "jax", GPU, jax_perceptron),
    Baseline("cnn", "NumPy loop, CPU", "", CPU, numpy_convolutional),
    Baseline("cnn", "PyTorch graph, GPU", "torch", GPU, _CNN_GRAPH),
    Baseline("ladder", "NumPy", "", CPU, numpy_ladder),
    Baseline("ladder", "JAX scan, GPU", "jax", GPU, jax_ladder),
    Baseline("product", "cuBLAS float32", "torch", GPU, partial(cublas, "highest")),
    Baseline("product", "cuBLAS TF32", "torch", GPU, partial(cublas, "high")),
    Baseline("deformation", "scipy recipe", "", CPU, scipy_recipe),
    Baseline("deformation", "kornia, CPU", "kornia", CPU, kornia_batch),
    Baseline("deformation", "kornia, GPU", "kornia", GPU, partial(kornia_batch, device=GPU)),
)


def import_error(package: str) -> str | None:
    """Why a package cannot be used, in a line; None if it can."""
    try:
        if package == "jax":
            import_jax().default_backend()
        else:
            importlib.import_module(package)
    except Exception as error:  # an incomplete installation raises others than ImportError
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def sees_gpu(package: str) -> bool:
    """Whether an installed package can use a GPU."""
    if package == "jax":
        return import_jax().default_backend() != "cpu"
    import torch

    return torch.cuda.is_available()


def can_run(package: str, device: str) -> bool:
    """Whether a package, or none, can compute on a device here."""
    if not package or import_error(package):
        return not package
    if device == CPU and package != "jax":
        return True
    return sees_gpu(package) == (device == GPU)  # JAX computes on its default device


def available(group: str, device: str) -> dict[str, Callable[..., Any]]:
    """The makers of the baselines of a group that can run on a device here, by name."""
    found = [one for one in BASELINES if (one.group, one.device) == (group, device)]
    return {one.name: one.make for one in found if can_run(one.package, device)}


def missing(gpu: bool) -> list[str]:
    """A sentence for each library that cannot be measured. gpu: whether a GPU is measured."""
    sentences = []
    for package, name in PACKAGES.items():
        if reason := import_error(package):
            how = "pip install -e '.[baselines]' brings it"
            sentences.append(f"{name} is not measured ({reason}); {how}")
        elif gpu and not sees_gpu(package):
            sentences.append(f"the installed {name} sees no GPU, so it is not measured on it")
    return sentences


def workloads(
    makers: Mapping[str, Callable[..., Any]], arguments: Sequence[Any], n_images: int
) -> dict[str, Workload]:
    """A workload on n_images images for each baseline; without those that fail, which is logged.

    arguments: of the makers.
    """
    found = {}
    for name, make in makers.items():
        tell(f"  preparing {name}")
        try:
            made = make(*arguments)
            trainer = Trainer(made, list) if callable(made) else made
            trainer.train()
        except Exception as error:  # must not cost the measurements of everything else
            tell(f"{name} fails, so it is not measured: {type(error).__name__}: {error}")
        else:
            found[name] = Workload(trainer.train, n_images, settings=trainer.settings)
    return found
