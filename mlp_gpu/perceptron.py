"""A multi-layer perceptron on the GPU: its arrays, and the launches of the papers' kernels on them.

Convolutional nets end in one too.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from deepbig_runtime.gpu import DeviceArray, Launch
from mlp_gpu.kernels import backward, evaluate, forward
from mlp_gpu.kernels.backward import propagate_back
from mlp_gpu.kernels.forward import propagate_forward
from mlp_gpu.kernels.output import output_deltas
from mlp_gpu.kernels.update import MAX_INPUTS, update
from mlp_gpu.network import padded_shapes
from mlp_gpu.tensor_cores import fastest


class Perceptron:
    """The arrays of a net, float32, and the launches that train or evaluate it.

    sizes: as `mlp_gpu.network.Network` has them. n_batch: images that are evaluated at once.

    weights: as the network's. states: the input of each layer, states[0] (n_in,). deltas:
    of each layer. input_deltas: those of the neurons that give the inputs, (n_in,). batch: the
    inputs and the states of each layer for n_batch images. Raises gpu.GpuFault if there is too
    little memory, or a layer has more inputs than the kernels take.
    """

    def __init__(self, sizes: tuple[int, ...], n_batch: int):
        if (most := max(sizes[:-1])) > MAX_INPUTS:
            raise GpuFault(
                f"a layer has {most:,} inputs; the GPU's kernels take at most {MAX_INPUTS:,}; take "
                "the CPU"
            )
        arrays = {
            kind: [gpu.device_array(shape, np.float32) for shape in shapes]
            for kind, shapes in self._shapes(sizes, n_batch).items()
        }
        self.weights, self.states = arrays["weights"], arrays["states"]
        (self.input_deltas, *self.deltas), self.batch = arrays["deltas"], arrays["batch"]
        self._forward_partials = arrays["forward_partials"]
        self._backward_partials = arrays["backward_partials"]

    @staticmethod
    def _shapes(sizes: tuple[int, ...], n_batch: int) -> dict[str, Sequence[tuple[int, ...]]]:
        W = padded_shapes(sizes)
        return {
            "weights": W,
            "states": [(n_in,) for n_in in sizes[:-1]],
            "deltas": [(n,) for n in sizes],
            "forward_partials": [
                forward.partial_shape(shape, n_in) for shape, n_in in zip(W, sizes, strict=False)
            ],
            "backward_partials": [backward.partial_shape(shape) for shape in W],
            "batch": [(n_batch, n) for n in sizes],
        }

    @classmethod
    def device_bytes(cls, sizes: tuple[int, ...], n_batch: int) -> int:
        """Memory on the GPU, in bytes, of all arrays."""
        shapes = chain.from_iterable(cls._shapes(sizes, n_batch).values())
        return 4 * sum(int(np.prod(shape)) for shape in shapes)

    def forward(self, epoch: dict[str, DeviceArray], step: DeviceArray) -> list[Launch]:
        """From the inputs to the output layer's deltas and loss. They increase the step.

        epoch: labels, order and losses, as `kernels.output` has them.
        """
        W, h, last = self.weights, self.states, len(self.weights) - 1
        found = []
        for layer in range(last):
            found += propagate_forward(
                h[layer + 1], self._forward_partials[layer], W[layer], h[layer]
            )
        return found + output_deltas(
            self.deltas[last],
            epoch["losses"],
            step,
            self._forward_partials[last],
            W[last],
            h[last],
            epoch["labels"],
            epoch["order"],
        )

    def backward(self, to_inputs: bool = False) -> list[Launch]:
        """The deltas of all layers from those of the last; if to_inputs, input_deltas too."""
        deltas = [self.input_deltas, *self.deltas]
        found = []
        for layer in range(len(self.weights) - 1, -1 if to_inputs else 0, -1):
            found += propagate_back(
                deltas[layer],
                self._backward_partials[layer],
                self.weights[layer],
                deltas[layer + 1],
                self.states[layer],
            )
        return found

    def update(self, eta: DeviceArray) -> list[Launch]:
        """One step of gradient descent on all layers. eta: the learning rate, (1,) float32."""
        layers = zip(self.weights, self.states, self.deltas, strict=True)
        return [launch for W, h, delta in layers for launch in update(W, h, delta, eta)]

    def evaluate(self, inputs: DeviceArray) -> tuple[DeviceArray, list[Launch]]:
        """The array that gets the class probabilities, (n, n_classes), and the launches.

        inputs: the first n rows of batch[0].
        """
        states = [inputs, *(array[: inputs.shape[0]] for array in self.batch[1:])]
        launches = evaluate.evaluate(states, self.weights)
        return states[-1], fastest(launches, gpu.compute_capability())
