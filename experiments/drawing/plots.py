"""What the scripts that draw have in common, and the figures that are made of run files.

The figures are at most 7 inches wide and can be told apart without colours: in print, and by
colour-blind eyes. `runs` are runs by the names to draw them with; each function raises ValueError
if there are none. `images` are the test images, float32 (n_test, 29, 29), -1 white to 1 black.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator

from experiments.running.configs import count_validation
from experiments.running.formatting import plural
from experiments.running.store import Run
from experiments.scoring import tables, voting
from experiments.scoring.committee_report import COMMITTEE, Committee
from mlp_gpu import files

DPI = 200
FORMATS = {"png": {}, "pdf": {"CreationDate": None}}  # with the metadata: no date, so same bytes

# Okabe and Ito's colours, which colour-blind people can tell apart, and a grey.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#999999"

WIDTH = 7  # inches
TITLE, TEXT, SMALL = 9, 8, 7  # points: titles, labels of axes, all else
SHADES = colormaps["Blues"]  # for counts; the darker the more, in grey too

# Colour, line and marker of a run among few; of more than these only the BEST are told apart.
STYLES = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (BLACK, ":", "D"),
    (ORANGE, "-", "v"),
    (SKY, "--", "P"),
    (PURPLE, "-.", "X"),
    (GREY, "-", "<"),
)
BEST = 3
LONGEST = 44  # letters of a run's name
NUMBERED = 16  # rows of a matrix of shared errors that have room for numbers
UNITS = ("h", 3600), ("min", 60), ("s", 1)

# Mosaics of digits, as the 2010 paper's Figure 1.
CELL = 46, 35  # pixels from one digit to the next, down and across: room for what stands below
PIXELS = 46  # of a digit, an inch
HEAD = 0.6  # inches above the digits, for the heading

# Where the label is among the classes, the likeliest first: name, colour and hatch of its bar.
RANKS = (
    ("second guess", SKY, ""),
    ("third", ORANGE, "///"),
    ("fourth or later", "white", "xxx"),
)

PARAMETERS = {  # symbol and unit
    "sigma": ("σ", "pixels"),
    "alpha": ("α", "pixels"),
    "beta": ("largest β", "degrees"),
    "gamma_x": ("γx", "%"),
    "gamma_y": ("γy", "%"),
}

KINDS = {  # of runs by their images: colour and marker
    "deformed": (BLUE, "o"),
    "undeformed": (VERMILION, "s"),
    "width-normalised": (BLACK, "^"),
}


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PATH.png and as PATH.pdf, in a folder that is made; returns the two.

    Raises files.FileFault if that cannot be done; what was there before then stays.
    """
    images = {}
    for form, metadata in FORMATS.items():
        image = io.BytesIO()
        figure.savefig(image, format=form, dpi=DPI, metadata=metadata)
        images[path.with_name(f"{path.name}.{form}")] = image.getvalue()
    files.make_folder(path.parent)
    for target, content in images.items():
        files.replace(target, content)
    return list(images)


