"""Which words the warps of a kernel access together, as executed."""

from collections import defaultdict
from dataclasses import replace

from cuda_on_cpu import access_stats, findings
from experiments.drawing.tracing import execute


def warp_words(launch, block):
    """The words that a block (x, y) wants: {(array, read or write): [words of a warp's step, ...]}.

    A word is an element of its array, four bytes in shared memory. A step is an access of all
    threads of a warp that make it. Shared arrays are called by their number, from 0, in the order
    in which the kernel makes them.
    """
    launched, found = execute(launch), defaultdict(list)
    arguments = dict(
        zip(launch.kernel.py_func.__code__.co_varnames, launch.arguments, strict=False)
    )
    arrays, n_shared = [], 0
    for name, (start, n_bytes) in launched.arrays.items():
        if "smem" in name:
            arrays.append((f"shared {n_shared}", start, n_bytes, 4))
            n_shared += 1
        else:
            arrays.append((name, start, n_bytes, arguments[name].itemsize))
    number = launched.blocks.tolist().index(block[1] * launch.grid[0] + block[0])
    of_block = replace(launched, trace=[launched.trace[number]])
    for code, _, addresses in access_stats.warp_steps(of_block):
        name, start, size = next(
            (name, start, size)  # of an array that is two arguments the first
            for name, start, n_bytes, size in arrays
            if start <= addresses[0] < start + n_bytes
        )
        kind = findings.KINDS[code.opcode[0]]
        found[name, kind].append((addresses - start) // size)
    return found
