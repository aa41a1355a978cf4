"""The figure of a ladder's record: what it shows with times of a GPU and without."""

import pytest
from ladder_cases import KERNEL, RECORD
from msgspec.structs import replace

from experiments.drawing.ladder_plots import draw_ladder
from experiments.results.ladder_tables import AccuracyRow, ProgramTime

RECORD = replace(
    RECORD,
    accuracy=[
        AccuracyRow(seed, epoch, wrong, 100, "MNIST")
        for seed, epoch, wrong in ((0, 1, 20), (0, 2, 10), (1, 1, 20))
    ],
    kernels=[replace(KERNEL, kernel=name) for name in ("forward_naive", "update_hidden_naive")],
)


def bars(axes):
    return [(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in axes.patches]


def test_accuracy_stands_beside_the_blogs():
    accuracy, _ = draw_ladder(RECORD).axes
    first, second, blog = accuracy.lines
    assert list(first.get_ydata()) == pytest.approx([80, 90])
    assert list(second.get_ydata()) == pytest.approx([80])
    assert list(blog.get_ydata()) == [94.16, 95.1]
    accuracy, _ = draw_ladder(replace(RECORD, data="load_digits")).axes
    assert len(accuracy.lines) == 2


def test_without_times_bars_are_what_is_moved():
    _, rungs = draw_ladder(RECORD).axes
    assert bars(rungs) == [(0, 0.012), (0.012, 0.012)]
    assert "not measured yet" in rungs.get_xlabel()


def test_times_are_split_in_kernels_and_the_rest():
    times = [ProgramTime("naive", [8.0, 9.0, 10.0], 1, [3.0, 2.0, 4.0])]
    times.append(ProgramTime("NumPy", [100.0], 1))
    _, rungs = draw_ladder(replace(RECORD, times=times)).axes
    assert bars(rungs) == [(0, 3), (3, 6)]
    assert rungs.get_xlabel() == "microseconds an image"
