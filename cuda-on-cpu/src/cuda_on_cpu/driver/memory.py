"""The fake driver's memory and launches, as `cuda_on_cpu.run` takes them."""

import functools
import itertools
import math
import os
import re
import sys

from cuda_on_cpu.parse import Instruction, size_of
from cuda_on_cpu.run import MOST_SHARED, Allocation, Program, View

ANY_NUMBER = -1  # of dimensions, where the compiler has not told it
ITEM_SIZES = 1, 2, 4, 8  # of arrays whose items threads write whole
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

    def views(
        self,
        parameters: list[bytes],
        arguments: dict[int, tuple[str, int | None, bool]],
        constants: set[int],
        least: int,
    ) -> list[View]:
        """The memory that a launch may touch: the arrays that its parameters point to.

        For any other pointer, inside a parameter or a constant of the kernel's code, the view is
        the whole allocation. arguments: see `fake_cuda_driver`. least: bytes of the kernel's
        smallest access.
        """
        found: list[View] = []

        def add(place: int, start: int, offset: int, n_bytes: int, itemsize: int) -> None:
            usual = f"array {len(found)}", None, True
            name, _, is_whole = arguments.get(place, usual)
            is_whole = is_whole and itemsize in ITEM_SIZES
            allocation = self._allocation(start, itemsize if is_whole else least)
            found.append(View(allocation, offset, n_bytes, name, itemsize))

        numbers = [int.from_bytes(content, "little", signed=True) for content in parameters]
        for place, content in enumerate(parameters):
            addresses = memoryview(content[: len(content) // 8 * 8]).cast("q")
            for address, start in zip(addresses, map(self._start_of, addresses), strict=True):
                if start is None:
                    continue
                offset = address - start
                n_dimensions = arguments[place][1] if place in arguments else ANY_NUMBER
                first, last, itemsize = _extent(numbers, place, n_dimensions)
                if offset + first >= 0 and offset + last <= self._bytes[start]:
                    add(place, start, offset + first, last - first, itemsize)
                else:
                    add(place, start, 0, self._bytes[start], 0)
        for start in filter(None, map(self._start_of, sorted(constants))):
            add(-1, start, 0, self._bytes[start], 0)
        return found

    def _start_of(self, address: int) -> int | None:
        """The start of the allocation that holds an address; None if there is none."""
        for start, n_bytes in self._bytes.items():
            if start <= address < start + n_bytes:
                return start
        return None

    def _allocation(self, start: int, granule: int) -> Allocation:
        if start not in self._known:
            self._known[start] = Allocation.at(start, self._bytes[start], granule)
            for address, n_bytes in self._writes[start]:
                self.wrote(address, n_bytes)
        self._known[start].refine(granule)
        return self._known[start]


def _extent(numbers: list[int], place: int, n_dimensions: int | None) -> tuple[int, int, int]:
    """The first byte of an array and the one after its last, from its address; its item size.

    numbers: Numba's parameters: owner, parent, number of items, their size, the address at `place`,
    shape, strides. n_dimensions: of the array, or ANY_NUMBER. Of no such array (0, the largest
    number, 0).
    """
    owner, parent, n, itemsize = ([1] * 4 + numbers[:place])[-4:]
    if n_dimensions is None or owner or parent or n < 0 or itemsize <= 0:
        return 0, sys.maxsize, 0
    if n == 0:
        return 0, 0, itemsize
    possible = range((len(numbers) - place + 1) // 2)
    for n_shape in possible if n_dimensions == ANY_NUMBER else [n_dimensions]:
        shape = numbers[place + 1 :][:n_shape]
        strides = numbers[place + 1 + n_shape :][:n_shape]
        # (n, 1) begins as the shape of one dimension does, whose stride would then be 1.
        if math.prod(shape) == n and not any(0 < abs(one) < itemsize for one in strides):
            steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
            return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + itemsize, itemsize
    return 0, n * itemsize, itemsize


memory = Memory()


@functools.cache
def _program(ptx: str) -> Program:
    return Program(ptx)


@functools.cache
def _accesses(ptx: str, name: str) -> tuple[set[int], int]:
    """The integers in a kernel's code, and the bytes of its smallest access to memory."""
    code = [c for c in _program(ptx).module.kernels[name].code if isinstance(c, Instruction)]
    texts = (re.findall(r"[%$\w.]+", " ".join(one.operands)) for one in code)
    numbers = {int(text) for text in itertools.chain(*texts) if text.isdecimal()}
    sizes = [size_of(c.opcode[-1]) for c in code if c.opcode[0] in ("ld", "st", "atom", "red")]
    return numbers, min(sizes, default=1)


def launch(
    ptx: str,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    parameters: list[bytes],
    arguments: dict[int, tuple[str, int | None, bool]],
    shared_bytes: int,
) -> None:
    """Run a kernel on the GPU's memory. arguments: see `fake_cuda_driver`. Raises KernelFault."""
    views = memory.views(parameters, arguments, *_accesses(ptx, name))
    _program(ptx).kernel(name).launch(
        grid,
        block,
        parameters,
        views,
        ORDER,
        next(SEEDS),
        shared_bytes=shared_bytes,
        most_shared=MOST_SHARED,  # the C library has checked it
    )
