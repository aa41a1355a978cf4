"""Which cells the threads of the kernels of convolutional nets touch, computed here once more.

`thread_maps_cnn` draws them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cnn_gpu import filters
from cnn_gpu.kernels import backward, blocks, forward, layout, pooling, processing, weights
from cnn_gpu.layers import Layer, Maps, parse
from deepbig_runtime.gpu import WARP, Launch

# The maps of Figure 2 of 2011, 29x29 to 13x13 by 5x5, skipping one pixel. Here are few of them: map
# 0 reads both maps of the layer before, the others read one each.
CONVOLUTION = parse("3M5s1", Maps(2, 29, 29), 1)[0]
CONNECTIONS = np.array([[True, False, True], [True, True, False]])
POOLING = parse("MP2", Maps(2, 9, 25), 1)[0]
PROCESSING = parse("IP(hat5)", Maps(1, 9, 25), 1)[0]

Pair = tuple[int, int]
Touched = dict[tuple[str, str], list[Pair]]


@dataclass(frozen=True)
class Mapping:
    """A launch, and what its threads touch.

    touched: from block (x, y) and thread (x, y) to cells (row, column), by argument and "read" or
    "write". Rows of neurons have a row here for each line of the maps.
    """

    launch: Launch
    touched: Callable[[Pair, Pair], Touched]

    @property
    def threads(self) -> Pair:
        """Threads per block, in x and y."""
        threads = self.launch.threads
        return threads if isinstance(threads, tuple) else (threads, 1)

    def warp(self, thread: Pair) -> list[Pair]:
        """The threads (x, y) of a thread's warp."""
        across, down = self.threads
        first = (thread[1] * across + thread[0]) // WARP * WARP
        return [(i % across, i // across) for i in range(first, min(first + WARP, across * down))]

    def step(self, block: Pair, thread: Pair, key: tuple[str, str], number: int = 0) -> list[Pair]:
        """The cells that a thread's warp touches at the step of that number, from 0."""
        return [self.touched(block, one)[key][number] for one in self.warp(thread)]


def _of_neurons(launches: list[Launch], touched: Callable[[int, int, int], Touched]) -> Mapping:
    """A launch of a thread for each neuron. touched: of that in map m, line y and column x."""
    (launch,) = launches

    def of_thread(block: Pair, thread: Pair) -> Touched:
        assert isinstance(launch.threads, tuple)
        return touched(block[0], block[1] * launch.threads[1] + thread[1], thread[0])

    return Mapping(launch, of_thread)


def pairs(connections: np.ndarray) -> list[Pair]:
    """Which map reads which, by the number of the connection."""
    return [(m, i) for m, i in np.ndindex(connections.T.shape) if connections[i, m]]


def _convolved(layer: Layer, connected: list[Pair], m: int, y: int, x: int) -> Touched:
    found: Touched = {("y", "write"): [(m * layer.maps.height + y, x)]}
    h, w = found["h", "read"], found["w", "read"] = [], []
    for k, (reader, i) in enumerate(connected):
        if reader == m:
            top, left = i * layer.source.height + y * layer.step[0], x * layer.step[1]
            h += [(top + v, left + u) for v, u in np.ndindex(layer.kernel)]
            w += [(k, place) for place in range(layer.kernel[0] * layer.kernel[1])]
    return found


def _pulled(layer: Layer, connected: list[Pair], i: int, v: int, u: int) -> Touched:
    own = [(i * layer.source.height + v, u)]
    found: Touched = {("delta_in", "write"): own, ("h", "read"): own}
    delta, w = found["delta", "read"], found["w", "read"] = [], []
    for k, (m, read) in enumerate(connected):
        for y, x in np.ndindex(layer.maps.height, layer.maps.width):
            below, right = v - y * layer.step[0], u - x * layer.step[1]
            covered = 0 <= below < layer.kernel[0] and 0 <= right < layer.kernel[1]
            if read == i and covered:
                delta.append((m * layer.maps.height + y, x))
                w.append((k, below * layer.kernel[1] + right))
    return found


def _adjusted(layer: Layer, connected: list[Pair], block: Pair, thread: Pair) -> Touched:
    k, (u, v) = block[0], thread
    m, i = connected[k]
    places = list(np.ndindex(layer.maps.height, layer.maps.width))
    delta = [(m * layer.maps.height + y, x) for y, x in places]
    if u < layer.kernel[1]:
        top, own = i * layer.source.height + v, [(k, v * layer.kernel[1] + u)]
        h = [(top + y * layer.step[0], x * layer.step[1] + u) for y, x in places]
        return {("w", "write"): own, ("delta", "read"): delta, ("h", "read"): h}
    has_bias = v == 0 and (k == 0 or connected[k - 1][0] != m)
    return {("bias", "write"): [(0, m)], ("delta", "read"): delta} if has_bias else {}


def _pooled(layer: Layer, m: int, y: int, x: int) -> Touched:
    own = [(m * layer.maps.height + y, x)]
    top, left = m * layer.source.height + y * layer.kernel[0], x * layer.kernel[1]
    h = [(top + v, left + u) for v, u in np.ndindex(layer.kernel)]
    return {("y", "write"): own, ("winners", "write"): own, ("h", "read"): h}


def _unpooled(layer: Layer, m: int, v: int, u: int) -> Touched:
    y, x = v // layer.kernel[0], u // layer.kernel[1]
    inside = y < layer.maps.height and x < layer.maps.width
    return {
        ("delta_in", "write"): [(m * layer.source.height + v, u)],
        ("winners", "read"): [(m * layer.maps.height + y, x)] * inside,
    }


def _processed(layer: Layer, m: int, y: int, x: int) -> Touched:
    own, (i, maps) = [(m * layer.maps.height + y, x)], (m % layer.source.n, layer.source)
    if m < layer.source.n:
        return {("y", "write"): own, ("h", "read"): own}
    (height, width), read = layer.kernel, []
    for v, u in np.ndindex(height, width):
        above = min(max(y + v - height // 2, 0), maps.height - 1)
        beside = min(max(x + u - width // 2, 0), maps.width - 1)
        read.append((i * maps.height + above, beside))
    return {("y", "write"): own, ("h", "read"): read}


def _laid_out(maps: Maps, kinds: tuple[str, str], m: int, y: int, x: int) -> Touched:
    cells = {"maps": (m * maps.height + y, x), "rows": (y, x * maps.n + m)}
    return {("maps", kinds[0]): [cells["maps"]], ("rows", kinds[1]): [cells["rows"]]}


def make_mappings(
    layer: Layer = CONVOLUTION,
    connections: np.ndarray = CONNECTIONS,
    pooled: Layer = POOLING,
    processed: Layer = PROCESSING,
) -> dict[str, Mapping]:
    """All kernels on one image: of a convolution, of max-pooling, of image processing.

    connections: bool (source maps, maps). The maps that are turned into rows, and rows into maps,
    are those that are pooled.
    """

    def new(maps: Maps) -> np.ndarray:
        return np.zeros(blocks.shape(maps, 1), np.float32)

    connected = pairs(connections)
    w = np.zeros((len(connected), layer.kernel[0] * layer.kernel[1]), np.float32)
    bias, h, y = np.zeros(layer.maps.n, np.float32), new(layer.source), new(layer.maps)
    table, back = forward.table(connections), backward.tables(connections)
    listed, small = weights.pairs_of(connections), pooled.source
    winners, rows = new(pooled.maps).astype(np.int32), np.zeros((1, small.n_neurons), np.float32)
    bank = filters.bank(processed.filters)
    over = {
        "convolve_maps": (
            forward.convolve(y, h, w, bias, table, layer),
            partial(_convolved, layer, connected),
        ),
        "pull_deltas": (
            backward.pull(new(layer.source), y, h, w, *back, layer),
            partial(_pulled, layer, connected),
        ),
        "pool_maps": (
            pooling.pool(new(pooled.maps), winners, new(small), pooled),
            partial(_pooled, pooled),
        ),
        "unpool_deltas": (
            pooling.unpool(new(small), new(pooled.maps), winners, pooled),
            partial(_unpooled, pooled),
        ),
        "process_maps": (
            processing.process(new(processed.maps), new(processed.source), bank, processed),
            partial(_processed, processed),
        ),
        "rows_to_maps": (
            layout.to_maps(new(small), rows, small),
            partial(_laid_out, small, ("write", "read")),
        ),
        "maps_to_rows": (
            layout.to_rows(rows, new(small), small),
            partial(_laid_out, small, ("read", "write")),
        ),
    }
    (adjusting,) = weights.adjust(w, bias, y, h, listed, np.zeros(1, np.float32), layer)
    found = {name: _of_neurons(*mapping) for name, mapping in over.items()}
    return found | {"adjust_weights": Mapping(adjusting, partial(_adjusted, layer, connected))}
