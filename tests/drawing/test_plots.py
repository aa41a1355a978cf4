"""Figures of runs and errors: the numbers that they show; test_kept_figures.py has all the rest."""

import io
from dataclasses import replace

import factories
import numpy as np
import pytest
from committee_cases import committee_row
from drawn import (
    DEFORMATION,
    IMAGES,
    LABELS,
    N_TEST,
    N_TRAIN,
    ON_JPEGS,
    bars_of,
    draw,
    make_conv_run,
    make_run,
    make_runs,
    named_lines,
    overlap,
    tick_labels,
    visible_texts,
)
from matplotlib.figure import Figure
from PIL import Image

from cnn_gpu.layers import Maps, parse
from cnn_gpu.network import ConvNetwork
from experiments.drawing import conv_plots, error_plots, figures, run_plots
from experiments.results import cnn_tables, tables


def rings(axes):
    """Places of TEfBV."""
    found = [line for line in axes.lines if line.get_linestyle() == "None"]
    return {(line.get_xdata()[0], line.get_ydata()[0]) for line in found}


def with_value(seed, right=0.8, **values):
    return make_run(seed, right=right, deformation=replace(DEFORMATION, **values))


def test_learning_curves_plot_the_metrics_and_ring_tefbv():
    runs = {"a": make_run(5), "b": make_run(6, epochs=4, n_validation=101)}
    figure = run_plots.plot_learning_curves(runs)
    loss, validation, test = figure.axes
    for name, n_validation in (("a", N_TRAIN), ("b", 101)):
        metrics = runs[name].metrics
        for axes, expected in (
            (loss, metrics.train_loss),
            (validation, [100 * n / n_validation for n in metrics.validation_errors]),
            (test, [100 * n / N_TEST for n in metrics.test_errors]),
        ):
            line = named_lines(axes)[name]
            assert line.get_xdata().tolist() == metrics.epoch
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-15)
    tefbv = {(run.chosen, 100 * run.chosen_errors / N_TEST) for run in runs.values()}
    assert [rings(axes) for axes in figure.axes] == [set(), set(), tefbv]
    with pytest.raises(ValueError, match=r"'epochs' or 'hours'.*'days'"):
        run_plots.plot_learning_curves(runs, "days")


