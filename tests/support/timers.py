"""Timers of work on a GPU, also where there is none and kernels are executed."""

from contextlib import contextmanager

import pytest
from executed import HAS_GPU, on_device

from deepbig_runtime import gpu
from experiments.benchmarks import gpu as gpu_timing


class LaunchOnce:
    """A timer for what is executed without a GPU, whose time says nothing: it only launches."""

    def __init__(self):
        self.stream = gpu.new_stream()

    def wake(self):
        pass

    def __call__(self, enqueue, state):
        enqueue(self.stream)
        return 1.0


def copy_bytes(target, source, n_bytes, stream):
    target[:n_bytes].copy_to_device(source[:n_bytes])


@contextmanager
def new_timer(device):
    """A timer inside `on_device`; copies on the GPU are made by the host where there is none."""
    with on_device(device) as executor, pytest.MonkeyPatch.context() as patch:
        if executor:
            known = executor.signatures | {gpu_timing.empty_kernel: "void()"}
            patch.setattr(executor, "signatures", known)
            patch.setattr(gpu.cuda.cudadrv.driver, "device_to_device", copy_bytes)
        yield gpu_timing.Timer() if HAS_GPU else LaunchOnce()
