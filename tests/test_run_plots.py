"""Figures of runs: learning curves, learning rates, parameters, members of committees."""

from dataclasses import replace

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
from experiments.scoring import tables


def ring_places(axes):
    rings = [line for line in axes.lines if line.get_linestyle() == "None"]
    return {(line.get_xdata()[0], line.get_ydata()[0]) for line in rings}


def with_value(seed, right=0.8, **values):
    return make_run(seed, right=right, deformation=replace(DEFORMATION, **values))


def with_one_deformation(runs):
    for run in runs.values():
        if run.config.deformation:
            run.config = changed(run.config, deformation=DEFORMATION)
    return runs


# Learning curves


def test_learning_curves_are_the_metrics():
    runs = {"a": make_run(5), "b": make_run(6, epochs=4, n_validation=101)}
    loss, validation, test = run_plots.draw_learning_curves(runs).axes
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
    assert [axes.get_ylabel() for axes in (loss, validation, test)] == [
        "training loss, nats",
        "validation error, %",
        "test error, %",
    ]
    assert test.get_xlabel() == "epoch"


@pytest.mark.parametrize("n", [3, 40])
def test_rings_where_tefbv_is_taken(n):
    runs = make_runs(n)
    figure = run_plots.draw_learning_curves(runs)
    assert ring_places(figure.axes[2]) == {
        (run.chosen, 100 * run.chosen_errors / N_TEST) for run in runs.values()
    }
    assert legend_texts(figure)[-1] == "TEfBV: where validation error is lowest"
    assert not ring_places(figure.axes[0]) | ring_places(figure.axes[1])


@pytest.mark.parametrize(
    ("seconds", "label", "length"), [(3, "s", 1), (100, "min", 60), (3600, "h", 3600)]
)
def test_learning_curves_against_time(seconds, label, length):
    runs = {"long": make_run(5, seconds=seconds), "short": make_run(6, seconds=0.5)}
    panels = run_plots.draw_learning_curves(runs, "hours").axes
    assert panels[2].get_xlabel() == f"time trained, {label}"
    for name, run in runs.items():
        each = np.transpose(
            [run.metrics.deform_seconds, run.metrics.train_seconds, run.metrics.evaluate_seconds]
        )
        expected = [each[: k + 1].sum() / length for k in range(len(each))]
        for axes in panels:
            np.testing.assert_allclose(named_lines(axes)[name].get_xdata(), expected, rtol=1e-12)
    times = {x for x, _ in ring_places(panels[2])}
    assert times == {
        named_lines(panels[2])[name].get_xdata()[run.chosen - 1] for name, run in runs.items()
    }


def test_learning_curves_against_what_there_is_not():
    with pytest.raises(ValueError, match=r"'epochs' or 'hours'.*'days'"):
        run_plots.draw_learning_curves(make_runs(1), "days")


def test_no_errors_at_all_are_half_an_error_and_said():
    runs = make_runs(2)
    assert "half" not in run_plots.draw_learning_curves(runs).get_suptitle()
    runs["net 1"].metrics.test_errors[3] = 0
    figure = run_plots.draw_learning_curves(runs)
    assert "no errors at all: drawn as half an error" in figure.get_suptitle()
    assert named_lines(figure.axes[2])["net 1"].get_ydata()[3] == 50 / N_TEST
    runs = make_runs(2)
    runs["net 0"].metrics.validation_errors[0] = 0
    figure = run_plots.draw_learning_curves(runs)
    assert "half an error" in figure.get_suptitle()
    assert named_lines(figure.axes[1])["net 0"].get_ydata()[0] == 50 / N_TRAIN


def test_eight_runs_differ_by_more_than_colour():
    figure = run_plots.draw_learning_curves(make_runs(8))
    lines = named_lines(figure.axes[0])
    assert list(lines) == legend_texts(figure)[:8] == list(make_runs(8))
    assert len({line.get_marker() for line in lines.values()}) == 8
    assert len({line.get_color() for line in lines.values()}) == 8
    assert len({line.get_linestyle() for line in lines.values()}) == 4


def test_of_many_runs_the_best_are_named():
    runs = make_runs(9)
    best = sorted(runs, key=lambda name: runs[name].chosen_errors)[:3]
    figure = run_plots.draw_learning_curves(runs)
    assert "9 runs; in colour the 3 with the lowest TEfBV" in figure.get_suptitle()
    assert legend_texts(figure)[:-1] == ["the other 6 runs", *best]
    lines = figure.axes[0].lines
    assert sum(line.get_color() == figures.GREY for line in lines) == 6
    assert all(named_lines(figure.axes[0])[name].get_color() != figures.GREY for name in best)
    others = {tuple(line.get_ydata()) for line in lines if line.get_color() == figures.GREY}
    assert others == {tuple(runs[name].metrics.train_loss) for name in runs.keys() - set(best)}


