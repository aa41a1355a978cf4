"""Measure threads per second here and in Numba's simulator, which checks nothing.

python examples/speed.py > docs/speed.md
"""

import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numba import config, cuda, float32

THREADS, REPEATS = 256, 5
BLOCKS = 4 if config.ENABLE_CUDASIM else 1024  # the simulator needs seconds for these few
COLUMNS = "kernel", "cuda_on_cpu, threads/s", "simulator, threads/s", "ratio"
VERSIONS = "cuda-on-cpu", "numba", "numba-cuda"


@cuda.jit
def add(out, x):
    i = cuda.grid(1)
    out[i] = x[i] + x[(i + 1) % x.size]


@cuda.jit
def transpose(out, x):
    tile = cuda.shared.array((16, 17), float32)
    first, thread = cuda.blockIdx.x * cuda.blockDim.x, cuda.threadIdx.x
    tile[thread // 16, thread % 16] = x[first + thread]
    cuda.syncthreads()
    out[first + thread] = tile[thread % 16, thread // 16]


@cuda.jit
def sum_block(out, x):
    terms = cuda.shared.array(256, float32)
    thread, half = cuda.threadIdx.x, cuda.blockDim.x // 2
    terms[thread] = x[cuda.grid(1)]
    while half:
        cuda.syncthreads()
        if thread < half:
            terms[thread] += terms[thread + half]
        half //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = terms[0]


KERNELS = add, transpose, sum_block


def seconds(kernel):
    """The median time of a launch."""
    x, out = np.ones((2, BLOCKS * THREADS), np.float32)
    if config.ENABLE_CUDASIM:
        launch = kernel[BLOCKS, THREADS]
        arguments = out, x
    else:
        from cuda_on_cpu import Executor, to_device

        arguments, executor = (to_device(out), to_device(x)), Executor((9, 0))

        def launch(*arguments):
            executor.launch(kernel, BLOCKS, THREADS, arguments)

    times = []
    for _ in range(2 + REPEATS):  # the first compiles, the second knows how much work there is
        start = time.perf_counter()
        launch(*arguments)
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores"


def rates(**environment):
    """Threads per second of each kernel, in another process."""
    command = [sys.executable, __file__, "measure"]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True)
    return [float(text) for text in done.stdout.split()]


def main():
    if sys.argv[1:]:
        print(*(BLOCKS * THREADS / seconds(kernel) for kernel in KERNELS))
        return
    rows = zip(KERNELS, rates(), rates(NUMBA_ENABLE_CUDASIM="1"), strict=True)
    print("# Speed\n")
    print(f"Medians of {REPEATS} launches; {processor()}; {datetime.now(UTC).date()};")
    print(", ".join(f"{name} {version(name)}" for name in VERSIONS) + ".")
    print("Numba's simulator checks nothing. [The kernels](../examples/speed.py);")
    print("`python examples/speed.py > docs/speed.md`\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for kernel, here, there in rows:
        print(f"| {kernel.__name__} | {here:,.0f} | {there:,.0f} | {here / there:,.0f} |")


if __name__ == "__main__":
    main()
