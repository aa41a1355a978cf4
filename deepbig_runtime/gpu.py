"""Thin wrapper around numba.cuda; besides it only two modules of `cuda_on_cpu` import that."""

import atexit
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numba import cuda
from numba.core import config

from deepbig_runtime import driver
from deepbig_runtime.faults import GpuFault
from deepbig_runtime.jit import Kept, keep

# When numba-cuda first compiles, it overloads np.row_stack. NumPy 2.5 no longer has that:
# https://github.com/NVIDIA/numba-cuda/issues/907
vars(np).setdefault("row_stack", np.vstack)

SIMULATED = bool(config.ENABLE_CUDASIM)
WARP = 32  # threads that are scheduled together

# The decorator of functions that kernels call. LLVM inlines them: with inline="always", Numba
# copies the whole function at each call, which took minutes for the products on tensor cores.
device_function = cuda.jit(device=True, **({} if SIMULATED else {"forceinline": True}))

# Numba's and cuda.core's classes, which have no types that mypy could read.
DeviceArray: TypeAlias = Any  # an array on the GPU
Stream: TypeAlias = Any  # runs its launches in order
Graph: TypeAlias = Any  # launches that were captured

OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
# Classes of numba and cuda.core, in modules that are not for us to import.
DRIVER_ERRORS = ("CudaAPIError", "CudaSupportError", "CUDAError")

# A layer of ten neurons leaves most of a GPU idle, as the paper says too: no warning is needed.
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def missing(n_bytes: int = 0) -> str | None:
    """Why no GPU with n_bytes of free memory can be used, in a sentence; None if one can."""
    if SIMULATED:
        return "numba only simulates a GPU, because NUMBA_ENABLE_CUDASIM is set; unset it"
    if driver.is_missing():  # without which no package helps
        return driver.MISSING
    if getattr(cuda, "implementation", None) != "NVIDIA":
        return "the package numba-cuda is not installed: pip install 'numba-cuda[cu12]'"
    try:
        known = cuda.cudadrv.driver.get_version()
        needed = int(metadata.version("cuda-bindings").split(".")[0])
        if known[0] < needed:
            return (
                f"the NVIDIA driver is too old: it knows CUDA {known[0]}.{known[1]} and the "
                f"installed packages need CUDA {needed}; update the driver, or if another package "
                "brought newer ones, run make clean setup"
            )
        free = free_bytes()
        found = cuda.get_current_device().compute_capability
        lowest = cuda.cudadrv.nvrtc.get_lowest_supported_cc()
        if found < lowest:
            return (
                "the GPU is too old: its compute capability is {}.{} and the installed packages "
                "need {}.{}".format(*found, *lowest)
            )
    except Exception as error:  # of numba, cuda.core or cuda.bindings
        return _explain(" ".join(str(error).split()))
    return missing_library() or (_too_little(n_bytes, free) if free < n_bytes else None)


def missing_library() -> str | None:
    """Which of CUDA's libraries that compile kernels is missing, in a sentence; None if none is."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    for library in ("nvvm", "nvJitLink"):
        try:
            load_nvidia_dynamic_lib(library)
        except DynamicLibNotFoundError:
            return (
                f"CUDA's library {library} cannot be found: pip install 'numba-cuda[cu12]' "
                "brings it, or set CUDA_HOME to the folder of a CUDA toolkit"
            )
    return None


def _suppress_repeated_driver_errors(unraisable: "sys.UnraisableHookArgs") -> None:
    """A GPU that failed frees nothing. Its error is reported once, by the call that failed."""
    if getattr(unraisable.exc_type, "__name__", "") not in DRIVER_ERRORS:
        _earlier_hook(unraisable)


@cache
def _keep_silent_at_exit() -> None:
    """Print nothing of the arrays that cannot be freed when this process ends."""

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if kind.__name__ not in DRIVER_ERRORS:
            earlier(kind, error, trace)

    earlier = sys.excepthook
    # Runs before the function that frees them, which was registered with the first array.
    atexit.register(setattr, sys, "excepthook", tell)


_earlier_hook, sys.unraisablehook = sys.unraisablehook, _suppress_repeated_driver_errors


@contextmanager
def faults() -> Iterator[None]:
    """Inside, or in a function that this decorates, errors of the driver are raised as GpuFault."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in DRIVER_ERRORS:
            raise
        with suppress(Exception):  # arrays of the host that are being copied go when we raise
            cuda.synchronize()
        code = re.search(r"CUDA_ERROR_\w+", str(error))
        if code is None or code[0] == "CUDA_ERROR_OUT_OF_MEMORY":
            raise GpuFault(_explain(" ".join(str(error).split()))) from None
        _keep_silent_at_exit()
        raise GpuFault(
            f"the GPU failed with {code[0]}, and this process can no longer use it; see what "
            "nvidia-smi says, and start again"
        ) from None


def _explain(message: str) -> str:
    """The meaning of an error at the start of the driver, in a sentence."""
    if "driver library cannot be found" in message:
        return driver.MISSING
    if "NO_DEVICE" in message:
        return (
            "the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE); see what nvidia-smi and "
            "CUDA_VISIBLE_DEVICES say"
        )
    if "DEVICE_UNAVAILABLE" in message:
        return (
            "the GPU is taken: it is in exclusive-process mode, and another process has it "
            "(CUDA_ERROR_DEVICE_UNAVAILABLE); end that process, or let nvidia-smi -c DEFAULT share "
            "the GPU"
        )
    if "OUT_OF_MEMORY" in message:
        return "the GPU has no memory free; end what else runs on it"
    return f"no GPU can be used: {message}; see what nvidia-smi says"


