"""A launch of every kernel on a small layer, its arrays on the host, for the drawings."""

from collections.abc import Iterable

import numpy as np

from cnn_gpu import filters
from cnn_gpu.kernels import backward as cnn_backward
from cnn_gpu.kernels import blocks as cnn_blocks
from cnn_gpu.kernels import forward as cnn_forward
from cnn_gpu.kernels import layout, pooling, processing, weights
from cnn_gpu.layers import Layer, Maps, parse
from deepbig_runtime.gpu import Launch
from deform_gpu import TABLE1
from deform_gpu.field import KERNEL
from deform_gpu.kernels import listing1, matrices, stages, tiles
from deform_gpu.parameters import SIDE
from mlp_gpu.kernels import backward, evaluate, forward, output, pick, update
from mlp_gpu.ladder import rung1_naive as naive
from mlp_gpu.ladder import rung2_tiled as tiled
from mlp_gpu.ladder import rung3_coalesced as coalesced
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.arrays import Arrays, hosts
from mlp_gpu.ladder.net import N_INPUTS, Net
from mlp_gpu.network import N_CLASSES, pad32
from mlp_gpu.tensor_cores import on_tensor_cores
from mlp_gpu.window import blocks, products, progress, sums

N_IN, N_OUT = 70, 300  # of a layer of the perceptron: W has rows and columns of padding
N_IMAGES = 150  # of a batch
FIELD_SIDE = 3  # pixels of the images whose field is drawn: its cells can still be seen
CONVOLVED = 20, 2  # rows and columns that listing 1 makes of a field

# Layers of the window, the block of images, and the window in it. Its first image is a multiple of
# its size, so that the ring of partial sums begins with it.
WINDOW_IN, WINDOW_OUT, BLOCK, FEW_IMAGES = 200, 300, 128, 8
FIRST, END = 32, 64

# The maps of Figure 2 of 2011, 29x29 to 13x13 by 5x5, skipping one pixel. Here are few of them: map
# 0 reads both maps of the layer before, the others read one each.
CONVOLUTION = parse("3M5s1", Maps(2, 29, 29), 1)[0]
CONNECTIONS = np.array([[True, False, True], [True, True, False]])
POOLING = parse("MP2", Maps(2, 9, 25), 1)[0]
PROCESSING = parse("IP(hat5)", Maps(1, 9, 25), 1)[0]

HIDDEN, STEPS = 128, 2  # of the ladder: hidden neurons of the blog; steps of the chunk


