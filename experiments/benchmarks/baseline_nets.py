"""The benchmarks' nets trained by other programs, one image per step: NumPy, PyTorch and JAX.

Perceptrons, convolutional nets, and the net of the ladder, which plain Python trains too. Each
program is written as its regular users would write it; PyTorch is also written at its best.
PyTorch and JAX need not be installed: they are imported only where they train.

All makers of a `Trainer` have these arguments. network: the initial net, whose weights are copied.
images: float32 (n, n_inputs). labels: uint8 (n,). eta: the learning rate.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from cnn_gpu.layers import FULLY_CONNECTED, Layer
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.benchmarks.window import train_plainly
from experiments.training import provenance
from experiments.training.formatting import plural
from mlp_gpu.activation import A, B
from mlp_gpu.ladder import formulas
from mlp_gpu.ladder.net import N_OUTPUTS, Net
from mlp_gpu.network import Network

# PyTorch's or JAX's, which need not be installed.
Tensor: TypeAlias = Any
Module: TypeAlias = Any

WARM_UP_STEPS = 3  # before PyTorch captures a graph, as in its documentation
MOMENTUM = float(formulas.MOMENTUM)  # of the ladder's net


@dataclass(frozen=True)
class Trainer:
    """A net that a baseline trains.

    train: trains it once on all images. weights: returns the current weights, a matrix per layer.
    settings: with which it trains, where it has a choice.
    """

    train: Callable[[], object]
    weights: Callable[[], list[np.ndarray]]
    settings: str = ""


# --- NumPy and plain Python


def matrices(network: Network) -> list[np.ndarray]:
    """Copies of the weights without their padding, (n_in + 1, n_out), row 0 the bias."""
    return [W.copy() for W in network.unpadded()]


def numpy_loop(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """A perceptron in NumPy, float32."""
    weights = matrices(network)
    return Trainer(partial(train_plainly, weights, images, labels, eta), lambda: weights)


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


def python_ladder(net: Net, images: np.ndarray, labels: np.ndarray, eta: float) -> Trainer:
    """The ladder's net in plain Python, as a sequential program has it: lists of rows."""
    W1, W2, V1, V2 = (W.tolist() for W in net.arrays)
    examples = list(zip(images.tolist(), labels.tolist(), strict=True))

    def train() -> None:
        for h, label in examples:
            y1 = [formulas.sigmoid(sum(w * x for w, x in zip(row, h, strict=True))) for row in W1]
            y2 = [formulas.sigmoid(sum(w * x for w, x in zip(row, y1, strict=True))) for row in W2]
            delta2 = [formulas.output_delta(y, float(k == label)) for k, y in enumerate(y2)]
            delta1 = [
                formulas.slope(y) * sum(row[j] * d for row, d in zip(W2, delta2, strict=True))
                for j, y in enumerate(y1)
            ]
            for W, V, delta, state in ((W2, V2, delta2, y1), (W1, V1, delta1, h)):
                for w, v, d in zip(W, V, delta, strict=True):
                    for i, x in enumerate(state):
                        v[i] = formulas.velocity(v[i], d, x, eta, MOMENTUM)
                        w[i] += v[i]

    return Trainer(train, lambda: [np.array(W1), np.array(W2)])


# --- PyTorch


def capture_step(step: Callable[[], None]) -> Callable[[], None]:
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
    return graph.replay


class TorchNet:
    """A net in PyTorch and its training: forward, autograd, SGD.

    modules: of the model, in turn. images, targets: a row for each step; classes are int64.
    weights: as of `Trainer`. device: 'cpu' or 'cuda'. loss: of outputs and targets; None: the cross
    entropy. masks: weights that have zeros to keep, each with the factors that keep them.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        images: np.ndarray,
        targets: np.ndarray,
        weights: Callable[[], list[np.ndarray]],
        eta: float,
        device: str,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        momentum: float = 0.0,
        masks: Sequence[tuple[Tensor, Tensor]] = (),
    ):
        import torch

        self.torch, self.weights = torch, weights
        self.on_gpu = device == "cuda"
        self.model = torch.nn.Sequential(*modules).to(device)
        self.loss = loss or torch.nn.functional.cross_entropy
        self.masks = [(weight, mask.to(device)) for weight, mask in masks]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=eta, momentum=momentum)
        self.images = torch.from_numpy(images).to(device)
        self.targets = torch.from_numpy(targets).to(device)
        self.next = torch.zeros(1, dtype=torch.int64, device=device)  # the image of the next step

    def learn(self, image: Tensor, target: Tensor) -> None:
        """One step on an image and its target, both as batches of one."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.model(image), target).backward()
        self.optimizer.step()
        self.keep_zeros()

    def keep_zeros(self) -> None:
        """Set masked weights to zero again, which a step has moved."""
        with self.torch.no_grad():
            for weight, mask in self.masks:
                weight.mul_(mask)

    def eager(self) -> None:
        """Train once on all images, launch by launch."""
        for i in range(len(self.images)):
            self.learn(self.images[i : i + 1], self.targets[i : i + 1])
        self.wait()

    def step(self) -> None:
        """One step on the next image, picked on the net's device so that a graph can repeat it."""
        self.learn(self.images.index_select(0, self.next), self.targets.index_select(0, self.next))
        self.next.add_(1).remainder_(len(self.images))

    def capture(self) -> Callable[[], None]:
        """`step` as a CUDA graph. Leaves the net as it was."""
        torch = self.torch
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        replay = capture_step(self.step)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
            for state in self.optimizer.state.values():
                if (velocity := state.get("momentum_buffer")) is not None:
                    velocity.zero_()
        self.next.zero_()
        return replay

    def wait(self) -> None:
        """Return when all steps are done."""
        if self.on_gpu:
            self.torch.cuda.synchronize()


