"""Figures of runs: learning curves, rates and times, parameters, members of committees."""

from dataclasses import replace

import factories
import numpy as np
import pytest
from drawn import (
    DEFORMATION,
    N_TEST,
    N_TRAIN,
    assert_readable,
    bars_of,
    draw,
    legend_texts,
    make_committee,
    make_run,
    make_runs,
    make_varied_committee,
    make_varied_runs,
    named_lines,
    tick_labels,
)
from factories import changed

from experiments.drawing import figures, run_plots
from experiments.results import cnn_tables, tables
from experiments.results.records import read_results
from mlp_gpu.network import NETS


def rings(axes):
    """Places of TEfBV."""
    found = [line for line in axes.lines if line.get_linestyle() == "None"]
    return {(line.get_xdata()[0], line.get_ydata()[0]) for line in found}


def with_value(seed, right=0.8, **values):
    return make_run(seed, right=right, deformation=replace(DEFORMATION, **values))


# Learning curves


def test_learning_curves_plot_the_metrics_and_ring_tefbv():
    runs = {"a": make_run(5), "b": make_run(6, epochs=4, n_validation=101)}
    figure = run_plots.draw_learning_curves(runs)
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
            assert axes.get_yscale() == "log"
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["training loss, nats", "validation error, %", "test error, %"]
    assert test.get_xlabel() == "epoch"
    tefbv = {(run.chosen, 100 * run.chosen_errors / N_TEST) for run in runs.values()}
    assert [rings(axes) for axes in figure.axes] == [set(), set(), tefbv]
    assert legend_texts(figure)[-1] == "TEfBV: where validation error is lowest"
    assert "half" not in figure.get_suptitle()


@pytest.mark.parametrize(
    ("seconds", "label", "length"), [(3, "s", 1), (100, "min", 60), (3600, "h", 3600)]
)
def test_learning_curves_against_time_add_up_all_parts_of_an_epoch(seconds, label, length):
    runs = {"long": make_run(5, seconds=seconds), "short": make_run(6, seconds=0.5)}
    panels = run_plots.draw_learning_curves(runs, "hours").axes
    assert panels[2].get_xlabel() == f"time trained, {label}"
    times = set()
    for name, run in runs.items():
        parts = run.metrics.deform_seconds, run.metrics.train_seconds, run.metrics.evaluate_seconds
        expected = np.cumsum(np.sum(parts, axis=0)) / length
        for axes in panels:
            np.testing.assert_allclose(named_lines(axes)[name].get_xdata(), expected, rtol=1e-12)
        times.add(named_lines(panels[2])[name].get_xdata()[run.chosen - 1])
    assert {x for x, _ in rings(panels[2])} == times
    with pytest.raises(ValueError, match=r"'epochs' or 'hours'.*'days'"):
        run_plots.draw_learning_curves(runs, "days")


@pytest.mark.parametrize(
    ("metric", "panel", "n"), [("test", 2, N_TEST), ("validation", 1, N_TRAIN)]
)
def test_no_errors_are_drawn_as_half_an_error(metric, panel, n):
    runs = make_runs(2)
    getattr(runs["net 1"].metrics, f"{metric}_errors")[3] = 0
    figure = run_plots.draw_learning_curves(runs)
    assert "no errors at all: drawn as half an error" in figure.get_suptitle()
    assert named_lines(figure.axes[panel])["net 1"].get_ydata()[3] == 50 / n


def test_eight_runs_differ_and_of_nine_the_best_are_named():
    figure = run_plots.draw_learning_curves(make_runs(8))
    lines = named_lines(figure.axes[0])
    assert list(lines) == legend_texts(figure)[:8] == list(make_runs(8))
    assert len({(line.get_marker(), line.get_color()) for line in lines.values()}) == 8
    assert len({line.get_marker() for line in lines.values()}) == 8
    assert len({line.get_linestyle() for line in lines.values()}) == 4
    runs = make_runs(9)
    best = sorted(runs, key=lambda name: runs[name].chosen_errors)[:3]
    figure = run_plots.draw_learning_curves(runs)
    assert "9 runs; in colour the 3 with the lowest TEfBV" in figure.get_suptitle()
    assert legend_texts(figure)[:-1] == ["the other 6 runs", *best]
    assert len(rings(figure.axes[2])) == 9
    grey = [line for line in figure.axes[0].lines if line.get_color() == figures.GREY]
    others = {tuple(runs[name].metrics.train_loss) for name in runs.keys() - set(best)}
    assert {tuple(line.get_ydata()) for line in grey} == others


