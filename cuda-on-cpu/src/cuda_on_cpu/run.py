"""Execute kernels on this CPU: every thread of every block, from barrier to barrier.

    memory = Allocation.at(array.ctypes.data, array.nbytes, array.itemsize)
    views = [View(memory, 0, array.nbytes, "array")]
    Program(ptx).kernel(name).launch(grid, block, parameters, views)

Threads run one after another, and so do blocks, in an order that the caller may choose: results
must not depend on it. `memory_checks` checks each access.
"""

import ctypes
import gc
import math
import os
import re
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cuda_on_cpu import interleaving
from cuda_on_cpu import memory_checks as checks
from cuda_on_cpu.cache import named_cache
from cuda_on_cpu.findings import Findings
from cuda_on_cpu.interleaving import DIVERGED
from cuda_on_cpu.machine_code import machine_code
from cuda_on_cpu.parse import Instruction, Variable, parse
from cuda_on_cpu.translate import ALIGNMENT, FINISHED, MOST_THREADS

MAX_TRACE = 1 << 21  # accesses of a block that are recorded
MOST_BLOCKS, MOST_IN_BLOCK = (2**31 - 1, 65_535, 65_535), (1024, 1024, 64)  # in x, y and z
SHARED_BYTES = 48 << 10  # that a block may have unless the program asks for more
MOST_SHARED = 227 << 10  # for which it may ask
# Bytes of arrays that are copied before a launch, so that one with a race can be run again.
MOST_COPIED = 1 << 16
LONGEST = 16  # bytes of an access
# Of this process; pytest-xdist's processes share them.
N_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
N_CORES = max(1, N_CORES // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
# The fewest steps, pieces of code without branches, of a launch whose blocks run on several cores,
# in all and for each pair of stamps that is copied: shorter launches are faster in turn.
LEAST_STEPS, STEPS_PER_COPY = 1 << 17, 8
# Arguments: the addresses of the format string and of its values.
PRINTER = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_launching = threading.Lock()  # kernels that share memory never run at once


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
        """Uninitialised memory. granule: item size; its largest power-of-two divisor is used."""
        granule &= -granule
        return Allocation(address, n_bytes, granule, _no_stamps(n_bytes, granule))

    def refine(self, granule: int) -> None:
        """Make the granule smaller, if this one is."""
        if granule < self.granule:
            stamps = np.repeat(self.stamps, self.granule // granule, axis=0)
            self.granule, self.stamps = granule, stamps[: -(-self.n_bytes // granule)]


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


@dataclass(frozen=True)
class _Core:
    """What blocks that run one after another have to themselves.

    launch, arrays: see `interleaving`. context: see `memory_checks`. ranges: see there, and for
    each instruction the one that it accessed last. stamps: of shared arrays. shared: address and
    bytes of each. views: the memory that the launch may access.
    """

    launch: np.ndarray
    arrays: dict[int, np.ndarray]
    context: np.ndarray
    ranges: tuple[np.ndarray, np.ndarray]
    stamps: list[np.ndarray]
    shared: dict[str, tuple[int, int]]
    views: list[View]

    def memory(self) -> list[np.ndarray]:
        """The states of a block's threads, and all that a block keeps while it waits."""
        arrays = (interleaving.STATES, interleaving.FRAMES, interleaving.SHARED)
        return [*map(self.arrays.__getitem__, arrays), *self.stamps]


class Program:
    """The kernels of a text of PTX. cache: see `cached_text`; without one, CUDA_ON_CPU_CACHE.

    Raises parse.UnknownPtx.
    """

    def __init__(self, ptx: str, cache: Path | None = None):
        self.ptx, self.cache, self.module = ptx, cache or named_cache(), parse(ptx)
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
        code = [c for c in self._kernel.code if isinstance(c, Instruction)]
        self._waits_for_grid = any(c.opcode == ("bar", "grid") for c in code)
        self._depends_on_order = any(
            {"grid", "print", "volatile"} & {*c.opcode}
            or (c.opcode[0] in ("atom", "red") and "shared" not in c.opcode)
            for c in code
        )
        self._steps_per_thread = 0.0  # of the launch before
        self._run_blocks, self._owner, self._layout = machine_code(
            program.ptx, program.module, name, program.cache
        )
        # Of each instruction the piece of code that counts how often it ran; of labels one more.
        self._pieces = np.array([-1 if k is None else k for k in self._layout.pieces])

    def launch(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        parameters: list[bytes],
        views: list[View],
        order: str = "forward",
        seed: int = 0,
        traced: bool = False,
        shared_bytes: int = 0,
        most_shared: int = SHARED_BYTES,
    ) -> Launched:
        """Run a kernel. Modifies the memory that it writes.

        grid, block: blocks, and threads, in x, y and z. parameters: the content of each. views: the
        memory that the kernel may access. order: of threads and blocks, forward, reverse or random,
        by `seed`. traced: whether to record each access, for `access_stats`. shared_bytes: of
        dynamic shared memory. most_shared: bytes that a block may have. Raises KernelFault.
        """
        grid, block = ((*shape, 1, 1)[:3] for shape in (grid, block))
        self._check(grid, block, parameters, shared_bytes, most_shared)
        n_blocks, n_threads = math.prod(grid), math.prod(block)
        rng = np.random.default_rng(seed)
        threads, blocks = _ordered(n_threads, order, rng), _ordered(n_blocks, order, rng)
        make = partial(self._core, grid, block, parameters, shared_bytes, threads)
        with _launching:
            cores: list[_Core] = []
            ran, traces = blocks, list[np.ndarray]()
            if not (traced or self._depends_on_order):
                n_steps = self._steps_per_thread * n_blocks * n_threads
                cores = self._run_at_once(make, blocks, views, n_steps)
            if not cores:
                cores = [make(views)]
                findings = partial(self._findings, grid, block, parameters, cores[0])
                ran, traces = self._run_in_turn(cores[0], blocks, traced, findings)
        contexts = [core.context for core in cores]
        if n := sum(int(context[checks.N_SAME]) for context in contexts):
            code = self._kernel.code[max(context[checks.SAME_PLACE] for context in contexts)]
            assert isinstance(code, Instruction)
            warnings.warn(
                f"{self._name} ({code.line}): {code} writes what another thread writes, too, "
                f"with no barrier between them; it was the same value each time ({n:,} times)",
                SameValueWarning,
                stacklevel=2,
            )
        executed = np.sum([core.arrays[interleaving.EXECUTED] for core in cores], axis=0)
        self._steps_per_thread = executed.sum() / (n_blocks * n_threads)
        places = {v.name: (v.allocation.address + v.start, v.n_bytes) for v in views}
        places |= cores[0].shared
        return Launched(self._kernel.code, executed[self._pieces], ran, traces, places)

    def _core(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        parameters: list[bytes],
        shared_bytes: int,
        threads: np.ndarray,
        views: list[View],
    ) -> _Core:
        """What a core needs to run blocks. threads: of a block, in their order."""
        tables = [content.ctypes.data for content in self._tables.values()]
        words = [content.ljust(-(-len(content) // 8) * 8, b"\0") for content in parameters]
        words += [np.int64(address).tobytes() for address in tables]
        shared_words = (self._layout.shared_bytes + shared_bytes) // 8 + 1
        shared, variables = aligned(8 * shared_words), self._shared(shared_bytes)
        stamps = {n: _no_stamps(v.size, _granule(v)) for n, v in variables.items()}
        ranges = self._ranges(views, shared, variables, stamps)
        latest = np.full(len(self._kernel.code), ranges[-1].ctypes.data)
        context = self._context({checks.RANGES: ranges, checks.LATEST: latest}, views)
        special = [0, 0, 0, *block, 0, 0, 0, *grid, shared_bytes]
        arrays = {
            interleaving.THREADS: threads,
            interleaving.STATES: np.zeros(len(threads), np.int64),
            interleaving.GROUPS: np.zeros(len(threads), np.int64),
            interleaving.SPECIAL: np.array(special, np.int64),
            interleaving.SHARED: shared,
            interleaving.PARAMETERS: np.frombuffer(b"".join(words) + bytes(1), np.uint8),
            interleaving.FRAMES: np.empty((len(threads), self._layout.frame_bytes), np.uint8),
            interleaving.CONTEXT: context,
            interleaving.EXECUTED: np.zeros(self._layout.n_pieces + 1, np.int64),
        }
        launch = _addresses(arrays, interleaving.N_LAUNCH)
        launch[interleaving.N_THREADS] = len(threads)
        launch[interleaving.SHARED_WORDS] = shared_words
        launch[interleaving.FRAME_BYTES] = self._layout.frame_bytes
        launch[interleaving.MASK] = self._layout.mask_at
        launch[interleaving.EXCHANGE] = self._layout.exchange_at
        places = {
            name: (shared.ctypes.data + offset, variables[name].size)
            for name, offset in self._layout.shared.items()
        }
        own = [*stamps.values()]
        return _Core(launch, arrays, context, (ranges, latest), own, places, views)

    def _run_at_once(
        self,
        make: Callable[[list[View]], _Core],
        blocks: np.ndarray,
        views: list[View],
        n_steps: float,
    ) -> list[_Core]:
        """Run blocks on several cores, each with its own stamps. Returns the cores.

        n_steps: that all threads are expected to make. Returns none if that is not worth it. Also,
        with memory as before, if a core found a fault, or one wrote what another accessed: the
        result must not depend on which block is faster.
        """
        allocations = {id(view.allocation): view.allocation for view in views}
        n_cores = min(N_CORES, len(blocks))
        n_copied = n_cores * sum(len(one.stamps) for one in allocations.values())
        if n_cores == 1 or n_steps < max(LEAST_STEPS, STEPS_PER_COPY * n_copied):
            return []
        before = [view.content().copy() for view in views]
        cores = []
        for _ in range(n_cores):
            own = {key: replace(a, stamps=a.stamps.copy()) for key, a in allocations.items()}
            cores.append(make([replace(v, allocation=own[id(v.allocation)]) for v in views]))
        parts = np.array_split(blocks, n_cores)
        failed = True  # when Python ends, it makes no threads
        with (
            suppress(RuntimeError),
            _no_garbage_collection(),
            ThreadPoolExecutor(n_cores) as pool,
        ):
            ran = pool.map(self._run, cores, parts, [False] * n_cores)
            failed = any(status for status, _, _ in ran)
        start = cores[0].context[checks.LAUNCH_TIME]
        stamps = [
            np.stack([core.views[k].allocation.stamps for core in cores]) for k in range(len(views))
        ]
        if failed or any(_conflict(of_cores, start) for of_cores in stamps):
            for view, content in zip(views, before, strict=True):
                view.content()[:] = content
            self._depends_on_order = True  # so that later launches do not try it
            return []
        for view, of_cores in zip(views, stamps, strict=True):
            view.allocation.stamps[...] = of_cores.max(axis=0)
            view.allocation.time = max(int(core.context[checks.TIME]) for core in cores)
        return cores

    def _run_in_turn(
        self,
        core: _Core,
        blocks: np.ndarray,
        traced: bool,
        make_findings: Callable[[], Findings],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Run blocks one after another. Returns them and, if traced, their traces.

        Raises KernelFault, with a sentence of the findings.
        """
        views, context = core.views, core.context
        is_small = sum(view.n_bytes for view in views) <= MOST_COPIED
        before = [view.content().copy() for view in views] if is_small else []
        with _printed(context) as texts:
            status, ran, traces = self._run(core, blocks, traced)
            n_texts = len(texts)
            if status:
                findings = make_findings()
                if status == DIVERGED:
                    states, frames, *_ = core.memory()
                    first = self._layout.mask_at
                    masks = frames[:, first : first + 8].copy().view(np.int64)[:, 0]
                    raise KernelFault(findings.wait(context, states, masks))
                sentence = findings.access(context)
                if context[checks.FAULT] in checks.OF_RACES:
                    for view, content in zip(views, before, strict=False):
                        view.content()[:] = content
                    fault, context[checks.FAULT_PLACE] = context.copy(), -1
                    _, ran, traces = self._run(core, blocks, True, fault)
                    del texts[n_texts:]
                    sentence += findings.other_access(fault, context, ran, traces)
                raise KernelFault(sentence)
        return ran, traces

    def _shared(self, shared_bytes: int) -> dict[str, Variable]:
        """The kernel's shared variables; the dynamic ones are all the same memory."""
        declared = self._kernel.shared
        align = min((v.align for v in declared.values() if not v.size), default=1)
        dynamic = Variable(shared_bytes, align)
        return {name: v if v.size else dynamic for name, v in declared.items()}

    def _check(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        parameters: list[bytes],
        shared_bytes: int,
        most_shared: int,
    ) -> None:
        """Raise KernelFault for a launch that no GPU could make."""
        sizes = zip((*grid, *block), (*MOST_BLOCKS, *MOST_IN_BLOCK), strict=True)
        n_shared = shared_bytes + sum(v.size for v in self._kernel.shared.values())
        if not (
            all(1 <= n <= most for n, most in sizes)
            and math.prod(block) <= MOST_THREADS
            and n_shared <= most_shared
        ):
            raise KernelFault(
                f"{self._name} cannot be launched as {grid} blocks of {block} threads with "
                f"{n_shared} bytes of shared memory: a GPU takes 1 to {MOST_BLOCKS} blocks and "
                f"1 to {MOST_IN_BLOCK} threads in x, y and z, {MOST_THREADS} threads together, and "
                f"{most_shared} bytes"
            )
        expected = [len(content) for content in parameters]
        if expected != list(self._kernel.parameters.values()):
            raise KernelFault(
                f"{self._name} takes parameters of {list(self._kernel.parameters.values())} bytes, "
                f"and was given {expected}"
            )

    def _run(
        self, core: _Core, blocks: np.ndarray, traced: bool, fault: np.ndarray | None = None
    ) -> tuple[int, np.ndarray, list[np.ndarray]]:
        """Run blocks up to the first fault. Returns the status; if traced, blocks and their traces.

        fault: a context; only accesses near its fault are traced.
        """
        context = core.context
        trace = np.zeros((MAX_TRACE if traced else 1, 3), np.int64)
        context[checks.TRACE] = trace.ctypes.data
        context[checks.TRACE_CAPACITY] = len(trace) if traced else 0
        context[checks.TIME] += 1
        context[checks.LAUNCH_TIME] = context[checks.TIME]
        turns: Iterable[np.ndarray] = [blocks]
        if self._waits_for_grid:
            turns = self._turns(core, blocks)
        elif traced:
            turns = np.split(blocks, len(blocks))
        status, ran, traces = 0, [], []
        for part in turns:
            context[checks.TRACE_LENGTH] = 0
            core.launch[interleaving.BLOCKS] = part.ctypes.data
            core.launch[interleaving.N_BLOCKS] = len(part)
            status = self._run_blocks(core.launch.ctypes.data)
            for view in core.views:
                view.allocation.time = int(context[checks.TIME])
            found = trace[: context[checks.TRACE_LENGTH]]
            if fault is not None:
                found = found[abs(found[:, 2] - fault[checks.FAULT_ADDRESS]) < LONGEST]
            if traced:
                ran.append(part)
                traces.append(found.copy())
            if status:
                break
        return status, np.concatenate(ran or [blocks]), traces

    def _turns(self, core: _Core, blocks: np.ndarray) -> Iterator[np.ndarray]:
        """Prepare a launch for each block in turn, again and again from wait to wait for the grid.

        Raises KernelFault if some blocks wait and others end.
        """
        launch, context, memory = core.launch, core.context, core.memory()
        contents = {block: [np.zeros_like(array) for array in memory] for block in blocks}
        waiting = [*blocks]
        launch[interleaving.RESUMED] = 0
        while waiting:
            context[checks.LAUNCH_TIME] = context[checks.TIME] + 1
            for block in waiting:
                for array, content in zip(memory, contents[block], strict=True):
                    array[...] = content
                yield np.array([block])
                contents[block] = [array.copy() for array in memory]
            waiting = [block for block in blocks if (contents[block][0] != FINISHED).any()]
            if waiting and len(waiting) < len(blocks):
                raise KernelFault(
                    f"{self._name}: blocks wait for others of the grid that have ended"
                )
            launch[interleaving.RESUMED] = 1
            context[checks.SHARED_TIME] = checks.HOST_TIME  # each block has its own stamps

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
        self,
        views: list[View],
        shared: np.ndarray,
        variables: dict[str, Variable],
        stamps: dict[str, np.ndarray],
    ) -> np.ndarray:
        """The table of memory that may be accessed. variables, stamps: of the shared arrays."""
        rows = []
        for view in views:
            one = view.allocation
            begin, first = one.address + view.start, view.start // one.granule
            shift, stamped = one.granule.bit_length() - 1, one.stamps[first:].ctypes.data
            rows.append([begin, begin + view.n_bytes, checks.SPACES["global"], shift, stamped])
        for name, offset in self._layout.shared.items():
            variable, begin = variables[name], shared.ctypes.data + offset
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
        parameters: list[bytes],
        core: _Core,
    ) -> Findings:
        numbers = [int.from_bytes(content, "little") for content in parameters]
        values = dict(zip(self._kernel.parameters, numbers, strict=True))
        values |= {name: address for name, (address, _) in core.shared.items()}
        arrays = [(view.name, view.itemsize) for view in core.views]
        in_order = sorted(core.shared, key=lambda name: (len(name), name))
        arrays += [(f"shared array {in_order.index(name) + 1}", 0) for name in core.shared]
        arrays += [(name, 0) for name in self._tables for _ in range(2)]
        ranges = core.ranges[0][:-1]
        return Findings(self._name, self._kernel.code, grid, block, ranges, arrays, values)


@contextmanager
def _printed(context: np.ndarray) -> Iterator[list[str]]:
    """Gather the texts that a kernel prints, and print them after it, as on a GPU."""
    texts: list[str] = []
    printer = PRINTER(lambda form, values: texts.append(_formatted(form, values)))
    context[checks.PRINT] = ctypes.cast(printer, ctypes.c_void_p).value
    try:
        yield texts
    finally:
        if texts:
            print(*texts, sep="", end="", flush=True)


def _formatted(form: int, values: int) -> str:
    """The text of printf. form: address of its format. values: of its values, each aligned."""

    def text(match: re.Match) -> str:
        nonlocal values
        options, length, letter = match.groups()
        if letter == "%":
            return "%"
        size = 4 if letter in "cdiouxX" and length not in ("l", "ll") else 8
        values = -(-values // size) * size
        bits, values = ctypes.string_at(values, size), values + size
        value: Any = int.from_bytes(bits, "little", signed=letter in "di")
        if letter == "s":
            value = ctypes.string_at(value).decode()
        elif letter in "eEfFgG":
            (value,) = struct.unpack("d", bits)
        return f"%{options}{letter}" % value

    return re.sub(r"%([-+ #0-9.]*)([hl]*)([a-zA-Z%])", text, ctypes.string_at(form).decode())


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


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Inside, no finalizer runs that frees memory of the fake driver, whose launch holds a lock."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _conflict(stamps: np.ndarray, start: int) -> bool:
    """Whether a core wrote what another one accessed. stamps: (cores, granules, 2). start: time."""
    wrote, read = (stamps[..., k] >= start << checks.TIME_BIT for k in range(2))
    return bool((wrote.any(axis=0) & ((wrote | read).sum(axis=0) > 1)).any())


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