def draw_learning_curves(runs: Mapping[str, Run], against: str = "epochs") -> Figure:
    """Training loss, validation and test error, one above the other, with TEfBV marked.

    against: "epochs" or "hours", the time that the epochs took; short times are drawn in minutes
    or seconds. Raises ValueError if it is something else.
    """
    _require(runs)
    times, label = _abscissas(runs, against)
    figure = Figure(figsize=(WIDTH, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    loss, validation, test = panels
    has_zero = False
    for name, style in _line_styles(runs).items():
        run, x = runs[name], times[name]
        loss.plot(x, run.metrics["train_loss"], **style)
        n_validation = count_validation(run.config)
        errors = run.metrics["validation_errors"], run.metrics["test_errors"]
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
    heading += f"; in colour the {BEST} with the lowest TEfBV" if len(runs) > len(STYLES) else ""
    heading += "\nno errors at all: drawn as half an error" if has_zero else ""
    _finish(figure, heading, test)
    return figure


def draw_learning_rates(runs: Mapping[str, Run]) -> Figure:
    """The learning rate of every epoch: one line for all runs that have the same."""
    _require(runs)
    same: dict[tuple, list[str]] = {}
    for name, run in runs.items():
        same.setdefault(tuple(run.metrics["eta"]), []).append(name)
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    axes = figure.add_subplot()
    styles = _line_styles({names[0]: runs[names[0]] for names in same.values()})
    for eta, (name, *others) in same.items():
        style = styles[name]
        style["label"] += f" and {len(others)} more" if others else ""
        axes.plot(runs[name].metrics["epoch"], eta, **style)
    axes.set(xlabel="epoch", ylabel="learning rate η")
    _tick_epochs(axes)
    _make_logarithmic(axes)
    _finish(figure, f"Learning rates of {plural(len(runs), 'run')}", axes)
    return figure


def draw_confusion(outputs: np.ndarray, labels: np.ndarray, title: str) -> Figure:
    """Which classes are taken for which: counts, and totals of the errors.

    outputs: class probabilities (n_test, 10). labels: (n_test,).
    """
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (labels, outputs.argmax(axis=1)), 1)
    errors = counts - np.diag(np.diag(counts))
    cells = np.argsort(-errors, axis=None, kind="stable")[:3]
    worst = [(*divmod(int(cell), 10), errors.flat[cell]) for cell in cells if errors.flat[cell]]
    most = ", ".join(f"{label} as {guess} ({n})" for label, guess, n in worst)
    heading = f"{title}:\n{errors.sum()} of {len(labels):,} wrong" + (most and f"; most: {most}")

    table = np.pad(errors, (0, 1))
    table[10, :10], table[:10, 10], table[10, 10] = errors.sum(0), errors.sum(1), errors.sum()
    shares = errors / max(1, errors.max())
    shades = np.pad(np.where(errors, shares, np.nan), (0, 1), constant_values=np.nan)
    figure = Figure(figsize=(6, 6.2), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shades, cmap=SHADES, vmin=0, vmax=1)
    for (row, column), n in np.ndenumerate(table):
        if row == column < 10:
            _write(axes, row, column, int(counts[row, row]), color="0.45")
        elif 10 in (row, column):
            _write(axes, row, column, n, weight="bold")
        elif n:
            _write(axes, row, column, n, float(shares[row, column]))
    axes.axhline(9.5, color=BLACK, linewidth=0.8)
    axes.axvline(9.5, color=BLACK, linewidth=0.8)
    names = [*map(str, range(10)), "errors"]
    axes.set_xticks(range(11), names)
    axes.set_yticks(range(11), names)
    axes.set(xlabel="guess", ylabel="label")
    _finish(figure, heading)
    return figure


def draw_ranks(runs: Mapping[str, Run]) -> Figure:
    """For every run a bar of its wrong digits: where their label is among its guesses.

    The numbers stand at the end of a bar, because some parts are too narrow for them.
    """
    _require(runs)
    figure = Figure(figsize=(WIDTH, 1.5 + 0.2 * len(runs)), layout="constrained")
    axes = figure.add_subplot()
    counts = np.array([_count_ranks(run) for run in runs.values()])
    left = np.zeros(len(runs), int)
    places = np.arange(len(runs))
    for (name, colour, hatch), n in zip(RANKS, counts.T, strict=True):
        style: dict = {"color": colour, "hatch": hatch, "edgecolor": BLACK, "linewidth": 0.5}
        axes.barh(places, n, left=left, height=0.7, label=name, **style)
        left += n
    for place, (parts, total) in enumerate(zip(counts, left, strict=True)):
        text = f" {' + '.join(map(str, parts))} = {total}"
        axes.text(total, place, text, va="center", fontsize=SMALL)
    axes.set_xlim(0, 1.5 * max(1, left.max()))  # room for the numbers
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_yticks(places, [_short(name) for name in runs])
    axes.set(ylim=(len(runs) - 0.4, -0.6), xlabel="wrong digits")
    _finish(figure, "Wrong digits by the rank of their label", axes, "the label is")
    return figure


def draw_hardest(runs: Mapping[str, Run], images: np.ndarray, n: int = 35) -> Figure:
    """The n digits that the most runs get wrong, however few those are; the hardest first.

    Of those that equally many get wrong, the one whose label is less likely is harder.
    Below each: the most frequent wrong guess, and how many of the runs get it wrong. Digits that
    all get right are left out. Raises ValueError if the runs' labels differ.
    """
    labels = _common_labels(runs)
    guesses = np.array([run.outputs.argmax(axis=1) for run in runs.values()])
    n_wrong = np.count_nonzero(guesses != labels, axis=0)
    mean = voting.average([run.outputs for run in runs.values()])
    likely = mean[np.arange(len(labels)), labels]
    order = np.lexsort((likely, -n_wrong))
    hardest = order[n_wrong[order] > 0][:n]
    below = []
    for index in hardest:
        wrong = guesses[:, index][guesses[:, index] != labels[index]]
        guess = np.bincount(wrong).argmax()  # of equally frequent ones the smallest
        below.append((str(guess), f"{n_wrong[index]}/{len(runs)}"))
    heading = f"The {plural(len(hardest), 'hardest digit')} for {plural(len(runs), 'run')};\n"
    heading += "below: the most frequent wrong guess, and how many runs are wrong"
    return draw_mosaic(images[hardest], labels[hardest], below, heading)


def draw_wrong(outputs: np.ndarray, labels: np.ndarray, images: np.ndarray, title: str) -> Figure:
    """The digits that a net or a committee gets wrong.

    outputs: class probabilities (n_test, 10). labels: (n_test,). images: float32 (n_test, 29, 29).
    title: its first line; the second says how many are wrong.
    """
    wrong = np.flatnonzero(voting.find_wrong(outputs, labels))
    columns = max(7, math.ceil(math.sqrt(1.4 * len(wrong))))  # the paper's 35 stand in 5 x 7
    heading = f"{title}:\n{voting.count_sentence(outputs, labels)}"
    return draw_mosaic(
        images[wrong], labels[wrong], voting.guesses(outputs)[wrong], heading, columns
    )


def draw_mosaic(
    images: np.ndarray,
    labels: np.ndarray,
    below: Iterable[Sequence],
    heading: str,
    columns: int = 7,
) -> Figure:
    """Digits in rows, each with its label at the top right and two things below, left and right.

    images: float32 (n, side, side). labels: (n,). below: n pairs.
    """
    # One picture of all digits: axes of their own for hundreds of them would take a minute.
    rows, side = max(1, math.ceil(len(images) / columns)), images.shape[1]
    mosaic = np.full((rows * CELL[0], columns * CELL[1]), -1, np.float32)
    width, height = mosaic.shape[1] / PIXELS, mosaic.shape[0] / PIXELS + HEAD
    figure = Figure(figsize=(width, height))
    figure.text(0.1 / width, 1 - 0.1 / height, heading, fontsize=TITLE, va="top")
    axes = figure.add_axes((0, 0, 1, 1 - HEAD / height))
    frames = []
    for place, (image, label, pair) in enumerate(zip(images, labels, below, strict=True)):
        row, column = divmod(place, columns)
        top, left = row * CELL[0] + 1, column * CELL[1] + 3
        bottom, right = top + side, left + side
        mosaic[top:bottom, left:right] = image
        frames.append(Rectangle((left - 0.5, top - 0.5), side, side))
        corner = axes.text(right - 1.5, top + 0.5, label, ha="right", va="top", fontsize=TITLE)
        corner.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.8})
        axes.text(left, bottom + 1, pair[0], ha="left", va="top", fontsize=TITLE)
        axes.text(right - 1, bottom + 1, pair[1], ha="right", va="top", fontsize=TITLE)
    axes.imshow(mosaic, cmap="gray_r", vmin=-1, vmax=1)
    axes.add_collection(PatchCollection(frames, facecolor="none", edgecolor=BLACK, linewidth=0.8))
    axes.set_axis_off()
    return figure


