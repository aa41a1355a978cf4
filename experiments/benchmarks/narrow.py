"""Time nets and the CPU's kernel once more, in a process limited to vectors of AVX2.

On a processor with AVX-512: the compiled code is that of processors without, the clock its own.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from msgspec.structs import replace

from deepbig_runtime.errors import tell
from experiments.benchmarks import host, mlp_times
from experiments.benchmarks.columns import NARROW
from experiments.benchmarks.processes import ConfiguredProcess
from experiments.results.rows import BenchRow
from mlp_gpu.network import Network
from mlp_gpu.vector_kernel import LANES

_BASE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,-avx512f"
# Numba's name of a processor, and the features that it compiles for.
AVX2 = "haswell", f"{_BASE},+avx,+avx2,+fma"
SSE = "nehalem", f"{_BASE},-avx,-avx2,-fma"  # without fused multiply-add
AVX2_LANES = 8
NETS = 1, 4


def environment(processor: tuple[str, str]) -> dict[str, str]:
    """This process's environment, with which Numba compiles for a processor: AVX2 or SSE."""
    name, features = processor
    return os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


def measure_with_avx2(net: int | str, network: Network, repeats: int) -> Iterator[BenchRow]:
    """Rows of one of NETS; none of others, or where vectors are not wider than AVX2's."""
    if net in NETS and LANES > AVX2_LANES:
        tell("  once more, limited to AVX2")
        yield from host.attempts([partial(measure, network, repeats)])


def measure(network: Network, repeats: int) -> list[BenchRow]:
    """Rows of the engine, the kernel and multiply-adds with AVX2."""
    with closing(ConfiguredProcess(environment(AVX2))) as process:
        rows = process.call(mlp_times.measure_on_cpu, network, {}, repeats)
    return [replace(row, group=NARROW) for row in rows if row.group == "net" and row.vectors]
