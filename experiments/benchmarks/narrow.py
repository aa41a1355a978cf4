"""Time nets and the CPU's kernel once more, in a process limited to vectors of AVX2.

So a processor with AVX-512 shows what others do: the code is that for them, the clock its own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from deepbig_runtime import files
from experiments.benchmarks import host, mlp
from experiments.benchmarks.columns import NARROW, Measurement
from experiments.training.messages import tell
from mlp_gpu.network import Network
from mlp_gpu.vector_kernel import LANES

_BASE = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,-avx512f"
# Numba's name of a processor, and the features that it compiles for.
AVX2 = "haswell", f"{_BASE},+avx,+avx2,+fma"
SSE = "nehalem", f"{_BASE},-avx,-avx2,-fma"  # without fused multiply-add
AVX2_LANES = 8
NETS = 1, 4


def environment(processor: tuple[str, str]) -> dict[str, str]:
    """This process's environment, and that Numba compiles for a processor: AVX2 or SSE."""
    name, features = processor
    return os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


def measure_with_avx2(net: int | str, repeats: int) -> Iterator[Measurement]:
    """Measurements of one of NETS; none of others, or where vectors are not wider than AVX2's."""
    if net in NETS and LANES > AVX2_LANES:
        tell("  once more, limited to AVX2")
        yield from host.attempts([partial(measure, net, repeats)])


def measure(net: int | str, repeats: int) -> list[Measurement]:
    """Measurements of the engine, the kernel and multiply-adds with AVX2; of one of mlp.NETS."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "measurements.json")
        command = [sys.executable, "-m", "experiments.benchmarks.narrow"]
        command += [str(net), str(repeats), str(path)]
        # In a session of its own, Ctrl-C does not reach it; this process then kills it.
        subprocess.run(command, env=environment(AVX2), check=True, start_new_session=True)
        content = files.read_bytes(path)
    measured = msgspec.json.decode(content, type=list[Measurement], dec_hook=_array)
    return [replace(one, group=NARROW) for one in measured if one.group == "net" and one.vectors]


def _array(_kind: type, times: Any) -> np.ndarray:
    return np.array(msgspec.convert(times, list[float]))


def main(net: str, repeats: str, path: str) -> None:
    """Measure a net and write the measurements as JSON."""
    network = mlp.trained(Network.initial(mlp.NETS[int(net)], seed=0))
    measured = mlp.measure_on_cpu(network, {}, int(repeats))
    content = msgspec.json.encode(measured, enc_hook=lambda times: times.tolist())
    files.replace(Path(path), content)


if __name__ == "__main__":
    main(*sys.argv[1:])
