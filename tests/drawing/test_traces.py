"""The cells that are drawn: that the file says what the kernels do now, and some known ones."""

import numpy as np
import pytest
from programs import needs_toolkit

from experiments import kernels
from experiments.benchmarks import compiled
from experiments.drawing import launches, thread_maps_nets, traces, tracing
from experiments.drawing.traces import cells_of, read_traces
from mlp_gpu.ladder import rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import N_INPUTS


def test_every_kernel_has_a_launch():
    expected = {kernel.py_func.__name__ for kernel in compiled.SIGNATURES}
    assert set(launches.make_launches()) == expected


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


def patches(tops, left, size=5):
    return [(top + v, left + u) for top in tops for v in range(size) for u in range(size)]


# What the formulas say of the drawn thread, and of its warp at the drawn step.
KNOWN = {
    # Block 0, 1 begins at row 32; thread 100 is in the warp of the threads 96 to 127.
    "forward_partial W read": (column(32, 63, 100), row(42, 96, 127)),
    # The first of 16 rows of block 0, 2 is 32.
    "update_weights W write": (column(32, 47, 100), row(37, 96, 127)),
    # Loaded by columns, summed by rows.
    "delta_partial shared 0 write": (column(0, 31, 4), row(10, 0, 31)),
    "delta_partial shared 0 read": (row(4, 0, 31), column(0, 31, 10)),
    # The bias, column 0, has no delta.
    "delta_reduce partial read": (column(0, 9, 4), row(3, 1, 31)),
    "draw_matrices matrices write": (row(40, 0, 5), column(32, 63, 0)),
    "convolve_rows sums read": (row(13, 12, 32), []),
    "convolve_field shared 1 read": (column(3, 23, 6), []),
    "gather_images H write": ([(4, 110)], row(4, 96, 127)),
    "backward_deltas D write": ([(16, 64 + 37), (20, 64 + 37)], []),
    "slide_window changes read": ([(0, 41), (1, 41)], []),
    # Thread 37 has lane 5 of warp 1: rows 1, 9, 17, 25 and columns 2 and 3 of each 8 of 32 to 63.
    "forward_tensor_products partial write": (
        [(y, 128 + 32 + 8 * n + x) for y in (1, 9, 17, 25) for n in range(4) for x in (2, 3)],
        [],
    ),
    # Its warp has 16 x 16 of 32 x 64.
    "forward_tensor_sums H_next write": (
        [(y, 128 + 16 + x) for y in (1, 9) for x in (2, 3, 10, 11)],
        [],
    ),
    # Neuron 4, 5 reads 5x5 neurons from 8, 10 on: of both maps, which are 29 high.
    "convolve_maps w read": ([*row(0, 0, 24), *row(1, 0, 24)], [(0, 0)]),
    "convolve_maps y write": ([(4, 5)], [*row(2, 6, 12), *row(3, 0, 12), *row(4, 0, 11)]),
    "convolve_maps h read": (
        patches((8, 29 + 8), 10),
        [(2 * y, 2 * x) for y, x in [*row(2, 6, 12), *row(3, 0, 12), *row(4, 0, 11)]],
    ),
    # Of column 13: ceil((13 - 4) / 2) to floor(13 / 2); of line 12: ceil((12 - 4) / 2) to 12 / 2.
    "pull_deltas delta read": (
        [(13 * m + y, x) for m in (0, 2) for y in (4, 5, 6) for x in (5, 6)],
        [],
    ),
    "adjust_weights h read": (
        [(29 + 1 + 2 * y, 3 + 2 * x) for y in range(13) for x in range(13)],
        [],
    ),
    # Thread 5 has hidden neuron 5; at step 11 all threads read the weight of input 11.
    "forward_naive W1 read": (row(5, 0, 31), column(0, 31, 11)),
    "forward_coalesced W1 read": (column(0, 31, 5), row(11, 0, 31)),
    "forward_tiled W1 read": (
        [(y, x) for y in (2, 18) for x in (5, 13, 21)],
        [(y, x) for y in range(4) for x in range(8)],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_traces_hold_the_cells_that_formulas_give(name):
    trace, (own, step) = read_traces()[name], KNOWN[name]
    assert cells_of(trace.own) == own
    assert cells_of(trace.step) == step
    assert set(own) <= set(cells_of(trace.of_block))


@needs_toolkit
def test_chunk_phases_have_the_threads_that_work_and_registers_keep_what_is_read_once():
    launched = tracing.execute(launches.ladder()["train_chunk"])

    def counts(array, kind):
        """How often each thread accesses the array."""
        cut, _ = tracing.accesses(launched, array, kind)
        return np.bincount(cut.trace[0][:, 1], minlength=512)

    def working(array, each=1):
        return np.count_nonzero(counts(array, "write") >= each * launches.STEPS)

    assert list(thread_maps_nets.PHASES.values()) == [
        working("W1"),
        working("shared 1"),
        working("shared 0", 2),  # a sum of layer 1 and one of layer 2
        working("shared 3"),
        working("shared 2"),
        working("W2"),
    ]
    # A thread reads a weight of its registers once, the others each step, and at last once more.
    each, kept = N_INPUTS // 4, one_kernel.KEPT
    assert (counts("W1", "read") == kept + (each - kept) * (launches.STEPS + 1)).all()


@needs_toolkit
def test_biases_are_written_by_a_thread_beside_the_first_kernel_of_each_map():
    launched = tracing.execute(launches.convolutional()["adjust_weights"])
    cut, _ = tracing.accesses(launched, "bias", "write")
    pairs = zip(cut.blocks.tolist(), cut.trace, strict=True)
    writers = {block: trace[:, 1].tolist() for block, trace in pairs if len(trace)}
    assert writers == {0: [5], 2: [5], 3: [5]}
