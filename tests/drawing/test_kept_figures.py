"""Every kind of figure is as it was looked at and kept in kept_figures.json, and can be read.

After a change of a figure: look at it, then write the file anew with
`KEEP_FIGURES=1 make test ARGS=tests/drawing/test_kept_figures.py`.
"""

import hashlib
import json
import os
from functools import partial
from pathlib import Path

import factories
import numpy as np
import pytest
from bench_rows import all_engines, engine, on_cpu, on_gpu
from committee_cases import committee_row
from drawn import (
    IMAGES,
    LABELS,
    ON_JPEGS,
    assert_readable,
    make_committee,
    make_run,
    make_runs,
    make_varied_committee,
    make_varied_runs,
)
from ladder_cases import KERNEL, RECORD
from matplotlib.ticker import FixedFormatter
from msgspec import structs

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import ConvNetwork
from experiments.drawing import bench_plots, conv_plots, error_plots, run_plots, thread_maps
from experiments.drawing.ladder_plots import plot_ladder
from experiments.results import cnn_tables, committee_report
from experiments.results.records import AccuracyRow, ProgramTime
from mlp_gpu.network import NETS

KEPT = Path(__file__).with_name("kept_figures.json")
DIGITS = factories.make_config()
LONG_TITLE = "20M3s1-40M3c50%-60M3c50%-80M3c50%-100M3c50%-120M3c50%-150N on MNIST, undeformed"

# Convolutional nets


CONV_NETS = {
    "of the paper": (cnn_tables.PAPER[4].layers, Maps(1, 29, 29)),
    "pooling first": ("MP2-7M4x3c2-MP2x1-9N", Maps(3, 16, 21)),
    "two input maps": ("60M6s1-MP2-20M4c5-MP4-30N", Maps(2, 96, 96)),
    "image processing": ("IP(hat5+sobel)-6M5s1c4-MP2-3M3-30N", Maps(2, 23, 23)),
    "fully connected": ("150N-7N", Maps(1, 29, 29)),
    "one neuron a map": ("3M29-4M1", Maps(1, 29, 29)),
    "many tables": ("-".join(["3M3c2"] * 7), Maps(2, 29, 29)),
}
PULLED = {  # a layer, the side of its source, and a neuron of that
    "Figure 2 of 2011": ("1M5s1", 29, (10, 14)),
    "a corner": ("1M5s1", 29, (0, 28)),
    "unequal sides": ("1M3x5s1x0", 13, (6, 7)),
    "pooling": ("MP2x3", 13, (5, 11)),
    "a large map": ("1M3", 90, (40, 50)),
    "a small map": ("1M2", 3, (1, 1)),
    "read by none": ("1M2s2", 11, (2, 3)),
}


def of_net(draw, name):
    network = ConvNetwork.initial(*CONV_NETS[name], 10, 3)
    title = f"{network.description} on load_digits, seed 0"
    if draw is conv_plots.plot_connections:
        return draw(network)
    if draw is conv_plots.plot_kernels:
        return draw(network, title)
    rng = np.random.default_rng(1)
    maps = [network.source, *(layer.maps for layer in network.layers)]
    states = [rng.uniform(-1.7, 1.7, (m.height, m.width, m.n)).astype(np.float32) for m in maps]
    states[-1] = rng.dirichlet(np.ones(10)).reshape(1, 1, 10)
    return draw(network, states, 3, title, DIGITS)


def pulling(described, side, neuron):
    return conv_plots.plot_pulling(parse(described, Maps(1, side, side), 10)[0], neuron)


# Runs


def without_errors():
    runs = make_runs(2)
    runs["net 1"].metrics.test_errors[3] = runs["net 0"].metrics.validation_errors[2] = 0
    return runs


