"""Figures of errors: confusions, ranks, the digits that are wrong, the errors that nets share."""

import numpy as np
import pytest
from drawn import (
    IMAGES,
    LABELS,
    N_TEST,
    assert_readable,
    cells,
    draw,
    legend_texts,
    make_committee,
    make_run,
    make_runs,
    make_varied_committee,
    make_varied_runs,
    tick_labels,
)
from matplotlib.container import BarContainer

from experiments.drawing import error_plots

DRAWN = {
    "ranks": error_plots.draw_ranks,
    "hardest": lambda runs: error_plots.draw_hardest(runs, IMAGES),
    "outputs": lambda runs: error_plots.draw_outputs(runs, 3, IMAGES),
}


def test_confusion_counts_labels_down_and_guesses_across():
    run = make_run(3, right=0.4)
    figure = error_plots.draw_confusion(run.outputs, LABELS, "A net")
    (axes,) = figure.axes
    found, shade = cells(axes), axes.images[0].get_array()
    counts = np.zeros((10, 10), int)
    np.add.at(counts, (LABELS, run.outputs.argmax(axis=1)), 1)
    errors = counts * (1 - np.eye(10, dtype=int))
    for i, j in np.ndindex(10, 10):
        assert found.get((i, j), "0") == str(counts[i, j])
        if errors[i, j]:
            assert shade[i, j] == errors[i, j] / errors.max()
        else:
            assert np.ma.is_masked(shade[i, j])
    assert {(i, i) for i in range(10)} < found.keys()
    assert [found[i, 10] for i in range(10)] == [str(n) for n in errors.sum(axis=1)]
    assert [found[10, i] for i in range(10)] == [str(n) for n in errors.sum(axis=0)]
    assert found[10, 10] == str(errors.sum())
    assert shade[10].mask.all()
    assert shade[:, 10].mask.all()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("guess", "label")
    i, j = divmod(int(errors.argmax()), 10)
    first = f"A net:\n{errors.sum()} of {N_TEST} wrong; most: {i} as {j} ({errors.max()}), "
    assert figure.get_suptitle().startswith(first)
    perfect = error_plots.draw_confusion(np.eye(10)[LABELS], LABELS, "A net")
    assert perfect.get_suptitle() == f"A net:\n0 of {N_TEST} wrong"
    assert perfect.axes[0].images[0].get_array().mask.all()


def test_ranks_are_bars_side_by_side_with_their_counts():
    runs = make_runs(3, right=0.5)
    (axes,) = error_plots.draw_ranks(runs).axes
    kinds = [bars for bars in axes.containers if isinstance(bars, BarContainer)]
    for place, run in enumerate(runs.values()):
        order = np.argsort(-run.outputs, axis=1)
        ranks = [list(row).index(label) for row, label in zip(order, LABELS, strict=True)]
        n = ranks.count(1), ranks.count(2), sum(rank > 2 for rank in ranks)
        assert min(n) > 0
        boxes = [bars[place].get_bbox() for bars in kinds]
        assert [(box.x0, box.x1) for box in boxes] == [
            (0, n[0]),
            (n[0], n[0] + n[1]),
            (n[0] + n[1], sum(n)),
        ]
        assert boxes[0].y0 < place < boxes[0].y1
        text = axes.texts[place]
        assert text.get_text().strip() == f"{n[0]} + {n[1]} + {n[2]} = {sum(n)}"
        assert text.get_position() == (sum(n), place)
    assert len({bars[0].get_hatch() for bars in kinds}) == 3
    assert [bars.get_label() for bars in kinds] == ["second guess", "third", "fourth or later"]
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
    figure = error_plots.draw_hardest(runs, IMAGES)
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
    assert figure.texts[0].get_text() == (
        "The 4 hardest digits for 3 runs;\n"
        "below: the most frequent wrong guess, and how many runs are wrong"
    )
    two = error_plots.draw_hardest(runs, IMAGES, 2).axes[0]
    assert [text.get_text() for text in two.texts] == texts[:6]
    one = error_plots.draw_hardest({"net 0": runs["net 0"]}, IMAGES, 1)
    assert one.texts[0].get_text().startswith("The 1 hardest digit for 1 run;")


