"""Figures of runs: learning curves, rates and times, parameters, the members of a committee,
studies.

`runs` are runs by the names to draw them with, at least one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from experiments.datasets.dataset import is_mnist
from experiments.drawing.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL_SIZE,
    ORANGE,
    PURPLE,
    SKY,
    SMALL_LEGEND,
    SMALL_SIZE,
    VERMILION,
    finish,
    fold,
    frame,
    make_logarithmic,
    plot_rates,
    shorten,
    tick_integers,
)
from experiments.results import cnn_tables, studies, tables
from experiments.results.committee_report import COMMITTEE
from experiments.results.rows import CommitteeRow, StudyRow
from experiments.training.formatting import plural
from experiments.training.store import Run
from mlp_gpu.training import chosen_epoch

# Colour, line and marker of a run. Of more runs than styles only N_HIGHLIGHTED have one.
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

CNN = cnn_tables.PAPER[3]
STILL, TRANSLATED = cnn_tables.JPEG_NETS  # trained on CIFAR-10 as JPEG
HOURS_COLOURS = {  # of the nets that are drawn against hours
    "net 1": BLUE,
    "net 4": BLACK,
    CNN.name: VERMILION,
    STILL: GREEN,
    TRANSLATED: PURPLE,
}
HOURS_COMMITTEES = {"experiment6": "widths", "experiment3": "seeds"}


def plot_learning_curves(runs: Mapping[str, Run], against: str = "epochs") -> Figure:
    """Training loss, validation and test error, one above the other, with TEfBV marked.

    against: "epochs" or "hours", number of epochs times the median time of one; short times are
    drawn in minutes or seconds. Raises ValueError if it is something else.
    """
    times, label = _times(runs, against)
    figure = frame(7)
    panels = loss, validation, test = figure.subplots(3, 1, sharex=True)
    has_zero = False
    for name, style in _line_styles(runs, _best_first(runs)).items():
        run, x = runs[name], times[name]
        loss.plot(x, run.metrics.train_loss, **style)
        errors = run.metrics.validation_errors, run.metrics.test_errors
        has_zero |= min(map(min, errors)) == 0
        validation.plot(x, _percent(errors[0], run.config.n_validation), **style)
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
        tick_integers(test.xaxis)
    for axes in panels:
        make_logarithmic(axes)
    heading = f"Learning curves of {plural(len(runs), 'run')}"
    if len(runs) > len(RUN_STYLES):
        heading += f"; in colour the {N_HIGHLIGHTED} with the lowest TEfBV"
    heading += "\nno errors at all: drawn as half an error" if has_zero else ""
    return finish(figure, heading, test)


def plot_learning_rates(runs: Mapping[str, Run]) -> Figure:
    """The learning rate of every epoch: one line for all runs that have the same."""
    same: dict[tuple, list[str]] = {}
    for name, run in runs.items():
        same.setdefault(tuple(run.metrics.eta), []).append(name)
    figure = frame(3.5)
    axes = figure.add_subplot()
    drawn = {names[0]: runs[names[0]] for names in same.values()}
    styles = _line_styles(drawn, _best_first(drawn))
    for eta, (name, *others) in same.items():
        style = styles[name]
        style["label"] += f" and {len(others)} more" if others else ""
        axes.plot(runs[name].metrics.epoch, eta, **style)
    axes.set(xlabel="epoch", ylabel="learning rate η")
    tick_integers(axes.xaxis)
    make_logarithmic(axes)
    return finish(figure, f"Learning rates of {plural(len(runs), 'run')}", axes)


def plot_parameters(runs: Mapping[str, Run]) -> Figure:
    """TEfBV against each parameter of the deformation that differs between the deformed runs.

    With 95 % intervals. Undeformed runs stand at "none". Width-normalised runs, deformed or not,
    are marked. If no parameter differs, all stand at the one sigma.
    """
    values = {name: [_largest_value(run, name) for run in runs.values()] for name in PARAMETERS}
    numbers = {name: sorted({v for v in values[name] if v is not None}) for name in PARAMETERS}
    differing = [name for name in PARAMETERS if len(numbers[name]) > 1]
    shown = differing or ["sigma"]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = frame(1.2 + 2.4 * rows)
    panels: list[Axes] = []
    for place, name in enumerate(shown):
        share = panels[0] if panels else None
        axes = figure.add_subplot(rows, columns, place + 1, sharey=share)
        _plot_parameter(axes, values[name], numbers[name], list(runs.values()))
        axes.set_xlabel(", ".join(PARAMETERS[name]))
        axes.tick_params(labelleft=place % columns == 0)
        axes.set_ylabel("" if place % columns else "test error for best validation, %")
        panels.append(axes)
    same = ", ".join(
        f"{symbol} {numbers[name][0]:g} {unit}"
        for name, (symbol, unit) in PARAMETERS.items()
        if len(numbers[name]) == 1
    )
    heading = f"Test error of {plural(len(runs), 'run')}"
    heading += ", which may differ in other ways too;\n" if len(runs) > 1 else ";\n"
    if differing:
        heading += "runs of the same value are side by side"
        heading += f";\nthe same where deformed: {same}" if same else ""
    else:
        equal = f"where deformed, all have the same values:\n{same}"
        heading += equal if same else "none is deformed"
    return finish(figure, heading, panels[0])


def _plot_parameter(
    axes: Axes, values: Sequence[float | None], numbers: Sequence[float], runs: Sequence[Run]
) -> None:
    """A panel. values: of each run; None where undeformed. numbers: those values, once, sorted."""
    kinds = np.array([_kind(run) for run in runs])
    rates = np.array([run.chosen_errors / len(run.labels) for run in runs])
    gap, width = min(np.diff(numbers), default=1), numbers[-1] - numbers[0] if numbers else 0
    apart = max(gap, 0.2 * width)
    none = numbers[0] - apart if numbers else 0
    x = np.array([none if value is None else value for value in values], float)
    # Fixed, so that the fan of a single value does not fill the axis as if it were many values.
    axes.set_xlim(x.min() - apart, x.max() + apart)
    for value in np.unique(x):  # runs of the same value stand side by side, by kind, the best first
        same = np.flatnonzero(x == value)
        same = same[np.lexsort((rates[same], kinds[same]))]
        x[same] += 0.4 * gap * ((np.arange(len(same)) + 0.5) / len(same) - 0.5)
    for kind, (colour, marker) in RUN_KINDS.items():
        if len(which := np.flatnonzero(kinds == kind)):
            style: dict = {"fmt": marker, "color": colour, "ms": 4, "mfc": "white", "lw": 0.8}
            counts = [(runs[int(k)].chosen_errors, len(runs[int(k)].labels)) for k in which]
            plot_rates(axes, x[which], counts, label=f"{kind}, 95 % interval", **style)
    crowded = gap < width / 8  # too near each other for a tick at each value
    ticks = MaxNLocator(4).tick_values(numbers[0], numbers[-1]) if crowded else numbers
    labels = {tick: f"{tick:g}" for tick in ticks if numbers[0] <= tick <= numbers[-1]}
    labels |= {none: "none"} if None in values else {}
    axes.set_xticks(list(labels), list(labels.values()))
    axes.grid(axis="y", color="0.9")


def plot_members(rows: Sequence[CommitteeRow], title: str) -> Figure:
    """Test errors of a committee's members, and last of the committee, with 95 % intervals."""
    names = [shorten(row.member) for row in rows]
    counts = [(row.errors, row.n_test) for row in rows]
    places = np.arange(len(names))
    figure = frame(1.6 + 0.2 * len(names))
    axes = figure.add_subplot()
    for part, marker, colour, size, label in (
        (slice(-1), "o", BLUE, 5, "member"),
        (slice(-1, None), "D", VERMILION, 7, COMMITTEE),
    ):
        style: dict = {"fmt": marker, "color": colour, "ms": size, "capsize": 2}
        label += ", 95 % interval"
        plot_rates(axes, places[part], counts[part], across=True, label=label, **style)
    mean = np.mean([row.percent for row in rows[:-1]])
    axes.axvline(float(mean), color="0.4", ls="--", lw=1, zorder=0, label="average member")
    if paper := [row.paper for row in rows if row.paper is not None]:
        axes.plot(paper, places, "s", ms=5, mfc="white", mec=BLACK, label="the paper")
    axes.axhline(len(names) - 1.5, color=BLACK, linewidth=0.8)
    axes.set_yticks(places, names)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlabel="test error, %")
    axes.grid(axis="x", color="0.9")
    return finish(figure, title, axes)


