"""The fake driver's memory and launches, as `cuda_on_cpu.run` takes them."""

import functools
import itertools
import os
from pathlib import Path

from cuda_on_cpu.run import Allocation, Program, View

POINTER_BYTES = 8
ORDER, SEEDS = "random", itertools.count(int(os.environ.get("CUDA_ON_CPU_SEED", "0")))


class Memory:
    """The GPU's allocations, and which parts of them were written.

    The driver does not know the item size of an array. The first launch on the array tells.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}  # by address
        self._writes: dict[int, list[tuple[int, int]]] = {}  # by the host, before the first launch
        self._known: dict[int, Allocation] = {}

    def add(self, address: int, n_bytes: int) -> None:
        self._bytes[address] = n_bytes
        self._writes[address] = []

    def remove(self, address: int) -> None:
        del self._bytes[address], self._writes[address]
        self._known.pop(address, None)

    def wrote(self, address: int, n_bytes: int) -> None:
        """The host wrote there."""
        start = self._start_of(address)
        assert start is not None  # the C library has checked it
        if start in self._known:
            View(self._known[start], address - start, n_bytes, "").wrote()
        else:
            self._writes[start].append((address, n_bytes))

    def views(self, parameters: list[bytes], names: dict[int, str]) -> list[View]:
        """The memory that a launch may touch: the arrays that its parameters point to.

        Numba passes the number of an array's items and their size before its address. names: of
        arrays, by the number of the parameter that has the address.
        """
        numbers = [int.from_bytes(content, "little") for content in parameters]
        found: list[View] = []
        for place, (address, content) in enumerate(zip(numbers, parameters, strict=True)):
            start = self._start_of(address) if len(content) == POINTER_BYTES else None
            if start is None:
                continue
            n, itemsize = numbers[place - 2 : place]
            offset = address - start
            if not 0 < n * itemsize <= self._bytes[start] - offset:
                raise ValueError(f"parameter {place} is an address, but not of an array of Numba's")
            allocation = self._allocation(start, itemsize)
            name = names.get(place, f"array {len(found)}")
            found.append(View(allocation, offset, n * itemsize, name, itemsize))
        return found

    def _start_of(self, address: int) -> int | None:
        """The start of the allocation that holds an address; None if there is none."""
        for start, n_bytes in self._bytes.items():
            if start <= address < start + n_bytes:
                return start
        return None

    def _allocation(self, start: int, itemsize: int) -> Allocation:
        if start not in self._known:
            self._known[start] = Allocation.at(start, self._bytes[start], itemsize)
            for address, n_bytes in self._writes[start]:
                self.wrote(address, n_bytes)
        return self._known[start]


memory = Memory()


@functools.cache
def _program(ptx: str) -> Program:
    cache = os.environ.get("CUDA_ON_CPU_CACHE")
    return Program(ptx, Path(cache) if cache else None)


def launch(
    ptx: str,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    parameters: list[bytes],
    names: dict[int, str],
) -> None:
    """Run a kernel on the GPU's memory. names: see `Memory.views`. Raises KernelFault."""
    views = memory.views(parameters, names)
    _program(ptx).kernel(name).launch(grid, block, parameters, views, ORDER, next(SEEDS))
