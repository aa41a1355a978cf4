"""Figures of convolutional nets: they show what nets hold and compute, and can be read."""

import numpy as np
import pytest
import reference_cnn
from drawn import (
    assert_readable,
    boxes,
    cells_drawn,
    draw,
)
from matplotlib.colors import to_hex

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import ConvNetwork
from experiments.drawing import conv_plots
from experiments.drawing.figures import VERMILION
from experiments.results import cnn_tables
from mlp_gpu.activation import A

NETS = {
    "of the paper": (cnn_tables.PAPER[4].layers, Maps(1, 29, 29)),
    "pooling first": ("MP2-7M4x3c2-MP2x1-9N", Maps(3, 16, 21)),
    "two input maps": ("60M6s1-MP2-20M4c5-MP4-30N", Maps(2, 96, 96)),
    "image processing": ("IP(hat5+sobel)-6M5s1c4-MP2-3M3-30N", Maps(2, 23, 23)),
    "fully connected": ("150N-7N", Maps(1, 29, 29)),
    "one neuron a map": ("3M29-4M1", Maps(1, 29, 29)),
}


@pytest.fixture(params=NETS)
def net(request):
    """A net, and random states of its size."""
    network = ConvNetwork.initial(*NETS[request.param], 10, 3)
    rng = np.random.default_rng(1)
    maps = [network.source, *(layer.maps for layer in network.layers)]
    states = [rng.uniform(-1.7, 1.7, (m.height, m.width, m.n)).astype(np.float32) for m in maps]
    states[-1] = rng.dirichlet(np.ones(10)).reshape(1, 1, 10)
    return network, states


def pictures_in(axes, shape):
    """The framed pictures of a panel, row by row, each of that shape."""
    mosaic = np.ma.filled(axes.images[0].get_array(), np.nan)
    (frames,) = axes.collections
    found, places = [], []
    for path in frames.get_paths():
        left, top, width, height = path.get_extents().bounds
        assert (height, width) == shape
        top, left = int(top + 0.5), int(left + 0.5)
        places.append((top, left))
        found.append(mosaic[top : top + height.astype(int), left : left + width.astype(int)])
    assert places == sorted(places)
    assert np.isfinite(mosaic).sum() == len(found) * shape[0] * shape[1]  # none lies on another
    return found


def test_kernels(net):
    network, _ = net
    layer, table, W = next(
        one
        for one in zip(network.layers, network.connections, network.weights, strict=True)
        if one[1] is not None
    )
    figure = draw(conv_plots.draw_kernels(network, "A net"))
    axes, bar = figure.axes
    pairs = [(m, i) for m in range(layer.maps.n) for i in range(layer.source.n) if table[i, m]]
    assert len(pairs) == layer.n_connections
    found = pictures_in(axes, layer.kernel)
    assert len(found) == min(100, len(pairs))
    names = [text.get_text() for text in axes.texts]
    for k, (m, i) in enumerate(pairs[:100]):
        assert np.array_equal(found[k], reference_cnn.kernel(W, layer, i, m))
        assert names[k] == (f"{m + 1}/{i + 1}" if layer.source.n > 1 else f"{m + 1}")
    for text, path in zip(axes.texts, axes.collections[0].get_paths(), strict=True):
        left, top, width, _ = path.get_extents().bounds
        assert text.get_position() == (left + width / 2, pytest.approx(top, abs=0.5))
    low, high = axes.images[0].get_clim()
    assert -low == high == max(abs(kernel).max() for kernel in found)
    assert bar.get_xlabel() == "weight"
    counted = f"the first 100 of {len(pairs)}" if len(pairs) > 100 else f"{len(pairs)}"
    height, width = layer.kernel
    assert f"A net:\n{counted} kernels of {width}x{height} of" in figure.get_suptitle()


def test_maps(net):
    network, states = net
    figure = conv_plots.draw_maps(network, states, 4, "A digit")
    *panels, output, bar = figure.axes
    maps = [network.source, *(layer.maps for layer in network.layers[:-1])]
    for axes, m, state in zip(panels, maps, states[:-1], strict=True):
        assert axes.images[0].get_clim() == (-A, A)
        assert axes.images[0].get_cmap().name == "gray_r"
        if m.height == m.width == 1:
            assert np.array_equal(axes.images[0].get_array(), state.reshape(1, -1))
            count = f"{m.n} neurons"
        else:
            found = pictures_in(axes, (m.height, m.width))
            assert np.array_equal(np.stack(found, axis=2), state)
            count = f"{m.n} map{'s' if m.n > 1 else ''} of {m.width}x{m.height}"
        assert axes.get_title(loc="left").endswith(f", {count}")
    texts = network.description.split("-")
    assert [axes.get_title(loc="left").split(":")[0] for axes in panels[1:]] == texts
    chances = states[-1].ravel()
    heights = {round(one.get_center()[0]): one.get_height() for one in output.patches}
    assert heights == dict(enumerate(chances))
    assert [round(one.get_center()[0]) for one in output.patches if one.get_hatch()] == [4]
    written = {round(text.get_position()[0]): text.get_text() for text in output.texts}
    assert written == {k: f"{p:.2f}" for k, p in enumerate(chances) if p >= 0.005}
    assert output.get_title(loc="left") == f"output: says {chances.argmax()}, label 4"
    assert bar.get_xlabel() == "state of a neuron"
    assert figure.get_suptitle() == "A digit"


