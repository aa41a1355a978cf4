"""Arrays and launches as in `deepbig_runtime.gpu`, on a CPU that executes compiled kernels."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core import sigutils, types

from cnn_gpu import kernels as cnn_kernels
from deepbig_runtime import gpu
from deform_gpu import kernels as deform_kernels
from experiments.ptx.kept import kept_text
from experiments.ptx.run import Allocation, Launched, Program, View, aligned
from mlp_gpu import kernels as mlp_kernels
from mlp_gpu import window
from mlp_gpu.ladder import rungs

SIGNATURES = {
    **mlp_kernels.SIGNATURES,
    **window.SIGNATURES,
    **deform_kernels.SIGNATURES,
    **cnn_kernels.SIGNATURES,
    **rungs.SIGNATURES,
}


class DeviceArray:
    """An array that stands for one on a GPU, or a contiguous part of one.

    content: what it holds. allocation: the memory that it is part of.
    """

    def __init__(self, content: np.ndarray, allocation: Allocation):
        if not content.flags.c_contiguous:
            raise ValueError("a part of an array on the GPU must be contiguous here")
        self.content, self.allocation = content, allocation
        self.shape, self.dtype, self.ndim = content.shape, content.dtype, content.ndim
        self.size, self.nbytes = content.size, content.nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.content.ctypes.data, False)}  # as much of it as is asked for here

    def __len__(self) -> int:
        return len(self.content)

    def __getitem__(self, part: Any) -> "DeviceArray":
        return DeviceArray(self.content[part], self.allocation)

    def reshape(self, *shape: Any) -> "DeviceArray":
        return DeviceArray(self.content.reshape(*shape), self.allocation)

    def view(self, name: str = "") -> View:
        """The memory of this array."""
        start = self.content.ctypes.data - self.allocation.address
        return View(self.allocation, start, self.nbytes, name)

    def copy_to_device(self, host: "np.ndarray | DeviceArray", stream: Any = None) -> None:
        if isinstance(host, DeviceArray):
            host = host.content
        self.content[...] = host.reshape(self.shape)
        self.view().wrote()

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = None) -> np.ndarray:
        if ary is None:
            return self.content.copy()
        ary[...] = self.content
        return ary


def device_array(shape: tuple[int, ...] | int, dtype: Any) -> DeviceArray:
    """A new array that nobody has written yet. Its bytes are 0xFF."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    content = aligned(n_bytes)
    content[:] = 0xFF
    content = content.view(dtype).reshape(shape)
    return DeviceArray(
        content, Allocation.at(content.ctypes.data, content.nbytes, content.itemsize)
    )


@dataclass
class Executor:
    """Executes launches as compiled for a compute capability, in an order that changes each time.

    order: of threads and blocks, as run.Program.launch has it. seed: of the next random order.
    traced: whether each access is recorded. signatures: of the kernels, as their files give them.
    """

    cc: tuple[int, int]
    order: str = "random"
    seed: int = 0
    traced: bool = False
    signatures: dict[Any, str] = field(default_factory=lambda: SIGNATURES)
    _programs: dict[Any, tuple[Program, tuple]] = field(default_factory=dict)

    def execute(self, launch: gpu.Launch) -> Launched:
        """Run a launch. Modifies what its kernel writes. Raises run.KernelFault."""
        program, kinds = self.program(launch.kernel)
        names = launch.kernel.py_func.__code__.co_varnames
        parameters: list[bytes] = []
        views = []
        names = names[: len(kinds)]
        for name, value, kind in zip(names, launch.arguments, kinds, strict=True):
            if isinstance(kind, types.Array):
                if (str(value.dtype), value.ndim) != (str(kind.dtype), kind.ndim):
                    raise TypeError(f"{name} is {value.dtype}, {value.ndim}-d: expected {kind}")
                views.append(value.view(name))
                parameters += _array_parameters(value.content)
            else:
                parameters.append(np.array(value, str(kind)).tobytes())
        block = launch.threads if isinstance(launch.threads, tuple) else (launch.threads,)
        (kernel_name,) = program.module.kernels
        self.seed += 1
        return program.launch(
            kernel_name, launch.grid, block, parameters, views, self.order, self.seed, self.traced
        )

    def program(self, kernel: Any) -> tuple[Program, tuple]:
        """The program of a kernel, and Numba's types of its arguments."""
        if kernel not in self._programs:
            signature = self.signatures[kernel]
            kinds = sigutils.normalize_signature(signature)[0]
            ptx = compile_ptx(kernel, signature, self.cc, lineinfo=True)
            self._programs[kernel] = Program(ptx), kinds
        return self._programs[kernel]


def compile_ptx(kernel: Any, signature: str, cc: tuple[int, int], lineinfo: bool = False) -> str:
    """The PTX of a kernel; kept if it is one of this project's, as their files give them.

    lineinfo: whether it names the lines of the source.
    """
    function = kernel.py_func

    def compile_now() -> str:
        return gpu.cuda.compile_ptx(function, signature, cc=cc, lineinfo=lineinfo)[0]

    if SIGNATURES.get(kernel) != signature:
        return compile_now()
    where = f"{function.__module__} {function.__code__.co_filename}"  # PTX names the file
    return kept_text(function.__name__, f"{where} {signature} {cc} {lineinfo}", compile_now)


def _array_parameters(array: np.ndarray) -> list[bytes]:
    """What Numba passes for an array: owner and parent, sizes, address, shape and strides."""
    numbers = (0, 0, array.size, array.itemsize, array.ctypes.data, *array.shape, *array.strides)
    return [np.int64(number).tobytes() for number in numbers]