def plot_error_curves(runs: Mapping[str, Run]) -> Figure:
    """The test error of convolutional nets after each epoch: a panel for each description.

    With 95 % intervals after the epochs for which the paper of 2011 gives the error, and on MNIST
    with the paper's values. runs: all on the same data; their outputs are not needed. Of many the
    longest are in colour, of equally long ones those with the lowest seeds.
    """
    panels: dict[str, dict[str, Run]] = {}
    data = next(iter(runs.values())).config.data.name
    for name, run in cnn_tables.convolutional_runs(runs, data).items():
        panel = panels.setdefault(run.config.layers, {})
        label = f"{plural(run.epochs, 'epoch')}, η {run.config.eta:g}, seed {run.config.seed}"
        panel[f"{label}, {name}" if label in panel else label] = run
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = frame(0.9 + 2.7 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes, (layers, panel) in zip(grid.flat, panels.items(), strict=False):
        _plot_error_curve(axes, panel)
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
    return finish(figure, heading + f"bars: 95 % intervals after {early} epochs")


def _plot_error_curve(axes: Axes, runs: Mapping[str, Run]) -> None:
    """The panel of one net. runs: the longest first."""
    for name, style in _line_styles(runs, list(runs)).items():
        run = runs[name]
        errors, n_test = run.metrics.test_errors, run.config.data.n_test
        axes.plot(run.metrics.epoch, _percent(errors, n_test), **style)
        early = [epoch for epoch in cnn_tables.EARLY if epoch <= run.epochs]
        counts = [(errors[epoch - 1], n_test) for epoch in early]
        bar: dict = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.8, "capsize": 2}
        plot_rates(axes, early, counts, label="_interval", **bar)
    config = next(iter(runs.values())).config
    paper = cnn_tables.paper_net(config.layers)
    if paper and is_mnist(config.data.name):
        if paper.early:
            style = {"ls": "none", "marker": "*", "ms": 9, "mfc": "white", "mec": BLACK}
            axes.plot(cnn_tables.EARLY, paper.early, label="the paper", zorder=5, **style)
        label = f"the paper, {cnn_tables.PAPER_EPOCHS} epochs"
        axes.axhline(paper.tefbv, color=BLACK, lw=0.8, label=label)  # no run has such a line
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    make_logarithmic(axes)
    axes.legend(**SMALL_LEGEND)


