"""Each check of executed kernels finds its fault, and says where; and lets pass what is right."""

import re
from functools import cache

import faulty_kernels as faulty
import numpy as np
import pytest
from numba import cuda
from programs import needs_toolkit

from cuda_on_cpu import (
    Executor,
    KernelFault,
    SameValueWarning,
    accesses,
    device_array,
    memory_checks,
    to_device,
)
from cuda_on_cpu.parse import _file_names
from cuda_on_cpu.run import Allocation

pytestmark = needs_toolkit

ONE, TWO = "void(float32[::1])", "void(float32[::1], float32[::1])"


def ones(n):
    return to_device(np.ones(n, np.float32))


@cache
def compiled(function, signature):
    kernel = cuda.jit(function)
    return kernel, Executor((7, 5), signatures={kernel: signature})


def run(function, signature, arguments, grid=(1,), threads=32, order="forward", traced=False):
    """Execute a function as compiled for compute capability 7.5."""
    kernel, executor = compiled(function, signature)
    executor.order, executor.traced = order, traced
    return executor.launch(kernel, grid, threads, tuple(arguments))


def first_of_all(out, x):
    out[0] = x[cuda.threadIdx.x % x.shape[0]]


def test_a_race_of_equal_values_is_a_warning():
    out = device_array(4, np.float32)
    with pytest.warns(
        SameValueWarning, match=r"first_of_all \(.*py:\d+\): st.global.f32 .*31 times"
    ):
        run(first_of_all, TWO, [out, ones(1)])
    assert out.copy_to_host()[0] == 1
    with pytest.raises(KernelFault, match="races with another thread"):
        run(first_of_all, TWO, [out, to_device(np.arange(2, dtype=np.float32))])


def before_the_start(out, x):
    i = cuda.grid(1)
    out[i] = x[np.uint64(i - 1)]  # a signed -1 would be the last


