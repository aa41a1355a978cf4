"""Figures of runs: learning curves, errors against hours, the members of a committee, studies.

`runs` are runs by the names to draw them with, at least one.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL_SIZE,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    finish,
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


def plot_learning_curves(runs: Mapping[str, Run]) -> Figure:
    """Training loss, validation and test error, one above the other, with TEfBV marked."""
    figure = frame(7)
    panels = loss, validation, test = figure.subplots(3, 1, sharex=True)
    has_zero = False
    for name, style in _line_styles(runs).items():
        run, x = runs[name], np.array(runs[name].metrics.epoch)
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
    test.set(xlabel="epoch", ylabel="test error, %")
    tick_integers(test.xaxis)
    for axes in panels:
        make_logarithmic(axes)
    heading = f"Learning curves of {plural(len(runs), 'run')}"
    if len(runs) > len(RUN_STYLES):
        heading += f"; in colour the {N_HIGHLIGHTED} with the lowest TEfBV"
    heading += "\nno errors at all: drawn as half an error" if has_zero else ""
    return finish(figure, heading, test)


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


def plot_error_against_hours(
    runs: Iterable[Run], committees: Mapping[str, Sequence[CommitteeRow]]
) -> Figure:
    """Test error against the time trained, of nets and committees, beside the papers' nets.

    Of each net in HOURS_COLOURS the longest run: after each epoch the test error of the epoch with
    the lowest validation error so far, and at the end its 95 % interval. The time is the number of
    epochs times the median time of one, so that a busy machine adds no hours. Results of 2011 are
    drawn after as many epochs of ours, those of CIFAR-10, for which the paper names no number,
    after PAPER_EPOCHS. A committee of HOURS_COMMITTEES is a point, after the sum of all its
    members' epochs: its record has no others.

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
        "(committees: sums; stars of 2011 stand where our net has\n"
        "as many epochs, those of CIFAR-10 at 500, our guess)"
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
    for device in dict.fromkeys(rows[-1].source.device for rows in found.values() if rows):
        used.setdefault(device, []).append("committees")
    main, *others = sorted(used, key=lambda device: -len(used[device]))
    devices = "; ".join([main, *(f"{', '.join(used[device])} on {device}" for device in others)])
    heading = f"Lines: ours, on {devices}.\n"
    return finish(figure, heading + "Bars: 95 % intervals. Stars: the papers', 2010 on a GTX 280.")


def _line_styles(runs: Mapping[str, Run]) -> dict[str, dict]:
    """Line style of each run. Of many runs the best have a colour, and come last."""
    marked, others = list(runs), []
    if len(runs) > len(RUN_STYLES):
        ranked = sorted(runs, key=lambda name: runs[name].chosen_errors / len(runs[name].labels))
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


def plot_study(rows: Sequence[StudyRow]) -> Figure:
    """The errors on the images held out, a line for each setting."""
    of_settings = studies.groups(rows)
    figure = frame(1.0 + 0.19 * len(of_settings))
    axes = figure.subplots()
    for place, own in enumerate(of_settings):
        percent, low, high = studies.held_out(own)
        axes.errorbar(percent, place, xerr=[[percent - low], [high - percent]], fmt="none")
        axes.plot([studies.held_out([row])[0] for row in own], [place] * len(own), "o", color=BLUE)
        if own[0].setting == studies.USUAL:
            axes.axvline(percent, linestyle=":", color=GREY)
    axes.set_yticks(range(len(of_settings)), [_study_label(own[0]) for own in of_settings])
    axes.set_ylim(len(of_settings) - 0.5, -0.5)  # whole dots, and the first setting on top
    axes.set_xlabel(
        "images held out wrong, %: a dot for each seed;\n95 % interval of a net with the mean"
    )
    return finish(figure, f"The study, {rows[0].layers}")


def _study_label(row: StudyRow) -> str:
    """The factor and the setting, and the epochs where these are not told."""
    if row.setting == studies.USUAL:
        return row.setting
    is_told = row.epochs == studies.EPOCHS or "epochs" in row.setting
    return f"{row.factor}: {row.setting}" + f", {row.epochs:,} epochs" * (not is_told)
