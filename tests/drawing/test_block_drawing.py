"""The drawing of a block of images: corrections and steps, by the chain and by the window."""

import pytest
from drawn import cells_drawn

from experiments.drawing import block_drawing
from experiments.drawing.block_drawing import IN_WINDOW, N_IMAGES, SWEEP

SWEEPS = block_drawing.example_sweeps()
CHAIN = [(t, t + 1) for t in range(N_IMAGES)]


@pytest.fixture(scope="module")
def axes():
    return block_drawing.draw_block().axes


def test_example_has_a_full_window_and_fewer_sweeps_than_images():
    first, end = SWEEPS[SWEEP]
    assert first > 0
    assert end - first == IN_WINDOW
    assert len(SWEEPS) < N_IMAGES


def test_corrections_are_final_changing_or_not_begun(axes):
    first, _ = SWEEPS[SWEEP]
    for one, (begin, end) in zip(axes[:2], ((first, first + 1), SWEEPS[SWEEP]), strict=True):
        known, changing = set(cells_drawn(one, "known")), set(cells_drawn(one, "changing"))
        later = set(cells_drawn(one, "not begun"))
        for t in range(N_IMAGES):
            for s in range(N_IMAGES):
                drawn = (t, s) in known, (t, s) in changing, (t, s) in later
                before = s < t
                final = before and t < end and s < begin
                assert drawn == (final, before and t < end and s >= begin, before and t >= end)


def test_each_image_is_done_once_and_the_others_of_a_sweep_again(axes):
    for one, sweeps in zip(axes[2:], (CHAIN, SWEEPS), strict=True):
        done, again = cells_drawn(one, "done"), cells_drawn(one, "again")
        assert [t for _, t in sorted(done, key=lambda cell: cell[1])] == list(range(N_IMAGES))
        together = {(row, t) for row, (first, end) in enumerate(sweeps) for t in range(first, end)}
        assert {*done, *again} == together
        assert len(done) + len(again) == len(together)
        assert f": {len(sweeps)} s" in one.get_title()