def test_logarithmic_axes_have_plain_numbers():
    run = make_run(0, epochs=3)
    run.metrics.train_loss = [6.0, 1.0, 0.08]
    run.metrics.test_errors = [4, 5, 6]
    loss, _, test = draw(run_plots.plot_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["0.1", "0.2", "0.3", "0.5", "1", "2", "3", "5"]
    assert len(tick_labels(test.yaxis)) >= 3  # less than from 2 to 5 too
    run.metrics.train_loss = [500.0, 1.0, 0.5]
    loss, _, _ = draw(run_plots.plot_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["1", "10", "100"]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("plot", [run_plots.plot_learning_curves, run_plots.plot_learning_rates])
def test_only_whole_epochs_have_ticks(plot, epochs):
    axes = draw(plot(make_runs(2, epochs=epochs))).axes[-1]
    assert tick_labels(axes.xaxis) == [str(epoch + 1) for epoch in range(epochs)]


def test_parameters_that_differ_have_a_panel_each():
    runs = {
        "a": with_value(0, right=0.5, sigma=4.0),
        "b": with_value(1, beta=[*range(9), 17]),
        "c": make_run(2, deformation=None),
        "d": with_value(3, sigma=9.0),
    }
    sigma, beta = run_plots.plot_parameters(runs).axes
    errors = [100 * run.chosen_errors / N_TEST for run in runs.values()]
    x, y, low, high = bars_of(sigma)["deformed"]
    assert x.tolist() == [4, 6, 9]
    assert y.tolist() == [errors[0], errors[1], errors[3]]
    for k, name in enumerate(("a", "b", "d")):
        expected = tables.interval(runs[name].chosen_errors, N_TEST)
        np.testing.assert_allclose([low[k, 1], high[k, 1]], expected, rtol=1e-12)
    x, y, _, _ = bars_of(sigma)["undeformed"]
    assert (x[0] < 4, y.tolist()) == (True, [errors[2]])
    ticks = dict(zip(sigma.get_xticks(), tick_labels(sigma.xaxis), strict=True))
    assert ticks == {4: "4", 6: "6", 9: "9", x[0]: "none"}
    x, y, _, _ = bars_of(beta)["deformed"]
    assert [x[1], y[1]] == [17, errors[1]]
    assert y[2] < y[0]
    assert x[2] < 12.5 < x[0]  # side by side, the better first
    assert x[0] + x[2] == 25


def test_many_values_of_a_parameter_share_few_ticks():
    runs = {f"{k}": with_value(k, alpha=30 + k) for k in range(20)}
    (alpha,) = draw(run_plots.plot_parameters(runs)).axes
    assert 3 <= len(tick_labels(alpha.xaxis)) <= 6
    assert bars_of(alpha)["deformed"][0].tolist() == list(range(30, 50))


def test_error_against_hours_is_of_the_chosen_epochs_and_ignores_a_busy_machine():
    layers = cnn_tables.PAPER[3].layers
    times = dict.fromkeys(("deform_seconds", "evaluate_seconds"), [0.0] * 5)
    times |= {"train_seconds": [36.0, 36, 7200, 36, 18]}
    errors = {"validation_errors": [9, 5, 7, 5, 4], "test_errors": [500, 300, 900, 200, 100]}
    nets = {"layers": layers}, ON_JPEGS
    runs = [factories.make_run(epochs=5, metrics=times | errors, **net) for net in nets]
    committee = [committee_row(errors=64, percent=0.64, seconds=7200.0)]
    (axes,) = run_plots.plot_error_against_hours(runs, {"experiment3": committee}).axes
    lines = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "-"]
    percent = [5, 3, 3, 3, 1]
    np.testing.assert_allclose(lines[0], [(0.01 * k, y) for k, y in enumerate(percent, 1)])
    stars = [at for line in axes.lines if line.get_marker() == "*" for at in line.get_xydata()]
    expected = [(23.4, 0.49), (114.5, 0.35), (0.01, 4.71), (0.03, 1.58), (0.17, 0.68), (5, 0.38)]
    np.testing.assert_allclose(stars, [*expected, (5, 20.26)])
    (diamond,) = (line for line in axes.lines if line.get_marker() == "D")
    assert diamond.get_xydata().tolist() == [[2, 0.64]]


def test_long_lines_are_folded_at_spaces_and_behind_hyphens():
    text = "20M5s1-60M5s1c50%-150N on MNIST:\n7 wrong"
    assert figures.fold(text, 0.9) == "20M5s1-\n60M5s1c50%-\n150N on\nMNIST:\n7 wrong"
    assert figures.fold(text, 0.9, 4.5) == "20M5s1-60M5s1c50%-150N\non MNIST:\n7 wrong"
    assert figures.fold(text, 9) == text
    figure = Figure(figsize=(2, 1), layout="constrained")
    figures.finish(figure, "20M5s1-60M5s1c50%-150N on MNIST")
    assert figure.get_suptitle() == "20M5s1-60M5s1c50%-150N\non MNIST"


def test_a_figure_is_saved_with_the_same_bytes_each_time(tmp_path):
    first, again = (
        figures.save_figure(run_plots.plot_learning_rates(make_runs(2)), tmp_path / name / "rates")
        for name in ("first", "again")
    )
    assert [path.name for path in first] == ["rates.png", "rates.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_dark_variant_has_the_page_for_white_and_keeps_hues():
    colours = [(255, 255, 255), (0, 0, 0), (0, 114, 178), (230, 159, 0)]
    light = Image.fromarray(np.array([colours], np.uint8))
    dark = Image.open(io.BytesIO(figures.darken(light))).convert("RGB")
    (white, black, blue, orange) = np.array(dark)[0].tolist()
    assert (white, black) == ([*figures.DARK_PAGE], [*figures.DARK_INK])
    # By hand: luma 87, so a channel gains 81; then 0 to 255 becomes the page's to the ink's value.
    assert blue == [85, 192, 252]
    assert orange == [156, 97, 23]  # luma 162: a channel loses 69


def test_overlaps_are_seen():
    figure = Figure(figsize=(7, 2))
    for x, text in ((0.1, "one"), (0.11, "other"), (0.5, "third")):
        figure.text(x, 0.5, text)
    one, other, third = visible_texts(draw(figure)).values()
    assert overlap(one, other)
    assert not overlap(other, third)


def test_runs_of_different_digits_are_refused():
    runs = make_runs(2)
    runs["net 1"].labels = LABELS[::-1]
    with pytest.raises(ValueError, match="different images"):
        error_plots.plot_hardest(runs, IMAGES)


def test_nets_without_what_is_drawn_are_refused():
    with pytest.raises(ValueError, match="expected a convolution after the first layer"):
        conv_plots.plot_connections(ConvNetwork.initial("5M5-9N", Maps(1, 29, 29), 10, 3))
    layer = parse("1M2s2", Maps(1, 11, 11), 10)[0]
    for outside in ((11, 0), (0, 11), (-1, 3)):
        with pytest.raises(ValueError, match="within 11 rows and 11 columns, got"):
            conv_plots.plot_pulling(layer, outside)


def test_of_many_convolutional_nets_the_longest_and_lowest_seeds_are_in_colour():
    layers, runs = cnn_tables.PAPER[3].layers, {}
    for seed in (3, 2, 1, 0, 4, 5, 6, 7, 8):  # the later one has the fewer errors
        epochs = 30 if seed == 8 else 20
        runs[f"{seed}"] = run = make_conv_run(layers, seed, epochs)
        run.metrics.test_errors[:] = [90 - 10 * seed] * epochs
    (axes,) = run_plots.plot_error_curves(runs).axes
    coloured = [
        line for line in axes.lines if line.get_color() not in (figures.GREY, figures.BLACK)
    ]
    labels = [line.get_label().split(", ")[::2] for line in coloured if "seed" in line.get_label()]
    assert labels == [["30 epochs", "seed 8"], ["20 epochs", "seed 0"], ["20 epochs", "seed 1"]]