def test_connections():
    network = ConvNetwork.initial("5M5s1-7M3c2-MP2-9M2c40%-8N", Maps(1, 29, 29), 10, 3)
    panels = conv_plots.draw_connections(network).axes
    for axes, k, reads in zip(panels, (1, 3), ("2 of 5, 14", "3 of 7, 27"), strict=True):
        table = network.connections[k]
        assert np.array_equal(axes.images[0].get_array(), table)
        assert (axes.get_xlabel(), axes.get_ylabel()) == (
            f"map of layer {k + 1}",
            f"map of layer {k}",
        )
        assert axes.get_title(loc="left") == f"convolution: each map reads {reads} connections"
        n_source, n = table.shape
        assert axes.images[0].get_extent() == [0.5, n + 0.5, n_source + 0.5, 0.5]
    many = ConvNetwork.initial("-".join(["3M3c2"] * 7), Maps(2, 29, 29), 10, 3)
    assert len(conv_plots.draw_connections(many).axes) == 4
    with pytest.raises(ValueError, match="expected a convolution after the first layer"):
        conv_plots.draw_connections(ConvNetwork.initial("5M5-9N", Maps(1, 29, 29), 10, 3))


def readers_of(layer, neuron):
    """Every neuron (y, x) of a map that reads the one of the map before, by trying all."""
    return [
        place
        for place in np.ndindex(layer.maps.height, layer.maps.width)
        if all(
            x * step <= i < x * step + kernel
            for x, i, step, kernel in zip(place, neuron, layer.step, layer.kernel, strict=True)
        )
    ]


@pytest.mark.parametrize(
    ("described", "side", "neuron"),
    [
        ("1M5s1", 29, (10, 14)),  # the paper's Figure 2
        ("1M5s1", 29, (0, 28)),  # a corner
        ("1M3x5s1x0", 13, (6, 7)),
        ("MP2x3", 13, (5, 11)),
        ("1M3", 90, (40, 50)),
        ("1M2", 3, (1, 1)),
    ],
)
def test_pulling(described, side, neuron):
    layer = parse(described, Maps(1, side, side), 10)[0]
    figure = conv_plots.draw_pulling(layer, neuron)
    before, after = figure.axes
    readers = readers_of(layer, neuron)
    assert readers
    assert cells_drawn(after, "readers") == readers
    (dy, dx), (height, width) = layer.step, layer.kernel
    footprint = {(y * dy + v, x * dx + u) for y, x in readers for v, u in np.ndindex(layer.kernel)}
    assert set(cells_drawn(before, "footprint")) == footprint
    assert neuron in footprint
    read = boxes(before, "read by ")
    assert read == {f"{y}, {x}": (x * dx, y * dy, width, height) for y, x in readers}
    assert boxes(before, "neuron")[""] == (neuron[1], neuron[0], 1, 1)
    assert boxes(after, "reader ") == {f"{y}, {x}": (x, y, 1, 1) for y, x in readers}
    ends = ["{}, {}".format(*reader) for reader in dict.fromkeys((readers[0], readers[-1]))]
    for axes, text in ((before, "read by"), (after, "reader")):
        thick = [patch.get_label() for patch in axes.patches if patch.get_linewidth() == 2]
        assert thick == [f"{text} {end}" for end in ends]
        (first,) = [patch for patch in axes.patches if patch.get_label() == f"{text} {ends[0]}"]
        assert to_hex(first.get_edgecolor()).upper() == VERMILION
    for name, of_axis in zip("yx", zip(*readers, strict=True), strict=True):
        assert f"= {min(of_axis)} ≤ {name} ≤ {max(of_axis)} =" in figure.get_suptitle()
    n = len(readers)
    said = f"Neuron y = {neuron[0]}, x = {neuron[1]} is read by {n} neuron{'s' * (n > 1)} of a map"
    assert figure.get_suptitle().startswith(said)
    for axes, m in ((before, layer.source), (after, layer.maps)):
        assert axes.get_title(loc="left").endswith(f", {m.width}x{m.height}")
        for axis, size in ((axes.xaxis, m.width), (axes.yaxis, m.height)):
            labels = [int(label.get_text()) for label in axis.get_ticklabels()]
            assert [k + 0.5 for k in labels] == list(axis.get_ticklocs())
            assert labels[-1] < size
    assert_readable(figure)
    one, other = (axes.transData.transform([(0, 0), (1, 1)]) for axes in (before, after))
    np.testing.assert_allclose(np.diff(one, axis=0), np.diff(other, axis=0), rtol=0.02)


def test_a_neuron_that_is_skipped_is_read_by_none():
    layer = parse("1M2s2", Maps(1, 11, 11), 10)[0]
    figure = conv_plots.draw_pulling(layer, (2, 3))
    assert "is read by 0 neurons" in figure.get_suptitle()
    assert "= 1 ≤ y ≤ 0 =" in figure.get_suptitle()
    assert cells_drawn(figure.axes[1], "readers") == []
    assert_readable(figure)
    for outside in ((11, 0), (0, 11), (-1, 3)):
        with pytest.raises(ValueError, match="within 11 rows and 11 columns, got"):
            conv_plots.draw_pulling(layer, outside)


def test_kernels_and_maps_can_be_read(net):
    network, states = net
    title = f"{network.description} on load_digits, seed 0"
    assert_readable(conv_plots.draw_kernels(network, title))
    assert_readable(conv_plots.draw_maps(network, states, 3, title))


def test_connections_can_be_read():
    for description, source in (NETS["of the paper"], NETS["two input maps"]):
        network = ConvNetwork.initial(description, source, 10, 3)
        assert_readable(conv_plots.draw_connections(network))