def never_written(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


def shared_past_the_end(out):
    i = cuda.threadIdx.x
    row, other = cuda.shared.array(32, np.float32), cuda.shared.array(32, np.float32)
    row[i], other[i] = i, i
    cuda.syncthreads()
    out[i] = row[i + 1] + other[i]


def mirror(out, x):
    i = cuda.grid(1)
    out[i] = x[np.uint64(31 - i)]


def a_block_writes_what_others_read(out, x):
    i = cuda.grid(1)
    out[i] = x[0] + x[1]
    if i == 33:
        x[1] = 5


def a_thread_writes_what_another_block_read_before_it(out, x):
    i = cuda.grid(1)
    if i == 0 or i == 33:
        out[i] = x[1]
    if i == 33:
        x[1] = 5


def a_thread_writes_what_another_thread_read_before_it(out, x):
    i = cuda.threadIdx.x
    if i < 2:
        out[i] = x[5]
    if i == 1:
        x[5] = 1


def two_barriers(out):
    i = cuda.threadIdx.x
    row = cuda.shared.array(32, np.float32)
    row[i] = i
    if i % 2:
        cuda.syncthreads()
        row[i] += 1
    else:
        cuda.syncthreads()
        row[i] += 2
    out[i] = row[i]


# Of other faults: test_page.py.
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize(
    ("function", "arrays", "grid", "says"),
    [
        (shared_past_the_end, [ones(32)], 1, "is outside of every array"),
        (a_block_writes_what_others_read, [ones(64), ones(64)], 2, "another block|races"),
        (a_thread_writes_what_another_block_read_before_it, [ones(64), ones(64)], 2, "another bl"),
        (a_thread_writes_what_another_thread_read_before_it, [ones(32), ones(32)], 1, "races"),
        (two_barriers, [ones(32)], 1, "another barrier"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_in_any_order(function, arrays, grid, says, order):
    signature = ONE if len(arrays) == 1 else TWO
    with pytest.raises(KernelFault, match=says) as fault:
        run(function, signature, arrays, (grid,), order=order)
    assert str(fault.value).startswith(f"{function.__name__} ") or "barrier" in says


@pytest.mark.parametrize(
    ("grid", "threads"), [((0,), 32), ((1, 65_536), 1), ((1,), 0), ((1,), 1025), ((1,), (1, 1, 65))]
)
def test_a_launch_of_a_size_that_no_gpu_takes_is_refused(grid, threads):
    with pytest.raises(KernelFault, match="cannot be launched as"):
        run(shared_past_the_end, ONE, [ones(64)], grid, threads)


def too_much_shared_memory(out):
    rows = cuda.shared.array((385, 32), np.float32)
    rows[0, 0] = 1
    out[0] = rows[0, 0]


def test_more_shared_memory_than_a_block_has_is_refused():
    with pytest.raises(KernelFault, match="49280 bytes of shared memory"):
        run(too_much_shared_memory, ONE, [ones(1)], threads=1)


def test_a_fault_is_told_with_its_place():
    line = never_written.__code__.co_firstlineno + 2
    expected = rf"never_written \(test_memory_checks.py:{line}\): ld.* uninitialised memory: "
    expected += r"block \(1, 0, 0\), thread \(0, 0, 0\), address 0x[0-9a-f]+ \(x\[32\], byte 128\)"
    x = device_array(64, np.float32)
    x[:32].copy_to_device(np.ones(32, np.float32))
    with pytest.raises(KernelFault, match=expected):
        run(never_written, TWO, [ones(64), x], grid=(2,))


def sorts_a_pair(out):
    i = cuda.threadIdx.x
    if out[i] > out[i ^ 1]:  # a second run finds the pair sorted
        out[i], out[i ^ 1] = out[i ^ 1], out[i]


@pytest.mark.parametrize("n", [2, 100_000])
def test_a_race_is_told_with_both_accesses_if_the_arrays_are_small(n):
    with pytest.raises(KernelFault, match="races with another thread") as fault:
        run(sorts_a_pair, ONE, [to_device(np.arange(n, 0, -1, dtype=np.float32))], threads=2)
    line = sorts_a_pair.__code__.co_firstlineno + 3
    other = rf"the other access: thread \(0, 0, 0\), st.global.* \(test_memory_checks.py:{line}\)$"
    assert bool(re.search(other, str(fault.value))) == (n == 2)


past_the_end = cuda.jit(device=True, forceinline=True)(faulty.past_the_end)


def calls_a_device_function(out, x):
    past_the_end(out, x)


def test_a_fault_in_a_device_function_is_told_with_the_functions_file_and_line():
    line = faulty.past_the_end.__code__.co_firstlineno + 2
    expected = rf"calls_a_device_function \(faulty_kernels.py:{line}\): ld.* outside of every array"
    with pytest.raises(KernelFault, match=expected):
        run(calls_a_device_function, TWO, [ones(32), ones(32)])


def test_a_part_of_an_array_ends_where_it_ends():
    whole, out = ones(65), device_array(32, np.float32)
    for _ in range(2):  # a launch may touch what the last one touched
        run(faulty.past_the_end, TWO, [out, whole[:33]])
    with pytest.raises(KernelFault, match="outside of every array"):
        run(faulty.past_the_end, TWO, [out, whole[:32]])
    with pytest.raises(KernelFault, match="outside of every array"):
        run(before_the_start, TWO, [out, whole[32:64]])


def far_past_the_end(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i if i < 31 else 44]


def test_an_access_outside_names_the_array_that_it_is_computed_from():
    memory = ones(256)  # element 44 is nearer to the other part
    with pytest.raises(KernelFault, match=r"no array: x\[44\], byte 176 of 128\)"):
        run(far_past_the_end, TWO, [memory[46:], memory[:32]])


def test_the_granule_of_records_is_a_power_of_2():
    allocation = Allocation.at(0, 36, 12)
    assert (allocation.granule, len(allocation.stamps)) == (4, 9)


ROW = np.dtype([("place", np.int32), ("weights", np.float32, (3,))])


def sums_of_rows(out, rows):
    i = cuda.threadIdx.x
    weights = rows[i].weights
    out[i] = rows[i].place + weights[0] + weights[1] + weights[2]


def test_arrays_of_records_and_arrays_that_may_not_be_written_are_read():
    rows, out = np.zeros(32, ROW), device_array(32, np.float32)
    rows["place"], rows["weights"] = np.arange(32), np.arange(96).reshape(32, 3)
    rows.flags.writeable = False
    Executor((7, 5)).launch(cuda.jit(sums_of_rows), 1, 32, (out, rows))
    assert (out.copy_to_host() == np.arange(32) + rows["weights"].sum(axis=1)).all()


def test_files_of_the_same_name_are_told_with_their_folders():
    files = ("/a/kernels.py", "/b/kernels.py", "/b/main.py", "/b/main.py")
    text = "\n".join(f'.file {number} "{path}"' for number, path in enumerate(files, 1))
    assert list(_file_names(text).values()) == [*files[:2], "main.py", "main.py"]


def test_two_parts_of_an_array_are_one_memory():
    whole = ones(64)
    with pytest.raises(KernelFault, match=r"\(out\[\d+\], byte \d+ or x\[\d+\], byte \d+\); the o"):
        run(mirror, TWO, [whole[:32], whole[:32]])
    run(mirror, TWO, [whole[:32], whole[32:]])


def reverse_bytes(out, x):
    i, row = cuda.threadIdx.x, cuda.shared.array(32, np.uint8, alignment=16)
    row[i] = i
    cuda.syncthreads()
    out[i] = x[row[cuda.warpsize - 1 - i]]


def test_bytes_of_an_aligned_array_are_written_by_threads_of_their_own():
    x, out = np.arange(32, dtype=np.float32), device_array(32, np.float32)
    run(reverse_bytes, TWO, [out, to_device(x)])
    assert (out.copy_to_host() == x[::-1]).all()


def reverse_in_dynamic_memory(out, x, skipped, barrier):
    row, bits = cuda.shared.array(0, np.float32), cuda.shared.array(0, np.int16)  # one memory
    beside = cuda.shared.array(40, np.float32)
    i = cuda.threadIdx.x
    beside[i] = bits.size
    if i != skipped:
        row[i] = x[i]
    if barrier:
        cuda.syncthreads()
    out[i] = row[31 - i] + beside[i]
    cuda.syncthreads()
    bits[i] = i
    cuda.syncthreads()
    out[i] += bits[31 - i]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_dynamic_shared_memory_is_as_large_as_the_launch_says(order):
    kernel, executor = cuda.jit(reverse_in_dynamic_memory), Executor((9, 0), order=order)

    def launch(shared_bytes, skipped=-1, barrier=True):
        out = np.zeros(32, np.float32)
        arguments = out, np.arange(32, dtype=np.float32), skipped, barrier
        executor.launch(kernel, 1, 32, arguments, shared_bytes)
        return out

    assert (launch(128) == 64 + 2 * np.arange(32)[::-1]).all()
    assert (launch((48 << 10) - 160) == (24 << 10) - 80 + 2 * np.arange(32)[::-1]).all()
    for arguments, says in (
        ((124,), "outside of every array"),
        ((0,), "outside of every array"),
        ((128, 7), "uninitialised"),
        ((128, -1, False), "uninitialised|races"),
        (((48 << 10) - 159,), "with 49153 bytes of shared memory"),
    ):
        with pytest.raises(KernelFault, match=says):
            launch(*arguments)


def atomics(ints, floats, signed, x):
    i, atomic = cuda.threadIdx.x, cuda.atomic
    atomic.inc(ints, 0, 50)
    atomic.dec(ints, 1, 50)
    atomic.or_(ints, 2, 1 << (i % 30))
    if atomic.cas(ints, 3, 0, 1) == 0:
        atomic.add(ints, 4, 1)
    atomic.compare_and_swap(ints[5:], 0, 5)
    atomic.max(ints, 6, 7 * i)
    atomic.exch(ints, 7, 9)
    atomic.sub(floats, 0, i)
    atomic.max(floats, 1, i)
    atomic.min(floats, 2, -i)
    atomic.nanmax(floats, 3, x[i])
    atomic.nanmin(floats, 4, x[i])
    atomic.sub(signed, 0, i)
    atomic.nanmin(signed, 1, -i)
    atomic.xor(signed, 2, i % 2)


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
@pytest.mark.parametrize("size", [4, 8])
def test_atomics_of_numba_are_exact_and_no_race(size, order):
    ints, floats, signed = (np.zeros(8, f"{kind}{size}") for kind in "ufi")
    ints[1], x = 5, np.arange(64, dtype=floats.dtype) - 40
    x[7] = np.nan
    Executor((9, 0), order=order).launch(cuda.jit(atomics), 1, 64, (ints, floats, signed, x))
    assert ints.tolist() == [64 % 51, 5 - 64 + 2 * 51, (1 << 30) - 1, 1, 1, 5, 441, 9]
    assert floats.tolist() == [-2016, 63, -63, 23, -40, 0, 0, 0]
    assert signed.tolist() == [-2016, -63, 0, 0, 0, 0, 0, 0]


def prints(out, x):
    i = cuda.threadIdx.x
    print("100%", i - 1, x[i], i > 0, cuda.threadIdx, np.uint64(-1) - np.uint64(i))
    out[i + 31] = 0


def test_a_kernel_prints_after_it_also_if_it_has_a_fault(capfd):
    with pytest.raises(KernelFault, match="outside of every array"):
        run(prints, TWO, [ones(32), ones(32)])
    assert capfd.readouterr().out.splitlines() == [
        "100% -1 1.000000 False (0, 0, 0) 18446744073709551615",
        "100% 0 1.000000 True (1, 0, 0) 18446744073709551614",
    ]


def grid_sync(out, x, left, silent, early):
    row = cuda.shared.array(8, np.float32)
    t, block, grid = cuda.threadIdx.x, cuda.blockIdx.x, cuda.cg.this_grid()
    i = cuda.grid(1)
    if block != silent:
        row[t] = i
    cuda.syncthreads()
    if i == left or (left < 0 and block == -left):
        return
    for _ in range(3):
        x[i] += 1
        if not early:
            grid.sync()
        out[i] = x[x.size - 1 - i] + row[7 - t]
        grid.sync()


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_blocks_wait_for_the_whole_grid(order):
    kernel, executor = cuda.jit(grid_sync), Executor((9, 0), order=order)

    def launch(left=99, silent=-1, early=False, traced=False):
        executor.traced = traced
        out, x = np.zeros(32, np.float32), np.arange(32, dtype=np.float32)
        launched = executor.launch(kernel, 4, 8, (out, x, left, silent, early))
        i = np.arange(32)
        assert (out == 3 + (31 - i) + (i // 8 * 8 + 7 - i % 8)).all()
        return launched

    for _ in range(2):
        launch()
    assert accesses(launch(traced=True))["global", "write"].threads == 3 * 2 * 32
    with pytest.raises(AssertionError):  # thread 9 has ended and written nothing
        launch(9)
    for arguments, says in (
        ((8,), "that have ended without waiting"),  # the first of its block
        ((-2,), "blocks wait for others of the grid that have ended"),
        ((99, 1), "uninitialised"),
        ((99, -1, True), "races with another block"),
    ):
        with pytest.raises(KernelFault, match=says):
            launch(*arguments)


def spin(out, x):
    i = cuda.grid(1)
    for _ in range(400):
        x[i] += 1
    cuda.syncthreads()
    for _ in range(400):
        x[i] += 1
    while i == 3 and cuda.atomic.add(out, 0, 0) == 0:
        x[i] += 1


def wait(out, x):
    i = cuda.grid(1)
    for _ in range(7):
        x[i] += 1
        cuda.syncthreads()
    while cuda.atomic.add(out, 0, 0) == 0:
        cuda.syncthreads()


@pytest.mark.parametrize("function", [spin, wait])
def test_loop_without_end_is_stopped_and_long_ones_are_not(function, monkeypatch):
    monkeypatch.setattr(memory_checks, "MOST_STEPS", 1000)
    x = ones(32)
    with pytest.raises(KernelFault, match=r"is in a loop without end: .*, thread \(\d, 0, 0\)$"):
        run(function, TWO, [to_device(np.zeros(1, np.float32)), x])
    assert x.copy_to_host()[0] == (801 if function is spin else 8)


def fields(rows, out):
    i = cuda.threadIdx.x
    if i < 16:
        rows[i].a = i
    else:
        rows[i - 16].b = i
    cuda.syncthreads()
    out[i] = rows[i % 16].b


def test_two_threads_may_write_two_fields_of_a_record():
    rows = to_device(np.zeros(16, np.dtype([("a", np.int32), ("b", np.float32)])))
    out = device_array(32, np.float32)
    Executor((7, 5)).launch(cuda.jit(fields), 1, 32, (rows, out))
    assert out.copy_to_host().tolist() == [*range(16, 32)] * 2
    assert rows.copy_to_host()["a"].tolist() == [*range(16)]


def fortran(x):
    x[0, 0] = 1


def test_an_array_in_the_order_of_fortran_is_refused():
    kernel, executor = compiled(fortran, "void(float32[::1,:])")
    with pytest.raises(TypeError, match="x is in C order: expected array"):
        executor.launch(kernel, 1, 1, (device_array((2, 3), np.float32),))
