"""Counts of what executed kernels did, against numbers that are plain to see."""

import numpy as np
import pytest
from numba import cuda
from programs import needs_toolkit
from test_memory_checks import ONE, TWO, ones, run, to_device

from cuda_on_cpu import access_stats
from cuda_on_cpu.executor import device_array

pytestmark = needs_toolkit


def copy(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


def copy_columns(out, x):
    i = cuda.grid(1)
    out[i] = x[(i * 8) % 256 + i // 32]


def one_word(out, x):
    out[cuda.grid(1)] = x[5]


@pytest.mark.parametrize(
    ("kernel", "sectors"), [(copy, 2 * 32 // 8), (copy_columns, 2 * 32), (one_word, 2)]
)
def test_sectors_are_those_of_warps(kernel, sectors):
    arrays = device_array(256, np.float32), ones(256)
    found = access_stats.accesses(run(kernel, TWO, arrays, threads=64, traced=True))
    read, write = found["global", "read"], found["global", "write"]
    assert (read.threads, read.n_bytes, read.warps, read.sectors) == (64, 256, 2, sectors)
    assert (write.threads, write.n_bytes, write.warps, write.sectors) == (64, 256, 2, 8)
    assert read.passes == write.passes == 0


@pytest.mark.parametrize(("stride", "degree"), [(32, 32), (33, 1), (34, 2)])
def test_bank_conflicts_cost_passes(stride, degree):
    def transpose(out):
        i = cuda.threadIdx.x
        tile = cuda.shared.array((32, stride), np.float32)
        for k in range(32):
            tile[k, i] = i
        cuda.syncthreads()
        total = np.float32(0)
        for k in range(32):
            total += tile[i, k]
        out[i] = total

    found = access_stats.accesses(run(transpose, ONE, [device_array(32, np.float32)], traced=True))
    write, read = found["shared", "write"], found["shared", "read"]
    assert (write.threads, write.warps, write.passes) == (1024, 32, 32)
    assert (read.threads, read.warps, read.passes) == (1024, 32, 32 * degree)
    assert read.sectors == 0


def polynomial(out, x):
    i = cuda.grid(1)
    if i < 40:
        out[i] = (x[i] * x[i] + x[i]) * 3


def test_float_operations_are_counted_where_they_run():
    arrays = device_array(64, np.float32), ones(64)
    launched = run(polynomial, TWO, arrays, grid=(2,))
    assert access_stats.float_operations(launched) == 40 * 3  # an fma is two
    assert launched.trace == []
    assert access_stats.accesses(launched) == {}


def test_every_access_of_a_warp_has_its_threads_and_addresses():
    def even(out, x):
        i = cuda.threadIdx.x
        if i % 2 == 0:
            out[63 - i] = x[i]

    x, out = to_device(np.ones(64, np.float32)), device_array(64, np.float32)
    launched = run(even, TWO, (out, x), threads=64, traced=True, order="random")
    start = launched.arrays["out"][0]
    written = [
        (threads.tolist(), ((addresses - start) // 4).tolist())
        for code, threads, addresses in access_stats.warp_steps(launched)
        if code.opcode[0] == "st"
    ]
    warps = list(range(0, 32, 2)), list(range(32, 64, 2))
    assert written == [(warp, [63 - i for i in warp]) for warp in warps]
