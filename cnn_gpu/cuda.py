"""The GPU engine for convolutional nets: the kernels of the 2011 paper, one image at a time.

For each image: pick it, propagate forward layer by layer, compute the output deltas, pull the
deltas back with the old weights, then adjust all weights. Fully connected layers are a perceptron,
with the kernels of 2010. The schedules of launches, which give the same bits, are in
`mlp_gpu.cuda`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cnn_gpu import filters
from cnn_gpu.kernels import backward, blocks, forward, layout, pooling, processing, weights
from cnn_gpu.layers import (
    CONVOLUTION,
    FULLY_CONNECTED,
    IMAGE_PROCESSING,
    MAX_POOLING,
    Layer,
)
from cnn_gpu.network import ConvNetwork, connection_kernels, weight_matrix
from deepbig_runtime import gpu
from deepbig_runtime.gpu import DeviceArray, Launch, play
from mlp_gpu.cuda import PREDICT_BATCH, OnlineCudaEngine, epoch_bytes
from mlp_gpu.kernels.pick import pick
from mlp_gpu.network import pad32
from mlp_gpu.perceptron import Perceptron

BATCH_BYTES = 1 << 29  # of states, for the images that are evaluated at once

Arrays = dict[str, DeviceArray]


def map_layers(network: ConvNetwork) -> list[Layer]:
    """The layers before the fully connected ones."""
    return [layer for layer in network.layers if layer.kind != FULLY_CONNECTED]


def perceptron_sizes(network: ConvNetwork) -> tuple[int, ...]:
    """Sizes of the perceptron that the fully connected layers are."""
    connected = network.layers[len(map_layers(network)) :]
    return connected[0].source.n_neurons, *(layer.maps.n for layer in connected)


def padded(W: np.ndarray) -> np.ndarray:
    """A fully connected layer's weights as `mlp_gpu.network` has them."""
    padded_W = np.zeros((pad32(W.shape[0]), pad32(W.shape[1])), np.float32)
    padded_W[: W.shape[0], : W.shape[1]] = W
    return padded_W