def test_logarithmic_axes_have_plain_numbers():
    run = make_run(0, epochs=3)
    run.metrics.train_loss = [6.0, 1.0, 0.08]
    run.metrics.test_errors = [4, 5, 6]
    loss, _, test = draw(run_plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["0.1", "0.2", "0.3", "0.5", "1", "2", "3", "5"]
    assert len(tick_labels(test.yaxis)) >= 3  # less than from 2 to 5 too
    run.metrics.train_loss = [500.0, 1.0, 0.5]
    loss, _, _ = draw(run_plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["1", "10", "100"]


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("plot", [run_plots.draw_learning_curves, run_plots.draw_learning_rates])
def test_only_whole_epochs_have_ticks(plot, epochs):
    axes = draw(plot(make_runs(2, epochs=epochs))).axes[-1]
    assert tick_labels(axes.xaxis) == [str(epoch + 1) for epoch in range(epochs)]


def test_equal_learning_rates_are_one_line():
    runs = make_runs(4)
    runs["net 2"].metrics.eta = [0.1, 0.03, 0.02, 0.01, 0.005, 0.004, 0.001]
    figure = run_plots.draw_learning_rates(runs)
    (axes,) = figure.axes
    lines = named_lines(axes)
    assert list(lines) == legend_texts(figure) == ["net 0 and 2 more", "net 2"]
    for label, name in (("net 0 and 2 more", "net 0"), ("net 2", "net 2")):
        assert list(lines[label].get_ydata()) == runs[name].metrics.eta
        assert list(lines[label].get_xdata()) == runs[name].metrics.epoch
    assert axes.get_yscale() == "log"
    assert figure.get_suptitle() == "Learning rates of 4 runs"


# Deformations


def test_parameters_that_differ_have_a_panel_each():
    runs = {
        "a": with_value(0, right=0.5, sigma=4.0),
        "b": with_value(1, beta=[*range(9), 17]),
        "c": make_run(2, deformation=None),
        "d": with_value(3, sigma=9.0),
    }
    figure = run_plots.draw_parameters(runs)
    sigma, beta = figure.axes
    assert (sigma.get_xlabel(), beta.get_xlabel()) == ("σ, pixels", "largest β, degrees")
    assert sigma.get_ylabel() == "TEfBV, %"
    assert figure.get_suptitle().endswith("the same where deformed: α 36 pixels, γx 15 %, γy 13 %")
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


EQUAL = (
    "where deformed, all have the same values:\n"
    "σ 6 pixels, α 36 pixels, largest β 12.5 degrees, γx 15 %, γy 13 %"
)


@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize(
    ("deformation", "tick", "said"), [(DEFORMATION, "6", EQUAL), (None, "none", "none is deformed")]
)
def test_runs_of_one_value_stand_close_together(n, deformation, tick, said):
    figure = draw(run_plots.draw_parameters(make_runs(n, deformation=deformation)))
    (sigma,) = figure.axes
    heading = "1 run;\n" if n == 1 else "40 runs, which may differ in other ways too;\n"
    assert figure.get_suptitle() == f"Test error of {heading}{said}"
    assert sigma.get_xlabel() == "σ, pixels"
    assert tick_labels(sigma.xaxis) == [tick]
    ((x, *_),) = bars_of(sigma).values()
    assert len(set(x)) == n
    (place,) = sigma.get_xticks()
    low, high = sigma.get_xlim()
    assert (low + high) / 2 == place
    assert abs(x - place).max() <= 0.1 * (high - low)


def test_runs_of_one_value_are_sorted_by_kind_and_error():
    runs = {
        "a": make_run(0, right=0.2),
        "b": make_run(1, right=0.2, width=10),
        "c": with_value(2, sigma=8.0),
        "d": make_run(3, deformation=None),
        "e": make_run(4, right=0.9, deformation=None, width=20),
        "f": make_run(5),
        "g": make_run(6, right=0.9, width=10),
    }
    figure = run_plots.draw_parameters(runs)
    (sigma,) = figure.axes
    found = bars_of(sigma)
    drawn = sorted(
        (x, kind, y) for kind, (xs, ys, *_) in found.items() for x, y in zip(xs, ys, strict=True)
    )
    errors = {name: 100 * run.chosen_errors / N_TEST for name, run in runs.items()}
    assert errors["e"] < errors["d"]
    assert errors["g"] < errors["f"] < errors["a"] <= errors["b"]
    assert [(kind, y) for _, kind, y in drawn] == [
        ("undeformed", errors["d"]),
        ("width-normalised", errors["e"]),
        ("deformed", errors["f"]),
        ("deformed", errors["a"]),
        ("width-normalised", errors["g"]),
        ("width-normalised", errors["b"]),
        ("deformed", errors["c"]),
    ]
    assert len({bars.lines[0].get_marker() for bars in sigma.containers}) == 3
    assert legend_texts(figure) == [f"{kind}, 95 % interval" for kind in found]


def test_many_values_of_a_parameter_share_few_ticks():
    runs = {f"{k}": with_value(k, alpha=30 + k) for k in range(20)}
    (alpha,) = draw(run_plots.draw_parameters(runs)).axes
    assert 3 <= len(tick_labels(alpha.xaxis)) <= 6
    assert bars_of(alpha)["deformed"][0].tolist() == list(range(30, 50))


# Committees


def test_members_stand_above_their_committee_and_beside_the_paper():
    paper = (1.7, 2.4, 3.1, 0.9)
    committee = make_committee(3, paper)
    figure = run_plots.draw_members(committee)
    (axes,) = figure.axes
    for kind, rows in (("member", [0, 1, 2]), ("committee", [3])):
        x, y, low, high = bars_of(axes)[kind]
        assert y.tolist() == rows
        for k, row in enumerate(rows):
            n = int(committee.wrong[row].sum())
            found = [x[k], low[k, 0], high[k, 0]]
            expected = [100 * n / N_TEST, *tables.interval(n, N_TEST)]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    lines = named_lines(axes)
    assert set(lines["average member"].get_xdata()) == {committee.mean_percent}
    assert lines["the paper"].get_xydata().tolist() == [[e, k] for k, e in enumerate(paper)]
    assert tick_labels(axes.yaxis) == [*committee.members, "committee"]
    assert axes.yaxis_inverted()
    markers = {bars.lines[0].get_marker() for bars in axes.containers}
    assert len(markers | {lines["the paper"].get_marker()}) == 3
    assert figure.get_suptitle() == "Seven nets"
    without = sorted(legend_texts(run_plots.draw_members(make_committee(3))))
    assert without == ["average member", "committee, 95 % interval", "member, 95 % interval"]


# Errors against hours


def record(net=1, **changes):
    return factories.make_run(sizes=NETS[net], **changes)


def test_error_against_hours_is_of_the_longest_run_of_each_net():
    longest = record(epochs=9, done=5)
    runs = [
        record(epochs=3),
        longest,
        record(4, epochs=2, session={"device": "a GPU"}),
        record(2, deformation=None),
        record(3, data={"name": "load_digits"}),
        factories.make_run(sizes=(841, 800, 10)),
    ]
    figure = run_plots.draw_error_against_hours(runs)
    (axes,) = figure.axes
    assert legend_texts(figure)[-2:] == ["net 4, 2 epochs: 0.37 %", "net 1, 5 of 9 epochs: 0.40 %"]
    lines = {len(line.get_xdata()): line for line in axes.lines if line.get_color() != "None"}
    hours = np.cumsum(longest.epoch_seconds) / 3600
    np.testing.assert_allclose(lines[5].get_xdata(), hours)
    np.testing.assert_allclose(lines[5].get_ydata(), [0.4, 0.39, 0.38, 0.37, 0.36])
    x, y, low, high = bars_of(axes)["net 1"]
    assert (x, y) == (hours[-1], 0.4)
    np.testing.assert_allclose([low[0, 1], high[0, 1]], tables.interval(40, 10_000))
    stars = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "*"]
    papers = [[[paper.hours, paper.tefbv]] for paper in tables.PAPER.values()]
    assert [star for star in stars if star] == papers
    assert {text.get_text() for text in axes.texts} == {str(net) for net in NETS}
    assert "Some CPU" in figure.get_suptitle()
    assert "a GPU" in figure.get_suptitle()
    with pytest.raises(ValueError, match="no runs to draw"):
        run_plots.draw_error_against_hours(runs[3:])


def test_every_net_of_the_papers_has_its_own_line():
    styles = run_plots.NET_STYLES
    assert len(set(styles.values())) == len(styles) == len(NETS) + len(cnn_tables.PAPER)
    runs = read_results().runs.values()
    (axes,) = run_plots.draw_error_against_hours(runs).axes
    labels = [label.partition(", ")[0] for label in axes.get_legend_handles_labels()[1]]
    assert styles.keys() == cnn_tables.longest_runs(runs).keys() == set(labels[1:])


# Convolutional nets


def make_conv_run(layers, seed=0, epochs=20, data="MNIST", **changes):
    run = make_run(seed, epochs)
    run.config = changed(run.config, data={"name": data})
    run.config = changed(run.config, layers=layers, seed=seed, **changes)
    return run


def test_error_curves_have_a_panel_a_description_and_the_papers_figures():
    third, fourth = cnn_tables.PAPER[3], cnn_tables.PAPER[4]
    runs = {
        "a": make_conv_run(fourth.layers, 0, epochs=2),
        "b": make_conv_run("3M5", 1),
        "c": make_conv_run(third.layers, 2, epochs=10),
        "d": make_conv_run(third.layers, 3, eta=0.004),
        "e": make_conv_run(third.layers, 3, eta=0.004),
    }
    runs["d"].metrics.test_errors[0] = 0
    for run in runs.values():  # records have none
        run.outputs, run.labels = np.empty((0, 0)), np.empty(0)
    figure = run_plots.draw_error_curves(runs)
    panels = {axes.get_title().replace("\n", ""): axes for axes in figure.axes}
    shown = {
        third.layers: {
            "20 epochs, η 0.004, seed 3": "d",
            "20 epochs, η 0.004, seed 3, e": "e",
            "10 epochs, η 0.001, seed 2": "c",
        },
        fourth.layers: {"2 epochs, η 0.001, seed 0": "a"},
        "3M5": {"20 epochs, η 0.001, seed 1": "b"},
    }
    assert list(panels) == list(shown)
    for layers, axes in panels.items():
        lines = named_lines(axes)
        papers = {"the paper", "the paper's TfbV, 500 epochs"} if layers != "3M5" else set()
        assert set(lines) == set(shown[layers]) | papers
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        for (label, name), bar in zip(shown[layers].items(), axes.containers, strict=True):
            errors = np.array(runs[name].metrics.test_errors)
            assert list(lines[label].get_xdata()) == runs[name].metrics.epoch
            assert list(lines[label].get_ydata()) == list(100 * np.maximum(errors, 0.5) / N_TEST)
            ends = np.array(bar.lines[2][0].get_segments())
            early = [epoch for epoch in (1, 3, 17) if epoch <= len(errors)]
            assert ends[:, 0, 0].tolist() == early
            expected = [tables.interval(errors[epoch - 1], N_TEST) for epoch in early]
            np.testing.assert_allclose(ends[:, :, 1], expected, rtol=1e-12, atol=1e-12)
    for paper in (third, fourth):
        lines = named_lines(panels[paper.layers])
        assert tuple(lines["the paper"].get_xdata()) == (1, 3, 17)
        assert tuple(lines["the paper"].get_ydata()) == paper.early
        assert set(lines["the paper's TfbV, 500 epochs"].get_ydata()) == {paper.tefbv}
    heading = "Test error of 5 convolutional nets after each epoch;\n"
    assert figure.get_suptitle() == heading + "bars: 95 % intervals after 1, 3, 17 epochs"
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "epoch", "epoch"]
    assert [axes.get_ylabel() != "" for axes in figure.axes] == [True, False, True]
    assert {"1", "2", "5", "10", "20"} <= set(tick_labels(draw(figure).axes[1].xaxis))


