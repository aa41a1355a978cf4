"""Execute kernels on this CPU: every thread of every block, from barrier to barrier.

    memory = Allocation.at(array.ctypes.data, array.nbytes, array.itemsize)
    views = [View(memory, 0, array.nbytes, "array")]
    Program(ptx).kernel(name).launch(grid, block, parameters, views)

Threads run one after another, and so do blocks, in an order that the caller may choose: results
must not depend on it. `memory_checks` checks each access.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from cuda_on_cpu import interleaving
from cuda_on_cpu import memory_checks as checks
from cuda_on_cpu.findings import Findings
from cuda_on_cpu.interleaving import DIVERGED
from cuda_on_cpu.machine_code import machine_code
from cuda_on_cpu.parse import Instruction, Variable, parse
from cuda_on_cpu.translate import MOST_THREADS

MAX_TRACE = 1 << 21  # accesses of a block that are recorded
ALIGNMENT = 256  # bytes: of arrays on a GPU
MOST_BLOCKS, MOST_IN_BLOCK = (2**31 - 1, 65_535, 65_535), (1024, 1024, 64)  # in x, y and z
SHARED_BYTES = 48 << 10  # that a kernel may declare for a block
# Bytes of arrays that are copied before a launch, so that one with a race can be run again.
MOST_COPIED = 1 << 16
LONGEST = 16  # bytes of an access


class SameValueWarning(UserWarning):
    """Threads write the same value to the same place, with no barrier between them."""


class KernelFault(Exception):
    """A kernel did something forbidden, or no GPU could launch it.

    A sentence with the fault; for a fault within a kernel also its line and thread.
    """


@dataclass
class Allocation:
    """Memory of the GPU.

    granule: the least bytes that a thread writes, a power of 2. stamps: int64 (n, 2), the last
    writer and the last reader of each granule, see `memory_checks`. time: end of the last launch.
    """

    address: int
    n_bytes: int
    granule: int
    stamps: np.ndarray
    time: int = checks.HOST_TIME

    @staticmethod
    def at(address: int, n_bytes: int, granule: int) -> "Allocation":
        """Memory that nobody has written yet. granule: may be a multiple of it, as of a record."""
        granule &= -granule
        return Allocation(address, n_bytes, granule, _no_stamps(n_bytes, granule))


@dataclass(frozen=True)
class View:
    """A part of an allocation that a launch may access, such as an argument.

    start: bytes after the allocation's. name: of the argument, for messages. itemsize: bytes of an
    element, 0 if unknown.
    """

    allocation: Allocation
    start: int
    n_bytes: int
    name: str
    itemsize: int = 0

    def content(self) -> np.ndarray:
        """Its bytes, uint8; not a copy."""
        address = self.allocation.address + self.start
        memory = {"data": (address, False), "shape": (self.n_bytes,), "typestr": "|u1"}
        return np.asarray(SimpleNamespace(__array_interface__=memory | {"version": 3}))

    def wrote(self) -> None:
        """The host wrote all of it."""
        granule = self.allocation.granule
        end = self.start + self.n_bytes
        written = slice(self.start // granule, -(-end // granule))
        self.allocation.stamps[written, 0] = checks.HOST_TIME << checks.TIME_BIT


@dataclass
class Launched:
    """The record of a launch. executed: how often each instruction ran, 0 for labels.

    If traced, trace: for each of `blocks`, int64 (n, 3): place in the code, thread, address.
    arrays: address and size in bytes of each array in global and shared memory, by name.
    """

    code: list[Instruction | str]
    executed: np.ndarray
    blocks: np.ndarray
    trace: list[np.ndarray]
    arrays: dict[str, tuple[int, int]]


class Program:
    """The kernels of a text of PTX. cache: see `cached_text`. Raises parse.UnknownPtx."""

    def __init__(self, ptx: str, cache: Path | None = None):
        self.ptx, self.cache, self.module = ptx, cache, parse(ptx)
        self.tables = {
            name: np.frombuffer(variable.content or b"", np.uint8).copy()
            for name, variable in self.module.tables.items()
        }
        self._made: dict[str, Executable] = {}

    def kernel(self, name: str) -> "Executable":
        """A kernel, compiled at its first call."""
        if name not in self._made:
            self._made[name] = Executable(self, name)
        return self._made[name]


class Executable:
    """A kernel as machine code of this CPU."""

    def __init__(self, program: Program, name: str):
        self._kernel = program.module.kernels[name]
        self._tables = program.tables
        self._run_blocks, self._owner, self._layout = machine_code(
            program.ptx, program.module, name, program.cache
        )

    def launch(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        parameters: list[bytes],
        views: list[View],
        order: str = "forward",
        seed: int = 0,
        traced: bool = False,
    ) -> Launched:
        """Run a kernel. Modifies the memory that it writes.

        grid, block: blocks, and threads, in x, y and z. parameters: the content of each. views: the
        memory that the kernel may access. order: of threads and blocks, forward, reverse or random,
        by `seed`. traced: whether to record each access, for `access_stats`. Raises KernelFault.
        """
        grid, block = ((*shape, 1, 1)[:3] for shape in (grid, block))
        self._check(grid, block, parameters)
        n_blocks, n_threads = int(np.prod(grid)), int(np.prod(block))
        rng = np.random.default_rng(seed)
        threads, blocks = _ordered(n_threads, order, rng), _ordered(n_blocks, order, rng)
        tables = [content.ctypes.data for content in self._tables.values()]
        numbers = [int.from_bytes(content, "little") for content in parameters]
        shared_words = self._layout.shared_bytes // 8 + 1
        shared = aligned(8 * shared_words)
        stamps = {n: _no_stamps(v.size, _granule(v)) for n, v in self._kernel.shared.items()}
        ranges = self._ranges(views, shared, stamps)
        latest = np.full(len(self._kernel.code), ranges[-1].ctypes.data)
        context = self._context({checks.RANGES: ranges, checks.LATEST: latest}, views)
        executed = np.zeros(self._layout.n_pieces, np.int64)
        arrays = {
            interleaving.THREADS: threads,
            interleaving.STATES: np.zeros(n_threads, np.int64),
            interleaving.GROUPS: np.zeros(n_threads, np.int64),
            interleaving.SPECIAL: np.array([0, 0, 0, *block, 0, 0, 0, *grid], np.int64),
            interleaving.SHARED: shared,
            interleaving.PARAMETERS: np.array(numbers + tables, np.uint64),
            interleaving.FRAMES: np.empty((n_threads, self._layout.frame_bytes), np.uint8),
            interleaving.CONTEXT: context,
            interleaving.EXECUTED: executed,
        }
        launch = _addresses(arrays, interleaving.N_LAUNCH)
        launch[interleaving.N_THREADS] = n_threads
        launch[interleaving.SHARED_WORDS] = shared_words
        launch[interleaving.FRAME_BYTES] = self._layout.frame_bytes
        launch[interleaving.MASK] = self._layout.mask_at
        launch[interleaving.EXCHANGE] = self._layout.exchange_at
        is_small = sum(view.n_bytes for view in views) <= MOST_COPIED
        before = [view.content().copy() for view in views] if is_small else []
        status, traces = self._run(launch, context, blocks, views, traced)
        if status:
            values = dict(zip(self._kernel.parameters, numbers, strict=True))
            for name, offset in self._layout.shared.items():
                values[name] = shared.ctypes.data + offset
            findings = self._findings(grid, block, ranges[:-1], views, values)
            if status == DIVERGED:
                raise KernelFault(findings.wait(context, arrays[interleaving.STATES]))
            sentence = findings.access(context)
            if context[checks.FAULT] in checks.OF_RACES:
                for view, content in zip(views, before, strict=False):
                    view.content()[:] = content
                fault = context.copy()
                _, traces = self._run(launch, context, blocks, views, True, fault)
                sentence += findings.other_access(fault, context, blocks, traces)
            raise KernelFault(sentence)
        if n := context[checks.N_SAME]:
            code = self._kernel.code[context[checks.SAME_PLACE]]
            assert isinstance(code, Instruction)
            warnings.warn(
                f"{self._name} ({code.line}): {code} writes what another thread writes, too, "
                f"with no barrier between them; it was the same value each time ({n:,} times)",
                SameValueWarning,
                stacklevel=2,
            )
        times = np.array([0 if k is None else executed[k] for k in self._layout.pieces])
        places = {v.name: (v.allocation.address + v.start, v.n_bytes) for v in views}
        for name, offset in self._layout.shared.items():
            places[name] = shared.ctypes.data + offset, self._kernel.shared[name].size
        return Launched(self._kernel.code, times, blocks, traces, places)

    def _check(
        self, grid: tuple[int, ...], block: tuple[int, ...], parameters: list[bytes]
    ) -> None:
        """Raise KernelFault for a launch that no GPU could make."""
        sizes = zip((*grid, *block), (*MOST_BLOCKS, *MOST_IN_BLOCK), strict=True)
        n_shared = sum(variable.size for variable in self._kernel.shared.values())
        if not (
            all(1 <= n <= most for n, most in sizes)
            and int(np.prod(block)) <= MOST_THREADS
            and n_shared <= SHARED_BYTES
        ):
            raise KernelFault(
                f"{self._name} cannot be launched as {grid} blocks of {block} threads with "
                f"{n_shared} bytes of shared memory: a GPU takes 1 to {MOST_BLOCKS} blocks and "
                f"1 to {MOST_IN_BLOCK} threads in x, y and z, {MOST_THREADS} threads together, and "
                f"{SHARED_BYTES} bytes"
            )
        expected = [len(content) for content in parameters]
        if expected != list(self._kernel.parameters.values()):
            raise KernelFault(
                f"{self._name} takes parameters of {list(self._kernel.parameters.values())} bytes, "
                f"and was given {expected}"
            )

    def _run(
        self,
        launch: np.ndarray,
        context: np.ndarray,
        blocks: np.ndarray,
        views: list[View],
        traced: bool,
        fault: np.ndarray | None = None,
    ) -> tuple[int, list[np.ndarray]]:
        """Run blocks up to the first fault. Returns the status and, if traced, each one's trace.

        launch: see `interleaving`. fault: a context; only accesses near its fault are traced.
        """
        trace = np.zeros((MAX_TRACE if traced else 1, 3), np.int64)
        context[checks.TRACE] = trace.ctypes.data
        context[checks.TRACE_CAPACITY] = len(trace) if traced else 0
        context[checks.TIME] += 1
        context[checks.LAUNCH_TIME] = context[checks.TIME]
        status, traces = 0, []
        for part in np.split(blocks, len(blocks)) if traced else [blocks]:
            context[checks.TRACE_LENGTH] = 0
            launch[[interleaving.BLOCKS, interleaving.N_BLOCKS]] = part.ctypes.data, len(part)
            status = self._run_blocks(launch.ctypes.data)
            for view in views:
                view.allocation.time = int(context[checks.TIME])
            found = trace[: context[checks.TRACE_LENGTH]]
            if fault is not None:
                found = found[abs(found[:, 2] - fault[checks.FAULT_ADDRESS]) < LONGEST]
            if traced:
                traces.append(found.copy())
            if status:
                break
        return status, traces

    def _context(self, arrays: dict[int, np.ndarray], views: list[View]) -> np.ndarray:
        """The context of a launch with these arrays, by field: see `memory_checks`."""
        context = _addresses(arrays, checks.N_CONTEXT)
        context[checks.N_RANGES] = len(arrays[checks.RANGES]) - 1
        times = (view.allocation.time for view in views)
        context[checks.TIME] = max(times, default=checks.HOST_TIME)
        context[checks.FRAME_BYTES] = self._layout.frame_bytes
        context[checks.FRAME_LOCAL] = self._layout.local_start
        return context

    @property
    def _name(self) -> str:
        return readable_name(self._kernel.name)

    def _ranges(
        self, views: list[View], shared: np.ndarray, stamps: dict[str, np.ndarray]
    ) -> np.ndarray:
        """The table of memory that may be accessed. stamps: of the shared arrays."""
        rows = []
        for view in views:
            one = view.allocation
            begin, first = one.address + view.start, view.start // one.granule
            shift, stamped = one.granule.bit_length() - 1, one.stamps[first:].ctypes.data
            rows.append([begin, begin + view.n_bytes, checks.SPACES["global"], shift, stamped])
        for name, offset in self._layout.shared.items():
            variable, begin = self._kernel.shared[name], shared.ctypes.data + offset
            shift, stamped = _granule(variable).bit_length() - 1, stamps[name].ctypes.data
            rows.append([begin, begin + variable.size, checks.SHARED, shift, stamped])
        for table in self._tables.values():
            for space in ("global", "const"):
                begin = table.ctypes.data
                rows.append([begin, begin + len(table), checks.SPACES[space], 0, 0])
        rows.append([0] * checks.N_RANGE)  # no array
        return np.array(rows, np.int64)

    def _findings(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        ranges: np.ndarray,
        views: list[View],
        values: dict[str, int],
    ) -> Findings:
        arrays = [(view.name, view.itemsize) for view in views]
        in_order = sorted(self._layout.shared, key=lambda name: (len(name), name))
        numbers = (in_order.index(name) + 1 for name in self._layout.shared)
        arrays += [(f"shared array {number}", 0) for number in numbers]
        arrays += [(name, 0) for name in self._tables for _ in range(2)]
        return Findings(self._name, self._kernel.code, grid, block, ranges, arrays, values)


def readable_name(mangled: str) -> str:
    """The function's name in a mangled one, such as update_weights."""
    name, rest = mangled, mangled.removeprefix("_ZN")
    while rest[:1].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        length = int(rest[:digits])
        name, rest = rest[digits : digits + length], rest[digits + length :]
    return name


def _addresses(arrays: dict[int, np.ndarray], n: int) -> np.ndarray:
    """A record of n int64 that has the addresses of arrays in the fields given."""
    record = np.zeros(n, np.int64)
    for field, array in arrays.items():
        record[field] = array.ctypes.data
    return record


def _no_stamps(n_bytes: int, granule: int) -> np.ndarray:
    return np.zeros((-(-n_bytes // granule), 2), np.int64)


def _granule(variable: Variable) -> int:
    """Bytes of a shared array that threads write apart."""
    return min(variable.align, 4)


def _ordered(n: int, order: str, rng: np.random.Generator) -> np.ndarray:
    """The numbers below n, int64, in an order."""
    numbers = np.arange(n)
    if order == "random":
        return rng.permutation(numbers)
    return numbers[::-1].copy() if order == "reverse" else numbers


def aligned(n_bytes: int) -> np.ndarray:
    """New bytes, uint8, at an address that is a multiple of ALIGNMENT."""
    found = np.empty(n_bytes + ALIGNMENT, np.uint8)
    start = -found.ctypes.data % ALIGNMENT
    return found[start : start + n_bytes]
