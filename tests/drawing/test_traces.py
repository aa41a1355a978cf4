"""The cells that are drawn: that the file says what the kernels do now, and some known ones."""

import pytest
from programs import needs_toolkit

from experiments import kernels
from experiments.benchmarks.executor import SIGNATURES
from experiments.drawing import launches, traces
from experiments.drawing.thread_maps import VIEWS
from experiments.drawing.traces import cells_of, read_traces


def test_every_kernel_has_a_launch_and_a_drawing():
    expected = {kernel.py_func.__name__ for kernel in SIGNATURES}
    assert set(launches.make_launches()) == expected
    assert {view.name.split()[0] for view in VIEWS} == expected


@needs_toolkit
def test_traces_file_is_what_executed_kernels_touch(tmp_path, monkeypatch, capsys):
    kept, new = traces.PATH, tmp_path / "traces.json"
    monkeypatch.setattr(traces, "PATH", new)
    kernels.main(["--trace"])
    assert new.read_bytes() == kept.read_bytes()
    assert capsys.readouterr().out == f"written to {new}\n"


def column(first, last, x):
    return [(row, x) for row in range(first, last + 1)]


def row(y, first, last):
    return [(y, x) for x in range(first, last + 1)]


# What the formulas say of the drawn thread in the order of its accesses, of its warp at the drawn
# step, and of the sectors or turns of that step.
KNOWN = {
    # Block 0, 1 begins at row 32; thread 100 is in the warp of the threads 96 to 127.
    "forward_partial W read": (column(32, 63, 100), row(42, 96, 127), 4),
    # Copied by columns, summed by rows, which are 33 words apart.
    "delta_partial shared0 read": (row(4, 0, 31), column(0, 31, 10), 1),
    # Thread 37 has lane 5 of warp 1: of each tile of 16 x 8 rows 1 and 9, columns 2 and 3.
    # A step of its warp writes a number of each lane: 8 rows, and 4 of every second column.
    "forward_tensor_products partial write": (
        [
            (m + y, 162 + 8 * n + x)
            for m in (1, 17)
            for n in range(4)
            for y in (0, 8)
            for x in (0, 1)
        ],
        [(y, 160 + x) for y in range(8) for x in (0, 2, 4, 6)],
        8,
    ),
    # Of column 13: ceil((13 - 4) / 2) to floor(13 / 2); of line 12: ceil((12 - 4) / 2) to 12 / 2.
    "pull_deltas delta read": (
        [(13 * m + y, x) for m in (0, 2) for y in (4, 5, 6) for x in (5, 6)],
        [*row(4, 0, 12), *row(5, 0, 1)],
        3,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_traces_hold_the_cells_that_formulas_give(name):
    trace, (own, step, turns) = read_traces()[name], KNOWN[name]
    assert cells_of(trace.own) == own
    assert (cells_of(trace.step), trace.n_turns) == (step, turns)
    assert set(own) <= set(cells_of(trace.of_block))
    if trace.moved:
        assert {(y, x // 8) for y, x in step} <= {(y, x // 8) for y, x in cells_of(trace.moved)}
