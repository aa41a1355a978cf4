"""The same nets trained by other libraries, one image per step: NumPy, PyTorch and JAX.

Each is written as its regular users would write it. PyTorch and JAX are measured by `make bench`
where they are installed, and imported only then.
"""

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.network import Network

# PyTorch's or JAX's, which need not be installed.
Tensor: TypeAlias = Any
Module: TypeAlias = Any

WARM_UP_STEPS = 3  # before PyTorch captures a graph, as in its documentation


@dataclass(frozen=True)
class Peer:
    """A net. train: trains it once on all images. weights: those it has now, a matrix a layer.

    note: with which settings it trains, where it has a choice.
    """

    train: Callable[[], None]
    weights: Callable[[], list[np.ndarray]]
    note: str = ""


def matrices(network: Network) -> list[np.ndarray]:
    """Copies of the weights without their padding, (n_in + 1, n_out), row 0 the bias."""
    return [W.copy() for W in network.unpadded()]


def numpy_loop(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Peer:
    """The steps in NumPy, float32. Arguments of all peers:

    network: the initial weights, which are copied. images: float32 (n, n_in). labels: uint8 (n,).
    eta: the learning rate.
    """
    weights = matrices(network)

    def train() -> None:
        for image, label in zip(images, labels, strict=True):
            states = [np.concatenate(([np.float32(1)], image))]
            for W in weights[:-1]:
                y = A * np.tanh(B * (states[-1] @ W))
                states.append(np.concatenate(([np.float32(1)], y)))
            a = states[-1] @ weights[-1]
            delta = np.exp(a - a.max())
            delta /= delta.sum()
            delta[label] -= 1
            deltas = [delta]
            for W, h in zip(weights[:0:-1], states[:0:-1], strict=True):
                deltas.insert(0, (W[1:] @ deltas[0]) * SLOPE * (A - h[1:]) * (A + h[1:]))
            for W, h, delta in zip(weights, states, deltas, strict=True):
                W -= np.outer(np.float32(eta) * h, delta)

    return Peer(train, lambda: weights)


class TorchNet:
    """A net in PyTorch: forward, autograd, SGD. device: 'cpu' or 'cuda'.

    layers: modules with weights; the scaled tanh comes between them. masks: a weight and what it
    is multiplied with after each step, for those that have zeros to keep.
    """

    def __init__(
        self,
        layers: Sequence[Module],
        images: np.ndarray,
        labels: np.ndarray,
        eta: float,
        device: str,
        masks: Sequence[tuple[Tensor, Tensor]] = (),
    ):
        import torch

        class ScaledTanh(torch.nn.Module):
            def forward(self, a: Tensor) -> Tensor:
                return float(A) * torch.tanh(float(B) * a)

        modules = [module for layer in layers for module in (layer, ScaledTanh())]
        self.torch = torch
        self.on_gpu = device == "cuda"
        self.model = torch.nn.Sequential(*modules[:-1]).to(device)
        self.masks = [(weight, mask.to(device)) for weight, mask in masks]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=eta)
        self.images = torch.from_numpy(images).to(device)
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(device)
        self.next = torch.zeros(1, dtype=torch.int64, device=device)  # the image of the next step

    def learn(self, image: Tensor, label: Tensor) -> None:
        """One step on an image, of a batch of one, and its label, (1,)."""
        self.optimizer.zero_grad(set_to_none=True)
        self.torch.nn.functional.cross_entropy(self.model(image), label).backward()
        self.optimizer.step()
        self.keep_zeros()

    def keep_zeros(self) -> None:
        """Set to zero again what a step has moved away."""
        with self.torch.no_grad():
            for weight, mask in self.masks:
                weight.mul_(mask)

    def eager(self) -> None:
        """Train once on all images, launch by launch."""
        for i in range(len(self.images)):
            self.learn(self.images[i : i + 1], self.labels[i : i + 1])
        self.wait()

    def step(self) -> None:
        """One step on the next image, picked on the net's device so that a graph can repeat it."""
        self.learn(self.images.index_select(0, self.next), self.labels.index_select(0, self.next))
        self.next.add_(1).remainder_(len(self.images))

    def capture(self) -> Any:
        """A CUDA graph of `step`. Leaves the net as it was."""
        torch = self.torch
        before = [parameter.detach().clone() for parameter in self.model.parameters()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), before, strict=True):
                parameter.copy_(value)
        self.next.zero_()
        return graph

    def wait(self) -> None:
        """Return when all steps are done."""
        if self.on_gpu:
            self.torch.cuda.synchronize()


def torch_perceptron(
    network: Network, images: np.ndarray, labels: np.ndarray, eta: float, device: str
) -> tuple[TorchNet, Callable[[], list[np.ndarray]]]:
    """A multi-layer perceptron in PyTorch, and a function that gives its weights."""
    import torch

    layers = []
    for W in matrices(network):
        layers.append(torch.nn.Linear(W.shape[0] - 1, W.shape[1]))
        with torch.no_grad():
            layers[-1].bias.copy_(torch.from_numpy(W[0]))
            layers[-1].weight.copy_(torch.from_numpy(W[1:].T))

    def weights() -> list[np.ndarray]:
        with torch.no_grad():
            return [torch.vstack((one.bias, one.weight.T)).cpu().numpy() for one in layers]

    return TorchNet(layers, images, labels, eta, device), weights


