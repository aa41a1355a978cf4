"""Figures of runs: learning curves, learning rates, parameters, the members of a committee.

`runs` are runs by the names to draw them with; each function raises ValueError if there are none.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

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
    fold,
    require_runs,
    shorten,
)
from experiments.running import plans
from experiments.running.dataset import is_mnist
from experiments.running.formatting import plural
from experiments.running.store import Run
from experiments.scoring import cnn_tables, tables
from experiments.scoring.committee_report import COMMITTEE, Committee

# Colour, line and marker of a run among few. Of more runs than these only the N_HIGHLIGHTED best
# are told apart.
RUN_STYLES = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (BLACK, ":", "D"),
    (ORANGE, "-", "v"),
    (SKY, "--", "P"),
    (PURPLE, "-.", "X"),
    (GREY, "-", "<"),
)
N_HIGHLIGHTED = 3
PANEL_WIDTH = 3  # inches of one of two panels side by side
TIME_UNITS = ("h", 3600), ("min", 60), ("s", 1)

PARAMETERS = {  # symbol and unit
    "sigma": ("σ", "pixels"),
    "alpha": ("α", "pixels"),
    "beta": ("largest β", "degrees"),
    "gamma_x": ("γx", "%"),
    "gamma_y": ("γy", "%"),
}

RUN_KINDS = {  # by the images that a run was trained on: colour and marker
    "deformed": (BLUE, "o"),
    "undeformed": (VERMILION, "s"),
    "width-normalised": (BLACK, "^"),
}


def draw_learning_curves(runs: Mapping[str, Run], against: str = "epochs") -> Figure:
    """Training loss, validation and test error, one above the other, with TEfBV marked.

    against: "epochs" or "hours", the time that the epochs took; short times are drawn in minutes
    or seconds. Raises ValueError if it is something else.
    """
    require_runs(runs)
    times, label = _times(runs, against)
    figure = Figure(figsize=(FIGURE_WIDTH, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    loss, validation, test = panels
    has_zero = False
    for name, style in _line_styles(runs).items():
        run, x = runs[name], times[name]
        loss.plot(x, run.metrics.train_loss, **style)
        n_validation = run.config.n_validation
        errors = run.metrics.validation_errors, run.metrics.test_errors
        has_zero |= min(map(min, errors)) == 0
        validation.plot(x, _percent(errors[0], n_validation), **style)
        at, percent = run.chosen - 1, _percent(errors[1], len(run.labels))
        test.plot(x, percent, **style)
        size = 4 if style["marker"] == "." else 9
        ring = {"marker": "o", "ms": size, "mfc": "none", "mec": BLACK, "ls": "none", "zorder": 4}
        test.plot(x[at], percent[at], **ring, label="_ring")
    test.lines[-1].set_label("TEfBV: where validation error is lowest")
    loss.set_ylabel("training loss, nats")
    validation.set_ylabel("validation error, %")
    test.set(xlabel=label, ylabel="test error, %")
    if against == "epochs":
        _tick_epochs(test)
    for axes in panels:
        _make_logarithmic(axes)
    heading = f"Learning curves of {plural(len(runs), 'run')}"
    if len(runs) > len(RUN_STYLES):
        heading += f"; in colour the {N_HIGHLIGHTED} with the lowest TEfBV"
    heading += "\nno errors at all: drawn as half an error" if has_zero else ""
    finish(figure, heading, test)
    return figure


def draw_learning_rates(runs: Mapping[str, Run]) -> Figure:
    """The learning rate of every epoch: one line for all runs that have the same."""
    require_runs(runs)
    same: dict[tuple, list[str]] = {}
    for name, run in runs.items():
        same.setdefault(tuple(run.metrics.eta), []).append(name)
    figure = Figure(figsize=(FIGURE_WIDTH, 3.5), layout="constrained")
    axes = figure.add_subplot()
    styles = _line_styles({names[0]: runs[names[0]] for names in same.values()})
    for eta, (name, *others) in same.items():
        style = styles[name]
        style["label"] += f" and {len(others)} more" if others else ""
        axes.plot(runs[name].metrics.epoch, eta, **style)
    axes.set(xlabel="epoch", ylabel="learning rate η")
    _tick_epochs(axes)
    _make_logarithmic(axes)
    finish(figure, f"Learning rates of {plural(len(runs), 'run')}", axes)
    return figure


def draw_parameters(runs: Mapping[str, Run]) -> Figure:
    """TEfBV against each parameter of the deformation that differs between the deformed runs.

    With 95 % intervals. Undeformed runs stand at "none". Width-normalised runs, deformed or not,
    are marked. If no parameter differs, all stand at the one sigma.
    """
    require_runs(runs)
    values = {name: [_largest_value(run, name) for run in runs.values()] for name in PARAMETERS}
    found = {name: sorted({v for v in values[name] if v is not None}) for name in PARAMETERS}
    differing = [name for name in PARAMETERS if len(found[name]) > 1]
    shown = differing or ["sigma"]
    kinds = np.array([_kind(run) for run in runs.values()])
    errors = np.array([_error_bar(run.chosen_errors, len(run.labels)) for run in runs.values()])
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(FIGURE_WIDTH, 1.2 + 2.4 * rows), layout="constrained")
    panels: list[Axes] = []
    for place, name in enumerate(shown):
        share = panels[0] if panels else None
        axes = figure.add_subplot(rows, columns, place + 1, sharey=share)
        _draw_parameter(axes, values[name], found[name], kinds, errors)
        axes.set_xlabel(", ".join(PARAMETERS[name]))
        axes.tick_params(labelleft=place % columns == 0)
        axes.set_ylabel("" if place % columns else "TEfBV, %")
        panels.append(axes)
    same = [
        f"{PARAMETERS[name][0]} {found[name][0]:g} {PARAMETERS[name][1]}"
        for name in PARAMETERS
        if len(found[name]) == 1
    ]
    heading = f"Test error of {plural(len(runs), 'run')}"
    heading += ", which may differ in other ways too;\n" if len(runs) > 1 else ";\n"
    if differing:
        heading += "those of the same value stand side by side"
        heading += f";\nthe same where deformed: {', '.join(same)}" if same else ""
    elif same:
        heading += f"where deformed, all have the same values:\n{', '.join(same)}"
    else:
        heading += "none is deformed"
    finish(figure, heading, panels[0])
    return figure


def _draw_parameter(
    axes: Axes,
    values: Sequence[float | None],
    found: Sequence[float],
    kinds: np.ndarray,
    errors: np.ndarray,
) -> None:
    """A panel: each run's value, None where undeformed, its kind and its bar.

    found: the numbers among the values, each once, sorted.
    """
    gap, width = min(np.diff(found), default=1), found[-1] - found[0] if found else 0
    apart = max(gap, 0.2 * width)
    none = found[0] - apart if found else 0
    x = np.array([none if value is None else value for value in values], float)
    # Fixed, so that the fan of a single value does not fill the axis as if it were many values.
    axes.set_xlim(x.min() - apart, x.max() + apart)
    for value in np.unique(x):  # runs of the same value stand side by side, by kind, the best first
        own = np.flatnonzero(x == value)
        own = own[np.lexsort((errors[own, 0], kinds[own]))]
        x[own] += 0.4 * gap * ((np.arange(len(own)) + 0.5) / len(own) - 0.5)
    for kind, (colour, marker) in RUN_KINDS.items():
        if (which := kinds == kind).any():
            percent, *spread = errors[which].T
            style: dict = {"fmt": marker, "color": colour, "ms": 4, "mfc": "white", "lw": 0.8}
            axes.errorbar(x[which], percent, yerr=spread, label=f"{kind}, 95 % interval", **style)
    crowded = gap < width / 8  # too near each other for a tick at each value
    ticks = MaxNLocator(4).tick_values(found[0], found[-1]) if crowded else found
    labels = {tick: f"{tick:g}" for tick in ticks if found[0] <= tick <= found[-1]}
    labels |= {none: "none"} if None in values else {}
    axes.set_xticks(list(labels), list(labels.values()))
    axes.grid(axis="y", color="0.9")


def draw_members(committee: Committee) -> Figure:
    """Test errors of a committee's members, and last of the committee, with 95 % intervals."""
    names = [*map(shorten, committee.members), COMMITTEE]
    bars = [_error_bar(int(wrong.sum()), len(wrong)) for wrong in committee.wrong]
    percent, below, above = np.array(bars).T
    places = np.arange(len(names))
    figure = Figure(figsize=(FIGURE_WIDTH, 1.6 + 0.2 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    kinds: list[tuple[slice, dict, str]] = [
        (slice(-1), {"fmt": "o", "color": BLUE, "ms": 5}, "member"),
        (slice(-1, None), {"fmt": "D", "color": VERMILION, "ms": 7}, COMMITTEE),
    ]
    for part, style, label in kinds:
        spread = below[part], above[part]
        label += ", 95 % interval"
        axes.errorbar(percent[part], places[part], xerr=spread, capsize=2, label=label, **style)
    mean = committee.mean_percent
    axes.axvline(mean, color="0.4", ls="--", lw=1, zorder=0, label="average member")
    if committee.paper:
        axes.plot(committee.paper, places, "s", ms=5, mfc="white", mec=BLACK, label="the paper")
    axes.axhline(len(names) - 1.5, color=BLACK, linewidth=0.8)
    axes.set_yticks(places, names)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlabel="test error, %")
    axes.grid(axis="x", color="0.9")
    finish(figure, committee.title, axes)
    return figure


def draw_error_curves(runs: Mapping[str, Run]) -> Figure:
    """The test error of convolutional nets after each epoch: a panel for each description.

    With 95 % intervals after the epochs for which the paper of 2011 gives the error, and on MNIST
    beside what it gives. runs: all on the same data; their outputs are not needed.
    """
    require_runs(runs)
    panels: dict[str, dict[str, Run]] = {}
    data = next(iter(runs.values())).config.data.name
    for name, run in cnn_tables.convolutional_runs(runs, data).items():
        own = panels.setdefault(run.config.layers, {})
        label = f"{plural(run.epochs, 'epoch')}, η {run.config.eta:g}, seed {run.config.seed}"
        own[f"{label}, {name}" if label in own else label] = run
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(FIGURE_WIDTH, 0.9 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (layers, own) in zip(grid.flat, panels.items(), strict=False):
        _draw_error_curve(axes, own)
        axes.set_title(fold(layers, PANEL_WIDTH, SMALL_SIZE), fontsize=SMALL_SIZE)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    last = max(cnn_tables.EARLY[-1], *(run.epochs for run in runs.values()))
    grid[0, 0].set_xlim(0.85, 1.2 * last)
    for axes in grid[:, 0]:
        axes.set_ylabel("test error, %")
    for axes in figure.axes[-columns:]:  # below the others
        axes.set_xlabel("epoch")
        axes.tick_params(labelbottom=True)
    early = ", ".join(map(str, cnn_tables.EARLY))
    heading = f"Test error of {plural(len(runs), 'convolutional net')} after each epoch;\n"
    finish(figure, heading + f"bars: 95 % intervals after {early} epochs")
    return figure


def _draw_error_curve(axes: Axes, runs: Mapping[str, Run]) -> None:
    """The panel of one net."""
    for name, style in _line_styles(runs).items():
        run = runs[name]
        errors, n_test = run.metrics.test_errors, run.config.data.n_test
        axes.plot(run.metrics.epoch, _percent(errors, n_test), **style)
        early = [epoch for epoch in cnn_tables.EARLY if epoch <= run.epochs]
        bars = [_error_bar(errors[epoch - 1], n_test) for epoch in early]
        percent, *spread = np.array(bars).T
        style = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.8, "capsize": 2}
        axes.errorbar(early, percent, yerr=spread, label="_interval", **style)
    config = next(iter(runs.values())).config
    papers = {paper.layers: paper for paper in cnn_tables.PAPER.values()}
    paper = papers.get(config.layers)
    if paper and is_mnist(config.data.name):
        if paper.early:
            style = {"ls": "none", "marker": "*", "ms": 9, "mfc": "white", "mec": BLACK}
            axes.plot(cnn_tables.EARLY, paper.early, label="the paper", zorder=5, **style)
        label = f"the paper's TfbV, {plans.PAPER_CNN.schedule.epochs} epochs"
        axes.axhline(paper.tefbv, color=BLACK, lw=0.8, label=label)  # no run has such a line
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    _make_logarithmic(axes)
    axes.legend(fontsize=SMALL_SIZE, frameon=False)


def _times(runs: Mapping[str, Run], against: str) -> tuple[dict[str, np.ndarray], str]:
    """Where on the x axis the epochs of each run are, and what that axis shows."""
    if against == "epochs":
        return {name: np.array(run.metrics.epoch) for name, run in runs.items()}, "epoch"
    if against != "hours":
        raise ValueError(f"expected 'epochs' or 'hours' to draw against, got {against!r}")
    times = {name: np.cumsum(run.epoch_seconds) for name, run in runs.items()}
    longest = max(run.seconds for run in runs.values())
    unit, seconds = next((u, s) for u, s in TIME_UNITS if longest >= 2 * s or s == 1)
    return {name: time / seconds for name, time in times.items()}, f"time trained, {unit}"


def _line_styles(runs: Mapping[str, Run]) -> dict[str, dict]:
    """How to plot the line of each run; of many the best by TEfBV are told apart, and come last."""
    best = sorted(runs, key=lambda name: runs[name].chosen_errors / runs[name].config.data.n_test)
    marked, others = list(runs), []
    if len(runs) > len(RUN_STYLES):
        marked, others = best[:N_HIGHLIGHTED], best[N_HIGHLIGHTED:]
    styles: dict[str, dict] = {}
    for name in others:
        label = "_other" if styles else f"the other {len(others)} runs"
        styles[name] = {"color": GREY, "lw": 0.5, "marker": ".", "ms": 2, "label": label}
    for name, (colour, line, marker) in zip(marked, RUN_STYLES, strict=False):
        some = max(1, runs[name].epochs // 10)  # a marker at some epochs only
        style = {"color": colour, "ls": line, "marker": marker, "ms": 4, "markevery": some}
        styles[name] = style | {"lw": 1.2, "label": shorten(name), "zorder": 3}
    return styles


def _percent(errors: Sequence[int], n: int) -> np.ndarray:
    """Counts of errors in percent; a logarithmic axis has no 0, so that becomes half an error."""
    return 100 * np.maximum(errors, 0.5) / n


def _tick_epochs(axes: Axes) -> None:
    """Ticks at whole epochs only, also where there is but one to draw."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _make_logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers at its ticks."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = LogLocator(subs=(1, 2, 3, 5) if high < 300 * low else (1,))
    axes.yaxis.set_major_locator(MaxNLocator(5) if high < 3 * low else decades)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(color="0.9")


def _largest_value(run: Run, name: str) -> float | None:
    """A parameter of a run's deformation, of beta the largest angle; None if undeformed."""
    deformation = run.config.deformation
    if deformation is None:
        return None
    return max(deformation.beta) if name == "beta" else getattr(deformation, name)


def _kind(run: Run) -> str:
    """Which of RUN_KINDS it is. What width-normalisation does would hide what a parameter does."""
    if run.config.data.width:
        return "width-normalised"
    return "deformed" if run.config.deformation else "undeformed"


def _error_bar(errors: int, n: int) -> tuple[float, float, float]:
    """An error rate in percent, and how far its 95 % interval reaches below and above it."""
    percent, (low, high) = 100 * errors / n, tables.interval(errors, n)
    return percent, percent - low, high - percent
