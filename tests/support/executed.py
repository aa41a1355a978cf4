"""Where kernels run in tests: on a GPU if there is one, else executed as they were compiled.

A test file of which all tests run there imports the fixture `device`.
"""

from contextlib import contextmanager

import pytest

from cuda_on_cpu import device_array, missing_toolkit
from deepbig_runtime import gpu
from experiments.benchmarks.executor import execute, new_executor

EXECUTORS = {f"{major}.{minor}": new_executor((major, minor)) for major, minor in ((7, 5), (10, 0))}
DEVICES = list(EXECUTORS) if gpu.missing() else ["GPU"]
# Kernels that are the same for all are tested on the first, and in `make test-all` on each.
# Engines launch the same kernels wherever they are.
ENGINE_DEVICES = DEVICES[:1]
KERNEL_DEVICES = [
    *ENGINE_DEVICES,
    *(pytest.param(name, marks=pytest.mark.slow) for name in DEVICES[1:]),
]
# Of tests of what a GPU runs on tensor cores if it can.
on_all_devices = pytest.mark.parametrize("device", DEVICES, indirect=True)
HAS_GPU = DEVICES == ["GPU"]


def places(engines):
    """Parameters (name, device) of tests of engines, whose names say whether they need a GPU."""
    return [
        pytest.param((name, device), marks=[pytest.mark.gpu] if "cuda" in name else [])
        for name in engines
        for device in (ENGINE_DEVICES if "cuda" in name else ["CPU"])
    ]


class Graph(list):
    """Launches that are captured, and launched one after another."""

    def launch(self, stream):
        for one in self:
            one(stream)


def capture(work):
    graph = Graph()
    work(graph)
    return graph


class Event:
    def __init__(self, timing=True):
        pass

    def record(self, stream):
        pass

    def synchronize(self):
        pass


@contextmanager
def on_device(name):
    """Inside, launches run on the GPU, or are executed as compiled for a compute capability.

    name: one of DEVICES. Yields the executor, None for a GPU.
    """
    executor = EXECUTORS.get(name)
    if executor is None:
        yield None
        return
    if reason := missing_toolkit():
        pytest.skip(reason)

    def call(launch, stream):
        if isinstance(stream, Graph):
            stream.append(launch)
        else:
            execute(executor, launch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "missing", lambda n_bytes=0: None)
        patch.setattr(gpu, "compute_capability", lambda: executor.cc)
        patch.setattr(gpu, "device_array", device_array)
        patch.setattr(gpu, "free_bytes", lambda: 1 << 34)
        patch.setattr(gpu, "new_stream", object)
        patch.setattr(gpu, "synchronize", lambda stream: None)
        patch.setattr(gpu, "let_wait", lambda stream, other: None)
        patch.setattr(gpu, "capture", capture)
        patch.setattr(gpu.cuda, "event", Event)
        patch.setattr(gpu.Launch, "__call__", call)
        yield executor


@pytest.fixture(autouse=True, params=KERNEL_DEVICES)
def device(request):
    """Each test of the file runs on each of KERNEL_DEVICES: the executor, None for a GPU."""
    with on_device(request.param) as executor:
        yield executor
