"""Every kernel on its drawn launch: repeats have the same bits, and its types are its signature."""
# ruff: noqa: F401, F811 - fixtures are imported

from dataclasses import replace

import numpy as np
import pytest
from executed import DEVICES, HAS_GPU, device
from gpu_arrays import arrays, uniform
from numba.core import sigutils

from deepbig_runtime import gpu
from experiments.benchmarks.executor import SIGNATURES
from experiments.drawing import launches
from mlp_gpu import tensor_cores

# Tensor cores are those of the newest GPU.
ON_DEVICES = [
    (launch, DEVICES[-1] if launch.kernel in tensor_cores.SIGNATURES else DEVICES[0])
    for launch in launches.make_launches().values()
]
REPEATS = 250 if HAS_GPU else 2


def name_of(value):
    return value if isinstance(value, str) else value.kernel.py_func.__name__


@pytest.mark.parametrize(("launch", "device"), ON_DEVICES, indirect=["device"], ids=name_of)
def test_repeats_are_bit_equal(arrays, launch):
    """Without a GPU, threads and blocks run in another order each time."""
    if launch.kernel in tensor_cores.SIGNATURES and gpu.compute_capability() < (8, 0):
        pytest.skip("needs tensor cores for float32")
    rng, hosts = np.random.default_rng(0), {}
    for argument in launch.arguments:
        if isinstance(argument, np.ndarray):
            random = uniform(rng, *argument.shape) if argument.dtype == np.float32 else argument
            hosts[id(argument)] = random, arrays.put(random)
    there = tuple(hosts[id(a)][1] if id(a) in hosts else a for a in launch.arguments)
    results = set()
    for _ in range(REPEATS):
        for host, array in hosts.values():
            array.copy_to_device(host, stream=arrays.stream)
        arrays.run([replace(launch, arguments=there)])
        results.add(b"".join(arrays.get(array).tobytes() for _, array in hosts.values()))
    assert len(results) == 1
    if HAS_GPU:  # the executor compiles for the signature
        expected, _ = sigutils.normalize_signature(SIGNATURES[launch.kernel])
        assert set(launch.kernel.overloads) == {expected}
