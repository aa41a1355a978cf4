"""Arrays of a GPU that is not there, and launches of Numba's kernels on them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import sigutils, types
from numba.np.numpy_support import as_dtype

from cuda_on_cpu.compile import compile_ptx, is_mlir
from cuda_on_cpu.run import Allocation, Launched, Program, View, aligned

Shape = int | tuple[int, ...]


class DeviceArray:
    """An array on the GPU, or a contiguous part of one.

    content: its elements, on the host. allocation: the memory that it is part of.
    """

    def __init__(self, content: np.ndarray, allocation: Allocation):
        if not content.flags.c_contiguous:
            raise ValueError("a part of an array on the GPU must be contiguous here")
        self.content, self.allocation = content, allocation
        self.shape, self.dtype, self.ndim = content.shape, content.dtype, content.ndim
        self.size, self.nbytes = content.size, content.nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.content.ctypes.data, False)}  # the only field that callers here read

    def __len__(self) -> int:
        return len(self.content)

    def __getitem__(self, part: Any) -> "DeviceArray":
        return DeviceArray(self.content[part], self.allocation)

    def reshape(self, *shape: Any) -> "DeviceArray":
        return DeviceArray(self.content.reshape(*shape), self.allocation)

    def view(self, name: str = "") -> View:
        """The memory of this array."""
        start = self.content.ctypes.data - self.allocation.address
        return View(self.allocation, start, self.nbytes, name, self.dtype.itemsize)

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


def device_array(shape: Shape, dtype: Any) -> DeviceArray:
    """A new array, uninitialised: a kernel that reads it before it is written is at fault.

    Its bytes are 0xFF.
    """
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    content = aligned(n_bytes)
    content[:] = 0xFF
    content = content.view(dtype).reshape(shape)
    granule = 1 if content.dtype.names else content.itemsize  # two threads may write two fields
    return DeviceArray(content, Allocation.at(content.ctypes.data, content.nbytes, granule))


def to_device(array: np.ndarray) -> DeviceArray:
    """A copy of an array of the host."""
    copy = device_array(array.shape, array.dtype)
    copy.copy_to_device(array)
    return copy


@dataclass
class Executor:
    """Launches kernels as compiled for a compute capability, cc, and checks each access to memory.

    order: of threads and thread blocks, "forward", "reverse" or "random", which differs in each
    launch. seed: of the next random order. traced: whether launches record each access.
    signatures: Numba's, of kernels whose arguments' types do not tell. cache: see `compile_ptx`.
    """

    cc: tuple[int, int]
    order: str = "random"
    seed: int = 0
    traced: bool = False
    signatures: Mapping[Any, str] = field(default_factory=dict)
    cache: Path | None = None
    _programs: dict[Any, Program] = field(default_factory=dict)

    def launch(
        self, kernel: Any, grid: Shape, block: Shape, arguments: tuple, shared_bytes: int = 0
    ) -> Launched:
        """Run a kernel made by cuda.jit of either compiler. Modifies the arrays that it writes.

        grid, block: numbers of blocks and of threads, in x, y and z. arguments: numbers, arrays on
        the GPU, and arrays of the host, which are copied there and back, as Numba does.
        shared_bytes: of dynamic shared memory.
        Raises KernelFault, UnknownPtx, and TypeError if an argument is not of its type.
        """
        copies = {id(a): (a, to_device(a)) for a in arguments if isinstance(a, np.ndarray)}
        arguments = tuple(copies[id(a)][1] if id(a) in copies else a for a in arguments)
        signature = self.signatures.get(kernel) or tuple(map(_type_of, arguments))
        kinds = _argument_types(signature)
        names = kernel.py_func.__code__.co_varnames[: len(kinds)]
        parameters: list[bytes] = []
        views = []
        for name, value, kind in zip(names, arguments, kinds, strict=True):
            if isinstance(kind, types.Array):
                if (value.dtype, value.ndim) != (as_dtype(kind.dtype), kind.ndim):
                    raise TypeError(f"{name} is {value.dtype}, {value.ndim}-d: expected {kind}")
                if kind.layout == "F" and kind.ndim > 1:
                    raise TypeError(f"{name} is in C order: expected {kind}")
                views.append(value.view(name))
                parameters += _array_parameters(value.content, is_mlir(kernel))
            else:
                parameters.append(np.array(value, str(kind)).tobytes())
        program = self._program(kernel, signature)
        (kernel_name,) = program.module.kernels
        self.seed += 1
        launched = program.kernel(kernel_name).launch(
            _as_tuple(grid),
            _as_tuple(block),
            parameters,
            views,
            self.order,
            self.seed,
            self.traced,
            shared_bytes,
        )
        for host, copy in copies.values():
            if host.flags.writeable:
                copy.copy_to_host(host)
        return launched

    def _program(self, kernel: Any, signature: str | tuple) -> Program:
        if (kernel, signature) not in self._programs:
            ptx = compile_ptx(kernel, signature, self.cc, self.cache)
            self._programs[kernel, signature] = Program(ptx, self.cache)
        return self._programs[kernel, signature]


@functools.cache  # Numba evaluates it as Python, at each launch
def _argument_types(signature: str | tuple) -> tuple[types.Type, ...]:
    return sigutils.normalize_signature(signature)[0]


def _type_of(argument: Any) -> types.Type:
    """Numba's type of an argument."""
    return numba.typeof(argument.content if isinstance(argument, DeviceArray) else argument)


def _as_tuple(shape: Shape) -> tuple[int, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def _array_parameters(array: np.ndarray, for_mlir: bool) -> list[bytes]:
    """A kernel's parameters for an array, which end with its shape and strides.

    numba-cuda: owner, parent, sizes, address. MLIR: address twice, offset; strides in elements.
    """
    address, unit = array.ctypes.data, array.itemsize if for_mlir else 1
    start = (address, address, 0) if for_mlir else (0, 0, array.size, array.itemsize, address)
    numbers = (*start, *array.shape, *(stride // unit for stride in array.strides))
    return [np.int64(number).tobytes() for number in numbers]
