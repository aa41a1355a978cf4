"""How a window slides, and when the next block begins: the kernels of window/progress.py."""
# ruff: noqa: F401, F811 - fixtures are imported

import numpy as np
import pytest
from executed import device
from gpu_arrays import arrays

from mlp_gpu.window import progress
from mlp_gpu.window.progress import (
    ALL_TIMES,
    BLOCK,
    END,
    FIRST,
    START,
    SWEEPS,
    SWEPT,
    TIMES,
    WINDOW,
)
from mlp_gpu.window_rule import next_window

N_BLOCK = 75  # images


def in_window(first, end, swept=0, block=N_BLOCK, start=0):
    """Progress in the middle of a block, int32 (FIELDS,); -1 in fields that no test sets."""
    found = np.full(progress.FIELDS, -1, np.int32)
    found[[FIRST, END, SWEPT, BLOCK, START]] = first, end, swept, block, start
    return found


def slid(arrays, changes, first, end, window=16):
    """How far a window slides after a sweep with these changes. float32 (layers, 2, tiles, 32)."""
    now = in_window(first, end)
    now[[WINDOW, TIMES, ALL_TIMES, SWEEPS]] = window, 1000, 2000, 7
    there = arrays.put(now)
    arrays.run(progress.slide(there, arrays.put(changes)))
    found, n = arrays.get(there), end - first
    if n == 0:
        assert (found == now).all()
        return 0
    assert found[[TIMES, ALL_TIMES, SWEEPS, SWEPT]].tolist() == [1000 + n, 2000 + n, 8, end]
    assert found[END] == min(found[FIRST] + window, N_BLOCK)
    return found[FIRST] - first


def quiet(n_layers=2, tiles=11):
    """Changes of a sweep in which none was as large as 1e-4 of the largest delta."""
    changes = np.zeros((n_layers, 2, tiles, progress.MAX_WINDOW), np.float32)
    changes[:, 1] = 0.5
    changes[:, 1, tiles - 1, 0] = 10  # the largest, of an image that every window has
    changes[:, 0] = 0.99e-3
    return changes


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.small) for n in (1, 5, 32)])
def test_slide_window_passes_images_whose_deltas_stayed(arrays, n):
    changes = quiet()
    assert slid(arrays, changes, 3, 3 + n) == n  # all at once
    for image in range(n):
        one = changes.copy()
        one[image % 2, 0, image % 11, image] = 1.01e-3
        assert slid(arrays, one, 3, 3 + n) == (image or n)  # the first is always done
    changes[1, 0, 7] = 1
    assert slid(arrays, changes, 3, 3 + n) == 1  # one by one


def test_slide_window_of_a_block_that_is_done_changes_nothing(arrays):
    assert slid(arrays, quiet(), 40, 40) == 0


@pytest.mark.parametrize("image", [0, 1])
@pytest.mark.parametrize(("value", "kind"), [(np.nan, 0), (np.nan, 1), (np.inf, 0), (np.inf, 1)])
def test_slide_window_stops_at_numbers_that_are_not_finite(arrays, value, kind, image):
    changes = quiet()
    changes[1, kind, 5, image] = value
    # No change is large beside an infinite delta, and the first image is always done.
    passes = (np.isinf(value) and kind == 1) or (kind == 0 and image == 0)
    assert slid(arrays, changes, 0, 20) == (20 if passes else 1)


@pytest.mark.parametrize("n", [16, 20])
def test_slide_window_ignores_images_beyond_the_window(arrays, n):
    changes = quiet()
    changes[:, 1, 10, 0] = 0.5  # now 0.99e-3 is a change
    changes[:, 1, 0, 20:] = 100
    assert slid(arrays, changes, 0, n) == 1


@pytest.mark.parametrize(("first", "end"), [(0, 9), (70, 75)])
def test_slide_window_passes_deltas_that_are_all_zero(arrays, first, end):
    changes = np.zeros((1, 2, 1, progress.MAX_WINDOW), np.float32)
    assert slid(arrays, changes, first, end) == end - first


@pytest.mark.parametrize(
    ("window", "times", "after"),
    [(16, 601, 8), (16, 600, 16), (16, 300, 16), (16, 299, 32), (8, 999, 8), (32, 1, 32)],
)
def test_next_block_begins_when_all_images_are_done(arrays, window, times, after):
    for first in (75, 74):
        now = in_window(first, 75, start=150)
        now[[WINDOW, TIMES, SWEEPS]] = window, times, 9
        there = arrays.put(now)
        arrays.run(progress.end_block(there, 75, 275))
        expected = now
        if first == 75:
            expected = in_window(0, after, 0, block=50, start=225)
            expected[[WINDOW, TIMES, SWEEPS]] = after, 0, 9
        assert (arrays.get(there) == expected).all()
    assert next_window(window, times, 75, progress.LIMITS) == after


def test_next_block_after_the_last_one_is_empty(arrays):
    now = progress.at_start(75, 40)
    assert now[[BLOCK, END, WINDOW]].tolist() == [40, 16, 16]
    now[[FIRST, END, TIMES]] = 40, 40, 999
    there = arrays.put(now)
    arrays.run(progress.end_block(there, 75, 40))
    found = arrays.get(there)
    assert found[[START, BLOCK, FIRST, END]].tolist() == [40, 0, 0, 0]
    assert found[WINDOW] == 16  # a short block says nothing of windows
    arrays.run(progress.end_block(there, 75, 40))
    assert (arrays.get(there) == found).all()