def draw_outputs(runs: Mapping[str, Run], index: int, images: np.ndarray) -> Figure:
    """A test digit, and the class probabilities that each run gives it; of many the first eight.

    Raises ValueError if the runs' labels differ.
    """
    label = _common_labels(runs)[index]
    shown = list(runs)[: len(STYLES)]
    figure = Figure(figsize=(WIDTH, 1.7 + 0.75 * len(shown)), layout="constrained")
    grid = figure.add_gridspec(len(shown), 2, width_ratios=(1, 2.6))
    digit = figure.add_subplot(grid[:, 0])
    digit.imshow(images[index], cmap="gray_r", vmin=-1, vmax=1)
    digit.set(xticks=[], yticks=[])
    panels = [figure.add_subplot(grid[k, 1]) for k in range(len(shown))]
    for axes, name in zip(panels, shown, strict=True):
        chances = runs[name].outputs[index]
        guess = chances.argmax()
        others = np.delete(np.arange(10), label)
        axes.bar(label, chances[label], color=BLUE, hatch="///", ec=BLACK, label="the label")
        axes.bar(others, chances[others], color="0.8", ec=BLACK, label="other classes")
        text = f"{_short(name)}: says {guess} ({chances[guess]:.2f})"
        text += f", label {label} ({chances[label]:.2f})" if guess != label else ""
        axes.set_title(text, loc="left", fontsize=SMALL)
        axes.set(xlim=(-0.6, 9.6), ylim=(0, 1), yticks=(0, 0.5, 1), xticks=range(10))
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[len(panels) // 2].set_ylabel("probability")
    panels[-1].set_xlabel("class")
    some = f"\nthe first {len(shown)} of {len(runs)} runs" if len(shown) < len(runs) else ""
    _finish(figure, f"Test digit {index}, label {label}{some}", panels[0])
    return figure


def draw_parameters(runs: Mapping[str, Run]) -> Figure:
    """TEfBV against each parameter of the deformation that differs between the deformed runs.

    With 95 % intervals. Undeformed runs stand at "none". Width-normalised runs, deformed or not,
    are marked. If no parameter differs, all stand at the one sigma.
    """
    _require(runs)
    values = {name: [_parameter(run, name) for run in runs.values()] for name in PARAMETERS}
    found = {name: sorted({v for v in values[name] if v is not None}) for name in PARAMETERS}
    differing = [name for name in PARAMETERS if len(found[name]) > 1]
    shown = differing or ["sigma"]
    kinds = np.array([_kind(run) for run in runs.values()])
    errors = np.array([_error_bar(run.chosen_errors, len(run.labels)) for run in runs.values()])
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(WIDTH, 1.2 + 2.4 * rows), layout="constrained")
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
    _finish(figure, heading, panels[0])
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
    for kind, (colour, marker) in KINDS.items():
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
    names = [*map(_short, committee.members), COMMITTEE]
    bars = [_error_bar(int(wrong.sum()), len(wrong)) for wrong in committee.wrong]
    percent, below, above = np.array(bars).T
    places = np.arange(len(names))
    figure = Figure(figsize=(WIDTH, 1.6 + 0.2 * len(names)), layout="constrained")
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
    _finish(figure, committee.title, axes)
    return figure