@pytest.mark.parametrize(
    ("layers", "data", "papers"),
    [
        (cnn_tables.PAPER[1].layers, "MNIST", ["the paper's TfbV, 500 epochs"]),  # has no early
        (cnn_tables.PAPER[3].layers, "load_digits", []),
    ],
)
def test_error_curves_without_figures_of_the_paper(layers, data, papers):
    run = make_conv_run(layers, epochs=1, data=data)
    axes = draw(run_plots.draw_error_curves({"a": run})).axes[0]
    assert list(named_lines(axes)) == ["1 epoch, η 0.001, seed 0", *papers]
    assert tick_labels(axes.xaxis) == ["1", "2", "5", "10", "20"]


# All of them


def equally_deformed(n):
    runs = make_varied_runs(n)
    for run in runs.values():
        if run.config.deformation:
            run.config = changed(run.config, deformation=DEFORMATION)
    return runs


def of_nets(n):
    described = [*(paper.layers for paper in cnn_tables.PAPER.values()), "3M5", "7N", "3M29"]
    epochs = 34 if n == 7 else 1
    return {f"{k}": make_conv_run(described[-k % 7], k, epochs) for k in range(min(n, 12))}


DRAWN = {
    "curves": (run_plots.draw_learning_curves, make_varied_runs),
    "hours": (lambda runs: run_plots.draw_learning_curves(runs, "hours"), make_varied_runs),
    "rates": (run_plots.draw_learning_rates, make_varied_runs),
    "parameters": (run_plots.draw_parameters, make_varied_runs),
    "one deformation": (run_plots.draw_parameters, equally_deformed),
    "members": (run_plots.draw_members, make_varied_committee),
    "error curves": (run_plots.draw_error_curves, of_nets),
}


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("which", DRAWN)
def test_every_figure_can_be_read(which, n):
    plot, make = DRAWN[which]
    assert_readable(plot(make(n)))


@pytest.mark.parametrize("which", [which for which in DRAWN if which != "members"])
def test_without_runs_there_is_nothing_to_draw(which):
    with pytest.raises(ValueError, match="no runs to draw"):
        DRAWN[which][0]({})
