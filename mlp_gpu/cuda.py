"""The GPU engine: the papers' kernels, one image and one weight update at a time.

For each image: pick it, propagate forward layer by layer, compute the output deltas, propagate them
back with the old weights, then update all weights. There are two schedules of these launches, and
both give the same bits:

- launch: one launch after another, as in the papers. A modern GPU waits for its host.
- graph: the launches of several images are captured in a CUDA graph, which is replayed. Which image
  comes next, and the learning rate, are read from device memory. So each replay trains other
  images, and a graph serves all epochs whose images are in the same place.

Evaluation takes thousands of images at once through one layer after another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.arrays import check_training, flat_images
from deepbig_runtime.gpu import DeviceArray, Launch, Stream, play
from mlp_gpu.engine import SCHEDULES
from mlp_gpu.kernels.pick import pick
from mlp_gpu.network import Network
from mlp_gpu.perceptron import Perceptron

IMAGES_PER_GRAPH = 20  # so that starting a graph should cost little beside running it
IMAGES_PER_TICK = 1000
PREDICT_BATCH = 5000  # images


def epoch_bytes(n_inputs: int, n_images: int) -> int:
    """Memory on the GPU, in bytes, that the images of an epoch and their losses need.

    n_images: on the host. Images that are already on the GPU need no more memory.
    """
    return 8 + 4 + n_images * (4 * n_inputs + 1 + 8 + 4)  # step, eta; pixels, label, order, loss


def device_bytes(sizes: tuple[int, ...], n_images: int) -> int:
    """Memory on the GPU, in bytes, that training and evaluating a net needs."""
    return Perceptron.device_bytes(sizes, PREDICT_BATCH) + epoch_bytes(sizes[0], n_images)


class OnlineCudaEngine(ABC):
    """The part of the GPU engine that all nets share: train image by image, predict in batches.

    A subclass sets the network, n_inputs, n_classes and batch_size (images that `predict_batch`
    takes), and knows the launches. schedule: one of SCHEDULES. stream: the engine's own CUDA
    stream, for all launches. All methods raise gpu.GpuFault if the GPU has too little memory or
    fails.
    """

    name = "cuda"
    n_inputs: int
    n_classes: int
    batch_size: int

    @gpu.faults()
    def __init__(self, schedule: str = "graph"):
        if schedule not in SCHEDULES:
            raise ValueError(f"expected a schedule of {SCHEDULES}, got {schedule!r}")
        self.schedule = schedule
        self.stream = gpu.new_stream()
        self.step = gpu.device_array((1,), np.int64)
        self.eta = gpu.device_array((1,), np.float32)  # the learning rate
        # Own arrays for images, labels, order and losses of `train`.
        self.epoch: dict[str, DeviceArray] = {}
        # Images of the epoch: our own array, or one that `train` was given.
        self.images: DeviceArray = None
        self._graphs: dict[tuple, gpu.Graph] = {}  # by where the images are

    @property
    def images_per_tick(self) -> int:
        """Images between two calls of `tick`."""
        return IMAGES_PER_TICK

    @abstractmethod
    def set_network(self, network: Any) -> None:
        """Take a copy of a network of the subclass's kind."""

    @abstractmethod
    def launches(self) -> list[Launch]:
        """The launches that train one image, in order. `train` has put images on the GPU before."""

    @abstractmethod
    def predict_batch(self, images: np.ndarray | DeviceArray) -> DeviceArray:
        """Launch the kernels that compute class probabilities of at most batch_size images."""

    @gpu.faults()
    def train(
        self,
        images: np.ndarray | DeviceArray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> float:
        images = flat_images(images, self.n_inputs)
        check_training(labels, order, images.shape[0], self.n_classes)
        hosts = {
            "labels": labels,
            "order": order.astype(np.int64),
            "losses": np.zeros(len(order), np.float32),
        }
        if not gpu.on_gpu(images):
            hosts["images"] = images
        pairs = [(self._array_like(name, host), host) for name, host in hosts.items()]
        numbers = (self.step, np.zeros(1, np.int64)), (self.eta, np.full(1, eta, np.float32))
        gpu.fill([*pairs, *numbers], self.stream)
        self.images = images if gpu.on_gpu(images) else self.epoch["images"]

        self._train_epoch(len(order), tick)
        # Of all losses at once: where chunks end depends on what this engine trained before.
        (losses,) = gpu.read([self.epoch["losses"]], self.stream)
        return float(losses.mean(dtype=np.float64))

    def _train_epoch(self, n_images: int, tick: Callable[[int, float], None]) -> None:
        """Train on the data that `train` has put on the GPU."""
        launches, graphs, place = self.launches(), self._graphs, gpu.array_key(self.images)
        for start in range(0, n_images, IMAGES_PER_TICK):
            n = min(IMAGES_PER_TICK, n_images - start)
            n_graphs = 0
            if self.schedule == "graph":
                # At least one image goes before the graph: the first launch of a kernel compiles
                # and loads it, which drivers before CUDA 12.3 may refuse while one is captured.
                n_graphs = (n - (place not in graphs)) // IMAGES_PER_GRAPH
            play(launches * (n - n_graphs * IMAGES_PER_GRAPH), self.stream)
            if n_graphs and place not in graphs:
                work = launches * IMAGES_PER_GRAPH
                graphs[place] = gpu.capture(partial(play, work))
            for _ in range(n_graphs):
                graphs[place].launch(self.stream)
            self._tell_losses(start, n, tick, self.stream)

    def _tell_losses(
        self, start: int, n: int, tick: Callable[[int, float], None], stream: Stream
    ) -> None:
        """Wait for n images of the epoch from `start` on, and tell of them.

        stream: on which they are trained, or one that waits for it.
        """
        (losses,) = gpu.read([self.epoch["losses"][start : start + n]], stream)
        tick(n, float(losses.mean(dtype=np.float64)))

    @gpu.faults()
    def keep(self, images: np.ndarray) -> np.ndarray | DeviceArray:
        if images.nbytes > gpu.free_bytes() // 2:  # leaves room for what other programs take
            return images
        try:
            kept = gpu.device_array(images.shape, images.dtype)
        except gpu.GpuFault:  # another program was faster
            return images
        gpu.fill([(kept, images)], self.stream)
        return kept

    @gpu.faults()
    def predict(self, images: np.ndarray | DeviceArray) -> np.ndarray:
        images = flat_images(images, self.n_inputs)
        outputs = np.empty((len(images), self.n_classes), np.float32)
        for start in range(0, len(images), self.batch_size):
            part = slice(start, start + self.batch_size)
            (outputs[part],) = gpu.read([self.predict_batch(images[part])], self.stream)
        return outputs

    def forget(self, *arrays: str) -> None:
        """Free the arrays of the old network, before memory is taken for a new one.

        arrays: attributes of the subclass.
        """
        self.images = None
        self._drop_graphs()
        for name in arrays:
            vars(self).pop(name, None)

    def _drop_graphs(self) -> None:
        gpu.synchronize(self.stream)  # one of them may be running
        self._graphs.clear()

    def _array_like(self, name: str, host: np.ndarray) -> DeviceArray:
        """The array of an epoch on the GPU: the last epoch's, or a new one if the shapes differ."""
        array = self.epoch.get(name)
        if array is None or array.shape != host.shape:
            self._drop_graphs()  # they use the old one
            array = self.epoch[name] = gpu.device_array(host.shape, host.dtype)
        return array


class CudaEngine(OnlineCudaEngine):
    """On-line training and batched prediction on the GPU. See `mlp_gpu.engine` for the methods."""

    @gpu.faults()
    def set_network(self, network: Network) -> None:
        self._sizes = network.sizes
        self.n_inputs, self.n_classes = network.sizes[0], network.sizes[-1]
        self.forget("_net")
        self.batch_size = PREDICT_BATCH
        self._net = Perceptron(network.sizes, self.batch_size)
        gpu.fill(zip(self._net.weights, network.weights, strict=True), self.stream)

    @gpu.faults()
    def get_network(self) -> Network:
        return Network(self._sizes, tuple(gpu.read(self._net.weights, self.stream)))

    def launches(self) -> list[Launch]:
        return [
            *pick(self._net.states[0], self.images, self.epoch["order"], self.step),
            *self._net.forward(self.epoch, self.step),
            *self._net.backward(),
            *self._net.update(self.eta),
        ]

    def predict_batch(self, images: np.ndarray | DeviceArray) -> DeviceArray:
        inputs = self._net.batch[0][: len(images)]
        inputs.copy_to_device(images, stream=self.stream)
        outputs, launches = self._net.evaluate(inputs)
        play(launches, self.stream)
        return outputs
