"""A convolutional net's layers as the papers write them: 20M5s1-60M5s1-MP2-150N (2011, section 3).

    20M5        20 maps with kernels of 5x5; 20M5x3 has kernels 5 wide and 3 high
    20M5s1      the same, skipping one pixel between two places of a kernel; s1x0: x and y apart
    20M5c10     each map reads 10 maps of the layer before, drawn at random; c50%: half of them
    MP2         max-pooling of 2x2; MP3x2: 3 wide and 2 high
    IP(hat21)   image processing: the maps of the input, and the same through fixed filters;
                IP(sobel+scharr): of more filters, see `cnn_gpu.filters`. Only as the first layer
    150N        a fully connected layer of 150 neurons

The input and the last layer, a neuron for each class, are not written: the data determine them.

A map of M pixels, a kernel of K and a skipping factor of S give (M - K) / (S + 1) + 1 pixels, in x
and y apart. Guess: max-pooling drops the pixels that are left over at the right and lower border.
"""

import re
from dataclasses import dataclass
from math import isqrt

from cnn_gpu import filters

CONVOLUTION, MAX_POOLING, FULLY_CONNECTED = "convolution", "max-pooling", "fully connected"
IMAGE_PROCESSING = "image processing"
MAX_LAYERS, MAX_NUMBERS = 30, 100_000_000
_EXPECTED = "expected layers such as 20M5, 20M5x3s1c50%, MP2, IP(hat21) or 150N, with - between"


@dataclass(frozen=True)
class Maps:
    """The outputs of a layer, or a net's input: n maps of height x width pixels."""

    n: int
    height: int
    width: int

    @property
    def n_neurons(self) -> int:
        return self.n * self.height * self.width

    def __str__(self) -> str:
        return f"{self.n} of {self.width}x{self.height}"


@dataclass(frozen=True)
class Layer:
    """One layer. kernel and step are (y, x) pairs; step is the skipping factor plus 1.

    kind: one of the names above. Each map reads `reads` maps of `source`. In max-pooling kernel and
    step are the rectangle. A fully connected layer has one neuron a map; its kernel covers all of
    the source. filters: of image processing; its maps are the source's, then those of each filter.
    """

    kind: str
    source: Maps
    maps: Maps
    kernel: tuple[int, int]
    step: tuple[int, int]
    reads: int
    filters: tuple[str, ...] = ()

    @property
    def has_weights(self) -> bool:
        """Whether the layer is trained."""
        return self.kind in (CONVOLUTION, FULLY_CONNECTED)

    @property
    def n_connections(self) -> int:
        """Pairs of a map and one that it reads."""
        return self.maps.n * self.reads

    @property
    def n_weights(self) -> int:
        """Weights of all connections, and a bias for each map."""
        if not self.has_weights:
            return 0
        return self.n_connections * self.kernel[0] * self.kernel[1] + self.maps.n

    @property
    def n_multiply_adds(self) -> int:
        """Multiply-adds of the forward pass, without those of the bias."""
        if self.kind == MAX_POOLING:
            return 0
        n_positions = self.maps.height * self.maps.width
        if self.kind == IMAGE_PROCESSING:
            n_filtered = self.maps.n - self.source.n
            return n_filtered * self.kernel[0] * self.kernel[1] * n_positions
        return (self.n_weights - self.maps.n) * n_positions


def parse(description: str, source: Maps, n_classes: int) -> tuple[Layer, ...]:
    """The layers of a net, with the last one, a neuron for each class.

    source: the input. Raises ValueError, one sentence, if no such net can be made.
    """
    layers: list[Layer] = []
    for text in description.split("-"):
        where = f"layer {len(layers) + 1} of {description!r}, {text!r}"
        layer = _parse_layer(text, source, where)
        if layer.kind != FULLY_CONNECTED and layers and layers[-1].kind == FULLY_CONNECTED:
            raise ValueError(f"{where}: only fully connected layers can follow one")
        if layer.kind == IMAGE_PROCESSING and layers:
            raise ValueError(f"{where}: image processing can only be the first layer")
        if max(layer.n_weights, layer.maps.n_neurons) > MAX_NUMBERS:
            raise ValueError(
                f"{where}: a layer can have at most {MAX_NUMBERS:,} weights or neurons"
            )
        layers.append(layer)
        source = layer.maps
    if len(layers) > MAX_LAYERS:
        raise ValueError(f"{len(layers)} layers: a net can have at most {MAX_LAYERS} hidden ones")
    return (*layers, _fully_connected(n_classes, source))