def plot_error_against_hours(
    runs: Iterable[Run], committees: Mapping[str, Sequence[CommitteeRow]]
) -> Figure:
    """Test error against the time trained, of nets and committees, beside the papers' nets.

    Of each net in HOURS_COLOURS the longest run: after each epoch the test error of the epoch with
    the lowest validation error so far, and at the end its 95 % interval. The time is the number of
    epochs times the median time of one, so that a busy machine adds no hours. The paper of 2011
    names none: its results are drawn after as many epochs of ours, those of CIFAR-10, for which it
    names no number, after PAPER_EPOCHS. A committee of HOURS_COMMITTEES
    is a point, after the sum of all its members' epochs: its record has no others.

    runs: of any nets, on any data. At least one is of a net in HOURS_COLOURS. committees: as
    `committees.longest_committees` returns them.
    """
    longest = cnn_tables.longest_runs(runs)
    own = {name: longest[name] for name in HOURS_COLOURS if name in longest}
    figure = frame(4.7, width=4.7)  # 470 pixels in the README
    axes = figure.add_subplot()

    star: dict = {"marker": "*", "ms": 10, "mfc": "white", "ls": "none", "zorder": 4}

    def label(text: str, at: tuple[float, float], offset: tuple[int, int], align: str) -> None:
        """Write text at an offset, in points, from `at`, in the current colour."""
        place: dict = {"xytext": offset, "textcoords": "offset points", "ha": align, "va": "center"}
        axes.annotate(text, at, **place, color=colour, fontsize=LABEL_SIZE)

    for net, up in (1, 1), (4, -1):
        colour, paper = HOURS_COLOURS[f"net {net}"], tables.PAPER[net]
        axes.plot(paper.hours, paper.tefbv, mec=colour, **star)
        text = f"net {net}, 2010:\n{paper.tefbv:.2f} %"
        label(text, (paper.hours, paper.tefbv), (0, 16 * up), "center")
    for name, run in own.items():
        colour, metrics, n_test = HOURS_COLOURS[name], run.metrics, run.config.data.n_test
        hours = run.seconds_by_median / run.epochs / 3600
        chosen = [chosen_epoch(metrics.validation_errors[:epoch]) for epoch in metrics.epoch]
        percent = 100 * np.array(metrics.test_errors)[np.array(chosen) - 1] / n_test
        axes.plot(hours * np.array(metrics.epoch), percent, color=colour, lw=1.5)
        bar: dict = {"fmt": "o", "color": colour, "ms": 3, "lw": 1, "capsize": 2}
        plot_rates(axes, [hours * run.epochs], [(run.chosen_errors, n_test)], **bar)
        first, error = (hours, percent[0]), f"{percent[-1]:.2f} %"
        if name == CNN.name:
            epochs = (*cnn_tables.EARLY, cnn_tables.PAPER_EPOCHS)
            axes.plot(hours * np.array(epochs), (*CNN.early, CNN.tefbv), mec=colour, **star)
            text = f"{name}: {error}\n2011: {CNN.tefbv:.2f} %"
            label(text, (hours * epochs[-1], CNN.tefbv), (-8, -18), "right")
        elif name in cnn_tables.JPEG_NETS:
            last = hours * cnn_tables.PAPER_EPOCHS, cnn_tables.JPEG_NETS[name].tefbv
            axes.plot(*last, mec=colour, **star)
            label(f"2011: {last[1]:.2f} %", last, (0, 12 if name == STILL else -12), "center")
            if name == STILL:
                label(f"CIFAR-10 as JPEG: {error}", first, (12, 2), "left")
            else:
                label(f"the same, translated: {error}", first, (-60, -46), "left")
        else:
            label(f"{name}: {error}", first, (-2, 8), "left")
    colour, found = "0.3", {kind: committees.get(name) for name, kind in HOURS_COMMITTEES.items()}
    if points := {kind: (r[-1].seconds / 3600, r[-1].percent) for kind, r in found.items() if r}:
        axes.plot(*zip(*points.values(), strict=True), "D", ms=4, color=colour, zorder=4)
        lines = [f"{kind} {percent:.2f} %" for kind, (_, percent) in points.items()]
        text = "\n".join(["committees of seven nets:", *lines])
        label(text, next(iter(points.values())), (-16, 36), "left")
    axes.set(xscale="log", yscale="log", xlim=(None, 500), ylim=(0.2, None))
    axes.set_xlabel(
        "hours: number of epochs x median hours of an epoch\n"
        "(committees: sums; 2011 gives no hours: its stars stand where\n"
        "our net has as many epochs; CIFAR-10's at 500, our guess)"
    )
    axes.set_ylabel("test error, %, of the epoch with the lowest validation error so far")
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_formatter("{x:g}")
    axes.set_yticks([0.3, 0.5, 1, 2, 3, 5, 10, 20, 30, 50], minor=False)
    axes.minorticks_off()
    axes.grid(color="0.9")
    used: dict[str, list[str]] = {}  # names of nets, by the device that trained them
    for name, run in own.items():
        used.setdefault(run.provenance[-1].device, []).append(name)
    main, *others = sorted(used, key=lambda device: -len(used[device]))
    devices = "; ".join([main, *(f"{', '.join(used[device])} on {device}" for device in others)])
    heading = f"Lines: ours, on {devices}.\n"
    return finish(figure, heading + "Bars: 95 % intervals. Stars: the papers', 2010 on a GTX 280.")


