"""timing/ceilings.py: copies, reads and multiply-adds do what their bytes and operations say."""

import numpy as np
import pytest

from experiments.timing import ceilings
from mlp_gpu.vector_kernel import LANES, PANEL, ROWS, VECTORS


@pytest.fixture(autouse=True)
def _little(monkeypatch):
    monkeypatch.setattr(ceilings, "CALL_BYTES", 2400)
    monkeypatch.setattr(ceilings, "CALL_FLOPS", 10_000)
    monkeypatch.setattr(ceilings, "KERNEL_K", 128)


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
def test_multiply_adds_are_chains_that_end_where_they_begin(threads, monkeypatch):
    """1 is the fixed point of x / 2 + 1 / 2, so a sum of other numbers means that some are lost."""
    assert ceilings.multiply_and_add(np.float32(1), 5) == ROWS * VECTORS
    assert ceilings.multiply_and_add(np.float32(17), 3) == ROWS * VECTORS * 3  # 1 + 16 / 2**3
    seen = spied(monkeypatch, "multiply_and_add")
    work = ceilings.multiply_adds(threads)
    work.call()
    assert len(seen) == threads
    steps = {steps for _, steps, _ in seen}
    assert {work.flops} == {threads * n * 2 * LANES * ROWS * VECTORS for n in steps}
    assert work.flops <= 10_000


@pytest.mark.parametrize("name", ["multiply_forward", "multiply_backward"])
def test_the_kernel_uses_each_weight_for_all_rows(name, monkeypatch):
    monkeypatch.setattr(ceilings, "CALL_FLOPS", 16_000_000)
    seen, multiply = [], getattr(ceilings, name)

    def spy(C, A, W, passes):
        seen.append((C, A, W, passes))
        A[:] = 1
        multiply(C, A, W, passes)

    work = ceilings.kernel(spy, 2 * 3 * 128 * PANEL, 2)
    work.call()
    assert len(seen) == 2
    for C, _, W, passes in seen:
        assert W.shape == (3, 128, PANEL)
        assert (W == 1).all()
        assert C.sum() == passes * C.shape[0] * W.size
        assert len(set(C.ravel())) == 1
    assert work.flops == sum(2 * C.shape[0] * W.size * passes for C, _, W, passes in seen)
    assert seen[0][3] > 1
