"""Bytes and operations of the window are those of its launches, as executed."""

import numpy as np
import pytest
from programs import needs_toolkit

from experiments.benchmarks.gpu_times import Work, block_work, sweep_work, work_of_an_image
from experiments.drawing.tracing import execute
from mlp_gpu.network import padded_shapes
from mlp_gpu.window import progress
from mlp_gpu.window.workspace import Workspace

SIZES = (31, 63, 32)  # with little padding
N_BLOCK, FIRST, END = 64, 20, 48
COUNTED = {"W", "H", "D", "partial", "H_next", "A", "images"}


def executed_bytes(launches):
    """Of what each launch reads and writes, each number once for each launch."""
    total = 0
    for launched in map(execute, launches):
        accesses = np.concatenate(launched.trace)
        address = accesses[:, 2]
        writes = np.array([getattr(code, "opcode", [""])[0] == "st" for code in launched.code])
        for start, n_bytes in (launched.arrays[name] for name in COUNTED & launched.arrays.keys()):
            inside = (start <= address) & (address < start + n_bytes)
            touched = np.column_stack((address, writes[accesses[:, 0]]))[inside]
            total += 4 * len(np.unique(touched, axis=0))
    return total


@pytest.fixture
def workspace(monkeypatch):
    """A net's launches on arrays of the host; and its progress, to be set."""
    monkeypatch.setattr("deepbig_runtime.gpu.device_array", np.zeros)
    weights = [np.zeros(shape, np.float32) for shape in padded_shapes(SIZES)]
    return Workspace(SIZES, weights, N_BLOCK, (7, 5))


@needs_toolkit
def test_a_sweep_and_a_block_move_what_their_launches_move(workspace):
    workspace.progress[:] = progress.at_start(N_BLOCK, 200)
    workspace.progress[[progress.FIRST, progress.END, progress.SWEPT]] = FIRST, END, END
    order, eta = np.arange(200), np.ones(1, np.float32)
    epoch = {"labels": np.zeros(200, np.uint8), "order": order, "losses": np.zeros(200, np.float32)}
    expected = sweep_work(SIZES, END - FIRST, END, N_BLOCK).n_bytes
    assert expected == pytest.approx(executed_bytes(workspace.sweep(epoch, eta)), rel=0.05)
    workspace.progress[:] = progress.at_start(N_BLOCK, 200)
    found = executed_bytes(workspace.begin_block(np.zeros((200, SIZES[0]), np.float32), order))
    workspace.progress[progress.FIRST] = N_BLOCK
    found += executed_bytes(workspace.end_block(eta, 200)[:-1])
    assert block_work(SIZES, N_BLOCK).n_bytes == pytest.approx(found, rel=0.05)


def test_operations():
    # Two layers of one weight and one bias, one image: no image is before it.
    forward, gram = 2 * 2, 2 * 2
    backward, back_gram = 2 * 2, 2
    parts = 2 + 2 + 3
    assert sweep_work((1, 1, 1), 1, 1, 1).flops == forward + gram + backward + back_gram + parts
    block = forward + gram + 2 * (2 * 2)
    assert block_work((1, 1, 1), 1).flops == block
    # The second of two images is corrected by the first, in each sum.
    more = sweep_work((1, 1, 1), 2, 2, 2).flops - 2 * sweep_work((1, 1, 1), 1, 2, 2).flops
    assert more == -2 * 3  # one pair less than if each had one before it


def test_an_image_has_its_part_of_sweeps_and_of_a_block():
    net = (841, 1000, 500, 10)
    sweep, block = sweep_work(net, 32, 80, 128), block_work(net, 128)
    assert work_of_an_image(net, 20, 32, 128) == (sweep * 20 + block) * (1 / 128)
    assert Work(3, 4) + Work(1, 2) * 2 == Work(5, 8)
