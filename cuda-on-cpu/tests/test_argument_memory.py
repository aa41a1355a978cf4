"""Memory that a program on the fake driver gives to a kernel: captured, in records, by pointers."""

import numpy as np
import programs
import pytest

from cuda_on_cpu.driver.memory import ANY_NUMBER, Memory, _extent

pytestmark = programs.needs_driver

START = """
import numpy as np
from numba import cuda

x = np.arange(32, dtype=np.float32)
y, out = cuda.to_device(x), cuda.to_device(x)
"""


def test_a_pointer_in_a_structure_gives_its_whole_allocation():
    memory = Memory()
    memory.add(1 << 20, 100)
    (view,) = memory.views(
        [np.array([7, (1 << 20) + 99, 1 << 30]).tobytes() + b"end"], {}, set(), 2
    )
    assert (view.allocation.address, view.allocation.granule) == (1 << 20, 2)
    assert (view.start, view.n_bytes) == (0, 100)


@pytest.mark.parametrize("shape", [(32,), (32, 1), (8, 4), (1, 32)])
def test_arrays_of_a_kernel_whose_types_are_not_known_end_where_they_end(shape):
    strides = np.zeros(shape, np.float32).strides
    numbers = [0, 0, 32, 4, 1 << 20, *shape, *strides]
    assert _extent(numbers, 4, ANY_NUMBER) == (0, 128, 4)


PROGRAMS = {
    "captured": (
        """
on_gpu = y
table, zeros = np.arange(8, dtype=np.float64), np.zeros(40, np.int32)

@cuda.jit(lineinfo=True)
def kernel(out, n):
    i = cuda.threadIdx.x
    on_gpu[i] += table[np.uint64(i % n)] + cuda.const.array_like(zeros)[i]
    out[i] = on_gpu[i]

kernel[1, 32](out, 8)
print((out.copy_to_host() == x + x % 8).all())
kernel[1, 32](out, 9)
""",
        "ld.const.f64 %fd, [%rd] is outside of every array",
    ),
    "captured on the GPU": (
        """
on_gpu = y[4:20]

@cuda.jit(lineinfo=True)
def kernel(out, n):
    i = cuda.threadIdx.x
    out[i] = on_gpu[np.uint64(i + n)]

kernel[1, 28](out, 0)
print((out.copy_to_host()[:28] == x[4:]).all())
kernel[1, 28](out, 1)
""",
        "is outside of every array",
    ),
    "records": (
        """
record = np.dtype([("a", np.int32), ("b", np.float32)])

@cuda.jit(lineinfo=True)
def kernel(rows, row, out, n):
    i = cuda.threadIdx.x
    if i < 16:
        rows[i].a = row.a + i
    else:
        rows[i - n].b = -i
    out[i] = row.b

rows, row = np.zeros(16, record), np.array([(5, 2.5)], record)[0]
kernel[1, 32](rows, row, out, 16)
print((rows["a"] == 5 + x[:16]).all() and (rows["b"] == -x[16:]).all())
kernel[1, 32](rows, row, out, 15)
""",
        "is outside of every array",
    ),
    "pointers": (
        """
@cuda.jit("void(CPointer(uint8), CPointer(float32), int64)", lineinfo=True)
def kernel(to, x, n):
    i = cuda.threadIdx.x
    to[i] = np.uint8(x[i + n])

bytes = cuda.to_device(np.zeros(32, np.uint8))
pointers = bytes.device_ctypes_pointer.value, y[8:].device_ctypes_pointer.value
kernel[1, 32](*pointers, -8)
print((bytes.copy_to_host() == x).all())
kernel[1, 32](*pointers, -7)
""",
        "ld.global.f32 %f, [%rd] is outside of every array",
    ),
    "strides": (
        """
@cuda.jit(lineinfo=True)
def kernel(columns, reverse, n):
    i = cuda.threadIdx.x
    columns[i, 1] = reverse[i + n]

rows = cuda.to_device(np.zeros((32, 3), np.float32))
kernel[1, 32](rows[:, 1:], y[::-1], 0)
print((rows.copy_to_host()[:, 2] == x[::-1]).all())
kernel[1, 32](rows[:, 1:], y[::-1], 1)
""",
        "is outside of every array",
    ),
}


EACH = f"""
import ctypes
import os
import sys

driver = ctypes.CDLL(os.environ["CUDA_ON_CPU_LIBRARY"])
for code in {[START + code + "cuda.synchronize()" for code, _ in PROGRAMS.values()]}:
    try:
        exec(code, {{}})
    except Exception as error:
        print(error, "END", file=sys.stderr)
    driver.fake_recover()
"""


def test_a_kernel_may_touch_memory_that_it_is_given_and_no_more():
    done = programs.run_on_driver("-c", EACH)
    assert done.stdout == "True\n" * len(PROGRAMS), done.stderr
    assert "Traceback" not in done.stderr
    *said, _ = programs.without_numbers(done.stderr).split("END")
    for name, sentences in zip(PROGRAMS, said, strict=True):
        assert PROGRAMS[name][1] in sentences, name
        assert "CUDA_ERROR_LAUNCH_FAILED" in sentences, name