def against_hours():
    """The longest run of each net that is drawn, and two committees; other runs are not drawn."""

    def timed(seconds, n, first, **config):
        validation = [n - epoch + 2 * (epoch % 3 == 1) for epoch in range(n)]
        errors = [40 + first // epoch for epoch in range(1, n + 1)]
        busy = [9 * seconds] + [seconds] * (n - 1)  # the machine, in the first epoch: not drawn
        metrics = {"train_seconds": busy, "validation_errors": validation}
        return factories.make_run(metrics={**metrics, "test_errors": errors}, done=n, **config)

    runs = [
        timed(6.0, 3, 700, sizes=NETS[1], epochs=3),
        timed(6.0, 200, 700, sizes=NETS[1], epochs=300),
        timed(80.0, 30, 300, sizes=NETS[4], epochs=30, session={"device": "a GPU"}),
        timed(13.0, 400, 350, layers=cnn_tables.PAPER[3].layers, epochs=400),
        timed(60.0, 60, 3000, epochs=60, **ON_JPEGS),
        timed(60.0, 40, 4000, epochs=60, **ON_JPEGS | {"deformation": None}),
        factories.make_run(layers=cnn_tables.PAPER[4].layers),
        factories.make_run(sizes=NETS[2], deformation=None),
        factories.make_run(sizes=NETS[3], data={"name": "load_digits"}),
        factories.make_run(sizes=(841, 800, 10)),
    ]
    committees = {
        f"experiment{n}": [committee_row(errors=k, percent=k / 100, seconds=100.0 * k)]
        for n, k in ((3, 64), (4, 90), (6, 80))
    }
    return run_plots.plot_error_against_hours(runs, committees)


def wrong_digits(n):
    outputs = np.eye(10, dtype=np.float32)[LABELS]
    outputs[:n] = outputs[:n, ::-1]
    return error_plots.plot_wrong(outputs, LABELS, IMAGES, LONG_TITLE, DIGITS)


def of_own(draw, n=4, **options):
    """A figure of runs on data of your own: images in colour, classes with names."""
    names = ["cup", "Granny Smith apple", *"abcdefgh"]
    data = {"name": "things", "classes": tuple(names), "n_test": len(LABELS)}
    config = factories.make_config(data=data, sizes=(3 * 10 * 10, 20, 10), deformation=None)
    runs = make_runs(n)
    for run in runs.values():
        run.config = config
    pixels = np.random.default_rng(2).uniform(-1, 1, (len(LABELS), 10, 10, 3))
    one = runs["net 0"]
    if draw is error_plots.plot_wrong:
        return draw(one.outputs, LABELS, pixels, config.title, config)
    if draw is error_plots.plot_confusion:
        return draw(one.outputs, LABELS, config.title, config)
    return draw(runs, images=pixels, **options)


def many_classes(n):
    """The confusions of as many classes, a tenth of them wrong."""
    labels = np.arange(5 * n) % n
    outputs = np.eye(n)[np.where(np.arange(5 * n) % 10, labels, 0)]
    data = {"name": "signs", "classes": tuple(f"sign {k}" for k in range(n))}
    config = factories.make_config(data=data, sizes=(841, 20, n), n_classes=n, deformation=None)
    return error_plots.plot_confusion(outputs, labels, config.title, config)


def perfect(committee):
    for run in committee.runs:
        run.outputs = np.eye(10, dtype=np.float32)[LABELS]
    return committee


def of_committee(draw, committee):
    return draw(committee_report.tidy_rows(committee), committee.title)


def of_ladder(**changes):
    accuracy = [
        AccuracyRow(seed, epoch, wrong, 100, "MNIST")
        for seed, epoch, wrong in ((0, 1, 20), (0, 2, 10), (1, 1, 20))
    ]
    names = "forward_naive", "update_hidden_naive"
    kernels = [structs.replace(KERNEL, kernel=name) for name in names]
    return plot_ladder(structs.replace(RECORD, accuracy=accuracy, kernels=kernels, **changes))


TIMES = [
    ProgramTime("naive", [8.0, 9.0, 10.0], 1, [3.0, 2.0, 4.0]),
    ProgramTime("NumPy", [99.0], 1),
]
OF_RUNS = {
    "learning curves": (run_plots.plot_learning_curves, make_varied_runs),
    "hardest": (partial(error_plots.plot_hardest, images=IMAGES), make_varied_runs),
}
SMALL = engine("engine cpu", "841-800-10", 40.0, 50, n_bytes=1000)
OLD = [structs.replace(row, flops=None) for row in on_cpu()]  # which had none of nets
FIGURES = {
    **thread_maps.DRAWINGS,
    **{f"pulling, {name}": partial(pulling, *case) for name, case in PULLED.items()},
    **{f"kernels, {name}": partial(of_net, conv_plots.plot_kernels, name) for name in CONV_NETS},
    **{f"maps, {name}": partial(of_net, conv_plots.plot_maps, name) for name in CONV_NETS},
    **{
        f"connections, {name}": partial(of_net, conv_plots.plot_connections, name)
        for name in ("of the paper", "two input maps", "many tables")
    },
    **{
        f"{name}, {n}": lambda draw=draw, make=make, n=n: draw(make(n))
        for name, (draw, make) in OF_RUNS.items()
        for n in (1, 7, 40)
    },
    "learning curves, 8": lambda: run_plots.plot_learning_curves(make_runs(8)),
    "learning curves, 9": lambda: run_plots.plot_learning_curves(make_runs(9)),
    "learning curves, no errors": lambda: run_plots.plot_learning_curves(without_errors()),
    "error against hours": against_hours,
    "wrong, 3": partial(wrong_digits, 3),
    "wrong, 35": partial(wrong_digits, 35),
    "wrong, 101": partial(wrong_digits, 101),
    "wrong, own classes": partial(of_own, error_plots.plot_wrong),
    "hardest, own classes": partial(of_own, error_plots.plot_hardest, n=2),
    "confusion, own classes": partial(of_own, error_plots.plot_confusion),
    "confusion, 62 classes": partial(many_classes, 62),
    "members, 7": lambda: of_committee(run_plots.plot_members, make_varied_committee(7)),
    "shared, 7": lambda: of_committee(error_plots.plot_shared, make_varied_committee(7)),
    "shared, no errors": lambda: of_committee(error_plots.plot_shared, perfect(make_committee(2))),
    "members, no paper": lambda: of_committee(run_plots.plot_members, make_committee(3)),
    "confusion, none": lambda: error_plots.plot_confusion(
        np.eye(10)[LABELS], LABELS, "A net", DIGITS
    ),
    "confusion": lambda: error_plots.plot_confusion(
        make_run(0).outputs, LABELS, LONG_TITLE, DIGITS
    ),
    "roofline": lambda: bench_plots.plot_roofline(on_gpu()),
    "roofline, no GPU": lambda: bench_plots.plot_roofline([SMALL, *on_cpu()]),
    "roofline, no flops": lambda: bench_plots.plot_roofline(OLD),
    "times": lambda: bench_plots.plot_times(all_engines()),
    "times, a small net": lambda: bench_plots.plot_times([SMALL, *on_cpu()]),
    "ladder": of_ladder,
    "ladder, timed": partial(of_ladder, times=TIMES),
    "ladder, digits": partial(of_ladder, data="load_digits"),
}


def describe(figure):
    """The texts of a figure and of its panels in words, the shapes of each panel as a checksum."""
    found = [figure.get_size_inches().round(3).tolist()]
    for part in (figure, *figure.subfigs):
        texts = [*part.texts, *(text for legend in part.legends for text in legend.get_texts())]
        found.append([text.get_text() for text in texts])
    for axes in figure.axes:
        texts = [axes.get_title(), axes.get_title(loc="left")]
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            ticks = formatter.seq if isinstance(formatter, FixedFormatter) else []
            texts += [axis.label.get_text(), axis.get_scale(), *ticks]
        texts += [text.get_text() for text in axes.texts]
        shapes = hashlib.md5("\n".join(shapes_of(axes)).encode()).hexdigest()
        found.append([*filter(None, texts), shapes])
    return found


def shapes_of(axes):
    """A line for each shape of a panel: its places, colours, widths, and hatch or marker."""

    def line(*values):
        numbers = (np.ravel(np.ma.filled(np.ma.asarray(part, float), np.nan)) for part in values)
        return " ".join(f"{number:.5g}" for part in numbers for number in part)

    yield line(axes.get_xlim(), axes.get_ylim())
    for one in axes.patches:
        style = one.get_facecolor(), one.get_edgecolor(), one.get_linewidth()
        yield f"{line(one.get_bbox().bounds, *style)} {one.get_hatch()}"
    for one in axes.collections:
        style = one.get_facecolor(), one.get_edgecolor(), one.get_linewidth()
        yield line(*(path.vertices for path in one.get_paths()), one.get_offsets(), *style)
    for one in axes.lines:
        style = one.get_color(), one.get_linestyle(), one.get_marker(), one.get_markersize()
        yield f"{line(one.get_xydata(), one.get_zorder())} {style}"
    for one in axes.images:
        yield f"{line(one.get_extent(), one.get_clim(), one.get_array())} {one.get_cmap().name}"
    for one in axes.texts:
        ends = one.get_position(), getattr(one, "xyann", ())
        yield f"{line(*ends)} {one.get_color()} {one.get_ha()} {one.get_va()}"


@pytest.fixture(scope="module")
def kept():
    """The descriptions in the file, by the names of their figures."""
    if os.environ.get("KEEP_FIGURES"):
        found = {name: describe(draw()) for name, draw in FIGURES.items()}
        lines = (f'"{name}": {json.dumps(own, ensure_ascii=False)}' for name, own in found.items())
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return json.loads(KEPT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_the_kept_one(name, kept):
    assert describe(FIGURES[name]()) == kept[name]


@pytest.mark.slow  # to lay out the texts takes longer than all else
@pytest.mark.parametrize("name", FIGURES)
def test_figure_can_be_read(name):
    figure = FIGURES[name]()
    if figure.get_figwidth() <= 7:  # a page's; the figure of times is wider
        assert_readable(figure)
