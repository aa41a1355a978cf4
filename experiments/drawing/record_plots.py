"""Figures of the records in results/."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.figures import (
    BLACK,
    BLUE,
    FIGURE_WIDTH,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    SMALL_SIZE,
    VERMILION,
    finish,
)
from experiments.running.store import Run
from experiments.scoring import cnn_tables, tables
from mlp_gpu.training import Schedule

PAPERS = f"nets 1 to 5 of the paper of 2010, {Schedule().epochs:,} epochs on a GTX 280"

# By the name of a net: perceptrons are solid lines, convolutional nets broken ones.
STYLES = {
    "net 1": (BLUE, "-", "o"),
    "net 2": (SKY, "-", "s"),
    "net 3": (GREEN, "-", "^"),
    "net 4": (BLACK, "-", "D"),
    "net 5": (GREY, "-", "v"),
}
BROKEN = ((VERMILION, "X"), (ORANGE, "P"), (PURPLE, "<"), (BLACK, ">"))
STYLES |= {
    paper.name: (colour, "--", marker)
    for paper, (colour, marker) in zip(cnn_tables.PAPER.values(), BROKEN, strict=True)
}


def longest_records(runs: Sequence[Run]) -> dict[str, Run]:
    """The longest run of each net of the papers on deformed MNIST, by its name; the best first.

    runs: of any nets, on any data.
    """
    named: dict[str, list[Run]] = {}
    for run in filter(tables.is_on_deformed_mnist, runs):
        if name := _name(run):
            named.setdefault(name, []).append(run)
    found = {name: tables.most_trained(own) for name, own in named.items()}
    return dict(sorted(found.items(), key=lambda item: item[1].chosen_errors))


def _name(run: Run) -> str | None:
    """As the papers call a run's net; None if it is none of theirs."""
    if run.config.is_convolutional:
        papers = {paper.layers: paper.name for paper in cnn_tables.PAPER.values()}
        return papers.get(run.config.layers)
    return f"net {tables.net_number(run)}" if tables.is_table1(run) else None


def draw_error_against_hours(runs: Sequence[Run]) -> Figure:
    """Test error after each epoch against the time trained, and what the paper of 2010 reached.

    Of each net the longest run, its TEfBV marked with its 95 % interval. runs: of any nets, on any
    data. Raises ValueError if none of them is of a net of the papers on deformed MNIST.
    """
    longest = longest_records(runs)
    if not longest:
        raise ValueError("there are no runs of the papers' nets to draw")
    figure = Figure(figsize=(FIGURE_WIDTH, 4.6), layout="constrained")
    axes = figure.add_subplot()
    devices = dict.fromkeys(run.provenance[-1].device for run in longest.values())
    for name, run in longest.items():
        colour, line, marker = STYLES[name]
        n_test = run.config.data.n_test
        hours = np.cumsum(run.epoch_seconds) / 3600
        percent = 100 * np.array(run.metrics.test_errors) / n_test
        axes.plot(hours, percent, color=colour, ls=line, lw=1)
        low, high = tables.interval(run.chosen_errors, n_test)
        row = tables.result_row(run)
        at, tefbv = hours[-1], row.tefbv
        label = f"{name}, {row.epochs_done} epochs: {tefbv:.2f} %"
        bar: dict = {
            "fmt": marker,
            "color": colour,
            "ms": 5,
            "mfc": "white",
            "lw": 0.8,
            "capsize": 2,
        }
        axes.errorbar(at, tefbv, yerr=[[tefbv - low], [high - tefbv]], label=label, zorder=3, **bar)
    for net, paper in tables.PAPER.items():
        axes.plot(paper.hours, paper.tefbv, "*", ms=10, mfc="white", mec=BLACK, zorder=4)
        where: dict = {"xytext": (7, -3), "textcoords": "offset points", "fontsize": SMALL_SIZE}
        axes.annotate(str(net), (paper.hours, paper.tefbv), **where)
    axes.plot([], "*", ms=10, mfc="white", mec=BLACK, ls="none", label=PAPERS)
    axes.set(xscale="log", yscale="log", xlabel="time trained, hours", ylabel="test error, %")
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_formatter("{x:g}")
    axes.set_yticks([0.3, 0.5, 1, 2, 3, 5, 10], minor=False)
    axes.minorticks_off()
    axes.grid(color="0.9")
    heading = f"Test error after each epoch, on {', '.join(devices)};\n"
    finish(figure, heading + "bars: TEfBV of the run with its 95 % interval", axes)
    return figure
