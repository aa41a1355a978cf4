"""Asynchronous copies from global to shared memory (cp.async), made as late as a kernel allows.

From the instruction on until its thread waits for a copy, the target counts as never written.
Hardware may write it at any time between. A thread must not end before it waited for all of its
copies: the memory may then be another block's.

A thread's queue, int64: how many copies are under way, how many groups of them the thread has
committed, then of each copy its fields. PRESENT: bytes that come from the source, the rest is zero.
"""

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cuda_on_cpu.memory_checks import (
    NO_FAULT,
    SHARED,
    TIME,
    TIME_BIT,
    TOO_MANY_COPIES,
    UNDER_WAY,
    WRITE,
    check,
    get,
    put,
    tell,
)

N_COPIES, N_GROUPS, FIRST = range(3)
TARGET, SIZE, SOURCE, PRESENT, GROUP, N_FIELDS = range(6)
MAX_COPIES = 64  # under way, of a thread
ALL = -1  # as n_pending: finish all copies, also those in no group yet
AT_END = -2  # as n_pending: a copy under way is a fault
QUEUE_BYTES = 8 * (FIRST + N_FIELDS * MAX_COPIES)
BYTE = ir.IntType(8)
START_SIGNATURE = types.int32(*[types.int64] * 4, *[types.int32] * 4)
FINISH_SIGNATURE = types.int32(*[types.int64] * 3, *[types.int32] * 3)


@intrinsic
def load_byte(typing_context, address):
    def generate(context, builder, signature, values):
        return builder.load(builder.inttoptr(values[0], BYTE.as_pointer()), typ=BYTE)

    return types.uint8(types.int64), generate


@intrinsic
def store_byte(typing_context, address, value):
    def generate(context, builder, signature, values):
        builder.store(values[1], builder.inttoptr(values[0], BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.uint8), generate


@numba.njit
def copy_of(queue, k):
    """The address of the k-th copy's fields."""
    return queue + 8 * (FIRST + N_FIELDS * k)


def start_copy(context, queue, target, source, size, present, thread, place):
    """Queue a copy whose accesses are checked. Returns a fault as `access` does."""
    count = get(queue, N_COPIES)
    if count == MAX_COPIES:
        return tell(context, TOO_MANY_COPIES, place, target, thread)
    copy = copy_of(queue, count)
    put(copy, TARGET, target)
    put(copy, SIZE, size)
    put(copy, SOURCE, source)
    put(copy, PRESENT, present)
    put(copy, GROUP, get(queue, N_GROUPS))
    put(queue, N_COPIES, count + 1)
    return NO_FAULT


def finish_copies(context, frame, queue, n_pending, thread, place):
    """Make the copies of all groups but the last n_pending. Returns a fault as `access` does.

    n_pending: a number, ALL or AT_END.
    """
    if n_pending == AT_END and get(queue, N_COPIES):
        return tell(context, UNDER_WAY, place, get(copy_of(queue, 0), TARGET), thread)
    stamp = (get(context, TIME) << TIME_BIT) | thread
    kept = 0
    for k in range(get(queue, N_COPIES)):
        copy = copy_of(queue, k)
        if get(copy, GROUP) >= get(queue, N_GROUPS) - n_pending:
            for field in range(N_FIELDS):
                put(copy_of(queue, kept), field, get(copy, field))
            kept += 1
            continue
        target, source, size = get(copy, TARGET), get(copy, SOURCE), get(copy, SIZE)
        fault = check(context, frame, target, size, stamp, place, WRITE, SHARED)
        if fault != NO_FAULT:
            return tell(context, fault, place, target, thread)
        for i in range(size):
            is_present = i < get(copy, PRESENT)
            store_byte(target + i, load_byte(source + i) if is_present else numba.uint8(0))
    put(queue, N_COPIES, kept)
    return NO_FAULT