def _numbers(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _by_name(launches: Iterable[Launch]) -> dict[str, Launch]:
    return {launch.kernel.py_func.__name__: launch for launch in launches}


def make_launches() -> dict[str, Launch]:
    """A launch of each kernel, by its name."""
    return _by_name(
        launch
        for found in (perceptron(), deformation(), window(), convolutional(), ladder())
        for launch in found.values()
    )


def perceptron() -> dict[str, Launch]:
    """Of a hidden layer and the output layer after it, of a batch, and of an image."""
    W, h, y = _numbers(pad32(N_IN + 1), pad32(N_OUT)), _numbers(N_IN), _numbers(N_OUT)
    V, delta, one = _numbers(pad32(N_OUT + 1), pad32(N_CLASSES)), _numbers(N_CLASSES), _numbers(1)
    step, order, labels = np.zeros(1, int), np.zeros(1, int), np.zeros(1, np.uint8)
    partial, last = (
        _numbers(*forward.partial_shape(matrix.shape, n)) for matrix, n in ((W, N_IN), (V, N_OUT))
    )
    back = _numbers(*backward.partial_shape(W.shape))
    states = [_numbers(N_IMAGES, n) for n in (N_IN, N_OUT)]
    pixels = SIDE * SIDE
    batch = evaluate.evaluate(states, [W])[0]
    return _by_name(
        [
            *pick.pick(_numbers(pixels), _numbers(1, pixels), order, step),
            *output.output_deltas(delta, one, step, last, V, y, labels, order),
            *forward.propagate_forward(y, partial, W, h),
            *backward.propagate_back(h, back, W, y, h),
            *update.update(W, h, y, one),
            batch,
            on_tensor_cores(batch),
            *evaluate.evaluate([_numbers(N_IMAGES, N_CLASSES)], []),
        ]
    )


def deformation() -> dict[str, Launch]:
    """Of matrices of a batch, fields of images of FIELD_SIDE pixels, one image, and listing 1."""
    affine, key = _numbers(N_IMAGES, 2, 3), (np.uint32(0),) * 3
    scratch = [_numbers(*shape) for shape in stages.scratch_shapes(1, FIELD_SIDE)]
    image, row, (height, width) = _numbers(1, SIDE, SIDE), _numbers(KERNEL), CONVOLVED
    field = _numbers(height + KERNEL - 1, pad32(width + KERNEL - 1))
    square, out = _numbers(KERNEL, pad32(KERNEL)), _numbers(height, pad32(width))
    return _by_name(
        [
            *matrices.draw(affine, _numbers(N_IMAGES), TABLE1, key, 0, SIDE),
            *stages.displace(scratch, row, TABLE1, key, 0),
            *stages.warp(image.copy(), image, affine, scratch[-1], TABLE1, 0),
            *tiles.deform(image.copy(), image, affine[:1], row, TABLE1, key, 0),
            *listing1.convolve(out, field, square, 1.0, width),
        ]
    )


def window() -> dict[str, Launch]:
    """Of a sweep over the window, and of a block; `gather_images` of FEW_IMAGES."""
    rows, columns = pad32(WINDOW_IN + 1), pad32(WINDOW_OUT)
    W, eta = _numbers(rows, columns), _numbers(1)
    H, D = _numbers(BLOCK, rows), _numbers(BLOCK, columns)
    now, done, begun = (progress.at_start(BLOCK, 2 * BLOCK) for _ in range(3))
    now[[progress.FIRST, progress.END, progress.SWEPT]] = FIRST, END, END
    done[progress.FIRST] = BLOCK
    A, E = (
        _numbers(*products.partial_shape(*shape, BLOCK, END - FIRST))
        for shape in ((rows, columns), (columns, rows))
    )
    order = np.zeros(2 * BLOCK, int)
    labels = np.zeros(1, np.uint8)
    epoch = {"losses": _numbers(2 * BLOCK), "labels": labels, "order": order}
    changes = np.zeros(progress.changes_shape(1), np.int32)
    H_next, before = _numbers(BLOCK, pad32(WINDOW_OUT + 1)), _numbers(BLOCK, pad32(WINDOW_IN))
    classes, last = (_numbers(BLOCK, pad32(n)) for n in (N_CLASSES, N_CLASSES + 1))
    begun[progress.BLOCK] = FEW_IMAGES
    stages = [
        *products.forward(A, now, H, W),
        *products.backward(E, now, D, W),
        *sums.forward(H_next, A, now, D, eta, WINDOW_OUT, True),
        *sums.backward(before, changes, E, now, H, eta, 0, WINDOW_IN),
        *blocks.update(W, done, H, D, eta, WINDOW_IN, WINDOW_OUT),
    ]
    return _by_name(
        [
            *stages,
            *map(on_tensor_cores, stages),
            *sums.outputs(classes, changes, now, last, epoch, N_CLASSES),
            *progress.slide(now, changes, np.full(1, WINDOW_IN + 1, np.int32), eta),
            *blocks.gather(H[:FEW_IMAGES], begun, _numbers(1, WINDOW_IN), order),
            *progress.end_block(done, BLOCK, 2 * BLOCK),
        ]
    )


def convolutional(
    layer: Layer = CONVOLUTION,
    connections: np.ndarray = CONNECTIONS,
    pooled: Layer = POOLING,
    processed: Layer = PROCESSING,
) -> dict[str, Launch]:
    """Of one image: of a convolution, of max-pooling, of image processing.

    connections: bool (source maps, maps). The maps that become rows, and rows that become maps, are
    those that are pooled.
    """

    def new(maps: Maps) -> np.ndarray:
        return _numbers(*cnn_blocks.shape(maps, 1))

    w = _numbers(int(connections.sum()), layer.kernel[0] * layer.kernel[1])
    bias, h, y, eta = _numbers(layer.maps.n), new(layer.source), new(layer.maps), _numbers(1)
    table, back = cnn_forward.table(connections), cnn_backward.tables(connections)
    listed, small = weights.pairs_of(connections), pooled.source
    winners, rows = new(pooled.maps).astype(np.int32), _numbers(1, small.n_neurons)
    bank = filters.bank(processed.filters)
    return _by_name(
        [
            *cnn_forward.convolve(y, h, w, bias, table, layer),
            *cnn_backward.pull(new(layer.source), y, h, w, *back, layer),
            *weights.adjust(w, bias, y, h, listed, eta, layer),
            *pooling.pool(new(pooled.maps), winners, new(small), pooled),
            *pooling.unpool(new(small), new(pooled.maps), winners, pooled),
            *processing.process(new(processed.maps), new(processed.source), bank, processed),
            *layout.to_maps(new(small), rows, small),
            *layout.to_rows(rows, new(small), small),
        ]
    )


def ladder_arrays(hidden: int, transposed: bool) -> Arrays:
    """The arrays of a rung, on the host: one image in each step, one step made already."""
    images, labels = _numbers(1, N_INPUTS), np.zeros(1, np.uint8)
    order = np.zeros(1 + STEPS, np.int64)
    found = hosts(Net.initial(hidden, 0), images, labels, order, transposed)
    found[-1] += 1
    return Arrays(transposed, *found)


def ladder(hidden: int = HIDDEN) -> dict[str, Launch]:
    """Launches of all rungs: one step of each; STEPS steps of `train_chunk`."""
    found = list(one_kernel.launches(ladder_arrays(hidden, True), STEPS))
    for rung in (shared, coalesced, tiled, naive):  # tiled has the updates of naive
        found += rung.launches(ladder_arrays(hidden, rung.TRANSPOSED))
    return _by_name(found)