def fit_layers(description: str, source: Maps) -> str:
    """The description with sides that fit into a square input, `source`: the same if they do.

    A kernel, a pooling or a Mexican hat is no larger than its map. A kernel whose steps do not
    divide its map is larger by the pixels that are left over. Pooling of single pixels is left out.
    Raises ValueError, one sentence, for text that describes no layer.
    """
    found = []
    for text in description.split("-"):
        if match := re.fullmatch(r"(\d+M|MP|IP\(hat)(\d+)(?:s(\d+))?.*", text):
            side = min(int(match[2]), source.width)
            side += (source.width - side) % (int(match[3] or 0) + 1)
            side -= match[1] == "IP(hat" and side % 2 == 0
            text = f"{match[1]}{side}{text[match.end(2) :]}"
        if text != "MP1":
            source = _parse_layer(text, source, text).maps
            found.append(text)
    return "-".join(found)


def _parse_layer(text: str, source: Maps, where: str) -> Layer:
    if match := re.fullmatch(r"(\d+)N", text):
        if int(match[1]) < 1:
            raise ValueError(f"{where}: a layer needs a neuron or more")
        return _fully_connected(int(match[1]), source)
    if match := re.fullmatch(r"MP(\d+)(?:x(\d+))?", text):
        kernel = _pair(match[1], match[2])
        _check_kernel(kernel, source, where)
        height, width = source.height // kernel[0], source.width // kernel[1]
        maps = Maps(source.n, height, width)
        return Layer(MAX_POOLING, source, maps, kernel, kernel, 1)
    if match := re.fullmatch(r"IP\((.*)\)", text):
        return _image_processing(tuple(match[1].split("+")), source, where)
    match = re.fullmatch(r"(\d+)M(\d+)(?:x(\d+))?(?:s(\d+)(?:x(\d+))?)?(?:c(\d+)(%?))?", text)
    if not match:
        raise ValueError(f"{where}: {_EXPECTED}")
    if int(match[1]) < 1:
        raise ValueError(f"{where}: a layer needs a map or more")
    kernel = _pair(match[2], match[3])
    _check_kernel(kernel, source, where)
    skipped = _pair(match[4], match[5]) if match[4] else (0, 0)
    sizes = []
    sides = zip("yx", (source.height, source.width), kernel, skipped, strict=True)
    for axis, size, k, skip in sides:
        left_over = (size - k) % (skip + 1)
        if left_over:
            raise ValueError(
                f"{where}: in {axis} a kernel of {k} that skips {skip} does not divide a map of "
                f"{size}; take a kernel of {k + left_over}"
            )
        sizes.append((size - k) // (skip + 1) + 1)
    reads = _reads(match[6], match[7], source.n, where)
    step = skipped[0] + 1, skipped[1] + 1
    return Layer(CONVOLUTION, source, Maps(int(match[1]), *sizes), kernel, step, reads)


def _fully_connected(n: int, source: Maps) -> Layer:
    kernel = source.height, source.width
    return Layer(FULLY_CONNECTED, source, Maps(n, 1, 1), kernel, (1, 1), source.n)


def _image_processing(names: tuple[str, ...], source: Maps, where: str) -> Layer:
    try:
        largest = min(source.height, source.width)
        n_filters, n_weights = filters.bank(names, largest).shape
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    maps, side = Maps((1 + n_filters) * source.n, source.height, source.width), isqrt(n_weights)
    return Layer(IMAGE_PROCESSING, source, maps, (side, side), (1, 1), 1, names)


def _pair(x: str, y: str | None) -> tuple[int, int]:
    """(y, x) of a size that is written x or XxY."""
    return int(y or x), int(x)


def _check_kernel(kernel: tuple[int, int], source: Maps, where: str) -> None:
    height, width = kernel
    if min(kernel) < 1 or height > source.height or width > source.width:
        raise ValueError(
            f"{where}: {width}x{height} must be at least 1x1 and fit into maps of "
            f"{source.width}x{source.height}"
        )


def _reads(number: str | None, percent: str | None, n: int, where: str) -> int:
    """How many of n maps each map reads. number, percent: as they are written after c."""
    if number is None:
        return n
    reads = round(n * int(number) / 100) if percent else int(number)
    if not 1 <= reads <= n:
        raise ValueError(f"{where}: a map can read 1 to {n} maps, not {reads}")
    return reads
