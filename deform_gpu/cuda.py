"""Deform a set of images on the GPU, at once or one epoch ahead of the training."""

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.gpu import DeviceArray, Launch, Stream, play
from deform_gpu.checks import check_epoch, check_images, check_place
from deform_gpu.field import KERNEL, gaussian_weights
from deform_gpu.kernels import matrices, tiles
from deform_gpu.parameters import Deformation
from deform_gpu.philox import split_seed


class GpuSet:
    """A set of images on the GPU, with the arrays that its deformation needs.

    images: (n, side, side) float32 on the host, C order, n >= 1. labels, deformation, seed, first:
    as for `deform_gpu.deform`. stream: on which images are copied and deformed. The attributes
    images, weights (those of the Gaussian) and matrices (drawn for each epoch) are on the GPU.

    Raises ValueError for any other input, gpu.GpuFault if the GPU has too little memory or fails.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray | None,
        deformation: Deformation,
        seed: int,
        first: int,
        stream: Stream,
    ):
        check_images("images", images)
        first = check_place(first, len(images))
        beta = deformation.beta_of(labels, len(images))
        self.shape = images.shape
        self._deformation, self._key, self._first = deformation, split_seed(seed), first
        hosts = images, beta, gaussian_weights(deformation.sigma)
        arrays = [gpu.device_array(host.shape, np.float32) for host in hosts]
        gpu.fill(zip(arrays, hosts, strict=True), stream)
        self.images, self._beta, self.weights = arrays
        self.matrices = gpu.device_array((len(images), 2, 3), np.float32)

    def launches(self, out: DeviceArray, epoch: int) -> list[Launch]:
        """The launches that deform the set for an epoch, in order. They modify out.

        out: (n, side, side) float32.
        """
        key, shape = (*self._key, check_epoch(epoch)), self._deformation
        return [
            *matrices.draw(self.matrices, self._beta, shape, key, self._first, self.shape[1]),
            *tiles.deform(out, self.images, self.matrices, self.weights, shape, key, self._first),
        ]


@gpu.faults()
def deform_set(
    images: np.ndarray,
    labels: np.ndarray | None,
    deformation: Deformation,
    seed: int,
    epoch: int,
    first: int = 0,
) -> np.ndarray:
    """Deformed copies of images, (n, side, side) float32, on the host.

    The arguments are those of `deform_gpu.deform`. images: float32, C order, n >= 1.
    """
    stream = gpu.new_stream()
    gpu_set = GpuSet(images, labels, deformation, seed, first, stream)
    out = gpu.device_array(images.shape, np.float32)
    play(gpu_set.launches(out, epoch), stream)
    (found,) = gpu.read([out], stream)
    return found


class DeformedAhead:
    """The deformed images of each epoch, on the GPU, made while the epoch before is trained.

    It has two buffers and a stream of its own. A call with an epoch waits until the images of that
    epoch are ready, starts to deform those of the next epoch into the other buffer, and returns the
    images, float32 (n, side * side) on the GPU. Training on them must end before the next call,
    because that call starts to overwrite them.

    images, labels, deformation, seed: as for `deform_gpu.deform`. last_epoch: the last epoch that
    will be asked for. events: CUDA's, recorded at the beginning and at the end of the last
    deformation that was started. Raises ValueError and gpu.GpuFault as GpuSet does.
    """

    @gpu.faults()
    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray | None,
        deformation: Deformation,
        seed: int,
        last_epoch: int,
    ):
        self._stream = gpu.new_stream()
        self._set = GpuSet(images, labels, deformation, seed, 0, self._stream)
        self._buffers = [gpu.device_array(images.shape, np.float32) for _ in range(2)]
        self.events = gpu.cuda.event(), gpu.cuda.event()
        self._last_epoch = last_epoch
        self._started: int | None = None  # the epoch that is being deformed, or was last

    @gpu.faults()
    def __call__(self, epoch: int) -> DeviceArray:
        if self._started != epoch:
            self._start(epoch)
        gpu.synchronize(self._stream)
        if epoch < self._last_epoch:
            self._start(epoch + 1)
        return self._buffers[epoch % 2].reshape(self._set.shape[0], -1)

    def _start(self, epoch: int) -> None:
        begin, end = self.events
        begin.record(self._stream)
        play(self._set.launches(self._buffers[epoch % 2], epoch), self._stream)
        end.record(self._stream)
        self._started = epoch


def device_bytes(n: int, side: int) -> int:
    """Memory on the GPU, in bytes, that `DeformedAhead` needs for n images."""
    # images and two buffers; beta; matrices; weights
    return 4 * (3 * n * side**2 + n + 6 * n + KERNEL)