Build: TypeAlias = Callable[[Any, np.ndarray, np.ndarray, float, str], TorchNet]


def with_scaled_tanh(layers: Sequence[Module]) -> list[Module]:
    """Modules of a net: the layers, and between them the scaled tanh."""
    import torch

    class ScaledTanh(torch.nn.Module):
        def forward(self, a: Tensor) -> Tensor:
            return float(A) * torch.tanh(float(B) * a)

    return [module for layer in layers for module in (layer, ScaledTanh())][:-1]


def torch_perceptron(
    network: Network, images: np.ndarray, labels: np.ndarray, eta: float, device: str
) -> TorchNet:
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

    targets = labels.astype(np.int64)
    return TorchNet(with_scaled_tanh(layers), images, targets, weights, eta, device)


def torch_ladder(
    net: Net, images: np.ndarray, labels: np.ndarray, eta: float, device: str
) -> TorchNet:
    """The ladder's net in PyTorch: SGD with momentum on half the squared error."""
    import torch

    modules = []
    for W in (net.W1, net.W2):
        modules += [torch.nn.Linear(*W.shape[::-1], bias=False), torch.nn.Sigmoid()]
        with torch.no_grad():
            modules[-2].weight.copy_(torch.from_numpy(W))

    def weights() -> list[np.ndarray]:
        return [layer.weight.detach().cpu().numpy() for layer in modules[::2]]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * ((outputs - targets) ** 2).sum()

    return TorchNet(modules, images, one_hot(labels), weights, eta, device, loss, MOMENTUM)


def torch_trainer(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    device: str = "cpu",
    build: Build = torch_perceptron,
    graph: bool = False,
) -> Trainer:
    """PyTorch, one launch after another, or as a CUDA graph that is replayed for each image.

    build: makes the net.
    """
    net = build(network, images, labels, eta, device)
    if not graph:
        return Trainer(net.eager, net.weights)
    replay = net.capture()

    def train() -> None:
        for _ in range(len(images)):
            replay()
        net.wait()

    return Trainer(train, net.weights)


# --- PyTorch's convolutional nets, whose absent connections are weights that are masked


@dataclass(frozen=True)
class TorchSettings:
    """Choices that PyTorch has on a CPU.

    one_dnn: whether convolutions are oneDNN's or PyTorch's own. channels_last: whether the maps of
    a pixel are next to each other in memory, or the pixels of a map.
    """

    threads: int = 1
    one_dnn: bool = True
    channels_last: bool = False

    def __str__(self) -> str:
        parts = [plural(self.threads, "thread"), "oneDNN" if self.one_dnn else "without oneDNN"]
        return ", ".join(parts + ["channels last"] * self.channels_last)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        import torch

        before = torch.get_num_threads(), torch.backends.mkldnn.enabled
        torch.set_num_threads(self.threads)
        torch.backends.mkldnn.enabled = self.one_dnn
        try:
            yield
        finally:
            torch.set_num_threads(before[0])
            torch.backends.mkldnn.enabled = before[1]


def torch_settings() -> list[TorchSettings]:
    """All settings for the CPU."""
    threads = sorted({1, provenance.cores()})
    return [TorchSettings(*choice) for choice in product(threads, (True, False), (False, True))]


def compiled_settings() -> list[TorchSettings]:
    """Settings that share one compilation; others would cost a minute each."""
    return [TorchSettings(one_dnn=one_dnn) for one_dnn in (True, False)]


def kernels_of(layer: Layer, W: np.ndarray) -> np.ndarray:
    """Weights without their biases as PyTorch has them, (maps, source maps, height, width)."""
    return W[1:].reshape(*layer.kernel, layer.source.n, layer.maps.n).transpose(3, 2, 0, 1).copy()


