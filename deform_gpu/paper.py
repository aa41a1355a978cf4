"""Deform a set of images as the papers did: convolution on the GPU, all else on the host.

2010, appendix, and 2012, section 4: batch after batch, the host draws the random field, the GPU
convolves it by Listing 1, and the host maps and interpolates. This is kept for benchmarks.
Trainings use `deform_gpu.cuda`.
"""

import numpy as np

from deepbig_runtime import gpu
from deform_gpu.batches import BATCH, make_matrices
from deform_gpu.checks import check_epoch
from deform_gpu.field import GRID, KERNEL, MARGIN, fill_field, gaussian_weights
from deform_gpu.kernels.listing1 import convolve
from deform_gpu.parameters import Deformation
from deform_gpu.philox import split_seed
from deform_gpu.warp import warp_batch
from mlp_gpu.network import pad32


class PaperSet:
    """Images on the host, with arrays on the GPU to convolve the field of a batch.

    images: (n, side, side) float32, C order. labels: (n,) integers in 0..9. deformation, seed: as
    for `deform_gpu.deform`.

    Raises gpu.GpuFault if the GPU has too little memory. Labels and seed are checked by `deform`.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, deformation: Deformation, seed: int):
        self._images, self._labels = images, labels
        self._deformation, self._seed = deformation, seed
        inner = GRID * images.shape[1]
        padded = inner + 2 * MARGIN
        self._stream = gpu.new_stream()
        self._field = np.zeros((2, padded, pad32(padded)), np.float32)
        self._displacement = np.empty((2, inner, pad32(inner)), np.float32)
        weights = gaussian_weights(deformation.sigma)
        kernel = np.zeros((KERNEL, pad32(KERNEL)), np.float32)
        kernel[:, :KERNEL] = np.outer(weights, weights)
        self._gpu_kernel = gpu.device_array(kernel.shape, np.float32)
        self._gpu_kernel.copy_to_device(kernel, stream=self._stream)
        self._gpu_field = gpu.device_array(self._field[0].shape, np.float32)
        self._gpu_displacement = gpu.device_array(self._displacement[0].shape, np.float32)
        gpu.synchronize(self._stream)

    def deform(self, out: np.ndarray, epoch: int) -> None:
        """Deform the set for an epoch. out: float32, the shape of images, C order; modified.

        Raises ValueError for labels, a seed or an epoch that do not fit.
        """
        side = self._images.shape[1]
        matrices = make_matrices(self._labels, self._deformation, self._seed, epoch, side=side)
        key = (*split_seed(self._seed), check_epoch(epoch))
        background = np.float32(self._deformation.background)
        for batch in range(-(-len(out) // BATCH)):
            fill_field(self._field[:, :, : self._field.shape[1]], 0, *key, np.uint32(batch))
            for axis in range(2):
                self._convolve(axis)
            own = slice(batch * BATCH, (batch + 1) * BATCH)
            inner = self._displacement.shape[1]
            shift = self._displacement[:, :, :inner]
            warp_batch(out[own], self._images[own], matrices[own], shift, 0, background)

    def _convolve(self, axis: int) -> None:
        """The displacement along an axis: copy the field to the GPU, convolve it, copy it back."""
        stream, width = self._stream, self._displacement.shape[1]
        self._gpu_field.copy_to_device(self._field[axis], stream=stream)
        displacement = self._gpu_displacement
        alpha = self._deformation.alpha
        gpu.play(convolve(displacement, self._gpu_field, self._gpu_kernel, alpha, width), stream)
        displacement.copy_to_host(self._displacement[axis], stream=stream)
        gpu.synchronize(stream)
