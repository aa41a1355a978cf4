"""Figures made of run files: what they show, and that it can be read."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from experiments.drawing import plots
from experiments.running.store import Run
from experiments.scoring import tables
from experiments.scoring.committee_report import Committee

N_TEST, N_TRAIN = 157, 613
DEFORMATION = {
    "sigma": 6.0,
    "alpha": 36.0,
    "beta": [7.5, 12.5] * 5,
    "gamma_x": 15.0,
    "gamma_y": 13.0,
}
LABELS = np.random.default_rng(0).integers(0, 10, N_TEST).astype(np.uint8)
IMAGES = np.random.default_rng(1).uniform(-1, 1, (N_TEST, 29, 29)).astype(np.float32)


def make_run(
    seed, epochs=7, right=0.8, seconds=1.0, deformation=DEFORMATION, n_validation=None, width=None
):
    """A run of random figures, its probabilities those of a net that is often right."""
    rng = np.random.default_rng(seed)
    outputs = rng.random((N_TEST, 10))
    outputs[np.arange(N_TEST), LABELS] += rng.random(N_TEST) < right
    outputs /= outputs.sum(axis=1, keepdims=True)
    wrong = int(np.count_nonzero(outputs.argmax(axis=1) != LABELS))
    metrics = {
        "epoch": list(range(1, epochs + 1)),
        "eta": [1e-3 * 0.7**epoch for epoch in range(epochs)],
        "train_loss": rng.uniform(0.05, 2, epochs).tolist(),
        "validation_errors": rng.integers(3, 200, epochs).tolist(),
        "test_errors": rng.integers(3, 60, epochs).tolist(),
        "deform_seconds": (seconds * rng.uniform(0.1, 0.3, epochs)).tolist(),
        "train_seconds": (seconds * rng.uniform(1, 2, epochs)).tolist(),
        "evaluate_seconds": (seconds * rng.uniform(0.1, 0.5, epochs)).tolist(),
    }
    metrics["test_errors"][int(np.argmin(metrics["validation_errors"]))] = wrong
    config = {
        "data": {
            "name": "MNIST",
            "n_train": N_TRAIN,
            "n_validation": n_validation,
            "width": width,
        },
        "deformation": deformation,
    }
    return Run(config, [], metrics, outputs.astype(np.float32), LABELS)


def make_runs(n, **what):
    return {f"net {seed}": make_run(seed, **what) for seed in range(n)}


def make_committee(n, paper=None):
    runs = make_runs(n)
    return Committee("experiment1", "Seven nets", tuple(runs), tuple(runs.values()), paper)


def draw(figure):
    FigureCanvasAgg(figure).draw()
    return figure


def named_lines(axes):
    return {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}


def ring_places(axes):
    rings = [line for line in axes.lines if line.get_linestyle() == "None"]
    return {(line.get_xdata()[0], line.get_ydata()[0]) for line in rings}


def legend_texts(figure):
    return [text.get_text() for text in figure.legends[0].texts]


def cells(axes):
    """The texts of a matrix, by row and column."""
    return {text.get_position()[::-1]: text.get_text() for text in axes.texts}


def tick_labels(axis):
    """The labels that are drawn."""
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1.get_text()
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible() and low <= tick.get_loc() <= high
    ]


def test_colours_are_okabe_and_itos():
    assert (plots.BLUE, plots.VERMILION, plots.GREEN) == ("#0072B2", "#D55E00", "#009E73")
    assert (plots.ORANGE, plots.SKY, plots.PURPLE) == ("#E69F00", "#56B4E9", "#CC79A7")
    assert (plots.BLACK, plots.GREY) == ("#000000", "#999999")


# --- Learning curves


def test_learning_curves_are_the_metrics():
    runs = {"a": make_run(5), "b": make_run(6, epochs=4, n_validation=101)}
    loss, validation, test = plots.draw_learning_curves(runs).axes
    for name, n_validation in (("a", N_TRAIN), ("b", 101)):
        metrics = runs[name].metrics
        for axes, expected in (
            (loss, metrics["train_loss"]),
            (validation, [100 * n / n_validation for n in metrics["validation_errors"]]),
            (test, [100 * n / N_TEST for n in metrics["test_errors"]]),
        ):
            line = named_lines(axes)[name]
            assert line.get_xdata().tolist() == metrics["epoch"]
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
    figure = plots.draw_learning_curves(runs)
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
    panels = plots.draw_learning_curves(runs, "hours").axes
    assert panels[2].get_xlabel() == f"time trained, {label}"
    for name, run in runs.items():
        each = np.transpose(
            [run.metrics[part] for part in ("deform_seconds", "train_seconds", "evaluate_seconds")]
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
        plots.draw_learning_curves(make_runs(1), "days")


def test_no_errors_at_all_are_half_an_error_and_said():
    runs = make_runs(2)
    assert "half" not in plots.draw_learning_curves(runs).get_suptitle()
    runs["net 1"].metrics["test_errors"][3] = 0
    figure = plots.draw_learning_curves(runs)
    assert "no errors at all: drawn as half an error" in figure.get_suptitle()
    assert named_lines(figure.axes[2])["net 1"].get_ydata()[3] == 50 / N_TEST
    runs = make_runs(2)
    runs["net 0"].metrics["validation_errors"][0] = 0
    figure = plots.draw_learning_curves(runs)
    assert "half an error" in figure.get_suptitle()
    assert named_lines(figure.axes[1])["net 0"].get_ydata()[0] == 50 / N_TRAIN


def test_eight_runs_differ_by_more_than_colour():
    figure = plots.draw_learning_curves(make_runs(8))
    lines = named_lines(figure.axes[0])
    assert list(lines) == legend_texts(figure)[:8] == list(make_runs(8))
    assert len({line.get_marker() for line in lines.values()}) == 8
    assert len({line.get_color() for line in lines.values()}) == 8
    assert len({line.get_linestyle() for line in lines.values()}) == 4


def test_of_many_runs_the_best_are_named():
    runs = make_runs(9)
    best = sorted(runs, key=lambda name: runs[name].chosen_errors)[:3]
    figure = plots.draw_learning_curves(runs)
    assert "9 runs; in colour the 3 with the lowest TEfBV" in figure.get_suptitle()
    assert legend_texts(figure)[:-1] == ["the other 6 runs", *best]
    lines = figure.axes[0].lines
    assert sum(line.get_color() == plots.GREY for line in lines) == 6
    assert all(named_lines(figure.axes[0])[name].get_color() != plots.GREY for name in best)
    others = {tuple(line.get_ydata()) for line in lines if line.get_color() == plots.GREY}
    assert others == {tuple(runs[name].metrics["train_loss"]) for name in runs.keys() - set(best)}


def test_logarithmic_axes_have_plain_numbers():
    run = make_run(0, epochs=3)
    run.metrics["train_loss"] = [6.0, 1.0, 0.08]
    run.metrics["test_errors"] = [4, 5, 6]
    loss, _, test = draw(plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["0.1", "0.2", "0.3", "0.5", "1", "2", "3", "5"]
    assert len(tick_labels(test.yaxis)) >= 3  # less than from 2 to 5 too
    assert tick_labels(test.xaxis) == ["1", "2", "3"]
    run.metrics["train_loss"] = [500.0, 1.0, 0.5]
    loss, _, _ = draw(plots.draw_learning_curves({"a": run})).axes
    assert tick_labels(loss.yaxis) == ["1", "10", "100"]


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("plot", [plots.draw_learning_curves, plots.draw_learning_rates])
def test_only_whole_epochs_have_ticks(plot, epochs):
    axes = draw(plot(make_runs(2, epochs=epochs))).axes[-1]
    assert tick_labels(axes.xaxis) == [str(epoch + 1) for epoch in range(epochs)]


def test_equal_learning_rates_are_one_line():
    runs = make_runs(4)
    runs["net 2"].metrics["eta"] = [0.1, 0.03, 0.02, 0.01, 0.005, 0.004, 0.001]
    figure = plots.draw_learning_rates(runs)
    (axes,) = figure.axes
    lines = named_lines(axes)
    assert list(lines) == legend_texts(figure) == ["net 0 and 2 more", "net 2"]
    for label, name in (("net 0 and 2 more", "net 0"), ("net 2", "net 2")):
        assert list(lines[label].get_ydata()) == runs[name].metrics["eta"]
        assert list(lines[label].get_xdata()) == runs[name].metrics["epoch"]
    assert axes.get_yscale() == "log"
    assert figure.get_suptitle() == "Learning rates of 4 runs"


# --- What is wrong


def test_confusion_counts_labels_down_and_guesses_across():
    run = make_run(3, right=0.4)
    guesses = run.outputs.argmax(axis=1)
    figure = plots.draw_confusion(run.outputs, LABELS, "A net")
    (axes,) = figure.axes
    found, shade = cells(axes), axes.images[0].get_array()
    counts = np.zeros((10, 10), int)
    for label, guess in zip(LABELS, guesses, strict=True):
        counts[label, guess] += 1
    errors = counts * (1 - np.eye(10, dtype=int))
    for i in range(10):
        for j in range(10):
            assert found.get((i, j), "0") == str(counts[i, j])
            if i == j or not errors[i, j]:
                assert np.ma.is_masked(shade[i, j])
            else:
                assert shade[i, j] == errors[i, j] / errors.max()
        assert found[i, 10] == str(errors[i].sum())
        assert found[10, i] == str(errors[:, i].sum())
        assert (i, i) in found
    assert found[10, 10] == str(errors.sum())
    assert shade[10].mask.all()
    assert shade[:, 10].mask.all()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("guess", "label")
    i, j = divmod(int(errors.argmax()), 10)
    first = f"A net:\n{errors.sum()} of {N_TEST} wrong; most: {i} as {j} ({errors.max()}), "
    assert figure.get_suptitle().startswith(first)


def test_confusion_of_a_perfect_net():
    figure = plots.draw_confusion(np.eye(10)[LABELS], LABELS, "A net")
    assert figure.get_suptitle() == f"A net:\n0 of {N_TEST} wrong"
    assert figure.axes[0].images[0].get_array().mask.all()


def test_ranks():
    runs = make_runs(3, right=0.5)
    (axes,) = plots.draw_ranks(runs).axes
    second, third, later = (bars for bars in axes.containers if isinstance(bars, BarContainer))
    for place, run in enumerate(runs.values()):
        ranks = [
            sorted(range(10), key=lambda k: -output[k]).index(label)
            for output, label in zip(run.outputs, LABELS, strict=True)
        ]
        n = ranks.count(1), ranks.count(2), sum(rank > 2 for rank in ranks)
        assert min(n) > 0
        assert tuple(bars[place].get_width() for bars in (second, third, later)) == n
        lefts = tuple(bars[place].get_x() for bars in (second, third, later))
        assert lefts == (0, n[0], n[0] + n[1])
        text = axes.texts[place]
        assert text.get_text().strip() == f"{n[0]} + {n[1]} + {n[2]} = {sum(n)}"
        assert text.get_position() == (sum(n), place)
        assert second[place].get_y() < place < second[place].get_y() + second[place].get_height()
    assert len({bars[0].get_hatch() for bars in (second, third, later)}) == 3
    assert [bars.get_label() for bars in (second, third, later)] == [
        "second guess",
        "third",
        "fourth or later",
    ]
    assert tick_labels(axes.yaxis) == list(runs)
    assert axes.yaxis_inverted()


def choose(*guesses):
    """Outputs of a net that is right but for what it says of the first digits: class, chance."""
    outputs = np.eye(10, dtype=np.float32)[LABELS]
    for index, (away, chance) in enumerate(guesses):
        guess = (LABELS[index] + away) % 10
        outputs[index] = 0
        outputs[index, LABELS[index]], outputs[index, guess] = 1 - chance, chance
    return outputs


def test_hardest():
    # Wrong by: digit 0 one run, 1 all, 2 two, 3 none, 4 two, but less sure than in 2.
    said = (
        choose((0, 1), (1, 0.9), (2, 0.7), (0, 1), (4, 0.6)),
        choose((0, 1), (3, 0.8), (2, 0.7), (0, 1), (4, 0.6)),
        choose((7, 0.99), (3, 0.9), (0, 1), (0, 1), (0, 1)),
    )
    runs = make_runs(3)
    for run, outputs in zip(runs.values(), said, strict=True):
        run.outputs = outputs
    figure = plots.draw_hardest(runs, IMAGES)
    (axes,) = figure.axes
    mosaic = axes.images[0].get_array()
    order = [1, 2, 4, 0]
    for place, index in enumerate(order):
        left = 35 * place + 3
        assert np.array_equal(mosaic[1:30, left : left + 29], IMAGES[index])
    assert (mosaic[:, 35 * 4 :] == -1).all()
    texts = [text.get_text() for text in axes.texts]
    assert texts == [
        text
        for index, away, wrong in zip(order, (3, 2, 4, 7), (3, 2, 2, 1), strict=True)
        for text in (str(LABELS[index]), str((LABELS[index] + away) % 10), f"{wrong}/3")
    ]
    corner, guess, count = axes.texts[:3]
    assert corner.get_position()[0] > 25 > guess.get_position()[0]
    assert corner.get_position()[1] < 5 < 29 < guess.get_position()[1] == count.get_position()[1]
    assert figure.texts[0].get_text() == (
        "The 4 hardest digits for 3 runs;\n"
        "below: the most frequent wrong guess, and how many runs are wrong"
    )
    two = plots.draw_hardest(runs, IMAGES, 2).axes[0]
    assert [text.get_text() for text in two.texts] == texts[:6]
    one = plots.draw_hardest({"net 0": runs["net 0"]}, IMAGES, 1)
    assert one.texts[0].get_text().startswith("The 1 hardest digit for 1 run;")


def test_mosaic_goes_on_in_the_next_row():
    pairs = [(f"a{k}", f"b{k}") for k in range(9)]
    axes = plots.draw_mosaic(IMAGES[:9], range(9), pairs, "Nine").axes[0]
    mosaic = axes.images[0].get_array()
    assert mosaic.shape == (2 * 46, 7 * 35)
    assert np.array_equal(mosaic[47:76, 38:67], IMAGES[8])
    assert [text.get_text() for text in axes.texts[-3:]] == ["8", "a8", "b8"]


@pytest.mark.parametrize("which", ["hardest", "outputs"])
def test_different_test_digits(which):
    runs = make_runs(2)
    runs["net 1"].labels = LABELS[::-1]
    with pytest.raises(ValueError, match="different digits"):
        draw_all(runs, which)


def test_outputs():
    runs = make_runs(3)
    index = int(np.flatnonzero(runs["net 0"].outputs.argmax(axis=1) != LABELS)[0])
    label = int(LABELS[index])
    figure = plots.draw_outputs(runs, index, IMAGES)
    digit, *panels = figure.axes
    assert np.array_equal(digit.images[0].get_array(), IMAGES[index])
    assert figure.get_suptitle() == f"Test digit {index}, label {label}"
    assert legend_texts(figure) == ["the label", "other classes"]
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        heights = {round(bar.get_center()[0]): bar.get_height() for bar in axes.patches}
        assert heights == dict(enumerate(run.outputs[index].tolist()))
        assert [round(bar.get_center()[0]) for bar in axes.patches if bar.get_hatch()] == [label]
        guess = int(run.outputs[index].argmax())
        title = f"{name}: says {guess} ({run.outputs[index, guess]:.2f})"
        title += f", label {label} ({run.outputs[index, label]:.2f})" if guess != label else ""
        assert axes.get_title(loc="left") == title
        assert axes.get_ylim() == (0, 1)
    assert any("label" in axes.get_title(loc="left") for axes in panels)


def test_outputs_of_more_than_eight_runs():
    figure = plots.draw_outputs(make_runs(9), 0, IMAGES)
    assert len(figure.axes) == 1 + 8
    assert "the first 8 of 9 runs" in figure.get_suptitle()


# --- Deformations


def with_value(seed, right=0.8, **values):
    return make_run(seed, right=right, deformation=DEFORMATION | values)


def bars_of(axes):
    """Of each kind of run: places, errors, lower ends, upper ends."""
    found = {}
    for bars in axes.containers:
        if isinstance(bars, ErrorbarContainer):
            points, _, (spread,) = bars.lines
            ends = np.array(spread.get_segments())
            x, y = points.get_xdata(), points.get_ydata()
            found[bars.get_label().split(",")[0]] = x, y, ends[:, 0], ends[:, 1]
    return found


def test_parameters():
    runs = {
        "a": with_value(0, right=0.5, sigma=4.0),
        "b": with_value(1, beta=[*range(9), 17]),
        "c": make_run(2, deformation=None),
        "d": with_value(3, sigma=9.0),
    }
    figure = plots.draw_parameters(runs)
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
    figure = draw(plots.draw_parameters(make_runs(n, deformation=deformation)))
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
    figure = plots.draw_parameters(make_runs(3) | {"x": make_run(3, deformation=None)})
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
    figure = plots.draw_parameters(runs)
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
    (alpha,) = draw(plots.draw_parameters(runs)).axes
    assert 3 <= len(tick_labels(alpha.xaxis)) <= 6
    assert bars_of(alpha)["deformed"][0].tolist() == list(range(30, 50))


# --- Committees


def test_members():
    paper = (1.7, 2.4, 3.1, 0.9)
    committee = make_committee(3, paper)
    figure = plots.draw_members(committee)
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
    figure = plots.draw_members(make_committee(3))
    assert sorted(legend_texts(figure)) == [
        "average member",
        "committee, 95 % interval",
        "member, 95 % interval",
    ]


def test_shared():
    committee = make_committee(3)
    axes = plots.draw_shared(committee).axes[0]
    found, shade = cells(axes), axes.images[0].get_array()
    for i, one in enumerate(committee.wrong):
        for j, other in enumerate(committee.wrong):
            n = sum(one & other)
            assert found[i, j] == str(n)
            assert shade[i, j] == n / sum(one)
    assert tick_labels(axes.yaxis) == ["1: net 0", "2: net 1", "3: net 2", "C: committee"]
    assert tick_labels(axes.xaxis) == ["1", "2", "3", "C"]


def test_shared_without_errors():
    committee = make_committee(2)
    for run in committee.runs:
        run.outputs = np.eye(10, dtype=np.float32)[LABELS]
    assert (plots.draw_shared(committee).axes[0].images[0].get_array() == 0).all()


def test_shared_by_too_many_for_numbers():
    assert len(plots.draw_shared(make_committee(15)).axes[0].texts) == 256
    assert not plots.draw_shared(make_committee(16)).axes[0].texts


# --- All of them

RUN_FIGURES = {
    "curves": plots.draw_learning_curves,
    "hours": lambda runs: plots.draw_learning_curves(runs, "hours"),
    "rates": plots.draw_learning_rates,
    "ranks": plots.draw_ranks,
    "hardest": lambda runs: plots.draw_hardest(runs, IMAGES),
    "outputs": lambda runs: plots.draw_outputs(runs, 3, IMAGES),
    "parameters": plots.draw_parameters,
    "one deformation": lambda runs: plots.draw_parameters(with_one_deformation(runs)),
}


def with_one_deformation(runs):
    for run in runs.values():
        if run.config["deformation"]:
            run.config["deformation"] = DEFORMATION
    return runs


def draw_all(runs, which):
    if which in RUN_FIGURES:
        return RUN_FIGURES[which](runs)
    if which == "confusion":
        run = next(iter(runs.values()))
        return plots.draw_confusion(run.outputs, LABELS, f"841-800-10 on MNIST, {next(iter(runs))}")
    title = "Experiment 4 of 2012: deformed, seven training and validation sets, on MNIST"
    paper = tuple(1.5 + 0.01 * k for k in range(len(runs) + 1))
    committee = Committee("experiment4", title, tuple(runs), tuple(runs.values()), paper)
    return {"members": plots.draw_members, "shared": plots.draw_shared}[which](committee)


def visible_texts(figure):
    """Every text that is drawn, with its place in pixels."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not (axes.axison and low <= tick.get_loc() <= high):
                    hidden |= {tick.label1, tick.label2}
    return {
        text: text.get_window_extent()
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    }