def constants_of(
    layer: Layer, W: np.ndarray | None, table: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The initial arrays of a layer of maps, by the names of its kernels' arguments.

    A convolution has weights, biases and tables, image processing its filters. Raises ValueError if
    a line of a kernel has more weights, its bias included, than a block can have threads.
    """
    if layer.kind == IMAGE_PROCESSING:
        return {"bank": filters.bank(layer.filters)}
    if W is None or table is None:
        return {}
    if layer.kernel[1] >= blocks.MAX_THREADS:
        raise ValueError(
            f"a kernel is {layer.kernel[1]} weights wide; the GPU's are narrower than "
            f"{blocks.MAX_THREADS}; take the CPU"
        )
    w = connection_kernels(layer, W, table)
    readers, numbers = backward.tables(table)
    found = {"w": w, "bias": W[0], "connections": forward.table(table), "readers": readers}
    return found | {"numbers": numbers, "pairs": weights.pairs_of(table)}


def new_arrays(layer: Layer, n_batch: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shapes and types of the arrays that a layer of maps computes, by argument name."""
    y = blocks.shape(layer.maps, n_batch)
    found: dict[str, tuple[tuple[int, ...], type]] = {"y": (y, np.float32)}
    found["delta"] = blocks.shape(layer.maps, 1), np.float32
    return found | ({"winners": (y, np.int32)} if layer.kind == MAX_POOLING else {})


def batch_size(network: ConvNetwork) -> int:
    """How many images are evaluated at once."""
    if not (layers := map_layers(network)):
        return PREDICT_BATCH
    maps = [network.source, *(layer.maps for layer in layers)]
    n_bytes = 4 * sum(int(np.prod(blocks.shape(one, 1))) for one in maps)
    return max(1, min(PREDICT_BATCH, BATCH_BYTES // n_bytes))


def device_bytes(network: ConvNetwork, n_images: int) -> int:
    """Memory on the GPU, in bytes, that training and evaluating a net needs.

    n_images: of an epoch, on the host.
    """
    n = batch_size(network)
    n_bytes = epoch_bytes(network.source.n_neurons, n_images)
    n_bytes += Perceptron.device_bytes(perceptron_sizes(network), n)
    if layers := map_layers(network):
        n_numbers = n * network.source.n_neurons + int(np.prod(blocks.shape(network.source, n)))
        for layer, W, table in zip(layers, network.weights, network.connections, strict=False):
            n_numbers += sum(int(np.prod(shape)) for shape, _ in new_arrays(layer, n).values())
            n_numbers += sum(array.size for array in constants_of(layer, W, table).values())
        n_bytes += 4 * n_numbers
    return n_bytes


class ConvCudaEngine(OnlineCudaEngine):
    """On-line training and batched prediction of convolutional nets on the GPU.

    Methods as in `mlp_gpu.engine`. Images are float32 (n, ...), C order; each has the pixels of the
    net's input, by y, x and map.
    """

    @gpu.faults()
    def set_network(self, network: ConvNetwork) -> None:
        self.forget("_perceptron", "_arrays", "_rows", "_maps")
        self._network, self._layers = network, map_layers(network)
        self.n_inputs, self.n_classes = network.source.n_neurons, network.n_classes
        n = self.batch_size = batch_size(network)
        self._perceptron = Perceptron(perceptron_sizes(network), n)
        self._arrays: list[Arrays] = []
        connected = [padded(W) for W in network.weights[len(self._layers) :] if W is not None]
        pairs = list(zip(self._perceptron.weights, connected, strict=True))
        if self._layers:
            self._rows = gpu.device_array((n, self.n_inputs), np.float32)
            self._maps = gpu.device_array(blocks.shape(network.source, n), np.float32)
        for layer, W, table in zip(
            self._layers, network.weights, network.connections, strict=False
        ):
            new = new_arrays(layer, n).items()
            arrays = {name: gpu.device_array(shape, kind) for name, (shape, kind) in new}
            for name, host in constants_of(layer, W, table).items():
                arrays[name] = gpu.device_array(host.shape, host.dtype)
                pairs.append((arrays[name], host))
            self._arrays.append(arrays)
        gpu.fill(pairs, self.stream)

    @gpu.faults()
    def get_network(self) -> ConvNetwork:
        found: list[np.ndarray | None] = []
        for layer, arrays, table in zip(
            self._layers, self._arrays, self._network.connections, strict=False
        ):
            if table is not None:
                w, bias = gpu.read((arrays["w"], arrays["bias"]), self.stream)
                found.append(weight_matrix(layer, w, bias, table))
            else:
                found.append(None)
        layers = self._network.layers[len(self._layers) :]
        connected = zip(layers, gpu.read(self._perceptron.weights, self.stream), strict=True)
        found += [W[: layer.source.n_neurons + 1, : layer.maps.n].copy() for layer, W in connected]
        return replace(self._network, weights=tuple(found))

    def launches(self) -> list[Launch]:
        perceptron, order = self._perceptron, self.epoch["order"]
        if not self._layers:
            found = pick(perceptron.states[0], self.images, order, self.step)
            found += perceptron.forward(self.epoch, self.step) + perceptron.backward()
            return found + perceptron.update(self.eta)
        found = pick(self._rows[:1].reshape(self.n_inputs), self.images, order, self.step)
        found += self._forward(perceptron.states[0].reshape(1, -1), 1)
        found += perceptron.forward(self.epoch, self.step)
        kinds = [layer.kind for layer in self._layers]
        # Below the first convolution there are no weights, so no deltas are needed.
        lowest = kinds.index(CONVOLUTION) if CONVOLUTION in kinds else len(kinds)
        found += perceptron.backward(to_inputs=lowest < len(kinds))
        if lowest < len(kinds):
            deltas = perceptron.input_deltas.reshape(1, -1)
            found += layout.to_maps(self._arrays[-1]["delta"], deltas, self._layers[-1].maps)
        for number in range(len(kinds) - 1, lowest, -1):
            found += self._back(number)
        for number in range(lowest, len(kinds)):
            if kinds[number] == CONVOLUTION:
                found += self._adjust(number)
        return found + perceptron.update(self.eta)

    def predict_batch(self, images: np.ndarray | DeviceArray) -> DeviceArray:
        n = len(images)
        inputs = self._perceptron.batch[0][:n]
        rows = self._rows[:n] if self._layers else inputs
        rows.copy_to_device(images, stream=self.stream)
        if self._layers:
            play(self._forward(inputs, n), self.stream)
        outputs, launches = self._perceptron.evaluate(inputs)
        play(launches, self.stream)
        return outputs

    def _forward(self, rows: DeviceArray, n: int) -> list[Launch]:
        """From the first n images of _rows to the inputs of the perceptron, (n, neurons)."""
        states = self._states(n)
        found = layout.to_maps(states[0], self._rows[:n], self._network.source)
        for layer, arrays, h, y in zip(
            self._layers, self._arrays, states[:-1], states[1:], strict=True
        ):
            if layer.kind == CONVOLUTION:
                w, bias, connections = arrays["w"], arrays["bias"], arrays["connections"]
                found += forward.convolve(y, h, w, bias, connections, layer)
            elif layer.kind == IMAGE_PROCESSING:
                found += processing.process(y, h, arrays["bank"], layer)
            else:
                found += pooling.pool(y, arrays["winners"][:n], h, layer)
        return found + layout.to_rows(rows, states[-1], self._layers[-1].maps)

    def _states(self, n: int) -> Sequence[DeviceArray]:
        """Inputs and outputs of the layers of maps, for the first n images."""
        return [self._maps[:n], *(arrays["y"][:n] for arrays in self._arrays)]

    def _back(self, number: int) -> list[Launch]:
        """The deltas of the layer before that of this number, from its own."""
        layer, arrays = self._layers[number], self._arrays[number]
        delta_in = self._arrays[number - 1]["delta"]
        if layer.kind == CONVOLUTION:
            h, tables = self._states(1)[number], (arrays["readers"], arrays["numbers"])
            return backward.pull(delta_in, arrays["delta"], h, arrays["w"], *tables, layer)
        return pooling.unpool(delta_in, arrays["delta"], arrays["winners"][:1], layer)

    def _adjust(self, number: int) -> list[Launch]:
        arrays, h = self._arrays[number], self._states(1)[number]
        w, bias, delta, pairs = (arrays[name] for name in ("w", "bias", "delta", "pairs"))
        return weights.adjust(w, bias, delta, h, pairs, self.eta, self._layers[number])
