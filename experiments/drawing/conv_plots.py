"""Figures of convolutional nets: kernels, maps, connections, and which neurons read a neuron."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from cnn_gpu.kernels.backward import pulled_range
from cnn_gpu.layers import FULLY_CONNECTED, Layer
from cnn_gpu.network import ConvNetwork
from experiments.drawing.error_plots import plot_probabilities, short_names
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    LABEL_SIZE,
    SMALL_SIZE,
    VERMILION,
    finish,
    frame,
)
from experiments.drawing.thread_drawing import (
    READ,
    add_legend,
    plot_box,
    plot_cells,
    plot_lines,
)
from experiments.training.configs import Config
from experiments.training.formatting import plural
from mlp_gpu.activation import A

# The more the darker, as ink on paper; 0 is the grey in the middle.
SIGNED_COLOURS = "gray_r"
MAX_KERNELS = 100  # that are drawn
KERNELS_A_ROW = 10
PICTURES_WIDTH = 6.5  # inches of a row of small pictures
MAPS_WIDTH = 6.3  # inches of two maps side by side
MIN_MAP_WIDTH, MAX_NEURON_WIDTH = 1.4, 0.18  # inches
MAX_TABLES = 4  # connection tables that are drawn

# The first and the last neuron of a rectangle, in reading order, and the neurons that they read.
FIRST = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 2, "zorder": 4}
LAST = {"facecolor": "none", "edgecolor": BLUE, "linewidth": 2, "linestyle": "--", "zorder": 5}
OTHER = {"facecolor": "none", "edgecolor": "0.35", "linewidth": 0.5, "zorder": 3}
NEURON = {"facecolor": BLACK, "edgecolor": BLACK, "zorder": 6}


def plot_kernels(network: ConvNetwork, title: str) -> Figure:
    """The kernels of the first layer that has weights, numbered by map; of many the first hundred.

    Where that layer reads several maps, the number of the one it reads comes after a slash. All
    numbers are from 1 on. Biases are not drawn.
    """
    layers = zip(network.layers, network.connections, network.weights, strict=True)
    layer, table, W = next((one, t, W) for one, t, W in layers if t is not None and W is not None)
    height, width = layer.kernel
    weights = W[1:].reshape(height, width, layer.source.n, layer.maps.n)
    pairs = [(m, i) for m in range(layer.maps.n) for i in np.flatnonzero(table[:, m])]
    shown = pairs[:MAX_KERNELS]
    kernels = np.stack([weights[:, :, i, m] for m, i in shown], axis=2)
    several = layer.source.n > 1
    names = [f"{m + 1}/{i + 1}" if several else f"{m + 1}" for m, i in shown]
    room = math.ceil(0.35 * max(layer.kernel))  # for a name
    rows = math.ceil(len(shown) / KERNELS_A_ROW)
    tall = PICTURES_WIDTH / KERNELS_A_ROW * (height + room) / (width + 1)  # inches of a row
    figure = frame(1.1 + rows * tall)
    axes = figure.add_subplot()
    limit = float(abs(kernels).max())
    picture = _plot_pictures(axes, kernels, KERNELS_A_ROW, limit, room)
    for place, name in enumerate(names):
        row, column = divmod(place, KERNELS_A_ROW)
        x, y = column * (width + 1) + (width - 1) / 2, row * (height + room) - 0.7
        axes.text(x, y, name, ha="center", va="bottom", fontsize=SMALL_SIZE)
    axes.set_ylim(top=-0.5 - room)
    bar = figure.colorbar(picture, location="bottom", pad=0.01, shrink=0.5, aspect=30)
    bar.set_label("weight", fontsize=LABEL_SIZE)
    some = f"the first {len(shown)} of {len(pairs)}" if len(shown) < len(pairs) else f"{len(pairs)}"
    heading = f"{title}:\n{some} kernels of {width}x{height} of the first layer with weights, "
    heading += "numbered by map" + ("/map before" if several else "")
    return finish(figure, heading)


def plot_maps(
    network: ConvNetwork, states: Sequence[np.ndarray], label: int, title: str, config: Config
) -> Figure:
    """The states of each layer of a net for one image, from the input to the class probabilities.

    states: of that image, as `ConvCpuEngine.states` gives them. Maps are in the order of their
    numbers, row by row; a fully connected layer is a strip.
    """
    maps = [network.source, *(layer.maps for layer in network.layers)]
    columns = [min(30, 10 * math.ceil(m.n / 20)) for m in maps[:-1]]  # in a row
    heights = []
    for m, across in zip(maps[:-1], columns, strict=True):
        is_strip = m.height == m.width == 1
        tall = (m.height + 1) / (m.width + 1) * PICTURES_WIDTH / across
        heights.append(0.25 if is_strip else math.ceil(m.n / across) * tall)
    heights = [tall + 0.2 for tall in [*heights, 0.9]]  # with a line of text
    figure = frame(1.7 + sum(heights))
    panels = figure.subplots(len(heights), 1, height_ratios=heights)
    texts = network.description.split("-")
    kinds = [f"{text}: {layer.kind}" for text, layer in zip(texts, network.layers, strict=False)]
    names = ["input", *kinds]
    for axes, name, m, across, state in zip(panels, names, maps, columns, states, strict=False):
        text = f"{name}, {plural(m.n, 'neuron')}"
        if m.height == m.width == 1:
            values = state.reshape(1, m.n)
            picture = axes.imshow(values, SIGNED_COLOURS, aspect="auto", vmin=-A, vmax=A)
            axes.set(xticks=[], yticks=[])
        else:
            picture = _plot_pictures(axes, state, across, float(A))
            text = f"{name}, {plural(m.n, 'map')} of {m.width}x{m.height}"
        axes.set_title(text, loc="left", fontsize=SMALL_SIZE)
    chances, last = states[-1].ravel(), panels[-1]
    plot_probabilities(last, chances, label, config)
    for k, chance in enumerate(chances):
        if chance >= 0.005:
            last.text(k, chance, f"{chance:.2f}", ha="center", va="bottom", fontsize=SMALL_SIZE)
    guess = int(chances.argmax())
    names = short_names(config)
    text = f"output: says {names[guess]}, label {names[label]}"
    last.set_title(text, loc="left", fontsize=SMALL_SIZE)
    last.set(xlabel="class", ylabel="probability", ylim=(0, 1.25))
    place: dict = {"location": "bottom", "pad": 0.01, "panchor": False}  # panels stay on the left
    bar = figure.colorbar(picture, ax=panels, shrink=0.5, aspect=40, **place)
    bar.set_label("state of a neuron", fontsize=LABEL_SIZE)
    return finish(figure, title, last)


def plot_connections(network: ConvNetwork) -> Figure:
    """The connection tables of the convolutions after the first layer: who reads whom.

    Of many the first four. Raises ValueError if there is none.
    """
    layers = zip(network.layers[1:], network.connections[1:], strict=True)
    tables = [
        (k, layer, table)
        for k, (layer, table) in enumerate(layers, start=2)
        if table is not None and layer.kind != FULLY_CONNECTED
    ][:MAX_TABLES]
    if not tables:
        raise ValueError("expected a convolution after the first layer, found none")
    figure = frame(0.6 + 2.2 * len(tables))
    panels = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for axes, (k, layer, table) in zip(panels, tables, strict=True):
        extent = (0.5, layer.maps.n + 0.5, layer.source.n + 0.5, 0.5)  # numbers from 1 on
        axes.imshow(table, "gray_r", vmin=0, vmax=1.3, aspect="auto", extent=extent)
        axes.set(xlabel=f"map of layer {k}", ylabel=f"map of layer {k - 1}")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(10, integer=True))
        text = f"{layer.kind}: each map reads {layer.reads} of {layer.source.n}, "
        text += f"{layer.n_connections:,} connections"
        axes.set_title(text, loc="left", fontsize=SMALL_SIZE)
    legend = "filled: the column's map reads the row's map"
    return finish(figure, f"Connections of {network.description}; {legend}")


def plot_pulling(layer: Layer, neuron: tuple[int, int]) -> Figure:
    """Which neurons of a map read one of a map before: the rectangle of 2011, Figure 2.

    layer: a convolution or max-pooling. neuron: its y and x in a map of the layer's source. Raises
    ValueError if it lies outside.
    """
    source, maps, kernel, step = layer.source, layer.maps, layer.kernel, layer.step
    if not (0 <= neuron[0] < source.height and 0 <= neuron[1] < source.width):
        raise ValueError(
            f"expected a neuron (y, x) within {source.height} rows and {source.width} columns, "
            f"got {neuron}"
        )
    sizes = (maps.height, maps.width)
    ranges = [pulled_range(*axis) for axis in zip(neuron, kernel, step, sizes, strict=True)]
    (top, bottom), (left, right) = ranges
    readers = [(y, x) for y in range(top, bottom + 1) for x in range(left, right + 1)]
    y, x = neuron
    heading = f"Neuron y = {y}, x = {x} is read by {plural(len(readers), 'neuron')} of a map; "
    heading += f"kernel {kernel[1]}x{kernel[0]}, skipping {step[1] - 1}x{step[0] - 1}\n"
    axes_of_map = zip("yx", neuron, kernel, step, sizes, ranges, strict=True)
    lines = [
        f"max(⌈({i} − {k} + 1) / {s}⌉, 0) = {first} ≤ {name} ≤ {last} = min(⌊{i} / {s}⌋, {n} − 1)"
        for name, i, k, s, n, (first, last) in axes_of_map
    ]
    # Neurons of both maps are equally large, but a small map needs room for its title.
    both = source.width + max(maps.width, 0.4 * source.width)
    inches = min(MAX_NEURON_WIDTH, MAPS_WIDTH / both)
    share = max(source.width, MIN_MAP_WIDTH / inches)
    shares = share, MAPS_WIDTH / inches - share
    height = 1.6 + inches * max(source.height, maps.height)
    figure = frame(height)
    before, after = figure.subplots(1, 2, width_ratios=shares)
    panels = zip((before, after), (source, maps), shares, ("n − 1", "n"), strict=True)
    for axes, m, share, name in panels:
        plot_lines(axes, 0, m.width, m.height)
        axes.set_aspect("equal", anchor="NW")
        axes.set(xlim=(-0.1, share + 0.1), ylim=(m.height + 0.1, -0.1))
        axes.set_xlabel("x", loc="left")
        axes.set_ylabel("y", loc="top")
        axes.set_title(f"layer {name}, {m.width}x{m.height}", loc="left", fontsize=LABEL_SIZE)
        axes.spines[:].set_visible(False)
        for axis, size in ((axes.xaxis, m.width), (axes.yaxis, m.height)):
            some = range(0, size, math.ceil(size / 8))
            axis.set_ticks([k + 0.5 for k in some], [str(k) for k in some])
    footprint = {
        (row * step[0] + v, column * step[1] + u)
        for row, column in readers
        for v in range(kernel[0])
        for u in range(kernel[1])
    }
    plot_cells(before, sorted(footprint), READ)
    plot_cells(after, readers, READ)
    for row, column in readers:
        place = row, column
        style = FIRST if place == readers[0] else LAST if place == readers[-1] else OTHER
        at = column * step[1], row * step[0]
        plot_box(before, *at, kernel[1], kernel[0], style)
        plot_box(after, column, row, 1, 1, style)
    plot_box(before, x, y, 1, 1, NEURON)
    styles = {
        "the neuron": NEURON,
        "right: neurons that read it; left: their inputs": READ,
        "the first reader": FIRST,
        "the last reader": LAST,
    }
    add_legend(figure, styles)
    return finish(figure, heading + "\n".join(lines))


def _plot_pictures(
    axes: Axes, pictures: np.ndarray, columns: int, limit: float, room: int = 1
) -> AxesImage:
    """Framed pictures, row by row, on the scale from -limit to limit.

    pictures: (height, width, n). room: pixels between two rows; between columns it is one.
    """
    height, width, n = pictures.shape
    rows = math.ceil(n / columns)
    mosaic = np.full((rows * (height + room) - room, columns * (width + 1) - 1), np.nan)
    frames = []
    for k in range(n):
        row, column = divmod(k, columns)
        top, left = row * (height + room), column * (width + 1)
        mosaic[top : top + height, left : left + width] = pictures[:, :, k]
        frames.append(Rectangle((left - 0.5, top - 0.5), width, height))
    shown = axes.imshow(np.ma.masked_invalid(mosaic), SIGNED_COLOURS, vmin=-limit, vmax=limit)
    frame: dict = {"facecolor": "none", "edgecolor": BLACK, "linewidth": 0.4, "clip_on": False}
    axes.add_collection(PatchCollection(frames, **frame))
    axes.set_anchor("W")
    axes.set_axis_off()
    return shown