def overlap(one, other):
    common = Bbox.intersection(one, other)
    return common is not None and common.width > 0.5 and common.height > 0.5  # pixels


def test_overlaps_are_seen():
    figure = Figure(figsize=(7, 2))
    for x, text in ((0.1, "one"), (0.11, "other"), (0.5, "third")):
        figure.text(x, 0.5, text)
    one, other, third = visible_texts(draw(figure)).values()
    assert overlap(one, other)
    assert not overlap(other, third)


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("which", [*RUN_FIGURES, "confusion", "members", "shared"])
def test_everything_can_be_read(which, n):
    runs = {}
    for k in range(n):  # all parameters differ, some runs are undeformed, some have one epoch
        values = {"sigma": 4 + k % 3, "alpha": 36 + k, "gamma_x": 15 + k % 5, "gamma_y": 3 * k}
        deformation = DEFORMATION | values | {"beta": [7.5 + k % 2] * 10} if k % 4 else None
        name = f"committee/original-sigma4.5-alpha36-{'long-' * (k % 7)}seed{k}"
        width = 10 if k % 5 == 3 else None
        what = {"epochs": 1 + 9 * k, "deformation": deformation, "width": width}
        runs[name] = make_run(k, seconds=20, **what)
        runs[name].metrics["eta"][0] /= 1 + k % 11
    figure = draw(draw_all(runs, which))
    assert figure.get_figwidth() <= 7
    texts = visible_texts(figure)
    assert len(texts) > 3
    for text, place in texts.items():
        assert text.get_fontsize() >= 7, text.get_text()
        assert figure.bbox.x0 <= place.x0 < place.x1 <= figure.bbox.x1, text.get_text()
        assert figure.bbox.y0 <= place.y0 < place.y1 <= figure.bbox.y1, text.get_text()
    for (one, here), (other, there) in combinations(texts.items(), 2):
        assert not overlap(here, there), f"{one.get_text()!r} and {other.get_text()!r}"
    for legend in figure.legends:
        assert not any(overlap(legend.get_window_extent(), each.bbox) for each in figure.axes)


@pytest.mark.parametrize("which", RUN_FIGURES)
def test_no_runs(which):
    with pytest.raises(ValueError, match="no runs to draw"):
        draw_all({}, which)
