"""The convolutional nets of the benchmark, trained by other programs, one image per step.

By our loops over connections, and by PyTorch in three ways: as its regular users write it, at its
best, and compiled. At its best means that a few steps are timed with each setting before the
fastest one is measured. Absent connections are weights that each step sets to zero again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from cnn_gpu.layers import FULLY_CONNECTED, Layer
from cnn_gpu.network import ConvNetwork, weight_mask
from experiments.running import provenance
from experiments.running.formatting import plural
from experiments.timing import connections, peers
from experiments.timing.peers import Peer, Tensor, TorchNet

# Of a layer's weights, relative to how far they moved. Rounding stays far below, a step that is
# not the same one does not.
MAX_DISTANCE = 1e-2


@dataclass(frozen=True)
class Settings:
    """What PyTorch may choose on a CPU.

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


def kernels_of(layer: Layer, W: np.ndarray) -> np.ndarray:
    """Weights without their biases as PyTorch has them, (maps, source maps, height, width)."""
    return W[1:].reshape(*layer.kernel, layer.source.n, layer.maps.n).transpose(3, 2, 0, 1).copy()


def matrix_of(layer: Layer, kernels: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A layer's weights as `cnn_gpu.network` has them; the inverse of `kernels_of`."""
    kernels = kernels.reshape(layer.maps.n, layer.source.n, *layer.kernel)
    return np.vstack((bias, kernels.transpose(2, 3, 1, 0).reshape(-1, layer.maps.n)))


def torch_net(
    network: ConvNetwork,
    images: np.ndarray,
    labels: np.ndarray,
    eta: float,
    device: str,
    channels_last: bool = False,
) -> tuple[TorchNet, Callable[[], list[np.ndarray]]]:
    """The net in PyTorch, and a function that gives its weights.

    Raises ValueError unless all layers have weights.
    """
    import torch

    order = torch.channels_last if channels_last else torch.contiguous_format
    layers: list[Any] = []
    modules: list[Any] = []
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
    maps = images.reshape(-1, source.height, source.width, source.n).transpose(0, 3, 1, 2)
    net = TorchNet(layers, maps.copy(), labels, eta, device, masks)
    net.images = net.images.contiguous(memory_format=order)
    return net, weights


def torch_by_hand(
    network: ConvNetwork, images: np.ndarray, labels: np.ndarray, eta: float, settings: Settings
) -> Peer:
    """PyTorch with its autograd and without its optimizer, which takes longer."""
    net, weights = torch_net(network, images, labels, eta, "cpu", settings.channels_last)
    torch, parameters = net.torch, list(net.model.parameters())
    loss = torch.nn.functional.cross_entropy

    def train() -> None:
        with settings.in_force():
            for i in range(len(net.images)):
                outputs = net.model(net.images[i : i + 1])
                gradients = torch.autograd.grad(loss(outputs, net.labels[i : i + 1]), parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.add_(gradient, alpha=-eta)
                net.keep_zeros()

    return Peer(train, weights, f" ({settings})")


def torch_compiled_step(
    network: ConvNetwork, images: np.ndarray, labels: np.ndarray, eta: float, settings: Settings
) -> Peer:
    """PyTorch, a whole step compiled by torch.compile: forward, backward and update."""
    net, weights = torch_net(network, images, labels, eta, "cpu", settings.channels_last)
    torch = net.torch
    parameters = {name: one.detach() for name, one in net.model.named_parameters()}  # not copied
    masks = {
        name: mask
        for name, one in net.model.named_parameters()
        for weight, mask in net.masks
        if weight is one
    }

    def loss(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        outputs = torch.func.functional_call(net.model, parameters, (image,))
        return torch.nn.functional.cross_entropy(outputs, label)

    @torch.compile
    def step(image: Tensor, label: Tensor) -> None:
        for name, gradient in torch.func.grad(loss)(parameters, image, label).items():
            parameters[name].sub_(eta * gradient)
            if name in masks:
                parameters[name].mul_(masks[name])

    def train() -> None:
        with settings.in_force(), torch.no_grad():
            for i in range(len(net.images)):
                step(net.images[i : i + 1], net.labels[i : i + 1])

    return Peer(train, weights, f" ({settings})")


def all_settings() -> list[Settings]:
    """Every way that PyTorch can train on this processor."""
    threads = sorted({1, provenance.cores()})
    return [Settings(*one) for one in product(threads, (True, False), (False, True))]


def compiled_settings() -> list[Settings]:
    """Those that one compilation serves: it takes a minute, and others a minute each."""
    return [Settings(one_dnn=one_dnn) for one_dnn in (True, False)]


def on_cpu() -> dict[str, Callable[..., Peer]]:
    """The peers that train on the CPU: by name, the function that makes one."""
    makers: dict[str, Callable[..., Peer]] = {"loops over connections, CPU": connections.loops}
    if not peers.import_error("torch"):
        best = partial(peers.fastest, make=torch_by_hand, choices=all_settings())
        compiled = partial(peers.fastest, make=torch_compiled_step, choices=compiled_settings())
        makers["PyTorch eager, CPU"] = partial(peers.torch_eager, build=torch_net)
        makers["PyTorch eager at its best, CPU"] = best
        makers["PyTorch compiled, CPU"] = compiled
    return makers


def on_gpu() -> dict[str, Callable[..., Peer]]:
    """The peers that train on the GPU: by name, the function that makes one."""
    if peers.import_error("torch") or not peers.torch_sees_a_gpu():
        return {}
    import torch

    torch.backends.cudnn.allow_tf32 = False  # else convolutions multiply in less than float32
    torch.backends.cudnn.benchmark = True  # tries cuDNN's algorithms and keeps the fastest
    return {
        "PyTorch eager, GPU": partial(peers.torch_eager, device="cuda", build=torch_net),
        "PyTorch graph, GPU": partial(peers.torch_graph, build=torch_net),
    }


def check(peer: Peer, before: ConvNetwork, trained: ConvNetwork) -> None:
    """See that a peer has taken the steps that our engine has taken from `before` to `trained`.

    Raises ValueError if a layer's weights are too far apart.
    """
    layers = zip(peer.weights(), before.weights, trained.weights, strict=True)
    for number, (found, W, V) in enumerate(layers, start=1):
        if W is not None and V is not None:
            distance = np.linalg.norm(found - V) / np.linalg.norm(V - W)
            if not distance <= MAX_DISTANCE:
                raise ValueError(
                    f"it does not train the same net: in layer {number} its weights are "
                    f"{distance:.2g} of their way off"
                )
