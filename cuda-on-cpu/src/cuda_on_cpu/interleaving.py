"""Run thread blocks one after another, their threads from barrier to barrier.

The threads of a warp also wait for each other where they exchange values.

Numba compiles `run_blocks` to LLVM IR, into which the translated kernel is linked.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cuda_on_cpu import memory_checks
from cuda_on_cpu.memory_checks import get, put
from cuda_on_cpu.translate import FAULT, FINISHED, FUNCTION, THREAD_TYPE, WARP_WAIT

DIVERGED = 1  # threads of a block, or of a warp, wait at different places
WARP = 32
UNINITIALISED = -1  # all bits set: NaN as a float
SIGNATURE = types.int32(*[types.int64] * 13)


@intrinsic
def run_thread(typing_context, frames, shared, special, context, executed, parameters, thread, at):
    """Run one thread up to its next barrier: the translated kernel, translate.FUNCTION."""

    def generate(generator, builder, signature, values):
        frame, shared, special, context, executed, parameters, thread, at = values
        function = cgutils.get_or_insert_function(builder.module, THREAD_TYPE, FUNCTION)
        integer = ir.IntType(32)
        narrow = [builder.trunc(value, integer) for value in (thread, at)]
        state = builder.call(
            function, (parameters, frame, shared, special, context, executed, *narrow)
        )
        return builder.sext(state, ir.IntType(64))

    return types.int64(*[types.int64] * 8), generate


def run_blocks(
    blocks,
    n_blocks,
    threads,
    n_threads,
    states,
    special,
    shared,
    shared_words,
    parameters,
    frames,
    frame_bytes,
    context,
    executed,
):
    """Run thread blocks one after another. Returns 0, FAULT or DIVERGED; the context says where.

    All but the counts are addresses of int64. blocks, threads: numbers in the order in which they
    run. states: one per thread, overwritten. special: 12, see `translate`, modified. shared: memory
    of a block. frames: memory of each thread, frame_bytes apart. executed: counts, increased.
    """
    time = get(context, memory_checks.TIME)
    n_x, n_y = get(special, 3), get(special, 4)
    for b in range(n_blocks):
        number = get(blocks, b)
        put(context, memory_checks.FAULT_BLOCK, number)
        time += 1
        put(context, memory_checks.TIME, time)
        put(context, memory_checks.BLOCK_TIME, time)
        put(special, 6, number % get(special, 9))
        put(special, 7, number // get(special, 9) % get(special, 10))
        put(special, 8, number // get(special, 9) // get(special, 10))
        for k in range(shared_words):
            put(shared, k, UNINITIALISED)
        for t in range(n_threads):
            put(states, t, 0)
        at_barrier, finished = True, False
        while not finished:
            if at_barrier:
                put(context, memory_checks.BARRIER_TIME, time)
            for t in range(n_threads):
                thread = get(threads, t)
                if not at_barrier and not WARP_WAIT <= get(states, thread) < FINISHED:
                    continue  # it waits at the block's barrier
                put(context, memory_checks.FAULT_THREAD, thread)
                put(special, 0, thread % n_x)
                put(special, 1, thread // n_x % n_y)
                put(special, 2, thread // n_x // n_y)
                state = run_thread(
                    frames + thread * frame_bytes,
                    shared,
                    special,
                    context,
                    executed,
                    parameters,
                    thread,
                    get(states, thread),
                )
                if state == FAULT:
                    return FAULT
                put(states, thread, state)
            time += 1
            put(context, memory_checks.TIME, time)
            at_barrier = True
            for t in range(n_threads):
                at_barrier &= not WARP_WAIT <= get(states, t) < FINISHED
            for t in range(n_threads):
                thread = get(threads, t)
                with_ = get(threads, 0) if at_barrier else thread - thread % WARP
                if get(states, thread) != get(states, with_):
                    put(context, memory_checks.FAULT_THREAD, thread)
                    return DIVERGED
            finished = at_barrier and get(states, 0) == FINISHED
    return 0
