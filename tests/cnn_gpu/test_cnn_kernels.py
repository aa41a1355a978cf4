"""Every kernel of convolutional nets against float64, map by map, and the tables that they read.

What the kernels must not touch is NaN: memory before and after each array, and the padding of rows.
"""
# ruff: noqa: F401, F811 - fixtures are imported

import numpy as np
import pytest
import reference_cnn
from executed import device
from gpu_arrays import arrays, uniform
from reference import EPS, A, B, off

from cnn_gpu import filters
from cnn_gpu.kernels import backward, blocks, forward, layout, pooling, processing, weights
from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import ConvNetwork, weight_mask

CONVOLUTIONS = {
    "small": ("5M3c2", Maps(3, 7, 9)),
    "skipping": ("3M3x2s1x2c1", Maps(2, 11, 9)),
    "a single place": ("33M5x4c2", Maps(3, 4, 5)),
    "a line a block": ("2M3", Maps(2, 33, 34)),
    "a large kernel": ("1M33", Maps(1, 34, 35)),
}
POOLINGS = {
    "divides": ("MP2", Maps(3, 6, 4)),
    "leaves pixels over": ("MP2x3", Maps(2, 11, 9)),
    "a line a block": ("MP2", Maps(1, 34, 35)),
}


def padded(maps):
    """Maps (n, height, width) as kernels have them, NaN in the padding."""
    n, height, width = maps.shape
    found = np.full((1, n * height, blocks.pitch(width)), np.nan, np.float32)
    found[0, :, :width] = maps.reshape(-1, width)
    return found


def unpadded(array, maps):
    """The inverse of `padded`; sees that nobody wrote into the padding."""
    assert np.isnan(array[0, :, maps.width :]).all()
    return array[0, :, : maps.width].reshape(maps.n, maps.height, maps.width)


@pytest.fixture(
    params=[
        pytest.param(case, id=name, marks=[pytest.mark.small] if name == "small" else [])
        for name, case in CONVOLUTIONS.items()
    ]
)
def convolution(request):
    """A layer with weights, source, deltas, and its table of connections."""
    description, source = request.param
    layer = parse(description, source, 1)[0]
    rng = np.random.default_rng(3)
    table = ConvNetwork.initial(description, source, 1, 4).connections[0]
    W = uniform(rng, len(weight_mask(layer, table)), layer.maps.n) * weight_mask(layer, table)
    maps = uniform(rng, source.n, source.height, source.width)
    delta = uniform(rng, layer.maps.n, layer.maps.height, layer.maps.width)
    return layer, W.astype(np.float32), table, maps, delta


def weights_of(layer, W, table):
    """The kernels of all connections, by map and source map, a row each; float32."""
    pairs = [(m, i) for m, i in np.ndindex(table.T.shape) if table[i, m]]
    return np.stack([reference_cnn.kernel(W, layer, i, m).ravel() for m, i in pairs]), pairs


