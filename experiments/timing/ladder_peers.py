"""The ladder's net trained by others, one image per step: plain Python, NumPy, PyTorch and JAX.

All make the steps of `mlp_gpu.ladder.cpu.train` on the images in order. PyTorch and JAX are
imported only where they are measured.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments.timing import peers
from experiments.timing.peers import Tensor, TorchNet, import_jax
from mlp_gpu.ladder import formulas
from mlp_gpu.ladder.net import N_OUTPUTS, Net

Train = Callable[[], None]
ETA, MOMENTUM = float(formulas.ETA), float(formulas.MOMENTUM)


def numpy_train(net: Net, images: np.ndarray, labels: np.ndarray) -> None:
    """In NumPy. Modifies the net. images: float32 (n, 784). labels: uint8 (n,)."""
    eta, momentum, one = formulas.ETA, formulas.MOMENTUM, formulas.ONE
    targets = np.eye(N_OUTPUTS, dtype=np.float32)[labels]
    for h, target in zip(images, targets, strict=True):
        y1 = one / (one + np.exp(-(net.W1 @ h)))
        y2 = one / (one + np.exp(-(net.W2 @ y1)))
        delta2 = y2 * (one - y2) * (target - y2)
        delta1 = y1 * (one - y1) * (delta2 @ net.W2)
        for W, V, delta, state in ((net.W2, net.V2, delta2, y1), (net.W1, net.V1, delta1, h)):
            V *= momentum
            V += eta * delta[:, None] * state
            W += V


def python_train(
    W1: list, W2: list, V1: list, V2: list, images: list[list[float]], labels: list[int]
) -> None:
    """In plain Python, as a sequential program has it. W1 to V2: lists of rows, modified."""
    for h, label in zip(images, labels, strict=True):
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
                    v[i] = formulas.velocity(v[i], d, x, ETA, MOMENTUM)
                    w[i] += v[i]


class SmallTorchNet(TorchNet):
    """In PyTorch: autograd and SGD with momentum. device: 'cpu' or 'cuda'."""

    def __init__(self, net: Net, images: np.ndarray, labels: np.ndarray, device: str):
        import torch

        modules = []
        for W in (net.W1, net.W2):
            layer = torch.nn.Linear(*W.shape[::-1], bias=False)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(W))
            modules += [layer, torch.nn.Sigmoid()]
        self.torch, self.on_gpu, self.layers = torch, device == "cuda", modules[::2]
        self.masks = []
        self.model = torch.nn.Sequential(*modules).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=ETA, momentum=MOMENTUM)
        self.images = torch.from_numpy(images).to(device)
        targets = np.eye(N_OUTPUTS, dtype=np.float32)[labels]
        self.labels = torch.from_numpy(targets).to(device)  # of all classes: 1 or 0
        self.next = torch.zeros(1, dtype=torch.int64, device=device)

    def learn(self, image: Tensor, label: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        (0.5 * ((self.model(image) - label) ** 2).sum()).backward()
        self.optimizer.step()

    def capture(self) -> Any:
        graph = super().capture()
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()
        return graph

    def weights(self) -> list[np.ndarray]:
        return [layer.weight.detach().cpu().numpy() for layer in self.layers]


def torch_eager(net: Net, images: np.ndarray, labels: np.ndarray, device: str = "cuda") -> Train:
    """In PyTorch, one launch after another."""
    return SmallTorchNet(net, images, labels, device).eager


def torch_graph(net: Net, images: np.ndarray, labels: np.ndarray) -> Train:
    """In PyTorch with a CUDA graph, replayed for each image."""
    small = SmallTorchNet(net, images, labels, "cuda")
    graph = small.capture()

    def train() -> None:
        for _ in range(len(images)):
            graph.replay()
        small.wait()

    return train


def jax_scan(net: Net, images: np.ndarray, labels: np.ndarray) -> Callable[[], list[np.ndarray]]:
    """In JAX, a compiled `lax.scan` over the images, on its default device.

    Returns a function that trains once on all images and returns W1 and W2.
    """
    jax = import_jax()
    jnp = jax.numpy

    def loss(weights: Tensor, image: Tensor, target: Tensor) -> Tensor:
        h = image
        for W in weights:
            h = jax.nn.sigmoid(jnp.matmul(W, h, precision="highest"))
        return 0.5 * ((h - target) ** 2).sum()

    def step(state: Tensor, example: Tensor) -> tuple[Tensor, None]:
        weights, velocities = state
        gradients = jax.grad(loss)(weights, *example)
        velocities = [MOMENTUM * v - ETA * g for v, g in zip(velocities, gradients, strict=True)]
        weights = [w + v for w, v in zip(weights, velocities, strict=True)]
        return (weights, velocities), None

    @partial(jax.jit, donate_argnums=0)
    def scan(state: Tensor, images: Tensor, targets: Tensor) -> Tensor:
        return jax.lax.scan(step, state, (images, targets))[0]

    state = [jnp.array(net.W1), jnp.array(net.W2)], [jnp.array(net.V1), jnp.array(net.V2)]
    there = jnp.array(images), jnp.array(np.eye(N_OUTPUTS, dtype=np.float32)[labels])

    def train() -> list[np.ndarray]:
        nonlocal state
        state = jax.block_until_ready(scan(state, *there))
        return [np.asarray(W) for W in state[0]]

    return train


def on_gpu() -> dict[str, Callable[[Net, np.ndarray, np.ndarray], Callable]]:
    """The peers that train on the GPU: by name, the function that makes one."""
    makers: dict[str, Callable[[Net, np.ndarray, np.ndarray], Callable]] = {
        "PyTorch eager, GPU": torch_eager,
        "PyTorch graph, GPU": torch_graph,
        "JAX scan, GPU": jax_scan,
    }
    return {name: makers[name] for name in peers.on_gpu()}
