"""Memory checks that run on every load and store of an executed kernel; Numba compiles them.

Time is counted in intervals, which have increasing numbers. An interval ends where the threads of a
block wait at a barrier, or where the threads of a warp wait for each other. A granule is the
smallest piece of memory that threads write separately. It has two stamps, one of its last writer
and one of its last reader: the interval and the thread.

Two accesses, at least one of them a write, are a fault if they are of two threads in the same
interval, of two warps between the same barriers, or of two blocks of the same launch. Two atomic
accesses are no fault.
"""

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# VOLATILE: a read between atomic accesses of others. START: of a copy that will write. SAME: of a
# write that races with another of the same value.
READ, VOLATILE, ATOMIC, WRITE, START, SAME = range(6)
SPACES = {"global": 0, "shared": 1, "local": 2, "const": 3, "generic": 4}
SHARED, LOCAL, GENERIC = SPACES["shared"], SPACES["local"], SPACES["generic"]
RACES = (
    "races with another thread of the block: no barrier is between them",
    "races with another block: both access the same memory, and one of them writes",
)
MOST_STEPS = 1 << 29  # of the loops of a thread
STEPS_OF_WAIT = 1 << 7  # as which a wait counts
FAULTS = (
    "",
    "is outside of every array",
    "is not a multiple of its size",
    "reads uninitialised memory",
    *RACES,
    "writes into a constant table",
    "is one more than the trace can hold",
    "is one more asynchronous copy under way than a thread can have here",
    "ends a thread whose asynchronous copy is under way",
    *RACES,
    f"is in a loop without end: it has run {MOST_STEPS:,} times",
)
(
    NO_FAULT,
    OUTSIDE,
    UNALIGNED,
    NEVER_WRITTEN,
    RACE,
    BLOCKS,
    READ_ONLY,
    TOO_MANY,
    TOO_MANY_COPIES,
    UNDER_WAY,
    WRITES,  # as RACE and BLOCKS, of two writes
    WRITES_OF_BLOCKS,
    ENDLESS,
) = range(13)
OF_RACES = RACE, BLOCKS, WRITES, WRITES_OF_BLOCKS

# The context: int64 each. Those up to TRACE are addresses of arrays. LATEST: of an int64 for each
# instruction of the kernel, the address of the range that it accessed last. N_SAME: number of
# accesses of the kind SAME; SAME_PLACE: of the instruction that made the last of them.
# LAUNCH_TIME: when the launch began, or its blocks last waited for each other. SHARED_TIME: since
# when shared memory is written. PRINT: the address of a function that a kernel calls to print.
(
    RANGES,
    LATEST,
    TRACE,
    N_RANGES,
    TIME,
    LAUNCH_TIME,
    BLOCK_TIME,
    SHARED_TIME,
    BARRIER_TIME,
    FRAME_LOCAL,
    FRAME_BYTES,
    TRACE_CAPACITY,
    TRACE_LENGTH,
    FAULT,
    FAULT_PLACE,
    FAULT_ADDRESS,
    FAULT_THREAD,
    FAULT_BLOCK,
    N_SAME,
    SAME_PLACE,
    PRINT,
    N_CONTEXT,
) = range(22)

# A range of memory that may be touched: int64 each. GRANULE: the base-2 logarithm of its bytes.
# STAMPS: the address of its stamps, writer and reader of each granule; 0 for a constant table.
BEGIN, END, SPACE, GRANULE, STAMPS, N_RANGE = range(6)

# A stamp: time above the lowest 14 bits, then four flags, then the thread. 0: never.
THREAD = 1024 - 1
WARP = THREAD - 31  # of a thread
# Flags: several threads, warps, blocks; an atomic access.
SEVERAL, WARPS, OTHERS, ATOMICS = 1 << 10, 1 << 11, 1 << 12, 1 << 13
TIME_BIT = 14
HOST_TIME = 1  # when the host wrote; launches begin later

WORD = ir.IntType(64)
SIGNATURE = types.int32(*[types.int64] * 3, *[types.int32] * 5)  # of access


@intrinsic
def load_word(typing_context, address):
    def generate(context, builder, signature, values):
        pointer = builder.inttoptr(values[0], WORD.as_pointer())
        return builder.load(pointer, typ=WORD)

    return types.int64(types.int64), generate