def _times(runs: Mapping[str, Run], against: str) -> tuple[dict[str, np.ndarray], str]:
    """Where on the x axis the epochs of each run are, and what that axis shows."""
    if against == "epochs":
        return {name: np.array(run.metrics.epoch) for name, run in runs.items()}, "epoch"
    if against != "hours":
        raise ValueError(f"expected 'epochs' or 'hours' to draw against, got {against!r}")
    longest = max(run.seconds_by_median for run in runs.values())
    unit, seconds = next((u, s) for u, s in TIME_UNITS if longest >= 2 * s or s == 1)
    times = {
        name: run.seconds_by_median / run.epochs / seconds * np.array(run.metrics.epoch)
        for name, run in runs.items()
    }
    return times, f"number of epochs x median time of one, {unit}"


def _best_first(runs: Mapping[str, Run]) -> list[str]:
    return sorted(runs, key=lambda name: runs[name].chosen_errors / runs[name].config.data.n_test)


def _line_styles(runs: Mapping[str, Run], ranked: list[str]) -> dict[str, dict]:
    """Line style of each run. Of many runs the first in `ranked` have a colour, and come last."""
    marked, others = list(runs), []
    if len(runs) > len(RUN_STYLES):
        marked, others = ranked[:N_HIGHLIGHTED], ranked[N_HIGHLIGHTED:]
    styles: dict[str, dict] = {}
    for name in others:
        label = "_other" if styles else f"the other {len(others)} runs"
        styles[name] = {"color": GREY, "lw": 0.5, "marker": ".", "ms": 2, "label": label}
    for name, (colour, line, marker) in zip(marked, RUN_STYLES, strict=False):
        step = max(1, runs[name].epochs // 10)  # a marker at some epochs only
        style = {"color": colour, "ls": line, "marker": marker, "ms": 4, "markevery": step}
        styles[name] = style | {"lw": 1.2, "label": shorten(name), "zorder": 3}
    return styles


def _percent(errors: Sequence[int], n: int) -> np.ndarray:
    """Counts of errors in percent; a logarithmic axis has no 0, so that becomes half an error."""
    return 100 * np.maximum(errors, 0.5) / n


def _largest_value(run: Run, name: str) -> float | None:
    """A parameter of a run's deformation, of beta the largest angle; None if undeformed."""
    deformation = run.config.deformation
    if deformation is None:
        return None
    return max(deformation.beta) if name == "beta" else getattr(deformation, name)


def _kind(run: Run) -> str:
    """The kind in RUN_KINDS. Width-normalised runs are one: its effect would hide a parameter's."""
    if run.config.data.width:
        return "width-normalised"
    return "deformed" if run.config.deformation else "undeformed"


def plot_study(rows: Sequence[StudyRow]) -> Figure:
    """The errors on the images held out, a line for each setting."""
    of_settings = studies.groups(rows)
    figure = frame(0.8 + 0.19 * len(of_settings))
    axes = figure.subplots()
    for place, own in enumerate(of_settings):
        percent, low, high = studies.held_out(own)
        axes.errorbar(percent, place, xerr=[[percent - low], [high - percent]], fmt="none")
        axes.plot([studies.held_out([row])[0] for row in own], [place] * len(own), "o", color=BLUE)
        if own[0].setting == studies.USUAL:
            axes.axvline(percent, linestyle=":", color=GREY)
    axes.set_yticks(range(len(of_settings)), [_study_label(own[0]) for own in of_settings])
    axes.invert_yaxis()
    axes.set_xlabel(
        "images held out wrong, %: a dot for each seed; 95 % interval of a net with the mean"
    )
    return finish(figure, f"The study, {rows[0].layers}")


def _study_label(row: StudyRow) -> str:
    """The factor and the setting, and the epochs where these are not told."""
    if row.setting == studies.USUAL:
        return row.setting
    is_told = row.epochs == studies.EPOCHS or "epochs" in row.setting
    return f"{row.factor}: {row.setting}" + f", {row.epochs:,} epochs" * (not is_told)
