"""Which thread of a kernel touches what, as executed."""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np

from cuda_on_cpu import access_stats
from experiments.drawing.tracing import execute


def located(launched):
    """A function from an address to the array that holds it, and the place in it, in bytes.

    Shared arrays are called by their number, from 0, in the order in which the kernel makes them.
    """
    shared = [name for name in launched.arrays if "smem" in name]
    names = {name: f"shared {shared.index(name)}" for name in shared}

    def locate(address):
        for name, (start, n_bytes) in launched.arrays.items():
            if start <= address < start + n_bytes:
                return names.get(name, name), address - start
        raise AssertionError("no array holds the address")

    return locate


def touched(launch, names, shared):
    """What each thread touches: {(array, read or write, block, thread): indices in order}.

    names: of the arguments. shared: shapes of the shared arrays. Block and thread are (x, y).
    """
    launched = execute(launch)
    locate = located(launched)
    arguments = launch.kernel.py_func.__code__.co_varnames
    own_names = dict(zip(arguments, names, strict=False))
    shapes = {f"shared {k}": (shape, 4) for k, shape in enumerate(shared)}
    for name, value in zip(arguments, launch.arguments, strict=False):
        if name in launched.arrays:
            shapes[name] = value.shape, launched.arrays[name][1] // max(1, value.size)
    across = launch.threads[0] if isinstance(launch.threads, tuple) else launch.threads

    @cache
    def element(address):
        name, start = locate(address)
        shape, size = shapes[name]
        return name, tuple(map(int, np.unravel_index(start // size, shape)))

    found = defaultdict(list)
    for number, trace in zip(launched.blocks.tolist(), launched.trace, strict=True):
        block = number % launch.grid[0], number // launch.grid[0]
        for place, thread, address in trace.tolist():
            name, index = element(address)
            what = access_stats.KINDS[launched.code[place].opcode[0]]
            who = block, (thread % across, thread // across)
            found[own_names.get(name, name), what, *who].append(index)
    return dict(found)


def warp_words(launch, block):
    """The words that a block (x, y) wants: {(array, read or write): [words of a warp's step, ...]}.

    A word is an element of its array, four bytes in shared memory. A step is an access of all
    threads of a warp that make it.
    """
    launched = execute(launch)
    arguments = launch.kernel.py_func.__code__.co_varnames
    sizes = {
        name: launched.arrays[name][1] // value.size
        for name, value in zip(arguments, launch.arguments, strict=False)
        if name in launched.arrays
    }
    locate, found = located(launched), defaultdict(list)
    number = block[1] * launch.grid[0] + block[0]
    (trace,) = (
        trace for one, trace in zip(launched.blocks, launched.trace, strict=True) if one == number
    )
    for code, _, addresses in access_stats.warp_steps(replace(launched, trace=[trace])):
        array, _ = locate(addresses[0])
        words = [locate(address)[1] // sizes.get(array, 4) for address in addresses]
        found[array, access_stats.KINDS[code.opcode[0]]].append(np.array(words))
    return found
