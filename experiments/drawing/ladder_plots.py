"""The figure of a record of `make ladder`; nothing here measures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cuda_on_cpu.access_stats import SECTOR
from experiments.datasets.dataset import is_mnist
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    GREY,
    SMALL_LEGEND,
    VERMILION,
    finish,
    frame,
    tick_integers,
)
from experiments.results.ladder_tables import BLOG_CORRECT
from experiments.results.records import LadderRecord, ProgramTime, RungKernel


def plot_ladder(record: LadderRecord) -> Figure:
    """Errors against epochs; if known each rung's time, or else the bytes that it transfers."""
    figure = frame(3)
    timed = [row for row in record.times if row.work_us]
    if timed or record.kernels:
        errors, rungs = figure.subplots(1, 2, width_ratios=(2, 3))
        if timed:
            _plot_times(rungs, timed)
        else:
            _plot_transferred(rungs, record.kernels)
    else:
        errors = figure.subplots()
    _plot_errors(errors, record)
    return finish(figure, f"The ladder, 784-{record.hidden}-10 on {record.data}")


def _plot_errors(axes: Axes, record: LadderRecord) -> None:
    for seed in dict.fromkeys(row.seed for row in record.accuracy):
        own = [row for row in record.accuracy if row.seed == seed]
        percent = [100 * row.wrong / row.n_test for row in own]
        epochs = [row.epoch for row in own]
        label = "ours, a line a seed" if seed == record.accuracy[0].seed else None
        axes.plot(epochs, percent, "o-", color=BLUE, linewidth=1, markersize=3, label=label)
    if is_mnist(record.data):
        wrong = [100 - correct for correct in BLOG_CORRECT.values()]
        axes.plot(list(BLOG_CORRECT), wrong, "kx", label="the blog's")
    axes.set(xlabel="epochs", ylabel="test digits wrong, %", ylim=(0, 1.1 * axes.get_ylim()[1]))
    tick_integers(axes.xaxis)
    axes.legend(**SMALL_LEGEND)


def _plot_times(axes: Axes, timed: list[ProgramTime]) -> None:
    """Bars of microseconds an image: the kernels' work, and the rest, which is launching them."""
    names = [row.name for row in timed]
    whole = np.array([np.median(row.us) for row in timed])
    work = np.minimum([np.median(row.work_us or row.us) for row in timed], whole)
    rest: dict = {"color": "white", "hatch": "/////", "label": "launches and waiting"}
    axes.barh(names, work, color=BLUE, edgecolor=BLACK, label="kernels")
    axes.barh(names, whole - work, left=work, edgecolor=BLACK, **rest)
    axes.set_xlabel("microseconds an image")
    axes.legend(**SMALL_LEGEND, loc="lower right")
    axes.invert_yaxis()


def _plot_transferred(axes: Axes, kernels: list[RungKernel]) -> None:
    """Bars of megabytes an image that each rung's warps touch, split by kernel."""
    names = list(dict.fromkeys(row.rung for row in kernels))
    left = dict.fromkeys(names, 0.0)
    parts = {"forward": BLUE, "deltas": BLACK, "update": VERMILION, "train": GREY}
    shown = set()
    for row in kernels:
        part = next(part for part in parts if row.kernel.startswith(part))
        transferred = SECTOR * (row.read_segments + row.write_segments) / 1e6
        label = None if part in shown else {"train": "all in one"}.get(part, part)
        shown.add(part)
        axes.barh(row.rung, transferred, left=left[row.rung], color=parts[part], label=label)
        left[row.rung] += transferred
    axes.set_xlabel("MB transferred an image, as executed (times: not measured yet)")
    axes.legend(**SMALL_LEGEND, loc="lower right")
    axes.invert_yaxis()