@intrinsic
def store_word(typing_context, address, value):
    def generate(context, builder, signature, values):
        builder.store(values[1], builder.inttoptr(values[0], WORD.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@numba.njit
def get(address, field):
    """A field of the context, the range or the stamps at an address."""
    return load_word(address + 8 * field)


@numba.njit
def put(address, field, value):
    store_word(address + 8 * field, value)


@numba.njit
def conflict(writer, reader, stamp, kind, launch_time, block_time, barrier_time):
    """The fault of an access, given the stamps of its granule; NO_FAULT if there is none.

    stamp: of this access. kind: up to START. launch_time, block_time: when they
    began. barrier_time: when the block left its last barrier.
    """
    time, thread = stamp >> TIME_BIT, stamp & THREAD
    if kind > VOLATILE:
        read = reader >> TIME_BIT
        if read >= launch_time and (read < block_time or reader & OTHERS):
            return BLOCKS
        if read >= barrier_time and ((reader ^ thread) & WARP or reader & WARPS):
            return RACE
        if read == time and ((reader & THREAD) != thread or reader & SEVERAL):
            return RACE
    if not (kind in (VOLATILE, ATOMIC) and writer & ATOMICS):
        wrote = writer >> TIME_BIT
        if launch_time <= wrote < block_time:
            return WRITES_OF_BLOCKS if kind == WRITE else BLOCKS
        of_warp = not (writer ^ thread) & WARP
        if (writer & THREAD) != thread and wrote >= (time if of_warp else barrier_time):
            return WRITES if kind == WRITE else RACE
    return NO_FAULT


@numba.njit
def next_reader(reader, stamp, launch_time, block_time, barrier_time):
    """The stamp of the readers after one more reads."""
    read = reader >> TIME_BIT
    if read >= barrier_time and ((reader ^ stamp) & WARP or reader & WARPS):
        stamp |= WARPS
    if read >= launch_time and (read < block_time or reader & OTHERS):
        stamp |= OTHERS
    if read == (stamp >> TIME_BIT) and ((reader & THREAD) != (stamp & THREAD) or reader & SEVERAL):
        stamp |= SEVERAL
    return stamp


@numba.njit
def holds(found, address, size, space):
    """Whether a range holds all of an access."""
    inside = get(found, BEGIN) <= address and address + size <= get(found, END)
    return inside and (space == GENERIC or get(found, SPACE) == space)


@numba.njit
def find_range(context, address, size, place, space):
    """The address of the range that holds all of an access; 0 if none does."""
    latest = get(get(context, LATEST), place)
    if holds(latest, address, size, space):
        return latest
    found = get(context, RANGES)
    for _ in range(get(context, N_RANGES)):
        if holds(found, address, size, space):
            put(get(context, LATEST), place, found)
            return found
        found += 8 * N_RANGE
    return 0


@numba.njit
def check(context, frame, address, size, stamp, place, kind, space):
    """Check an access and put it into the stamps. Returns its fault, NO_FAULT if it has none."""
    if address & (size - 1):
        return UNALIGNED
    if space in (LOCAL, GENERIC):
        start, end = frame + get(context, FRAME_LOCAL), frame + get(context, FRAME_BYTES)
        if start <= address and address + size <= end:
            return NO_FAULT
    if space == LOCAL:
        return OUTSIDE
    found = find_range(context, address, size, place, space)
    if found == 0:
        return OUTSIDE
    stamps = get(found, STAMPS)
    if stamps == 0:
        return NO_FAULT if kind <= VOLATILE else READ_ONLY
    first_time, launch_time, block_time, barrier_time = (
        HOST_TIME,
        get(context, LAUNCH_TIME),
        get(context, BLOCK_TIME),
        get(context, BARRIER_TIME),
    )
    if get(found, SPACE) == SHARED:
        first_time = get(context, SHARED_TIME)  # each block has its own
        launch_time = block_time
    begin, granule = get(found, BEGIN), get(found, GRANULE)
    of_writes = NO_FAULT  # is none if the values are the same, so the rest is checked, too
    for k in range((address - begin) >> granule, ((address + size - 1 - begin) >> granule) + 1):
        writer, reader = get(stamps, 2 * k), get(stamps, 2 * k + 1)
        if kind < WRITE and writer >> TIME_BIT < first_time:
            return NEVER_WRITTEN
        fault = conflict(writer, reader, stamp, kind, launch_time, block_time, barrier_time)
        if fault in (WRITES, WRITES_OF_BLOCKS):
            of_writes = fault
        elif fault:
            return fault
        if kind == READ:
            times = launch_time, block_time, barrier_time
            put(stamps, 2 * k + 1, next_reader(reader, stamp, *times))
        elif kind == START:
            put(stamps, 2 * k, 0)  # until it arrives, reading there is reading uninitialised memory
        elif kind != VOLATILE:
            put(stamps, 2 * k, stamp | ATOMICS if kind == ATOMIC else stamp)
    return of_writes


@numba.njit
def tell(context, fault, place, address, thread):
    """Record a fault in the context, and return it."""
    put(context, FAULT, fault)
    put(context, FAULT_PLACE, place)
    put(context, FAULT_ADDRESS, address)
    put(context, FAULT_THREAD, thread)
    return fault


def access(context, frame, address, size, thread, place, kind, space):
    """Check an access and record it. Returns 0 if it is good; else the context tells of the fault.

    place: of the instruction in the kernel's code.
    """
    stamp = (get(context, TIME) << TIME_BIT) | thread
    fault = NO_FAULT
    if kind == SAME:
        put(context, N_SAME, get(context, N_SAME) + 1)
        put(context, SAME_PLACE, place)
    else:
        fault = check(context, frame, address, size, stamp, place, kind, space)
    capacity = get(context, TRACE_CAPACITY)
    if fault == NO_FAULT and capacity and kind != START:  # the copy is recorded where it reads
        length = get(context, TRACE_LENGTH)
        if length == capacity:
            fault = TOO_MANY
        else:
            record = get(context, TRACE) + 24 * length
            put(record, 0, place)
            put(record, 1, thread)
            put(record, 2, address)
            put(context, TRACE_LENGTH, length + 1)
    return tell(context, fault, place, address, thread) if fault else NO_FAULT