def draw_shared(committee: Committee) -> Figure:
    """How many errors any two have in common, members and last the committee.

    Shaded as shares of the row's own errors. Without numbers if there are too many for them.
    """
    counts = voting.count_shared(committee.wrong)
    own = np.diag(counts)
    shares = counts / np.maximum(own, 1)[:, None]
    many = len(own) > NUMBERED
    height = 1.8 + len(own) * (0.17 if many else 0.28)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    picture = axes.imshow(shares, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    for (row, column), n in np.ndenumerate(counts):
        if not many:
            _write(axes, row, column, n, float(shares[row, column]))
    places = np.arange(len(own))
    short, everybody = [*map(str, places[1:]), "C"], (*committee.members, COMMITTEE)
    names = [f"{k}: {_short(name)}" for k, name in zip(short, everybody, strict=True)]
    every = slice(None, None, math.ceil(len(own) / NUMBERED))
    axes.set_xticks(places[every], short[every])
    axes.set_yticks(places, names)
    bar = figure.colorbar(picture, location="bottom", shrink=0.5, aspect=30, format="{x:.0%}")
    bar.set_label("share of the row's own errors")
    _finish(figure, f"{committee.title}:\nerrors in common, own errors on the diagonal")
    return figure


def _require(runs: Mapping[str, Run]) -> None:
    if not runs:
        raise ValueError("there are no runs to draw")


def _common_labels(runs: Mapping[str, Run]) -> np.ndarray:
    _require(runs)
    first, *others = (run.labels for run in runs.values())
    if not all(np.array_equal(labels, first) for labels in others):
        raise ValueError("the runs were tested on different digits; draw those on the same ones")
    return first


def _abscissas(runs: Mapping[str, Run], against: str) -> tuple[dict[str, np.ndarray], str]:
    """Where on the x axis the epochs of each run are, and what that axis shows."""
    if against == "epochs":
        return {name: np.array(run.metrics["epoch"]) for name, run in runs.items()}, "epoch"
    if against != "hours":
        raise ValueError(f"expected 'epochs' or 'hours' to draw against, got {against!r}")
    times = {name: np.cumsum(run.epoch_seconds) for name, run in runs.items()}
    longest = max(run.seconds for run in runs.values())
    unit, seconds = next((u, s) for u, s in UNITS if longest >= 2 * s or s == 1)
    return {name: time / seconds for name, time in times.items()}, f"time trained, {unit}"


def _line_styles(runs: Mapping[str, Run]) -> dict[str, dict]:
    """How to plot the line of each run; of many the best by TEfBV are told apart, and come last."""
    best = sorted(runs, key=lambda name: runs[name].chosen_errors / len(runs[name].labels))
    marked, others = (list(runs), []) if len(runs) <= len(STYLES) else (best[:BEST], best[BEST:])
    styles: dict[str, dict] = {}
    for name in others:
        label = "_other" if styles else f"the other {len(others)} runs"
        styles[name] = {"color": GREY, "lw": 0.5, "marker": ".", "ms": 2, "label": label}
    for name, (colour, line, marker) in zip(marked, STYLES, strict=False):
        some = max(1, runs[name].epochs // 10)  # a marker at some epochs only
        style = {"color": colour, "ls": line, "marker": marker, "ms": 4, "markevery": some}
        styles[name] = style | {"lw": 1.2, "label": _short(name), "zorder": 3}
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


def _count_ranks(run: Run) -> list[int]:
    """Wrong digits whose label is the second guess, the third, and a later one."""
    order = np.argsort(-run.outputs, axis=1, kind="stable")
    ranks = np.argmax(order == run.labels[:, None], axis=1)
    return [int(np.count_nonzero(which)) for which in (ranks == 1, ranks == 2, ranks > 2)]


def _parameter(run: Run, name: str) -> float | None:
    deformation = run.config["deformation"]
    if deformation is None:
        return None
    return max(deformation[name]) if name == "beta" else deformation[name]


def _kind(run: Run) -> str:
    """Which of KINDS it is. What width-normalisation does would hide what a parameter does."""
    if run.config["data"].get("width"):
        return "width-normalised"
    return "deformed" if run.config["deformation"] else "undeformed"


def _error_bar(errors: int, n: int) -> tuple[float, float, float]:
    """An error rate in percent, and how far its 95 % interval reaches below and above it."""
    percent, (low, high) = 100 * errors / n, tables.interval(errors, n)
    return percent, percent - low, high - percent


def _short(name: str) -> str:
    """A name that leaves room for the figure: its end, where it is long."""
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def _write(axes: Axes, row: int, column: int, n: int, shade: float = 0, **style: Any) -> None:
    """A number in a cell of SHADES, 0 to 1, in a colour that can be read on it."""
    style = {"color": "white" if shade > 0.7 else BLACK, "fontsize": SMALL, **style}
    axes.text(column, row, str(n), ha="center", va="center", **style)


def _finish(
    figure: Figure, title: str, shown: Axes | None = None, legend_title: str | None = None
) -> None:
    """Give a figure its title and sizes of text, and below it a legend of what `shown` shows."""
    figure.suptitle(title, fontsize=TITLE)
    for axes in figure.axes:
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.label.set_fontsize(TEXT)
        axes.yaxis.label.set_fontsize(TEXT)
    if shown is not None:
        handles, labels = shown.get_legend_handles_labels()
        columns = min(4, max(1, 110 // (9 + max(map(len, labels)))))  # 7 inches hold some 110 signs
        style = {"ncols": columns, "frameon": False, "fontsize": SMALL, "title_fontsize": SMALL}
        figure.legend(handles, labels, loc="outside lower center", title=legend_title, **style)
