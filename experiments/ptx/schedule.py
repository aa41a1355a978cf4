"""Blocks one after another, and their threads from barrier to barrier, in compiled code."""

from typing import Any

import numpy as np
from numba import types
from numba.experimental import function_type  # noqa: F401  # makes numba know ThreadFunction

from deepbig_runtime.jit import njit
from experiments.ptx import checks
from experiments.ptx.translate import FAULT, FINISHED

DIVERGED = 1  # threads of a block are at different barriers

_SIGNATURE = types.int32(*[types.int64] * 6, *[types.int32] * 2)


class ThreadFunction(types.WrapperAddressProtocol):
    """A translated kernel, as compiled code can call it."""

    def __init__(self, address: int):
        self._address = address

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        return _SIGNATURE


@njit
def run_blocks(thread_function, blocks, threads, special, shared, addresses, frame_bytes):
    """Run blocks one after another. Returns 0, FAULT or DIVERGED; the context says where.

    blocks, threads: their numbers, in the order in which they run. special: int32 (12,), modified.
    shared: uint8. addresses: of parameters, frames (of frame_bytes each), shared, special, context
    and executed, int64.
    """
    parameters, frames, shared_at, special_at, context, executed = addresses
    time = checks.get(context, checks.TIME)
    states = np.empty(len(threads), np.int32)
    n_x, n_y = special[3], special[4]
    for number in blocks:
        checks.put(context, checks.FAULT_BLOCK, number)
        time += 1
        checks.put(context, checks.TIME, time)
        checks.put(context, checks.BLOCK_TIME, time)
        special[6] = number % special[9]
        special[7] = number // special[9] % special[10]
        special[8] = number // special[9] // special[10]
        shared[:] = 0xFF  # NaN
        states[:] = 0
        reached = np.int32(0)
        while reached != FINISHED:
            reached = np.int32(0)
            for thread in threads:
                checks.put(context, checks.FAULT_THREAD, thread)
                special[0] = thread % n_x
                special[1] = thread // n_x % n_y
                special[2] = thread // n_x // n_y
                state = thread_function(
                    parameters,
                    frames + thread * frame_bytes,
                    shared_at,
                    special_at,
                    context,
                    executed,
                    np.int32(thread),
                    states[thread],
                )
                if state == FAULT:
                    return FAULT
                if reached != 0 and state != reached:
                    return DIVERGED
                states[thread] = reached = state
            time += 1
            checks.put(context, checks.TIME, time)
    return 0