def test_logarithmic_axes_have_plain_numbers():
    run = make_run(0, epochs=3)
    run.metrics.train_loss = [6.0, 1.0, 0.08]
    run.metrics.test_errors = [4, 5, 6]
    loss, _, test = draw(run_plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["0.1", "0.2", "0.3", "0.5", "1", "2", "3", "5"]
    assert len(tick_labels(test.yaxis)) >= 3  # less than from 2 to 5 too
    assert tick_labels(test.xaxis) == ["1", "2", "3"]
    run.metrics.train_loss = [500.0, 1.0, 0.5]
    loss, _, _ = draw(run_plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["1", "10", "100"]


@pytest.mark.parametrize("epochs", [1, 2, 3])
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


def test_parameters():
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
    assert dict(zip(sigma.get_xticks(), tick_labels(sigma.xaxis), strict=True)) == {
        4: "4",
        6: "6",
        9: "9",
        x[0]: "none",
    }
    x, y, _, _ = bars_of(beta)["deformed"]
    assert [x[1], y[1]] == [17, errors[1]]
    assert y[2] < y[0]
    assert x[2] < 12.5 < x[0]  # side by side, the better first
    assert x[0] + x[2] == 25


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize(
    ("deformation", "tick", "said"),
    [
        (
            DEFORMATION,
            "6",
            "where deformed, all have the same values:\n"
            "σ 6 pixels, α 36 pixels, largest β 12.5 degrees, γx 15 %, γy 13 %",
        ),
        (None, "none", "none is deformed"),
    ],
)
def test_runs_of_one_value_stand_close_together(n, deformation, tick, said):
    figure = draw(run_plots.draw_parameters(make_runs(n, deformation=deformation)))
    (sigma,) = figure.axes
    others = ", which may differ in other ways too" if n > 1 else ""
    runs = f"{n} run{'s' if n > 1 else ''}"
    assert figure.get_suptitle() == f"Test error of {runs}{others};\n{said}"
    assert sigma.get_xlabel() == "σ, pixels"
    assert tick_labels(sigma.xaxis) == [tick]
    ((x, *_),) = bars_of(sigma).values()
    assert len(set(x)) == n
    (place,) = sigma.get_xticks()
    low, high = sigma.get_xlim()
    assert (low + high) / 2 == place
    assert abs(x - place).max() <= 0.1 * (high - low)


def test_one_deformation_and_undeformed_runs():
    figure = run_plots.draw_parameters(make_runs(3) | {"x": make_run(3, deformation=None)})
    (sigma,) = figure.axes
    assert tick_labels(sigma.xaxis) == ["6", "none"]
    assert "where deformed, all have the same values:\nσ 6 pixels, α" in figure.get_suptitle()


def test_width_normalised_runs_are_told_apart():
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
        ("deformed", errors["f"]),  # by kind, then the best first
        ("deformed", errors["a"]),
        ("width-normalised", errors["g"]),
        ("width-normalised", errors["b"]),
        ("deformed", errors["c"]),
    ]
    assert len({bars.lines[0].get_marker() for bars in sigma.containers}) == 3
    assert len({bars.lines[0].get_color() for bars in sigma.containers}) == 3
    assert legend_texts(figure) == [f"{kind}, 95 % interval" for kind in found]


def test_parameters_of_many_values():
    runs = {f"{k}": with_value(k, alpha=30 + k) for k in range(20)}
    (alpha,) = draw(run_plots.draw_parameters(runs)).axes
    assert 3 <= len(tick_labels(alpha.xaxis)) <= 6
    assert bars_of(alpha)["deformed"][0].tolist() == list(range(30, 50))


# Committees


def test_members():
    paper = (1.7, 2.4, 3.1, 0.9)
    committee = make_committee(3, paper)
    figure = run_plots.draw_members(committee)
    (axes,) = figure.axes
    found = bars_of(axes)
    errors = [100 * wrong.mean() for wrong in committee.wrong]
    x, y, low, high = found["member"]
    np.testing.assert_allclose(x, errors[:3], rtol=1e-12)
    assert y.tolist() == [0, 1, 2]
    x, y, low, high = found["committee"]
    np.testing.assert_allclose(x, errors[3:], rtol=1e-12)
    assert y.tolist() == [3]
    expected = tables.interval(int(committee.wrong[3].sum()), N_TEST)
    np.testing.assert_allclose([low[0, 0], high[0, 0]], expected, rtol=1e-12)
    lines = named_lines(axes)
    assert set(lines["average member"].get_xdata()) == {committee.mean_percent}
    assert tuple(lines["the paper"].get_xdata()) == paper
    assert list(lines["the paper"].get_ydata()) == [0, 1, 2, 3]
    assert tick_labels(axes.yaxis) == [*committee.members, "committee"]
    assert axes.yaxis_inverted()
    markers = {bars.lines[0].get_marker() for bars in axes.containers}
    assert len(markers | {lines["the paper"].get_marker()}) == 3
    assert figure.get_suptitle() == "Seven nets"


def test_members_without_the_paper():
    figure = run_plots.draw_members(make_committee(3))
    assert sorted(legend_texts(figure)) == [
        "average member",
        "committee, 95 % interval",
        "member, 95 % interval",
    ]


# All of them

DRAWN = {
    "curves": run_plots.draw_learning_curves,
    "hours": lambda runs: run_plots.draw_learning_curves(runs, "hours"),
    "rates": run_plots.draw_learning_rates,
    "parameters": run_plots.draw_parameters,
    "one deformation": lambda runs: run_plots.draw_parameters(with_one_deformation(runs)),
}


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("which", DRAWN)
def test_everything_can_be_read(which, n):
    assert_readable(DRAWN[which](make_varied_runs(n)))


@pytest.mark.parametrize("n", [1, 7, 40])
def test_all_members_can_be_read(n):
    assert_readable(run_plots.draw_members(make_varied_committee(n)))


@pytest.mark.parametrize("which", DRAWN)
def test_no_runs(which):
    with pytest.raises(ValueError, match="no runs to draw"):
        DRAWN[which]({})
