"""Figures of what `make bench` measured, from rows as in bench.csv; nothing here measures."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.benchmarks import race
from experiments.benchmarks.columns import PAPER, net_title
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL_SIZE,
    ORANGE,
    PURPLE,
    SKY,
    SMALL_SIZE,
    TITLE_SIZE,
    VERMILION,
    finish,
    frame,
)
from experiments.results.rows import BenchRow, RaceRow

# Line and marker of each engine and baseline: ours solid, others dotted; filled markers: on a GPU.
STYLES = {
    "engine cuda window": (GREY, "-", "*", True),
    "engine cuda graph": (BLACK, "-", "o", True),
    "engine cuda launch": (BLUE, "-", "s", True),
    "engine cpu": (VERMILION, "-", "^", False),
    "engine cpu, 1 thread": (VERMILION, "-", ">", False),
    "engine cpu, a core busy": (VERMILION, "-", "h", False),
    "NumPy loop, CPU": (PURPLE, ":", "v", False),
    "PyTorch eager, CPU": (GREEN, ":", "D", False),
    "PyTorch eager, GPU": (GREEN, ":", "D", True),
    "PyTorch graph, GPU": (ORANGE, ":", "P", True),
    "PyTorch window, GPU": (PURPLE, ":", "*", True),
    "JAX scan, CPU": (SKY, ":", "X", False),
    "JAX scan, GPU": (SKY, ":", "X", True),
}

# Kernels that multiply and add for each weight once, with their markers.
KERNEL_MARKERS = {"forward_partial": "v", "delta_partial": "<", "update_weights": "D"}

# Bars and fillings of markers by the state of the GPU's L2 cache; engines have no state.
CACHE_STYLES: dict[str, dict] = {
    "": {"facecolor": BLUE, "edgecolor": BLUE},
    "cold": {"facecolor": VERMILION, "edgecolor": VERMILION},
    "warm": {"facecolor": "white", "edgecolor": VERMILION, "hatch": "/////"},
}


@dataclass(frozen=True)
class Work:
    """The work of an engine or a kernel for one image of a net, summed over all layers.

    ran_on: the device. us: microseconds. copy_us: of copies of as many bytes, NaN where none was
    measured. n_bytes: bytes that must be moved. flops: multiplications and additions, 0
    where they are not counted.
    """

    net: str
    name: str
    state: str
    ran_on: str
    us: float
    copy_us: float
    n_bytes: float
    flops: float

    @property
    def title(self) -> str:
        """Its name, and the state of the cache if it has one."""
        return ", ".join(filter(None, (self.name, self.state)))


def works(rows: Collection[BenchRow]) -> list[Work]:
    """The work in the rows, summed over layers: all rows whose bytes are known, but for copies."""
    found: dict[tuple, list[tuple]] = {}
    for one in rows:
        # The copy of a net's weights has a row of its own, without images.
        if one.bytes and (one.group == "kernel" or (one.group == "net" and one.images)):
            copy_us = one.us * (one.percent_of_copy or math.nan) / 100
            is_counted = one.group == "net" or one.name in KERNEL_MARKERS
            layer = one.us, copy_us, one.bytes, (one.flops or 0) if is_counted else 0
            found.setdefault((one.net, one.name, one.state, one.ran_on), []).append(layer)
    return [Work(*key, *map(sum, zip(*layers, strict=True))) for key, layers in found.items()]


def plot_times(rows: Sequence[BenchRow]) -> Figure:
    """Microseconds per image against the weights of the net, one line per engine or baseline."""
    points: dict[str, list[tuple[float, float]]] = {}
    titles: dict[float, str] = {}
    for one in rows:
        if one.group == "net" and one.updates_a_second and one.weights:
            millions = one.weights / 1e6
            points.setdefault(one.name, []).append((millions, one.us))
            titles[millions] = net_title(one.net)
    figure = frame(4.5, width=7.5)
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    slowest_first = sorted(points, key=lambda name: -max(points[name])[1])
    for name in slowest_first:
        weights, us = zip(*sorted(points[name]), strict=True)
        colour, line, marker, filled = STYLES[name]
        fill = colour if filled else "none"
        axes.plot(weights, us, line, color=colour, marker=marker, mfc=fill, ms=7, label=name)
    at = np.array(sorted(titles))
    year, (updates, _) = list(PAPER.items())[-1]
    label = f"paper, {year}:\n{updates / 1e9:g}e9 updates/s"
    axes.plot(at, 1e12 * at / updates, "--", color="0.45", label=label)
    axes.set_xticks(at, [f"{weights:.3g}\n{titles[weights]}" for weights in at])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="weights of the net, millions", ylabel="time per image, microseconds")
    device = rows[0].source.device
    axes.set_title(f"One image and one weight update at a time; {device}", fontsize=10)
    axes.grid(axis="y", color="0.85")
    figure.legend(loc="outside right center", frameon=False)
    return figure


def plot_roofline(rows: Sequence[BenchRow]) -> Figure:
    """Engines and kernels against the bound that copies set: net by net, and as a roofline.

    Raises ValueError if no row has a copy beside it.
    """
    found = works(rows)
    beside = [work for work in found if math.isfinite(work.copy_us)]
    if not beside:
        raise ValueError("expected rows that were measured beside a copy, found none")
    titles = list(dict.fromkeys(work.title for work in beside))
    high = 1 + 0.17 * len(titles)  # inches
    figure = frame(high + 3.8)
    figure.suptitle(f"Against the ceiling; {rows[0].source.device}", fontsize=TITLE_SIZE)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(high, 3.5))[:, 0]
    nets = list(dict.fromkeys(work.net for work in beside))
    panels = above.subplots(1, len(nets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, net in zip(panels, nets, strict=True):
        _plot_bars(axes, [work for work in beside if work.net == net], titles)
        axes.set_title(net_title(net), fontsize=LABEL_SIZE)
    panels[0].set_xlim(0, 1.4 * max(100, *(100 * work.copy_us / work.us for work in beside)))
    panels[0].set_ylim(len(titles) - 0.4, -0.6)
    panels[0].set_yticks(range(len(titles)), titles)
    label = "bytes per second, in percent of the copy measured beside it"
    above.supxlabel(label, fontsize=LABEL_SIZE)
    if counted := [work for work in found if work.flops]:  # older records count none of nets
        _plot_intensities(below.add_subplot(), counted)
    note = "More than 100 %: faster than the copy, as caches may hold the weights."
    if not any(one.group == "kernel" for one in rows):
        note = f"Kernels: not measured yet on a GPU. {note}"
    below.supxlabel(note, fontsize=LABEL_SIZE)
    return figure


def _plot_bars(axes: Axes, found: list[Work], titles: list[str]) -> None:
    """The measurements of a net: one bar each, as long as its percentage, and the bound."""
    for work in found:
        percent, place = 100 * work.copy_us / work.us, titles.index(work.title)
        axes.barh(place, percent, height=0.7, **CACHE_STYLES[work.state])
        axes.text(max(percent, 100), place, f" {percent:.0f}", va="center", fontsize=SMALL_SIZE)
    axes.axvline(100, color=BLACK, linestyle="--", linewidth=1)
    axes.set_xticks((0, 100))
    axes.tick_params(labelsize=LABEL_SIZE)


def _plot_intensities(axes: Axes, found: list[Work]) -> None:
    """FLOP per second against FLOP per byte, and the bound that the copies set."""
    edges = np.array([0.1, 30])  # FLOP per byte
    copies: dict[str, list[float]] = {}  # GB/s
    for work in found:
        if math.isfinite(work.copy_us):
            copies.setdefault(work.ran_on, []).append(work.n_bytes / work.copy_us / 1e3)
    for (ran_on, ceilings), hatch in zip(copies.items(), cycle(("", "....."))):
        label = f"ceiling: copies, {min(ceilings):,.0f} to {max(ceilings):,.0f} GB/s\n({ran_on})"
        style: dict = {"facecolor": "0.85", "edgecolor": GREY, "hatch": hatch, "label": label}
        axes.fill_between(edges, min(ceilings) * edges, max(ceilings) * edges, **style)
    for title in dict.fromkeys(work.title for work in found):
        own = [work for work in found if work.title == title]
        state, name = own[0].state, own[0].name
        intensity = [work.flops / work.n_bytes for work in own]
        speed = [work.flops / work.us / 1e3 for work in own]
        style = CACHE_STYLES[state] | {"hatch": None}
        marker = KERNEL_MARKERS.get(name) or STYLES[name][2]
        axes.scatter(intensity, speed, 25, marker=marker, zorder=3, label=title, **style)
    axes.set(xscale="log", yscale="log", xlim=edges)
    axes.set_xlabel("FLOP per byte that must be moved", fontsize=LABEL_SIZE)
    axes.set_ylabel("GFLOP/s", fontsize=LABEL_SIZE)
    axes.tick_params(labelsize=LABEL_SIZE)
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.figure.legend(loc="outside right center", frameon=False, fontsize=LABEL_SIZE)


def plot_race(points: Sequence[RaceRow]) -> Figure:
    """Wrong test digits against seconds of training: a line a seed, each way with its setting."""
    figure = frame(3.2)
    axes = figure.subplots()
    styles = {race.ONLINE: (VERMILION, "^"), race.NUMPY: (PURPLE, "v"), race.TORCH: (GREEN, "D")}
    for way, seeds in race.curves(points).items():
        colour, marker = styles[way]
        for i, own in enumerate(seeds):
            x, y = zip(*((point.seconds, point.test_errors) for point in own), strict=True)
            label = None if i else f"{way}: {own[0].setting}"
            axes.plot(x, y, color=colour, marker=marker, ms=3, lw=1, label=label)
    axes.set(xlabel="seconds of training and deforming", ylabel="wrong of 10,000 test digits")
    axes.set_yscale("log")
    ticks = [100, 150, 200, 300, 500, 1000]
    axes.set_yticks(ticks, map(str, ticks))
    axes.set_yticks([], minor=True)
    axes.set(ylim=(None, 1000), xlim=(0, None))
    sizes = "-".join(map(str, race.SIZES))
    return finish(figure, f"One image a step against mini-batches, {sizes}; a line a seed", axes)
