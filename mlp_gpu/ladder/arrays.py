"""The arrays that all rungs have on the GPU, and the launches of one step of rungs 1 to 6."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.gpu import DeviceArray, Launch, Stream
from mlp_gpu.ladder.net import N_OUTPUTS, Net

THREADS = 256  # per block of an update


@dataclass(frozen=True, eq=False)
class Arrays:
    """A net, an epoch, and what is computed of an image, on the GPU.

    W1 to V2: as in `net.Net`, or, if transposed, with rows and columns exchanged. y1 and delta1
    (hidden,), y2 and delta2 (10,): states and deltas. images (n, 784); all float32. labels uint8
    (n,). order int64 (m,): the image of each step. step int64 (1,): how many steps were made.
    """

    transposed: bool
    W1: DeviceArray
    W2: DeviceArray
    V1: DeviceArray
    V2: DeviceArray
    y1: DeviceArray
    y2: DeviceArray
    delta1: DeviceArray
    delta2: DeviceArray
    images: DeviceArray
    labels: DeviceArray
    order: DeviceArray
    step: DeviceArray

    @property
    def hidden(self) -> int:
        """The number of hidden neurons."""
        return self.y1.shape[0]

    @property
    def steps(self) -> int:
        """The number of steps in the epoch."""
        return self.order.shape[0]


def hosts(
    net: Net, images: np.ndarray, labels: np.ndarray, order: np.ndarray, transposed: bool
) -> list[np.ndarray]:
    """What the fields of `Arrays` from W1 on begin with. What is to be computed is NaN.

    images float32 (n, 784), labels uint8 (n,), order integers (m,), indices of images.
    """
    weights = [W.T if transposed else W for W in net.arrays]
    states = [np.full(n, np.nan, np.float32) for n in (net.hidden, N_OUTPUTS) * 2]
    return [*weights, *states, images, labels, order.astype(np.int64), np.zeros(1, np.int64)]


def put(
    net: Net,
    images: np.ndarray,
    labels: np.ndarray,
    order: np.ndarray,
    transposed: bool,
    stream: Stream,
) -> Arrays:
    """Copy a net and an epoch to the GPU. The arguments are those of `hosts`."""
    found = hosts(net, images, labels, order, transposed)
    there = [gpu.device_array(host.shape, host.dtype) for host in found]
    gpu.fill(zip(there, found, strict=True), stream)
    return Arrays(transposed, *there)


def read(arrays: Arrays, stream: Stream) -> Net:
    """Copy the net back, when everything on the stream is done."""
    weights = gpu.read((arrays.W1, arrays.W2, arrays.V1, arrays.V2), stream)
    transposed = [np.ascontiguousarray(W.T) if arrays.transposed else W for W in weights]
    return Net(*transposed)


def launches(a: Arrays, kernels: Iterable[Callable], rates: tuple = ()) -> list[Launch]:
    """The launches that make one step, in order, of the kernels that rungs 1 to 6 have.

    kernels: the forward pass, the deltas, the update of layer 2, that of layer 1. rates: what the
    updates take besides arrays.
    """
    forward, deltas, update_outputs, update_hidden = kernels
    blocks2, blocks1 = (-(-W.size // THREADS) for W in (a.W2, a.W1))
    states, now = (a.y1, a.y2), (a.order, a.step)
    deltas_of = (a.delta1, a.delta2, *states, a.W2, a.labels, *now)
    outputs = (a.W2, a.V2, a.delta2, a.y1, *rates)
    hidden = (a.W1, a.V1, a.delta1, a.images, *now, *rates)
    return [
        Launch(forward, (1, 1), a.hidden, (*states, a.W1, a.W2, a.images, *now)),
        Launch(deltas, (1, 1), a.hidden, deltas_of),
        Launch(update_outputs, (blocks2, 1), THREADS, outputs),
        Launch(update_hidden, (blocks1, 1), THREADS, hidden),
    ]
