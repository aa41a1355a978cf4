"""How far nets are, and how a window slides: the kernels of window/progress.py, for two nets."""
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

N_BLOCK = 75  # images, of which the two nets have so many in their windows
WINDOWS = [(0, 5), (41, 73)]


def standing(**fields):
    """Progress of two nets, int32 (2, FIELDS). fields: by name, of both nets."""
    found = np.full((2, progress.FIELDS), -1, np.int32)
    for name, values in fields.items():
        found[:, getattr(progress, name)] = values
    return found


def in_windows(windows=WINDOWS, swept=(0, 60), block=N_BLOCK):
    firsts, ends = zip(*windows, strict=True)
    return standing(FIRST=firsts, END=ends, SWEPT=swept, BLOCK=block, START=(0, 100))


def slid(arrays, changes, windows, window=16, block=N_BLOCK):
    """Progress after a sweep that left these changes. float32 (2, layers, 2, tiles, 32)."""
    now = in_windows(windows, swept=(0, 0), block=block)
    now[:, [WINDOW, TIMES, ALL_TIMES, SWEEPS]] = window, 1000, 2000, 7
    there = arrays.put(now)
    arrays.run(progress.slide(there, arrays.put(changes)))
    found = arrays.get(there)
    n = np.array([end - first for first, end in windows])
    still = n == 0
    assert (found[:, TIMES] == 1000 + n).all()
    assert (found[:, ALL_TIMES] == 2000 + n).all()
    assert (found[:, SWEEPS] == 7 + (n > 0)).all()
    assert (found[~still, SWEPT] == np.array([end for _, end in windows])[~still]).all()
    assert (found[:, END] == np.minimum(found[:, FIRST] + window, block))[~still].all()
    assert (found[still] == now[still]).all()
    return found[:, FIRST] - [first for first, _ in windows]


def quiet(n_layers=2, tiles=11):
    """Changes of a sweep in which none was as large as 1e-4 of the largest delta."""
    changes = np.zeros((2, n_layers, 2, tiles, progress.MAX_WINDOW), np.float32)
    changes[:, :, 1] = 0.5
    changes[:, :, 1, tiles - 1, 3] = 10  # the largest, of the last tile
    changes[:, :, 0] = 0.99e-3
    return changes


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.small) for n in (1, 5, 32)])
def test_a_window_slides_over_what_stayed(arrays, n):
    windows = [(3, 3 + n), (40, 40)]  # the second net has nothing to do
    changes = quiet()
    changes[0, :, 1, 10, 0] = 10  # the largest delta is of an image that every window has
    assert slid(arrays, changes, windows).tolist() == [n, 0]  # all at once
    for image in range(n):
        one = changes.copy()
        one[0, image % 2, 0, image % 11, image] = 1.01e-3
        assert slid(arrays, one, windows)[0] == (image or n)  # the first is done whatever it did
    changes[:, 1, 0, 7] = 1
    assert slid(arrays, changes, windows)[0] == 1  # one by one


@pytest.mark.parametrize("what", [0, 1], ids=["change", "delta"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_window_slides_by_one_over_what_is_no_number(arrays, what, value):
    changes = quiet()
    changes[0, 1, what, 5, 0] = changes[1, 1, what, 5, 1] = value
    if np.isinf(value) and what == 1:  # nothing is large beside it
        assert slid(arrays, changes, [(0, 20), (50, 60)]).tolist() == [20, 10]
    elif np.isinf(value):
        assert slid(arrays, changes, [(0, 20), (50, 60)]).tolist() == [20, 1]
    else:
        done = slid(arrays, changes, [(0, 20), (50, 60)])
        assert done.tolist() == ([20, 1] if what == 0 else [1, 1])


def test_what_is_beyond_the_window_does_not_count(arrays):
    changes = quiet()
    changes[:, :, 1, 10, 3] = 0.5  # now 0.99e-3 is a change
    changes[:, :, 1, 0, 20:] = 100
    assert slid(arrays, changes, [(0, 20), (50, 66)]).tolist() == [1, 1]


def test_deltas_that_are_all_zero_stay(arrays):
    changes = np.zeros((2, 1, 2, 1, progress.MAX_WINDOW), np.float32)
    assert slid(arrays, changes, [(0, 9), (70, 75)]).tolist() == [9, 5]


@pytest.mark.parametrize(
    ("window", "times", "after"),
    [(16, 601, 8), (16, 600, 16), (16, 300, 16), (16, 299, 32), (8, 999, 8), (32, 1, 32)],
)
def test_the_next_block(arrays, window, times, after):
    now = in_windows([(75, 75), (74, 75)], block=75)
    now[:, [START, WINDOW, TIMES, SWEEPS]] = 150, window, times, 9
    there = arrays.put(now)
    arrays.run(progress.end_block(there, 75, 275))
    found = arrays.get(there)
    assert (found[1] == now[1]).all()  # its block is not done
    expected = standing(START=225, BLOCK=50, FIRST=0, END=after, SWEPT=0, WINDOW=after, TIMES=0)
    expected[:, SWEEPS] = 9
    assert (found[0] == expected[0]).all()
    assert next_window(window, times, 75, progress.LIMITS) == after


def test_after_the_last_block_there_is_none(arrays):
    now = progress.at_start(2, 75, 40)
    assert now[:, [BLOCK, END, WINDOW]].tolist() == [[40, 16, 16]] * 2
    now[0, [FIRST, END, TIMES]] = 40, 40, 999
    there = arrays.put(now)
    arrays.run(progress.end_block(there, 75, 40))
    found = arrays.get(there)
    assert found[0, [START, BLOCK, FIRST, END]].tolist() == [40, 0, 0, 0]
    assert found[0, WINDOW] == 16  # a short block says nothing of windows
    assert (found[1] == now[1]).all()
    arrays.run(progress.end_block(there, 75, 40))
    assert (arrays.get(there) == found).all()
