"""Exact counts of a launch: accesses, sectors of a warp, bank conflicts, arithmetic."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from cuda_on_cpu.findings import access_of
from cuda_on_cpu.parse import Instruction
from cuda_on_cpu.run import Launched

WARP = 32  # threads that access memory together
SECTOR = 32  # bytes of global memory that are moved together
BANKS, WORD = 32, 4  # of shared memory; bytes of a word
FLOAT_OPERATIONS = {"fma": 2, "mma": 2 * 16 * 8 * 8 // WARP} | dict.fromkeys(
    ("add", "sub", "mul", "div", "max", "min", "ex2", "rcp", "sqrt"), 1
)


@dataclass(frozen=True)
class Accesses:
    """Accesses of one kind to one space of memory, over a launch.

    threads: accesses of single threads. n_bytes: bytes that they requested. warps: accesses of
    warps, whose threads access memory together. sectors: of 32 bytes in global memory, summed over
    the accesses of warps. passes: over shared memory; a bank conflict costs a warp more than one.
    """

    threads: int
    n_bytes: int
    warps: int
    sectors: int
    passes: int


def float_operations(launched: Launched) -> int:
    """Additions, multiplications and the like of float32 and float64; fma counts as two.

    A product of tensor cores counts two for each of its multiply-adds, shared equally among the
    warp's threads.
    """
    return sum(
        int(times) * FLOAT_OPERATIONS.get(code.opcode[0], 0)
        for code, times in zip(launched.code, launched.executed, strict=True)
        if isinstance(code, Instruction) and code.opcode[-1] in ("f32", "f64")
    )


def accesses(launched: Launched) -> dict[tuple[str, str], Accesses]:
    """The accesses of a traced launch, by space and kind, such as ("global", "read")."""
    found: dict[tuple[str, str], Accesses] = {}
    for code, group, _, address in _instructions(launched):
        space, kind, size = access_of(code)
        words = address[:, None] // WORD + np.arange(max(1, size // WORD))
        before = found.get((space, kind), Accesses(0, 0, 0, 0, 0))
        found[space, kind] = Accesses(
            before.threads + len(address),
            before.n_bytes + len(address) * size,
            before.warps + len(np.unique(group)),
            before.sectors + _distinct(group, address // SECTOR) * (space == "global"),
            before.passes + _passes(group, words) * (space == "shared"),
        )
    return found


def words_per_bank(words: Collection[int]) -> int:
    """The most different words that one bank must serve for a warp. 1: no bank conflict.

    words: that its threads access. Threads that read one word share it.
    """
    return max(Counter(word % BANKS for word in set(words)).values())


def warp_steps(launched: Launched) -> Iterator[tuple[Instruction, np.ndarray, np.ndarray]]:
    """Each access of each warp: the instruction, the threads that made it, and their addresses."""
    for code, group, thread, address in _instructions(launched):
        ends = np.flatnonzero(np.diff(group)) + 1
        for threads, addresses in zip(np.split(thread, ends), np.split(address, ends), strict=True):
            yield code, threads, addresses


def _instructions(
    launched: Launched,
) -> Iterator[tuple[Instruction, np.ndarray, np.ndarray, np.ndarray]]:
    """Each instruction of each block, and the groups, threads and addresses of its accesses.

    A group is a warp, and the occurrence number of the instruction. Accesses are sorted by group,
    then by thread.
    """
    for trace in launched.trace:
        for place in np.unique(trace[:, 0]):
            code = launched.code[place]
            assert isinstance(code, Instruction)
            rows = trace[trace[:, 0] == place]
            thread, address = rows[np.argsort(rows[:, 1], kind="stable"), 1:].T
            time = np.arange(len(thread)) - np.searchsorted(thread, thread)
            group = time * (thread.max() // WARP + 1) + thread // WARP
            by_group = np.argsort(group, kind="stable")
            yield code, group[by_group], thread[by_group], address[by_group]


def _distinct(group: np.ndarray, value: np.ndarray) -> int:
    """The number of different values within each group, summed over the groups."""
    return len(np.unique(np.stack((group, value), axis=1), axis=0))


def _passes(group: np.ndarray, words: np.ndarray) -> int:
    """The sum, over groups, of the most different words that one bank is asked for."""
    pairs = np.stack((np.repeat(group, words.shape[1]), words.reshape(-1)), axis=1)
    pairs = np.unique(pairs, axis=0)
    banks, count = np.unique(
        np.stack((pairs[:, 0], pairs[:, 1] % BANKS), axis=1), axis=0, return_counts=True
    )
    starts = np.flatnonzero(np.diff(banks[:, 0], prepend=banks[0, 0] - 1))
    return int(np.maximum.reduceat(count, starts).sum())
