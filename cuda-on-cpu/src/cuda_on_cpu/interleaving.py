"""Run thread blocks one after another, their threads from barrier to barrier.

The threads of a warp also wait for each other where they exchange values: for those that a mask
names and that have not ended. A barrier of the block does not wait for warps that have ended.

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
from cuda_on_cpu.translate import (
    ANYBODY,
    FAULT,
    FINISHED,
    GRID_WAIT,
    MOST_THREADS,
    SLOT_BYTES,
    WARP,
    WARP_WAIT,
)

DIVERGED = 1  # threads wait for others that wait elsewhere or, in their warp, have ended
UNINITIALISED = -1  # all bits set: NaN as a float
SIGNATURE = types.int32(types.int64)

# Fields of a launch record, int64 each. Fields up to EXECUTED hold addresses of int64 arrays.
# BLOCKS, THREADS: numbers in the order in which they run. STATES: of each thread, where it waits.
# GROUPS: of each thread that waits for its warp and may go on, the lanes that do so together, as
# bits; else 0. SPECIAL: see `translate`, as for PARAMETERS and EXECUTED, counts. SHARED: memory of
# a block, of SHARED_WORDS; from EXCHANGE on, if not 0, the slots for what threads give, then those
# for what they take. FRAMES: memory of each thread, FRAME_BYTES apart; at MASK the lanes that it
# waits for, as bits, and then those it goes on with. RESUMED: whether blocks go on after a wait for
# the grid. CONTEXT: see `memory_checks`.
BLOCKS, THREADS, STATES, GROUPS, SPECIAL, SHARED, PARAMETERS, FRAMES, CONTEXT, EXECUTED = range(10)
N_BLOCKS, N_THREADS, SHARED_WORDS, FRAME_BYTES, MASK, EXCHANGE, RESUMED, N_LAUNCH = range(10, 18)


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

    Of these those whose GROUPS are there. Returns 0 or FAULT.
    """
    special, context = get(launch, SPECIAL), get(launch, CONTEXT)
    for t in range(get(launch, N_THREADS)):
        thread = get(get(launch, THREADS), t)
        if get(get(launch, STATES), thread) == FINISHED:
            continue
        if not at_barrier and not get(get(launch, GROUPS), thread):
            continue  # it waits for others
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


@numba.njit
def mask_of(launch, thread):
    """The address of the lanes that a thread waits for."""
    return get(launch, FRAMES) + thread * get(launch, FRAME_BYTES) + get(launch, MASK)


@numba.njit
def group_of(launch, thread):
    """The lanes with which a thread goes on; 0 as long as one that it waits for is elsewhere."""
    states, first = get(launch, STATES), thread - thread % WARP
    state, mask = get(states, thread), get(mask_of(launch, thread), 0)
    group = 0
    for lane in range(min(WARP, get(launch, N_THREADS) - first)):
        other = get(states, first + lane)
        if other == state and mask >> lane & 1:
            if get(mask_of(launch, first + lane), 0) != mask:
                return 0
            group |= 1 << lane
        elif mask >> lane & 1 and other != FINISHED and mask != ANYBODY:
            return 0
    return group if group >> (thread - first) & 1 else 0


@numba.njit
def exchange(launch, thread):
    """What a thread gives becomes what others take; nothing, if it has ended."""
    give = get(launch, SHARED) + get(launch, EXCHANGE) + thread * SLOT_BYTES
    has_ended = get(get(launch, STATES), thread) == FINISHED
    for word in range(SLOT_BYTES // 8):
        put(give + MOST_THREADS * SLOT_BYTES, word, 0 if has_ended else get(give, word))


@numba.njit
def release(launch):
    """Find the threads that wait for their warp and may go on. Returns how many these are."""
    groups, n = get(launch, GROUPS), 0
    for thread in range(get(launch, N_THREADS)):
        put(groups, thread, 0)
        if waits_for_warp(launch, thread):
            before = get(groups, thread - 1) if thread % WARP else 0
            is_among = before >> (thread % WARP) & 1  # and has the same mask
            put(groups, thread, before if is_among else group_of(launch, thread))
    for thread in range(get(launch, N_THREADS)):
        group = get(groups, thread)
        if group:
            n += 1
            put(mask_of(launch, thread), 0, group)
        if get(launch, EXCHANGE) and (group or get(get(launch, STATES), thread) == FINISHED):
            exchange(launch, thread)
    return n


@numba.njit
def stuck_thread(launch):
    """A thread of a deadlock; -1 if all threads that have not ended wait at the same barrier."""
    states, n, place = get(launch, STATES), get(launch, N_THREADS), 0
    for t in range(n):
        thread = get(get(launch, THREADS), t)
        state = get(states, thread)
        first = thread - thread % WARP
        if state == FINISHED:
            continue
        if waits_for_warp(launch, thread) or (place and state != place):
            return thread
        place = state
        if state >= GRID_WAIT:  # thread 0 arrives for its block; others may have ended
            if get(states, 0) == FINISHED:
                return thread
            continue
        for other in range(first, min(first + WARP, n)):
            if get(states, other) == FINISHED:
                return thread
    return -1


@numba.njit
def is_finished(launch):
    """Whether all threads have ended or, if they wait alike, wait for the grid."""
    for thread in range(get(launch, N_THREADS)):
        state = get(get(launch, STATES), thread)
        if state != FINISHED and not GRID_WAIT <= state < WARP_WAIT:
            return False
    return True


def run_blocks(launch):
    """Run thread blocks one after another, each up to its end or to a wait for the grid.

    Returns 0, FAULT or DIVERGED; the context says where. launch: address of a launch record.
    """
    special, context = get(launch, SPECIAL), get(launch, CONTEXT)
    states, shared = get(launch, STATES), get(launch, SHARED)
    time = get(context, checks.TIME)
    for b in range(get(launch, N_BLOCKS)):
        block = get(get(launch, BLOCKS), b)
        put(context, checks.FAULT_BLOCK, block)
        time += 1
        put(context, checks.TIME, time)
        put(context, checks.BLOCK_TIME, time)
        put_coordinates(special, translate.CTAID, block, translate.NCTAID)
        at_barrier = True
        if not get(launch, RESUMED):
            put(context, checks.SHARED_TIME, time)
            for k in range(get(launch, SHARED_WORDS)):
                put(shared, k, UNINITIALISED)
            for t in range(get(launch, N_THREADS)):
                put(states, t, 0)
        while True:
            if at_barrier:
                put(context, checks.BARRIER_TIME, time)
            if run_threads(launch, at_barrier) == FAULT:
                return FAULT
            time += 1
            put(context, checks.TIME, time)
            at_barrier = release(launch) == 0
            if at_barrier:
                stuck = stuck_thread(launch)
                if stuck >= 0:
                    put(context, checks.FAULT_THREAD, stuck)
                    return DIVERGED
                if is_finished(launch):
                    break
    return 0