def test_wrong_digits_have_their_label_and_two_guesses():
    run = make_run(2, right=0.7)
    wrong = np.flatnonzero(run.outputs.argmax(axis=1) != LABELS)
    order = np.argsort(run.outputs[wrong], axis=1)
    second = np.count_nonzero(order[:, -2] == LABELS[wrong])
    figure = error_plots.draw_wrong(run.outputs, LABELS, IMAGES, "the run")
    heading = f"the run:\n{len(wrong)} of 157 wrong; second guess right for {second}"
    assert figure.texts[0].get_text() == heading
    (axes,) = figure.axes
    assert len(axes.texts) == 3 * len(wrong) > 90
    for k, index in enumerate(wrong):
        label, first, other = axes.texts[3 * k : 3 * k + 3]
        texts = [text.get_text() for text in (label, first, other)]
        assert texts == [str(LABELS[index]), str(order[k, -1]), str(order[k, -2])]
        # The digit stands between its label, above its right side, and its guesses below.
        left, bottom = (round(value) for value in first.get_position())
        shown = axes.images[0].get_array()[bottom - 30 : bottom - 1, left : left + 29]
        assert (shown == IMAGES[index]).all()
        np.testing.assert_allclose(label.get_position(), (left + 27, bottom - 30), atol=2)
    draw(figure)
    for text in [*figure.texts, *axes.texts]:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
    perfect = np.eye(10, dtype=np.float32)[LABELS]
    assert not error_plots.draw_wrong(perfect, LABELS, IMAGES, "x").axes[0].texts


@pytest.mark.parametrize("which", ["hardest", "outputs"])
def test_different_test_digits(which):
    runs = make_runs(2)
    runs["net 1"].labels = LABELS[::-1]
    with pytest.raises(ValueError, match="different digits"):
        DRAWN[which](runs)


def test_outputs():
    runs = make_runs(3)
    index = int(np.flatnonzero(runs["net 0"].outputs.argmax(axis=1) != LABELS)[0])
    label = int(LABELS[index])
    figure = error_plots.draw_outputs(runs, index, IMAGES)
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
    figure = error_plots.draw_outputs(make_runs(9), 0, IMAGES)
    assert len(figure.axes) == 1 + 8
    assert "the first 8 of 9 runs" in figure.get_suptitle()


def test_shared():
    committee = make_committee(3)
    axes = error_plots.draw_shared(committee).axes[0]
    found, shade = cells(axes), axes.images[0].get_array()
    for i, one in enumerate(committee.wrong):
        for j, other in enumerate(committee.wrong):
            n = sum(one & other)
            assert found[i, j] == str(n)
            assert shade[i, j] == n / sum(one)
    assert tick_labels(axes.yaxis) == ["1: net 0", "2: net 1", "3: net 2", "C: committee"]
    assert tick_labels(axes.xaxis) == ["1", "2", "3", "C"]


def test_shared_without_errors_and_by_too_many_for_numbers():
    committee = make_committee(2)
    for run in committee.runs:
        run.outputs = np.eye(10, dtype=np.float32)[LABELS]
    assert (error_plots.draw_shared(committee).axes[0].images[0].get_array() == 0).all()
    assert len(error_plots.draw_shared(make_committee(15)).axes[0].texts) == 256
    assert not error_plots.draw_shared(make_committee(16)).axes[0].texts


LONG_TITLE = "20M3s1-40M3c50%-60M3c50%-80M3c50%-100M3c50%-120M3c50%-150N on MNIST, undeformed"


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("which", [*DRAWN, "shared"])
def test_every_figure_can_be_read(which, n):
    if which == "shared":
        assert_readable(error_plots.draw_shared(make_varied_committee(n)))
    else:
        assert_readable(DRAWN[which](make_varied_runs(n)))


def test_a_confusion_can_be_read():
    assert_readable(error_plots.draw_confusion(make_run(0).outputs, LABELS, LONG_TITLE))


@pytest.mark.parametrize("n_wrong", [3, 60])
def test_wrong_digits_of_a_long_title_can_be_read(n_wrong):
    outputs = np.eye(10, dtype=np.float32)[LABELS]
    outputs[:n_wrong] = outputs[:n_wrong, ::-1]
    figure = draw(error_plots.draw_wrong(outputs, LABELS, IMAGES, LONG_TITLE))
    (heading,), (axes,) = figure.texts, figure.axes
    assert heading.get_text().replace("\n", "").startswith(LONG_TITLE.replace(" ", "")[:40])
    place = heading.get_window_extent()
    assert figure.bbox.x0 <= place.x0 < place.x1 <= figure.bbox.x1
    assert axes.bbox.y1 <= place.y0 < place.y1 <= figure.bbox.y1


@pytest.mark.parametrize("which", DRAWN)
def test_no_runs(which):
    with pytest.raises(ValueError, match="no runs to draw"):
        DRAWN[which]({})
