"""The arrays of a net that is trained by windows, and the launches on them."""

import math
from itertools import chain, pairwise

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.gpu import DeviceArray, Launch
from mlp_gpu.network import pad32, padded_shapes
from mlp_gpu.tensor_cores import fastest
from mlp_gpu.window import blocks, products, progress, sums


class Workspace:
    """The arrays of a net, float32, and the launches that train it.

    sizes: as `mlp_gpu.network.Network` has them. weights: of each layer, (pad32(n_in + 1),
    pad32(n_out)). n_block: images of a block, at most sums.MAX_BLOCK. cc: the GPU's compute
    capability. Raises gpu.GpuFault if there is too little memory.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        weights: list[DeviceArray],
        n_block: int,
        cc: tuple[int, int],
    ):
        self._sizes, self._weights, self._n_block = sizes, weights, n_block
        self._cc = cc
        shapes = self._shapes(sizes, n_block)
        self.progress = gpu.device_array((progress.FIELDS,), np.int32)
        self._changes = gpu.device_array(progress.changes_shape(len(weights)), np.int32)
        self._inputs = gpu.device_array((len(weights),), np.int32)  # of each layer, with the bias's
        self._arrays = {
            kind: [gpu.device_array(shape, np.float32) for shape in some]
            for kind, some in shapes.items()
        }

    @staticmethod
    def _shapes(sizes: tuple[int, ...], n_block: int) -> dict[str, list[tuple[int, ...]]]:
        W, n_window = padded_shapes(sizes), progress.most_images(n_block)
        forward = [(rows, columns, n_block, n_window) for rows, columns in W]
        forward[0] = (*W[0], n_block, n_block)
        backward = [(columns, rows, n_block, n_window) for rows, columns in W[1:]]
        return {
            "inputs": [(n_block, pad32(n + 1)) for n in sizes],
            "deltas": [(n_block, columns) for _, columns in W],
            "forward": [products.partial_shape(*shape) for shape in forward],
            "backward": [products.partial_shape(*shape) for shape in backward],
        }

    @classmethod
    def device_bytes(cls, sizes: tuple[int, ...], n_block: int) -> int:
        """Memory on the GPU, in bytes, of all arrays but the weights."""
        shapes = chain.from_iterable(cls._shapes(sizes, n_block).values())
        changes = progress.changes_shape(len(sizes) - 1)
        few = progress.FIELDS + len(sizes) - 1
        return 4 * (sum(math.prod(shape) for shape in (*shapes, changes)) + few)

    def blank(self) -> list[tuple[DeviceArray, np.ndarray]]:
        """Arrays that must be filled once, with their content."""
        pairs = [
            (array, np.zeros(array.shape, np.float32))
            for kind in ("inputs", "deltas")
            for array in self._arrays[kind]
        ]
        for _, inputs in pairs[: len(self._sizes)]:
            inputs[:, 0] = 1  # the factor of the biases
        return [*pairs, (self._inputs, np.add(self._sizes[:-1], 1, dtype=np.int32))]

    def at_start(self, n_images: int) -> list[tuple[DeviceArray, np.ndarray]]:
        """Arrays that must be filled before an epoch of n_images, with their content."""
        return [
            (self.progress, progress.at_start(self._n_block, n_images)),
            (self._changes, np.zeros(self._changes.shape, np.int32)),
        ]

    def begin_block(self, images: DeviceArray, order: DeviceArray) -> list[Launch]:
        """If a block has just begun: gather its images, and layer 1's products for all of them.

        images: (n, n_in). order: (m,).
        """
        H = self._arrays["inputs"][0]
        A, W = self._arrays["forward"][0], self._weights[0]
        found = blocks.gather(H, self.progress, images, order)
        found += products.forward(A, self.progress, H, W, whole=True)
        return fastest(found, self._cc)

    def sweep(self, epoch: dict[str, DeviceArray], eta: DeviceArray) -> list[Launch]:
        """All images of the window once forward and backward; then it slides.

        epoch: labels, order and losses. Modifies the losses.
        """
        W, last, progress_, sizes = (
            self._weights,
            len(self._weights) - 1,
            self.progress,
            self._sizes,
        )
        H, D, A = (self._arrays[kind] for kind in ("inputs", "deltas", "forward"))
        changes = self._changes
        found: list[Launch] = []
        for layer, (_, n_out) in enumerate(pairwise(sizes)):
            if layer > 0:
                found += products.forward(A[layer], progress_, H[layer], W[layer])
            found += sums.forward(
                H[layer + 1], A[layer], progress_, D[layer], eta, n_out, layer < last
            )
        found += sums.outputs(D[last], changes, progress_, H[-1], epoch, sizes[-1])
        for layer in range(last, 0, -1):
            E = self._arrays["backward"][layer - 1]
            found += products.backward(E, progress_, D[layer], W[layer])
            found += sums.backward(
                D[layer - 1], changes, E, progress_, H[layer], eta, layer - 1, sizes[layer]
            )
        return fastest(found + progress.slide(progress_, changes, self._inputs, eta), self._cc)

    def end_block(self, eta: DeviceArray, n_images: int) -> list[Launch]:
        """If all images of the block are done: the update of all weights, then the next block.

        n_images: of the epoch.
        """
        found: list[Launch] = []
        layers = zip(
            self._weights, self._arrays["inputs"][:-1], self._arrays["deltas"], strict=True
        )
        for (W, H, D), (n_in, n_out) in zip(layers, pairwise(self._sizes), strict=True):
            found += blocks.update(W, self.progress, H, D, eta, n_in, n_out)
        found += progress.end_block(self.progress, self._n_block, n_images)
        return fastest(found, self._cc)