def _too_little(n_bytes: int, free: int) -> str:
    return (
        f"the GPU has too little free memory: {n_bytes / 1e6:,.0f} MB are needed and "
        f"{free / 1e6:,.0f} MB are free; end what else runs on it"
    )


@faults()
def count() -> int:
    """How many GPUs the driver finds. At least one must be usable."""
    return len(cuda.gpus)


@faults()
def select(number: int) -> None:
    """Make this process' main thread compute on the GPU of that number, from 0."""
    cuda.select_device(number)


def release() -> None:
    """Give the GPU back for good, to processes that this one starts.

    In exclusive-process mode only one process can use a GPU. cuda.core keeps the context that it
    was given, so this process cannot take the GPU again. If closing fails, those processes say so.
    """
    if cuda.cudadrv.driver.driver.list_devices():
        with suppress(GpuFault), faults():
            cuda.close()


@faults()
def name() -> str:
    """The name of the GPU, as its maker writes it."""
    found = cuda.get_current_device().name
    return found.decode() if isinstance(found, bytes) else found


@faults()
def compute_capability() -> tuple[int, int]:
    return cuda.get_current_device().compute_capability


@faults()
def driver_version() -> str:
    """The versions of the driver, if nvidia-smi prints it, and of the CUDA that it supports."""
    cuda_version = "CUDA {}.{}".format(*cuda.cudadrv.driver.get_version())
    if not shutil.which("nvidia-smi"):
        return cuda_version
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return cuda_version
    return ", ".join([*said.stdout.split()[:1], cuda_version])


def device_array(shape: tuple[int, ...], dtype: type | np.dtype) -> DeviceArray:
    """New memory on the GPU, its content undefined. Raises GpuFault if there is too little."""
    try:
        return cuda.device_array(shape, dtype)
    except cuda.cudadrv.driver.CudaAPIError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raise GpuFault(_too_little(needed, free_bytes())) from None


def free_bytes() -> int:
    """Memory on the GPU that no program has."""
    return cuda.current_context().get_memory_info().free


def fill(pairs: Iterable[tuple[DeviceArray, np.ndarray]], stream: Stream) -> None:
    """Copy host arrays into arrays on the GPU. On return the host arrays may be freed.

    The driver may read a host array until the stream is synchronized. Of one that is not contiguous
    numba would make a copy and drop it at once, so the copy is made and held here.
    """
    pairs = [(array, np.ascontiguousarray(host)) for array, host in pairs]
    for array, host in pairs:
        array.copy_to_device(host, stream=stream)
    synchronize(stream)


def read(arrays: Iterable[DeviceArray], stream: Stream) -> list[np.ndarray]:
    """Copies on the host of arrays on the GPU, complete on return."""
    pairs = [(array, np.empty(array.shape, array.dtype)) for array in arrays]
    for array, host in pairs:
        array.copy_to_host(host, stream=stream)
    synchronize(stream)
    return [host for _, host in pairs]


def on_gpu(array: np.ndarray | DeviceArray) -> bool:
    """Whether an array is on the GPU, and not on the host."""
    return hasattr(array, "copy_to_host")


def array_key(array: DeviceArray) -> tuple:
    """Address and shape of an array on the GPU: a captured launch depends on both."""
    return array.__cuda_array_interface__["data"][0], array.shape


def new_stream() -> Stream:
    """A stream, which runs its launches in order."""
    from cuda.core import Device

    cuda.current_context()
    device = Device()
    device.set_current()
    return device.create_stream()


def synchronize(stream: Stream) -> None:
    """Wait until everything launched on the stream is done."""
    stream.sync()


def let_wait(stream: Stream, other: Stream) -> None:
    """Later launches on the stream wait for all earlier launches on the other."""
    stream.wait(other)


_kept: set[Any] = set()  # kernels whose compiled code was looked for, and is kept
_first_launch = threading.Lock()  # two threads would compile the same kernel


@cache
def _kept_kernel() -> type[Kept]:
    """The cache of a kernel's compiled code, for each compute capability and version of CUDA."""
    from numba.cuda.dispatcher import CUDACache  # which the simulator lacks

    class KeptKernel(Kept, CUDACache):
        pass

    return KeptKernel


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid (blocks in x, y, z), threads per block (in x, y), and arguments."""

    kernel: Any
    grid: tuple[int, ...]
    threads: int | tuple[int, int]
    arguments: tuple

    def __call__(self, stream: Stream) -> None:
        if self.kernel in _kept:
            self._launch(stream)
            return
        with _first_launch:
            if self.kernel not in _kept:
                keep(self.kernel, _kept_kernel(), self.kernel.py_func)
            self._launch(stream)
            _kept.add(self.kernel)

    def _launch(self, stream: Stream) -> None:
        self.kernel[self.grid, self.threads, stream](*self.arguments)


def play(launches: list[Launch], stream: Stream) -> None:
    """Launch one after another."""
    for launch in launches:
        launch(stream)


def capture(work: Callable[[Stream], None]) -> Graph:
    """A CUDA graph of the launches that `work` makes on its stream; nothing runs yet.

    graph.launch(stream) runs it, with the same arguments each time.
    """
    from cuda.core import Device

    builder = Device().create_graph_builder()
    builder.begin_building()
    work(builder)
    return builder.end_building().complete()