def matrix_of(layer: Layer, kernels: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A layer's weights as `cnn_gpu.network` has them; the inverse of `kernels_of`."""
    kernels = kernels.reshape(layer.maps.n, layer.source.n, *layer.kernel)
    return np.vstack((bias, kernels.transpose(2, 3, 1, 0).reshape(-1, layer.maps.n)))


def torch_convolutional(
    network: ConvNetwork,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    device: str,
    channels_last: bool = False,
) -> TorchNet:
    """A convolutional net in PyTorch. Raises ValueError unless all layers have weights."""
    import torch

    if device == "cuda":
        torch.backends.cudnn.allow_tf32 = False  # else convolutions multiply in less than float32
        torch.backends.cudnn.benchmark = True  # tries cuDNN's algorithms, takes the fastest
    order = torch.channels_last if channels_last else torch.contiguous_format
    layers: list[Module] = []
    modules: list[Module] = []
    masks: list[tuple[Tensor, Tensor]] = []
    for layer, W, table in zip(network.layers, network.weights, network.connections, strict=True):
        if W is None or table is None:
            raise ValueError(f"expected layers with weights, got {layer.kind}")
        kernels = torch.from_numpy(kernels_of(layer, W))
        if layer.kind == FULLY_CONNECTED:
            module = torch.nn.Linear(layer.source.n_neurons, layer.maps.n)
            kernels = kernels.reshape(module.weight.shape)
            layers.append(torch.nn.Sequential(torch.nn.Flatten(), module))
        else:
            sizes = layer.source.n, layer.maps.n, layer.kernel, layer.step
            module = torch.nn.Conv2d(*sizes).to(memory_format=order)
            layers.append(module)
        with torch.no_grad():
            module.weight.copy_(kernels)
            module.bias.copy_(torch.from_numpy(W[0]))
        if not table.all():
            mask = kernels_of(layer, weight_mask(layer, table).astype(np.float32))
            masks.append((module.weight, torch.from_numpy(mask).to(memory_format=order)))
        modules.append(module)

    def weights() -> list[np.ndarray]:
        return [
            matrix_of(layer, *(p.detach().cpu().numpy() for p in (module.weight, module.bias)))
            for layer, module in zip(network.layers, modules, strict=True)
        ]

    source = network.source
    maps = images.reshape(-1, source.height, source.width, source.n).transpose(0, 3, 1, 2).copy()
    targets = labels.astype(np.int64)
    net = TorchNet(with_scaled_tanh(layers), maps, targets, weights, eta, device, masks=masks)
    net.images = net.images.contiguous(memory_format=order)
    return net


def torch_by_hand(
    network: ConvNetwork,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    settings: TorchSettings,
) -> Trainer:
    """PyTorch with its autograd and without its optimizer, which takes longer."""
    net = torch_convolutional(network, images, labels, eta, "cpu", settings.channels_last)
    torch, parameters = net.torch, list(net.model.parameters())

    def train() -> None:
        with settings.in_force():
            for i in range(len(net.images)):
                loss = net.loss(net.model(net.images[i : i + 1]), net.targets[i : i + 1])
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.add_(gradient, alpha=-eta)
                net.keep_zeros()

    return Trainer(train, net.weights, str(settings))


def torch_compiled_step(
    network: ConvNetwork,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    settings: TorchSettings,
) -> Trainer:
    """PyTorch, a whole step compiled by torch.compile: forward, backward and update."""
    net = torch_convolutional(network, images, labels, eta, "cpu", settings.channels_last)
    torch = net.torch
    parameters = {name: one.detach() for name, one in net.model.named_parameters()}  # not copied
    masks = {
        name: mask
        for name, one in net.model.named_parameters()
        for weight, mask in net.masks
        if weight is one
    }

    def loss(parameters: dict[str, Tensor], image: Tensor, target: Tensor) -> Tensor:
        return net.loss(torch.func.functional_call(net.model, parameters, (image,)), target)

    @torch.compile
    def step(image: Tensor, target: Tensor) -> None:
        for name, gradient in torch.func.grad(loss)(parameters, image, target).items():
            parameters[name].sub_(eta * gradient)
            if name in masks:
                parameters[name].mul_(masks[name])

    def train() -> None:
        with settings.in_force(), torch.no_grad():
            for i in range(len(net.images)):
                step(net.images[i : i + 1], net.targets[i : i + 1])

    return Trainer(train, net.weights, str(settings))


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
    jnp = jax.numpy

    def loss(weights: Any, image: Tensor, target: Tensor) -> Tensor:
        h = image
        for W in weights:
            h = jax.nn.sigmoid(jnp.matmul(W, h, precision="highest"))
        return 0.5 * ((h - target) ** 2).sum()

    def step(state: Any, image: Tensor, target: Tensor) -> Any:
        weights, velocities = state
        gradients = jax.grad(loss)(weights, image, target)
        velocities = [MOMENTUM * v - eta * g for v, g in zip(velocities, gradients, strict=True)]
        return [w + v for w, v in zip(weights, velocities, strict=True)], velocities

    initial = [jnp.array(net.W1), jnp.array(net.W2)], [jnp.array(net.V1), jnp.array(net.V2)]
    examples = images, one_hot(labels)
    return jax_scan(step, initial, examples, lambda state: [np.asarray(W) for W in state[0]])