def torch_eager(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    device: str = "cpu",
    build: Callable[..., tuple[TorchNet, Callable[[], list[np.ndarray]]]] = torch_perceptron,
) -> Peer:
    """PyTorch, one launch after another. build: makes the net, as `torch_perceptron` does."""
    net, weights = build(network, images, labels, eta, device)
    return Peer(net.eager, weights)


def torch_graph(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    device: str = "cuda",
    build: Callable[..., tuple[TorchNet, Callable[[], list[np.ndarray]]]] = torch_perceptron,
) -> Peer:
    """PyTorch with a CUDA graph, replayed for each image. build: as of `torch_eager`."""
    net, weights = build(network, images, labels, eta, device)
    graph = net.capture()

    def train() -> None:
        for _ in range(len(images)):
            graph.replay()
        net.wait()

    return Peer(train, weights)


def import_jax() -> Any:
    """JAX, without its preallocation of three quarters of the GPU's memory."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    return jax


def jax_scan(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Peer:
    """JAX: a compiled `lax.scan` over the images, on JAX's default device."""
    jax = import_jax()
    jnp = jax.numpy

    def layer(h: Tensor, b: Tensor, W: Tensor) -> Tensor:
        # Without "highest" a GPU may multiply in less than float32.
        return b + jnp.matmul(h, W, precision="highest")

    def loss(weights: Tensor, image: Tensor, label: Tensor) -> Tensor:
        h = image
        for b, W in weights[:-1]:
            h = A * jnp.tanh(B * layer(h, b, W))
        a = layer(h, *weights[-1])
        return jax.nn.logsumexp(a) - a[label]

    def step(weights: Tensor, example: Tensor) -> tuple[Tensor, None]:
        gradients = jax.grad(loss)(weights, *example)
        return jax.tree.map(lambda W, g: W - np.float32(eta) * g, weights, gradients), None

    @partial(jax.jit, donate_argnums=0)
    def scan(weights: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        return jax.lax.scan(step, weights, (images, labels))[0]

    weights = [(jnp.array(W[0]), jnp.array(W[1:])) for W in matrices(network)]
    images, labels = jnp.array(images), jnp.array(labels)

    def train() -> None:
        nonlocal weights
        weights = jax.block_until_ready(scan(weights, images, labels))

    return Peer(train, lambda: [np.vstack((b, W)) for b, W in weights])


def fastest(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    make: Callable[..., Peer],
    choices: Sequence[Any],
) -> Peer:
    """A new peer with those settings that are the fastest to train with.

    make: makes a peer; its last argument is one of the choices. Each trains three times, the first
    of which does not count.
    """
    seconds = []
    for settings in choices:
        peer = make(network, images, labels, eta, settings)
        spans = []
        for _ in range(3):
            started = time.perf_counter()
            peer.train()
            spans.append(time.perf_counter() - started)
        seconds.append(min(spans[1:]))
    return make(network, images, labels, eta, choices[int(np.argmin(seconds))])


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


def on_cpu() -> dict[str, Callable[..., Peer]]:
    """The peers that train on the CPU: by name, the function that makes one."""
    makers: dict[str, Callable[..., Peer]] = {"NumPy loop, CPU": numpy_loop}
    if not import_error("torch"):
        makers["PyTorch eager, CPU"] = torch_eager
    if not import_error("jax") and import_jax().default_backend() == "cpu":
        makers["JAX scan, CPU"] = jax_scan
    return makers


def on_gpu() -> dict[str, Callable[..., Peer]]:
    """The peers that train on the GPU: by name, the function that makes one."""
    makers: dict[str, Callable[..., Peer]] = {}
    if not import_error("torch") and torch_sees_a_gpu():
        makers["PyTorch eager, GPU"] = partial(torch_eager, device="cuda")
        makers["PyTorch graph, GPU"] = torch_graph
    if not import_error("jax") and import_jax().default_backend() != "cpu":
        makers["JAX scan, GPU"] = jax_scan
    return makers


def missing(gpu: bool) -> list[str]:
    """A sentence for each peer that cannot be measured. gpu: whether a GPU is measured."""
    sentences = [
        f"{name} is not measured ({reason}); pip install -e '.[peers]' brings it"
        for name, package in (("PyTorch", "torch"), ("JAX", "jax"))
        if (reason := import_error(package))
    ]
    if gpu and not import_error("torch") and not torch_sees_a_gpu():
        sentences.append(
            "the installed PyTorch sees no GPU, so it is measured on the CPU alone; "
            "https://pytorch.org/get-started says how to install one that does"
        )
    if gpu and not import_error("jax") and import_jax().default_backend() == "cpu":
        sentences.append(
            "the installed JAX sees no GPU, so it is measured on the CPU; 'pip install "
            '"jax[cuda12]"\' brings what it needs'
        )
    return sentences


def torch_sees_a_gpu() -> bool:
    """Whether the installed PyTorch can use a GPU."""
    import torch

    return torch.cuda.is_available()
