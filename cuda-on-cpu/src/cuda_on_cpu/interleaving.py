"""Run thread blocks one after another, their threads from barrier to barrier.

The threads of a warp also wait for each other where they exchange values.

Numba compiles `run_blocks` to LLVM IR, into which the translated kernel is linked.
"""

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cuda_on_cpu import memory_checks as checks
from cuda_on_cpu import translate
from cuda_on_cpu.memory_checks import get, put
from cuda_on_cpu.translate import FAULT, FINISHED, WARP_WAIT

DIVERGED = 1  # threads of a block, or of a warp, wait at different places
WARP = 32
UNINITIALISED = -1  # all bits set: NaN as a float
SIGNATURE = types.int32(types.int64)

# Fields of a launch record, int64 each. Fields up to EXECUTED hold addresses of int64 arrays.
# BLOCKS, THREADS: numbers in the order in which they run. STATES: of each thread, where it waits.
# SPECIAL: see `translate`, as for PARAMETERS and EXECUTED, counts. SHARED: memory of a block, of
# SHARED_WORDS. FRAMES: memory of each thread, FRAME_BYTES apart. CONTEXT: see `memory_checks`.
BLOCKS, THREADS, STATES, SPECIAL, SHARED, PARAMETERS, FRAMES, CONTEXT, EXECUTED = range(9)
N_BLOCKS, N_THREADS, SHARED_WORDS, FRAME_BYTES, N_LAUNCH = range(9, 14)


@intrinsic
def run_thread(typing_context, frames, shared, special, context, executed, parameters, thread, at):
    """Run one thread up to its next barrier: the translated kernel, translate.FUNCTION."""

    def generate(generator, builder, signature, values):
        frame, shared, special, context, executed, parameters, thread, at = values
        function = cgutils.get_or_insert_function(
            builder.module, translate.THREAD_TYPE, translate.FUNCTION
        )
        integer = ir.IntType(32)
        narrow = [builder.trunc(value, integer) for value in (thread, at)]
        state = builder.call(
            function, (parameters, frame, shared, special, context, executed, *narrow)
        )
        return builder.sext(state, ir.IntType(64))

    return types.int64(*[types.int64] * 8), generate


@numba.njit
def put_coordinates(special, field, number, sizes):
    """Put x, y and z of a thread or a block into `special`. sizes: the field with its shape."""
    n_x, n_y = get(special, sizes), get(special, sizes + 1)
    put(special, field, number % n_x)
    put(special, field + 1, number // n_x % n_y)
    put(special, field + 2, number // n_x // n_y)


@numba.njit
def waits_for_warp(launch, thread):
    return WARP_WAIT <= get(get(launch, STATES), thread) < FINISHED


@numba.njit
def run_threads(launch, at_barrier):
    """Run threads until each waits or ends: all, or if not at_barrier those that wait for a warp.

    Returns 0 or FAULT.
    """
    special, context = get(launch, SPECIAL), get(launch, CONTEXT)
    for t in range(get(launch, N_THREADS)):
        thread = get(get(launch, THREADS), t)
        if not at_barrier and not waits_for_warp(launch, thread):
            continue  # it waits at the block's barrier
        put(context, checks.FAULT_THREAD, thread)
        put_coordinates(special, translate.TID, thread, translate.NTID)
        state = run_thread(
            get(launch, FRAMES) + thread * get(launch, FRAME_BYTES),
            get(launch, SHARED),
            special,
            context,
            get(launch, EXECUTED),
            get(launch, PARAMETERS),
            thread,
            get(get(launch, STATES), thread),
        )
        if state == FAULT:
            return FAULT
        put(get(launch, STATES), thread, state)
    return 0


def run_blocks(launch):
    """Run thread blocks one after another. Returns 0, FAULT or DIVERGED; the context says where.

    launch: address of a launch record.
    """
    special, context = get(launch, SPECIAL), get(launch, CONTEXT)
    threads, states, shared = get(launch, THREADS), get(launch, STATES), get(launch, SHARED)
    time = get(context, checks.TIME)
    for b in range(get(launch, N_BLOCKS)):
        block = get(get(launch, BLOCKS), b)
        put(context, checks.FAULT_BLOCK, block)
        time += 1
        put(context, checks.TIME, time)
        put(context, checks.BLOCK_TIME, time)
        put_coordinates(special, translate.CTAID, block, translate.NCTAID)
        for k in range(get(launch, SHARED_WORDS)):
            put(shared, k, UNINITIALISED)
        for t in range(get(launch, N_THREADS)):
            put(states, t, 0)
        at_barrier, finished = True, False
        while not finished:
            if at_barrier:
                put(context, checks.BARRIER_TIME, time)
            if run_threads(launch, at_barrier) == FAULT:
                return FAULT
            time += 1
            put(context, checks.TIME, time)
            at_barrier = True
            for t in range(get(launch, N_THREADS)):
                at_barrier &= not waits_for_warp(launch, t)
            for t in range(get(launch, N_THREADS)):
                thread = get(threads, t)
                other = get(threads, 0) if at_barrier else thread - thread % WARP
                if get(states, thread) != get(states, other):
                    put(context, checks.FAULT_THREAD, thread)
                    return DIVERGED
            finished = at_barrier and get(states, 0) == FINISHED
    return 0
