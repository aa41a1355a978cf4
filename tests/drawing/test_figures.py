"""What all figures share: colours, and the files that they are saved in."""

import pytest
from drawn import draw, make_runs, overlap, visible_texts
from matplotlib.figure import Figure

from deepbig_runtime.files import FileFault
from experiments.drawing import figures, run_plots


def test_colours_are_okabe_and_itos():
    assert (figures.BLUE, figures.VERMILION, figures.GREEN) == ("#0072B2", "#D55E00", "#009E73")
    assert (figures.ORANGE, figures.SKY, figures.PURPLE) == ("#E69F00", "#56B4E9", "#CC79A7")


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
        figures.save_figure(run_plots.draw_learning_rates(make_runs(2)), tmp_path / name / "rates")
        for name in ("first", "again")
    )
    assert [path.name for path in first] == ["rates.png", "rates.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_figure_that_cannot_be_saved_is_a_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileFault, match="cannot make the folder"):
        figures.save_figure(Figure(), tmp_path / "file" / "picture")


def test_overlaps_are_seen():
    figure = Figure(figsize=(7, 2))
    for x, text in ((0.1, "one"), (0.11, "other"), (0.5, "third")):
        figure.text(x, 0.5, text)
    one, other, third = visible_texts(draw(figure)).values()
    assert overlap(one, other)
    assert not overlap(other, third)
