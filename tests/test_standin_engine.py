"""The GPU engine, unmodified, through numba-cuda on the stand-in for the driver."""

import subprocess
import sys
import textwrap

import pytest
from standin import build

pytestmark = pytest.mark.skipif(build.missing() is not None, reason=str(build.missing()))

TRAIN = """
import numpy as np
from mlp_gpu import cpu, cuda, gpu
from mlp_gpu.network import Network

rng = np.random.default_rng(0)
images = rng.uniform(-1, 1, (7, 40)).astype(np.float32)
labels = rng.integers(0, 10, 7).astype(np.uint8)
order = np.tile(rng.permutation(7).astype(np.int32), 4)  # 20 of the 28 images are in a graph
start = Network.initial((40, 35, 10), 1)


def train(engine):
    engine.set_network(start)
    losses = [engine.train(images, labels, order, 0.1) for epoch in range(2)]
    return losses, *engine.get_network().weights, engine.predict(images)
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", TRAIN + textwrap.dedent(code)],
        env=build.environment() | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("gpu", ["7.5", "10.0"])
def test_both_schedules_train_as_the_cpu_does(gpu):
    done = run(
        """
        expected = train(cpu.CpuEngine())
        for schedule in ("launch", "graph"):
            for known, found in zip(expected, train(cuda.CudaEngine(schedule)), strict=True):
                np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-6)
        print(gpu.cuda.get_current_device().compute_capability)
        """,
        STANDIN_GPUS=gpu,
    )
    assert done.returncode == 0, done.stderr
    major, minor = gpu.split(".")
    assert f"major={major}, minor={minor}" in done.stdout


AHEAD = """
from deform_gpu.cuda import DeformedAhead, deform_set
from deform_gpu.parameters import TABLE1

digits = rng.uniform(-1, 1, (3, 29, 29)).astype(np.float32)
ahead = DeformedAhead(digits, labels[:3], TABLE1, 5, 3)
engine = cuda.CudaEngine("launch")
engine.set_network(Network.initial((841, 35, 10), 1))
expected = [deform_set(digits, labels[:3], TABLE1, 5, epoch) for epoch in (1, 2, 3)]
for epoch in (1, 2, 3):
    deformed = ahead(epoch)
    engine.train(deformed, labels[:3], np.arange(3), 0.1)
    found = deformed.copy_to_host(stream=engine.stream)
    gpu.synchronize(engine.stream)
    assert np.array_equal(found, expected[epoch - 1].reshape(3, 841)), epoch
"""


def test_images_are_deformed_one_epoch_ahead_on_a_stream_that_overlaps():
    for seed in ("1", "2"):
        done = run(AHEAD, STANDIN_SEED=seed)
        assert done.returncode == 0, done.stderr


def test_a_kernel_that_reads_past_an_array_ends_the_gpu():
    done = run(
        """
        @gpu.cuda.jit
        def read_past(array, out):
            out[0] = array[len(array)]

        stream = gpu.new_stream()
        arrays = [gpu.device_array((2,), np.float32) for _ in range(2)]
        gpu.fill([(arrays[0], np.ones(2, np.float32))], stream)
        read_past[1, 1, stream](*arrays)
        try:
            with gpu.faults():
                gpu.synchronize(stream)
        except gpu.GpuFault as fault:
            print(fault)
        """
    )
    assert "CUDA_ERROR_LAUNCH_FAILED" in done.stdout
    assert "a kernel failed: read_past" in done.stderr
    assert done.stderr.count("\n") < 4, done.stderr  # and no traceback


FAULTS = """
import os
import sys

engine = cuda.CudaEngine("graph")
train(engine)
os.environ["STANDIN_FAIL"] = sys.argv[1] if len(sys.argv) > 1 else FAULT
try:
    train(engine)
except gpu.GpuFault as fault:
    print(fault)
"""


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("cuMemAlloc:40:2", "the GPU has too little free memory"),
        ("cuLaunchKernelEx:200:719", "the GPU failed with CUDA_ERROR_LAUNCH_FAILED"),
        ("cuGraphLaunch:3:999", "the GPU failed with CUDA_ERROR_UNKNOWN"),
        ("cuStreamSynchronize:12:700", "the GPU failed with CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuMemcpyHtoDAsync:20:46", "the GPU failed with CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ],
)
def test_a_fault_of_the_driver_ends_in_one_sentence(fault, sentence):
    done = run(FAULTS.replace("FAULT", repr(fault)))
    assert done.stdout.startswith(sentence)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
