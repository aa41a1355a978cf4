"""The GPU engine: the papers' kernels, one image and one weight update at a time.

For each image: pick it, propagate forward layer by layer, compute the output deltas, propagate them
back with the old weights, then update all weights. There are two schedules of these launches, and
both give the same bits:

- launch: one launch after another, as in the papers. A modern GPU is expected to wait for its host.
- graph: the launches of several images are captured in a CUDA graph, which is replayed. Which image
  comes next is read from device memory, so each replay trains other images.

Evaluation takes thousands of images at once through one layer after another.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mlp_gpu import gpu
from mlp_gpu.checks import check_training, flat_images
from mlp_gpu.engines import SCHEDULES
from mlp_gpu.gpu import DeviceArray, Launch, play
from mlp_gpu.kernels import backward, forward
from mlp_gpu.kernels.backward import propagate_back
from mlp_gpu.kernels.evaluate import evaluate
from mlp_gpu.kernels.forward import propagate_forward
from mlp_gpu.kernels.output import output_deltas
from mlp_gpu.kernels.pick import pick
from mlp_gpu.kernels.update import update
from mlp_gpu.network import Network, padded_shapes

IMAGES_PER_GRAPH = 20  # so that starting a graph should cost little beside running it
IMAGES_PER_TICK = 1000
PREDICT_BATCH = 5000  # images


def _shapes(sizes: tuple[int, ...]) -> dict[str, Sequence[tuple[int, ...]]]:
    """Shapes of the float32 arrays that a net needs on the GPU, a list for each kind."""
    W = padded_shapes(sizes)
    return {
        "weights": W,
        "states": [(n_in,) for n_in in sizes[:-1]],
        "deltas": [(n_out,) for n_out in sizes[1:]],
        "forward_partials": [
            forward.partial_shape(shape, n_in) for shape, n_in in zip(W, sizes, strict=False)
        ],
        "backward_partials": [backward.partial_shape(shape) for shape in W],
        "batch": [(PREDICT_BATCH, n) for n in sizes],
    }


def device_bytes(sizes: tuple[int, ...], n_images: int) -> int:
    """Memory on the GPU, in bytes, that training and evaluating a net needs.

    n_images: of an epoch, on the host. Images that are already on the GPU need no more memory.
    """
    n_floats = sum(int(np.prod(s)) for shapes in _shapes(sizes).values() for s in shapes)
    n_bytes = 4 * n_floats + 8  # the step
    return n_bytes + n_images * (4 * sizes[0] + 1 + 8 + 4)  # pixels, label, order, loss


class CudaEngine:
    """On-line training and batched prediction on the GPU. See `mlp_gpu.engines` for the methods.

    schedule: one of SCHEDULES. stream: on which everything is launched. All methods raise
    gpu.GpuFault if the GPU has too little memory or fails.
    """

    name = "cuda"

    @gpu.faults()
    def __init__(self, schedule: str = "graph"):
        if schedule not in SCHEDULES:
            raise ValueError(f"expected a schedule of {SCHEDULES}, got {schedule!r}")
        self.schedule = schedule
        self.stream = gpu.new_stream()
        self._step = gpu.device_array((1,), np.int64)
        self._net: dict[str, list[DeviceArray]] = {}  # arrays of `_shapes`
        # Own arrays for images, labels, order and losses of `train`.
        self._epoch: dict[str, DeviceArray] = {}
        # Images of the epoch: our own array, or one that `train` was given.
        self._images: DeviceArray = None

    @gpu.faults()
    def set_network(self, network: Network) -> None:
        self._sizes = network.sizes
        self._net, self._images = {}, None  # frees the old arrays before there are new ones
        self._net = {
            kind: [gpu.device_array(shape, np.float32) for shape in shapes]
            for kind, shapes in _shapes(network.sizes).items()
        }
        gpu.fill(zip(self._net["weights"], network.weights, strict=True), self.stream)

    @gpu.faults()
    def get_network(self) -> Network:
        return Network(self._sizes, tuple(gpu.read(self._net["weights"], self.stream)))

    @gpu.faults()
    def train(
        self,
        images: np.ndarray | DeviceArray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        images = flat_images(images, self._sizes[0])
        check_training(labels, order, images.shape[0], self._sizes[-1])
        hosts = {
            "labels": labels,
            "order": order.astype(np.int64),
            "losses": np.zeros(len(order), np.float32),
        }
        if not gpu.on_gpu(images):
            hosts["images"] = images
        pairs = [(self._array_like(name, host), host) for name, host in hosts.items()]
        gpu.fill([*pairs, (self._step, np.zeros(1, np.int64))], self.stream)
        self._images = images if gpu.on_gpu(images) else self._epoch["images"]

        launches = self.launches(eta)
        graph: gpu.Graph = None
        if self.schedule == "graph" and len(order) >= IMAGES_PER_GRAPH:
            graph = gpu.capture(lambda stream: play(launches * IMAGES_PER_GRAPH, stream))
        total = 0.0
        for start in range(0, len(order), IMAGES_PER_TICK):
            n = min(IMAGES_PER_TICK, len(order) - start)
            n_graphs = n // IMAGES_PER_GRAPH if graph else 0
            for _ in range(n_graphs):
                graph.launch(self.stream)
            play(launches * (n - n_graphs * IMAGES_PER_GRAPH), self.stream)
            (losses,) = gpu.read([self._epoch["losses"][start : start + n]], self.stream)
            loss = losses.sum(dtype=np.float64)
            total += loss
            tick(n, loss / n)
        return total / len(order)

    def launches(self, eta: float) -> list[Launch]:
        """The launches that train one image, in order. `train` has put images on the GPU before."""
        epoch, net = self._epoch, self._net
        W, h, delta = net["weights"], net["states"], net["deltas"]
        sums, back_sums = net["forward_partials"], net["backward_partials"]
        last = len(W) - 1
        found = pick(h[0], self._images, epoch["order"], self._step)
        for layer in range(last):
            found += propagate_forward(h[layer + 1], sums[layer], W[layer], h[layer])
        found += output_deltas(
            delta[last],
            epoch["losses"],
            self._step,
            sums[last],
            W[last],
            h[last],
            epoch["labels"],
            epoch["order"],
        )
        for layer in range(last, 0, -1):
            found += propagate_back(
                delta[layer - 1], back_sums[layer], W[layer], delta[layer], h[layer]
            )
        for layer in range(last + 1):
            found += update(W[layer], h[layer], delta[layer], eta)
        return found

    @gpu.faults()
    def predict(self, images: np.ndarray) -> np.ndarray:
        images = flat_images(images, self._sizes[0])
        outputs = np.empty((len(images), self._sizes[-1]), np.float32)
        for start in range(0, len(images), PREDICT_BATCH):
            part = images[start : start + PREDICT_BATCH]
            states = [array[: len(part)] for array in self._net["batch"]]
            states[0].copy_to_device(part, stream=self.stream)
            play(evaluate(states, self._net["weights"]), self.stream)
            (outputs[start : start + PREDICT_BATCH],) = gpu.read(states[-1:], self.stream)
        return outputs

    def _array_like(self, name: str, host: np.ndarray) -> DeviceArray:
        """The array of an epoch on the GPU: the last epoch's, or a new one if the shapes differ."""
        array = self._epoch.get(name)
        if array is None or array.shape != host.shape:
            array = self._epoch[name] = gpu.device_array(host.shape, host.dtype)
        return array