def test_forward(arrays, convolution):
    layer, W, table, maps, _ = convolution
    w, _ = weights_of(layer, W, table)
    y = arrays.nans(*blocks.shape(layer.maps, 1))
    given = (padded(maps), w, W[0], forward.table(table))
    arrays.run(forward.convolve(y, *map(arrays.put, given), layer))
    a = reference_cnn.activations(layer, W.astype(float), table, maps)
    terms = reference_cnn.activations(layer, abs(W).astype(float), table, abs(maps))
    bound = A * B * off(layer.n_weights // layer.maps.n, terms) + 4 * EPS * A
    found = unpadded(arrays.get(y), layer.maps)
    assert (abs(found - A * np.tanh(B * a)) <= bound).all()


def test_pulled_deltas(arrays, convolution):
    layer, W, table, maps, delta = convolution
    w, _ = weights_of(layer, W, table)
    delta_in = arrays.nans(*blocks.shape(layer.source, 1))
    given = (padded(delta), padded(maps), w, *backward.tables(table))
    arrays.run(backward.pull(delta_in, *map(arrays.put, given), layer))
    slope = (B / A) * (A - maps) * (A + maps)
    expected = reference_cnn.pull(layer, W.astype(float), table, delta.astype(float)) * slope
    terms = reference_cnn.pull(layer, abs(W).astype(float), table, abs(delta).astype(float)) * slope
    found = unpadded(arrays.get(delta_in), layer.source)
    n = layer.maps.n * layer.kernel[0] * layer.kernel[1]
    assert (abs(found - expected) <= off(n, terms) + 4 * EPS * abs(expected)).all()


def test_adjusted_weights(arrays, convolution):
    layer, W, table, maps, delta = convolution
    w, pairs = weights_of(layer, W, table)
    eta = float(np.float32(0.1))
    there, bias = arrays.put(w), arrays.put(W[0])
    given = (padded(delta), padded(maps), weights.pairs_of(table), np.full(1, eta, np.float32))
    arrays.run(weights.adjust(there, bias, *map(arrays.put, given), layer))
    steps, terms = (
        eta * reference_cnn.weight_gradient(layer, table, *map(of, (maps, delta.astype(float))))
        for of in (lambda x: x, abs)
    )
    bound = off(delta[0].size + 2, terms + abs(W))
    assert (abs(arrays.get(bias) - (W - steps)[0]) <= bound[0]).all()
    for k, (m, i) in enumerate(pairs):
        expected, allowed = (reference_cnn.kernel(x, layer, i, m) for x in (W - steps, bound))
        assert (abs(arrays.get(there)[k] - expected.ravel()) <= allowed.ravel()).all()


@pytest.mark.parametrize(("description", "source"), POOLINGS.values(), ids=POOLINGS)
def test_pooling(arrays, description, source):
    layer = parse(description, source, 1)[0]
    rng = np.random.default_rng(5)
    # Few different values, so that some of a rectangle are equal.
    maps = rng.integers(0, 4, (source.n, source.height, source.width)).astype(float)
    delta = uniform(rng, layer.maps.n, layer.maps.height, layer.maps.width)
    y = arrays.nans(*blocks.shape(layer.maps, 1))
    winners = np.full(y.shape, -1, np.int32)
    winners[:, :, layer.maps.width :] = 0  # in the padding, as if a neuron left over had won
    winners = arrays.put(winners)
    arrays.run(pooling.pool(y, winners, arrays.put(padded(maps)), layer))
    assert (unpadded(arrays.get(y), layer.maps) == reference_cnn.pooled(layer, maps)).all()
    delta_in = arrays.nans(*blocks.shape(source, 1))
    arrays.run(pooling.unpool(delta_in, arrays.put(padded(delta)), winners, layer))
    found = unpadded(arrays.get(delta_in), source)
    assert (found == reference_cnn.unpooled(layer, maps, delta)).all()


@pytest.mark.parametrize("source", [Maps(2, 5, 7), Maps(1, 33, 34)], ids=str)
def test_image_processing(arrays, source):
    layer = parse("IP(hat5+sobel)", source, 1)[0]
    maps = uniform(np.random.default_rng(7), source.n, source.height, source.width)
    y = arrays.nans(*blocks.shape(layer.maps, 1))
    bank = arrays.put(filters.bank(layer.filters))
    arrays.run(processing.process(y, arrays.put(padded(maps)), bank, layer))
    found = unpadded(arrays.get(y), layer.maps)
    expected = reference_cnn.processed(layer, maps.astype(float))
    assert (found[: source.n] == maps).all()
    assert (abs(found - expected) <= off(25, 2)).all()


@pytest.mark.parametrize("maps", [Maps(3, 5, 7), Maps(1, 33, 34)], ids=str)
def test_rows_and_maps(arrays, maps):
    rng = np.random.default_rng(6)
    rows = uniform(rng, 2, maps.n_neurons)
    there = arrays.nans(*blocks.shape(maps, 2))
    arrays.run(layout.to_maps(there, arrays.put(rows), maps))
    found = arrays.get(there)
    for image in range(2):
        expected = reference_cnn.as_maps(rows[image], maps)
        assert (unpadded(found[image : image + 1], maps) == expected).all()
    again = arrays.nans(*rows.shape)
    arrays.run(layout.to_rows(again, there, maps))
    assert (arrays.get(again) == rows).all()


def test_blocks_have_at_most_1024_threads_and_take_each_neuron_once():
    sizes = [(1, 1), (13, 13), (32, 32), (31, 33), (33, 32), (1, 1024), (2, 1024), (512, 3)]
    for height, width in sizes:
        maps = Maps(3, height, width)
        (n, parts, n_images), (across, down) = blocks.over(maps, 5)
        assert (n, parts * down, n_images, across) == (3, height, 5, width)
        assert across * down <= 1024
        assert (parts == 1) == (height * width <= 1024)
    for kernel in ((32, 31), (32, 32), (1, 1023), (40, 40)):
        layer = parse(f"2M{kernel[1]}x{kernel[0]}", Maps(1, *kernel), 1)[0]
        empty = np.zeros((2, 3))
        (launch,) = weights.adjust(*[empty] * 6, layer)
        assert launch.threads[0] == kernel[1] + 1
        assert np.prod(launch.threads) <= 1024
