"""timing/ceilings.py: copies, reads and products do what their bytes and operations say."""

import threading

import numpy as np
import pytest

from experiments.timing import ceilings


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    monkeypatch.setattr(ceilings, "CALL_BYTES", 2400)
    monkeypatch.setattr(ceilings, "PRODUCT_SIDE", 33)


def spied(monkeypatch, name):
    """The arguments and the result of every call of a function of `ceilings`."""
    seen, function = [], getattr(ceilings, name)

    def spy(*arguments):
        seen.append((*arguments, function(*arguments)))

    monkeypatch.setattr(ceilings, name, spy)
    return seen


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_copy_moves_each_element_in_one_thread(threads, monkeypatch):
    seen = spied(monkeypatch, "scale")
    work = ceilings.scaled_copy(100, threads)
    work.call()
    assert len(seen) == threads
    assert sum(len(target) for target, *_ in seen) == 100
    for target, source, factor, passes, _ in seen:
        assert target.dtype == source.dtype == np.float32
        assert (target == factor * source).all()
        assert not np.may_share_memory(target, source)
        assert passes == 3
    for i, (target, *_) in enumerate(seen):
        assert not any(np.may_share_memory(target, other[0]) for other in seen[:i])
    assert (work.n_bytes, work.n_images) == (3 * 100 * (4 + 4), None)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_read_adds_up_each_element_in_one_thread(threads, monkeypatch):
    seen = spied(monkeypatch, "add_up")
    work = ceilings.memory_read(100, threads)
    work.call()
    assert len(seen) == threads
    assert {passes for _, passes, _ in seen} == {6}
    assert sum(total for *_, total in seen) == 600
    assert sum(part.nbytes for part, *_ in seen) == 400
    assert (work.n_bytes, work.n_images) == (6 * 400, None)


def test_large_arrays_are_passed_once():
    assert ceilings.memory_read(1000, 1).n_bytes == 4000
    assert ceilings.scaled_copy(1000, 1).n_bytes == 8000


def test_passes_are_made():
    source, target = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    assert ceilings.add_up(source, 3) == 30
    ceilings.scale(target, source, np.float32(2), 1)
    assert target.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_in_each_thread_at_the_same_time(threads, monkeypatch):
    asked, limits, meeting = [], [], threading.Barrier(threads)

    class Limits:
        now = None

        def __init__(self, n=None, user_api=None):
            self.n = (n, user_api)

        def __enter__(self):
            Limits.now = self.n

        def __exit__(self, *_):
            Limits.now = None

    def noted(*given, out):
        limits.append(Limits.now)
        meeting.wait(timeout=60)
        asked.append((given, out))

    monkeypatch.setattr(ceilings, "threadpool_limits", Limits)
    monkeypatch.setattr(ceilings.np, "matmul", noted)
    work = ceilings.matrix_product(threads)
    work.call()
    assert limits == threads * [(1, "blas")]  # one thread of the library's for each of ours
    for (left, right), out in asked:
        assert left.dtype == right.dtype == out.dtype == np.float32
        assert left.shape == right.shape == out.shape == (33, 33)
    assert len({out.ctypes.data for _, out in asked}) == threads
    assert (work.flops, work.n_images) == (threads * 2 * 33**3, None)
