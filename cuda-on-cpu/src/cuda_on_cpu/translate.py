"""Translate a kernel into LLVM IR: a function that runs one thread up to where it waits.

    int32 run_thread(parameters, frame, shared, special, context, executed, thread, resume)

All but the last two are addresses. parameters: each from a multiple of 8 bytes on, then the
addresses of the module's tables. frame: of this thread, the registers that live across a wait, the
lanes that it waits for, its steps so far, its asynchronous copies and its local memory. shared: the
block's memory, and behind it the values that the threads of a warp give each other. special: 13
int64, tid, ntid, ctaid and nctaid, x, y and z of each, and the bytes of dynamic shared memory.
context: see `memory_checks`. executed: an int64 a piece of code without branches, which counts how
often it ran. thread: its number in the block. resume: 0, or the number of the place at which the
function returned last.

Returns FINISHED, FAULT if a check failed, or the number of the place where the thread waits: for
the block at a barrier; for its warp, from WARP_WAIT on, where warps synchronise or exchange values;
for the grid, from GRID_WAIT on.
"""

import re
from dataclasses import dataclass
from itertools import accumulate

from llvmlite import ir

from cuda_on_cpu import async_copies
from cuda_on_cpu import memory_checks as checks
from cuda_on_cpu.opcodes import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    Operation,
    find,
    intrinsic,
    llvm_type,
    resize,
)
from cuda_on_cpu.parse import (
    NO_LINE,
    Instruction,
    Kernel,
    Module,
    UnknownPtx,
    Variable,
    elements,
    size_of,
    take_space,
)

FINISHED, FAULT = 0x7FFFFFFF, -1
WARP_WAIT, GRID_WAIT = 1 << 30, 1 << 29
# Instructions at which threads wait, and the numbers of their operands.
WAITS = {"bar": 1, "mma": 4, "shfl": 5, "vote": 3, "match": 3, "activemask": 1}
WAITS |= {"redux": 3, "elect": 2}
EXCHANGES = "mma", "shfl", "vote", "match", "redux"  # those of them at which threads give values
ALL_LANES, ANYBODY = (1 << 32) - 1, -1  # masks; ANYBODY: whoever waits at the same place
SLOT_BYTES = 64  # that a thread can give to its warp: eight values
MOST_THREADS, WARP = 1024, 32  # threads of a block, of a warp
SHUFFLES = ("up", "down", "bfly", "idx")
MMA = ("mma", "sync", "aligned", "m16n8k8", "row", "col", "f32", "tf32", "tf32", "f32")
TF32_BITS = -(1 << 13)  # of a float32's bits, those that a tensor core reads
TID, NTID, CTAID, NCTAID = range(0, 12, 3)  # x in `special`; y and z follow
SPECIAL = {
    f"%{name}.{axis}": first + k
    for name, first in (("tid", TID), ("ntid", NTID), ("ctaid", CTAID), ("nctaid", NCTAID))
    for k, axis in enumerate("xyz")
}
SPECIAL["%dynamic_smem_size"] = 12
# Numbers of a thread in its warp, and masks of lanes: from its number in the block.
LANES = {
    "%laneid": lambda b, lane: lane,
    "%lanemask_eq": lambda b, lane: b.shl(I32(1), lane),
    "%lanemask_lt": lambda b, lane: b.sub(b.shl(I32(1), lane), I32(1)),
    "%lanemask_le": lambda b, lane: b.sub(b.shl(I32(2), lane), I32(1)),
    "%lanemask_gt": lambda b, lane: b.sub(I32(0), b.shl(I32(2), lane)),
    "%lanemask_ge": lambda b, lane: b.sub(I32(0), b.shl(I32(1), lane)),
}
ALIGNMENT = 256  # bytes: of arrays on a GPU
GAP = 1024  # guard bytes between shared arrays: out-of-bounds accesses land here
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
RACES = checks.WRITES, checks.WRITES_OF_BLOCKS
FENCES = {"membar", "fence"}  # threads run one after another here
ATOMS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
ACCESS, ACCESS_TYPE = "access", ir.FunctionType(I32, [I64] * 3 + [I32] * 5)  # checks.access
START_COPY, START_TYPE = "start_copy", ir.FunctionType(I32, [I64] * 4 + [I32] * 4)
FINISH_COPIES, FINISH_TYPE = "finish_copies", ir.FunctionType(I32, [I64] * 3 + [I32] * 3)
CHECK_TYPE = ir.FunctionType(I32, [I64] * 3 + [I32] * 2)
FUNCTION, THREAD_TYPE = "run_thread", ir.FunctionType(I32, [I64] * 6 + [I32] * 2)


@dataclass(frozen=True)
class Layout:
    """Where things are in a kernel's LLVM IR.

    frame_bytes: of each thread; local memory begins at local_start; mask_at: of the lanes that it
    waits for. shared: offsets of shared variables, in shared_bytes, behind which dynamic ones
    begin; exchange_at: of the slots in which warps exchange values, or 0. pieces: for each
    instruction of the kernel's code, the number of the piece of code, of n_pieces, whose executions
    are counted; None for labels.
    """

    frame_bytes: int
    local_start: int
    mask_at: int
    shared: dict[str, int]
    shared_bytes: int
    exchange_at: int
    pieces: list[int | None]
    n_pieces: int


def translate(kernel: Kernel, module: Module) -> tuple[str, Layout]:
    """A kernel of a module as LLVM IR. Raises UnknownPtx."""
    return _Translator(kernel, module).translation()


def _offsets(variables: dict[str, Variable], start: int, gap: int) -> tuple[dict[str, int], int]:
    """Offsets of variables with gaps between, in bytes, and the end of the last."""
    offsets = {}
    for name, variable in variables.items():
        start = -(-start // variable.align) * variable.align
        offsets[name] = start
        start += variable.size + gap
    return offsets, start


class _Translator:
    def __init__(self, kernel: Kernel, module: Module):
        self._kernel = kernel
        shared = kernel.shared.items()
        static = {n: Variable(v.size, max(16, v.align)) for n, v in shared if v.size}
        self._shared, self._shared_bytes = _offsets(static, 0, GAP)
        sizes = [-(-size // 8) * 8 for size in kernel.parameters.values()]
        *starts, end = accumulate(sizes, initial=0)
        self._parameters = dict(zip(kernel.parameters, starts, strict=True))
        self._tables = {name: end + 8 * k for k, name in enumerate(module.tables)}
        self._waits = [
            k
            for k, c in enumerate(kernel.code)
            if isinstance(c, Instruction) and c.opcode[0] in WAITS
        ]
        alive = _live_registers(kernel)
        # An exchange reads its operands before and after it waits.
        self._saved = {k: sorted(alive[k] | alive[k + 1]) for k in self._waits}
        saved = sorted(set().union(*self._saved.values()))
        self._slots = {name: 8 * k for k, name in enumerate(saved)}
        aligned = {n: Variable(v.size, max(16, v.align)) for n, v in kernel.local.items()}
        self._mask_at = 8 * len(saved)
        self._steps_at = self._mask_at + 8
        self._copies_at = self._steps_at + 8
        self._local_start = self._copies_at + async_copies.QUEUE_BYTES * self._has("cp")
        self._local, self._frame_bytes = _offsets(aligned, self._local_start, 0)
        self._exchange_at = 0
        if self._has(*EXCHANGES):
            self._exchange_at = -(-self._shared_bytes // 64) * 64 + GAP
            self._shared_bytes = self._exchange_at + 2 * MOST_THREADS * SLOT_BYTES
        self._shared_bytes = -(-self._shared_bytes // ALIGNMENT) * ALIGNMENT
        dynamic = kernel.shared.keys() - static.keys()
        self._shared |= dict.fromkeys(sorted(dynamic), self._shared_bytes)

        ir_module = ir.Module(kernel.name)
        function = ir.Function(ir_module, THREAD_TYPE, FUNCTION)
        self._any_access = ir.Function(ir_module, ACCESS_TYPE, ACCESS)
        self._start_copy = ir.Function(ir_module, START_TYPE, START_COPY)
        self._finish_copies = ir.Function(ir_module, FINISH_TYPE, FINISH_COPIES)
        self._accesses: dict[tuple, ir.Function] = {}
        self._tensor_sum_made: ir.Function | None = None
        (
            self._parameters_at,
            self._frame,
            self._shared_at,
            self._special,
            self._context,
            self._executed,
            self._thread,
            self._resume,
        ) = function.args
        self._module, self._function = ir_module, function
        self._b = ir.IRBuilder(function.append_basic_block("entry"))
        self._labels = {
            c: function.append_basic_block(c.replace("$", "D"))
            for c in kernel.code
            if isinstance(c, str)
        }
        self._pieces: list[int | None] = []
        self._n_pieces = 0

    def translation(self) -> tuple[str, Layout]:
        self._registers = {
            name: self._b.alloca(llvm_type(kind)) for name, kind in self._kernel.registers.items()
        }
        for register in self._registers.values():  # to LLVM, no value is any value
            self._b.store(ir.Constant(register.type.pointee, None), register)
        self._carry = self._b.alloca(BOOL)
        self._steps = self._b.alloca(I64)
        self._b.store(I64(0), self._steps)
        start = self._function.append_basic_block("start")
        self._failed = self._function.append_basic_block("failed")
        self._resumed = self._b.switch(self._resume, start)
        self._b.position_at_end(self._failed)
        self._b.ret(I32(FAULT))
        self._begin_piece(start)
        if self._has("cp"):
            for field in (async_copies.N_COPIES, async_copies.N_GROUPS):
                self._b.store(I64(0), self._pointer(self._queue(field), I64))
        for place, code in enumerate(self._kernel.code):
            if isinstance(code, str):
                self._branch_to(self._labels[code])
                self._begin_piece(self._labels[code])
                self._pieces.append(None)
                self._end_if_endless(place)
                continue
            self._place = place
            try:
                if code.guard:
                    self._guarded(code)
                else:
                    self._pieces.append(self._n_pieces - 1)
                    self._instruction(code)
            except (KeyError, ValueError):  # operands that no such instruction has
                raise UnknownPtx(str(code)) from None
            except UnknownPtx as unknown:
                at = f" ({code.line})" if code.line != NO_LINE else ""
                raise UnknownPtx(f"{unknown}{at}") from None
        self._branch_to(None)
        return str(self._module), Layout(
            max(16, -(-self._frame_bytes // 16) * 16),
            self._local_start,
            self._mask_at,
            self._shared,
            self._shared_bytes,
            self._exchange_at,
            self._pieces,
            self._n_pieces,
        )

    def _has(self, *names: str) -> bool:
        """Whether the kernel has instructions of these names."""
        code = self._kernel.code
        return any(isinstance(one, Instruction) and one.opcode[0] in names for one in code)

    # Control flow

    def _begin_piece(self, block: ir.Block) -> None:
        """Go on in a block, and count that it runs."""
        self._b.position_at_end(block)
        counter = self._pointer(self._b.add(self._executed, I64(8 * self._n_pieces)), I64)
        self._b.store(self._b.add(self._b.load(counter, typ=I64), I64(1)), counter)
        self._n_pieces += 1

    def _end_if_endless(self, label: int) -> None:
        """End the thread with a fault if it passed labels too often. label: place of this one."""
        b, code = self._b, self._kernel.code
        steps = b.add(b.load(self._steps, typ=I64), I64(1))
        b.store(steps, self._steps)
        endless, goes_on = (self._function.append_basic_block() for _ in range(2))
        b.cbranch(b.icmp_signed(">", steps, I64(checks.MOST_STEPS)), endless, goes_on)
        b.position_at_end(endless)
        place = next(
            (k for k in range(label, len(code)) if isinstance(code[k], Instruction)), label - 1
        )
        for field, value in ((checks.FAULT, checks.ENDLESS), (checks.FAULT_PLACE, place)):
            b.store(I64(value), self._pointer(b.add(self._context, I64(8 * field)), I64))
        b.branch(self._failed)
        b.position_at_end(goes_on)

    def _branch_to(self, block: ir.Block | None) -> None:
        """End the block, if it has no end yet: go to another, or finish."""
        if not self._b.block.is_terminated:
            if block is None:
                self._b.ret(I32(FINISHED))
            else:
                self._b.branch(block)

    def _guarded(self, code: Instruction) -> None:
        guard = self._read(code.guard, "pred")
        do = self._function.append_basic_block()
        after = self._function.append_basic_block()
        self._b.cbranch(guard, *((after, do) if code.negated else (do, after)))
        self._begin_piece(do)
        self._pieces.append(self._n_pieces - 1)
        self._instruction(code)
        self._branch_to(after)
        self._begin_piece(after)

    def _instruction(self, code: Instruction) -> None:
        name = code.opcode[0]
        if name == "bra":
            self._b.branch(self._labels[code.operands[0]])
            self._begin_piece(self._function.append_basic_block())
        elif name in ("ret", "exit"):
            if self._has("cp"):
                self._wait_for_copies(async_copies.AT_END)
            self._b.ret(I32(FINISHED))
            self._begin_piece(self._function.append_basic_block())
        elif name == "bar":
            self._barrier(code)
        elif name == "mma":
            self._multiply_matrices(code)
        elif name == "shfl":
            self._shuffle(code)
        elif name == "vote":
            self._vote(code)
        elif name == "match":
            self._match(code)
        elif name == "activemask":
            self._wait(code, I64(ANYBODY))
            self._write(code.operands[0], self._group(), "b32")
        elif name == "redux":
            self._reduce(code)
        elif name == "elect":
            self._elect(code)
        elif name == "cp":
            self._copy(code)
        elif name in ("ld", "st"):
            self._load_or_store(code)
        elif name in ("atom", "red"):
            self._atomic(code)
        elif name == "print":
            self._print(code)
        elif name == "mov":
            self._move(code)
        elif name == "cvta":  # addresses are the same in all spaces here
            self._write(code.operands[0], self._read(code.operands[1], "u64"), "u64")
        elif name not in FENCES:
            self._compute(code)

    def _barrier(self, code: Instruction) -> None:
        match code.opcode:
            case ("bar", "sync" | "grid") if code.operands == ("0",):
                self._wait(code, I64(ALL_LANES))
            case ("bar", "warp", "sync"):
                self._wait(code, self._mask(code.operands[0]))
            case _:
                raise UnknownPtx(f"the barrier {code}")

    def _mask(self, operand: str) -> ir.Value:
        """A mask of lanes, 64 bits."""
        return self._b.zext(self._read(operand, "b32"), I64)

    def _wait(self, code: Instruction, mask: ir.Value) -> None:
        """Save the live registers and return; a resumed thread loads them and goes on from here.

        mask: of the lanes of its warp that the thread waits for.
        """
        if len(code.operands) != WAITS[code.opcode[0]] or code.guard:
            raise UnknownPtx(str(code))
        b, saved = self._b, self._saved[self._place]
        kinds = {"bar.sync": 0, "bar.grid": GRID_WAIT}
        first = kinds.get(".".join(code.opcode), WARP_WAIT)
        number = I32(first + 1 + self._waits.index(self._place))
        for name in saved:
            stored = llvm_type(self._kernel.registers[name])
            b.store(b.load(self._registers[name], typ=stored), self._slot(name, stored))
        b.store(mask, self._pointer(b.add(self._frame, I64(self._mask_at)), I64))
        steps_at = b.add(self._frame, I64(self._steps_at))
        steps = b.add(b.load(self._steps, typ=I64), I64(checks.STEPS_OF_WAIT))
        b.store(steps, self._pointer(steps_at, I64))
        b.ret(number)
        resume = self._function.append_basic_block()
        self._resumed.add_case(number, resume)
        self._begin_piece(resume)
        for name in saved:
            stored = llvm_type(self._kernel.registers[name])
            b.store(b.load(self._slot(name, stored), typ=stored), self._registers[name])
        steps_at = b.add(self._frame, I64(self._steps_at))
        b.store(b.load(self._pointer(steps_at, I64), typ=I64), self._steps)

    def _group(self) -> ir.Value:
        """The lanes with which the thread goes on after a wait, int32."""
        b = self._b
        mask_at = self._pointer(b.add(self._frame, I64(self._mask_at)), I64)
        return b.trunc(b.load(mask_at, typ=I64), I32)

    def _give(self, code: Instruction, mask: ir.Value, values: list[ir.Value]) -> ir.Value:
        """Give values of at most 64 bits to the warp and wait for its other threads in the mask.

        Returns the address of what the warp's threads have given, SLOT_BYTES each.
        """
        b = self._b
        slot = self._slots_at(self._thread, 0)
        for k, value in enumerate(values):
            wide = value if value.type == I64 else b.zext(value, I64)
            b.store(wide, self._pointer(b.add(slot, I64(8 * k)), I64))
        self._wait(code, mask)
        return self._slots_at(b.and_(self._thread, I32(-32)), MOST_THREADS * SLOT_BYTES)

    def _slots_at(self, thread: ir.Value, start: int) -> ir.Value:
        """The address of a thread's slot."""
        b = self._b
        slot = b.mul(b.zext(thread, I64), I64(SLOT_BYTES))
        return b.add(b.add(self._shared_at, I64(self._exchange_at + start)), slot)

    def _taken(self, slots: ir.Value, lane: ir.Value) -> ir.Value:
        """The first value that a lane has given, int64. lane: int32."""
        b = self._b
        place = b.zext(b.mul(lane, I32(SLOT_BYTES)), I64)
        return b.load(self._pointer(b.add(slots, place), I64), typ=I64)

    def _lanes_with(self, slots: ir.Value, value: ir.Value) -> ir.Value:
        """The lanes of the thread's group that have given a value, int64; as bits, int32."""
        b, found = self._b, I32(0)
        for lane in range(WARP):
            is_same = b.icmp_unsigned("==", self._taken(slots, I32(lane)), value)
            found = b.or_(found, b.shl(b.zext(is_same, I32), I32(lane)))
        return b.and_(found, self._group())

    def _multiply_matrices(self, code: Instruction) -> None:
        """d = A B + c of a warp; A 16 x 8, B 8 x 8, spread over its threads as PTX's ISA says."""
        if code.opcode != MMA:
            raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        targets, a_parts, b_parts, c_parts = map(elements, code.operands)
        values = [self._read(one, "b32") for one in (*a_parts, *b_parts)]
        slots = self._give(code, I64(ALL_LANES), values)
        b = self._b
        lane = b.and_(self._thread, I32(31))
        group, place = b.lshr(lane, I32(2)), b.and_(lane, I32(3))
        found = []
        for k, start in enumerate(c_parts):
            column = b.add(b.shl(place, I32(1)), I32(k % 2))
            arguments = slots, group, I32(k // 2), column, self._read(start, "f32")
            found.append(b.call(self._tensor_sum(), arguments))
        for target, value in zip(targets, found, strict=True):
            self._write(target, value, "f32")

    def _shuffle(self, code: Instruction) -> None:
        """The value of another lane, as PTX's ISA says; of its own where there is none."""
        match code.opcode:
            case ("shfl", "sync", mode, "b32") if mode in SHUFFLES:
                target, value, by, clamp, mask = code.operands
            case _:
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        slots = self._give(code, self._mask(mask), [self._read(value, "b32")])
        b = self._b
        lane, bounds = b.and_(self._thread, I32(31)), self._read(clamp, "b32")
        segment = b.lshr(bounds, I32(8))
        low = b.and_(lane, segment)
        last = b.and_(b.or_(low, b.and_(bounds, b.not_(segment))), I32(31))
        step = b.and_(self._read(by, "b32"), I32(31))
        asked = {
            "up": lambda: b.sub(lane, step),
            "down": lambda: b.add(lane, step),
            "bfly": lambda: b.xor(lane, step),
            "idx": lambda: b.or_(low, b.and_(step, b.not_(segment))),
        }[mode]()
        is_within = b.icmp_signed(">=" if mode == "up" else "<=", asked, last)
        found = b.trunc(self._taken(slots, b.select(is_within, asked, lane)), I32)
        register, *predicate = target.split("|")
        self._write(register, found, "b32")
        for name in predicate:
            self._write(name, is_within, "pred")

    def _vote(self, code: Instruction) -> None:
        """Whether a predicate holds in all, any, or all or none of the group's lanes; or where."""
        target, predicate, mask = code.operands
        given = self._read(predicate.removeprefix("!"), "pred")
        b = self._b
        given = b.xor(given, BOOL(1)) if predicate.startswith("!") else given
        slots = self._give(code, self._mask(mask), [given])
        held = self._lanes_with(slots, I64(1))
        is_all = b.icmp_unsigned("==", held, self._group())
        is_any = b.icmp_unsigned("!=", held, I32(0))
        match code.opcode:
            case ("vote", "sync", "ballot", "b32"):
                self._write(target, held, "b32")
            case ("vote", "sync", "all", "pred"):
                self._write(target, is_all, "pred")
            case ("vote", "sync", "any", "pred"):
                self._write(target, is_any, "pred")
            case ("vote", "sync", "uni", "pred"):
                self._write(target, b.or_(is_all, b.not_(is_any)), "pred")
            case _:
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")

    def _match(self, code: Instruction) -> None:
        """The lanes of the group that have the same value; of `all`, 0 unless these are all."""
        target, value, mask = code.operands
        match code.opcode:
            case ("match", "any" | "all" as kind, "sync", "b32" | "b64" as size):
                given = self._read(value, size)
            case _:
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        slots, b = self._give(code, self._mask(mask), [given]), self._b
        found = self._lanes_with(slots, self._taken(slots, b.and_(self._thread, I32(31))))
        if kind == "all":
            is_all = b.icmp_unsigned("==", found, self._group())
            found = b.select(is_all, found, I32(0))
        register, *predicate = target.split("|")
        self._write(register, found, "b32")
        for name in predicate:
            self._write(name, is_all, "pred")

    def _reduce(self, code: Instruction) -> None:
        """One operation over the values of the group's lanes."""
        target, value, mask = code.operands
        match code.opcode:
            case ("redux", "sync", action, kind) if action in REDUCTIONS and kind != "f32":
                operation = find((action, kind))
            case _:
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        slots, b = self._give(code, self._mask(mask), [self._read(value, kind)]), self._b
        found = I32(0) if action in ("add", "xor") else self._read(value, kind)
        for lane in range(WARP):
            more = operation.emit(b, found, b.trunc(self._taken(slots, I32(lane)), I32))
            is_there = b.trunc(b.lshr(self._group(), I32(lane)), BOOL)
            found = b.select(is_there, more, found)
        self._write(target, found, kind)

    def _elect(self, code: Instruction) -> None:
        """The first lane of the group, and whether it is this one."""
        target, mask = code.operands
        if code.opcode != ("elect", "sync"):
            raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        self._wait(code, self._mask(mask))
        b = self._b
        leader, (register, predicate) = b.cttz(self._group(), BOOL(0)), target.split("|")
        self._write(register, leader, "b32")
        is_leader = b.icmp_unsigned("==", leader, b.and_(self._thread, I32(31)))
        self._write(predicate, is_leader, "pred")

    def _tensor_sum(self) -> ir.Function:
        """c + sum over k of A[row + 8 part, k] B[k, column], from the slots of a warp.

        A model of the hardware, whose sums are not documented: products of the upper 19 bits, which
        are exact, are added to c in float64, and the sum is cut toward zero to a float32.
        """
        if self._tensor_sum_made is None:
            kind = ir.FunctionType(F32, [I64, I32, I32, I32, F32])
            made = ir.Function(self._module, kind, "tensor_sum")
            made.linkage = "internal"
            made.attributes.add("noinline")
            b = ir.IRBuilder(made.append_basic_block())
            slots, row, part, column, start = made.args

            def value(lane: ir.Value, word: ir.Value) -> ir.Value:
                place = b.add(b.mul(lane, I32(SLOT_BYTES)), b.mul(word, I32(8)))
                pointer = b.inttoptr(b.add(slots, b.zext(place, I64)), I32.as_pointer())
                bits = b.and_(b.load(pointer, typ=I32), I32(TF32_BITS))
                return b.fpext(b.bitcast(bits, F32), F64)

            total = b.fpext(start, F64)
            for k in range(8):
                a = value(b.add(b.shl(row, I32(2)), I32(k % 4)), b.add(part, I32(k // 4 * 2)))
                m = value(b.add(b.shl(column, I32(2)), I32(k % 4)), I32(4 + k // 4))
                total = b.fadd(total, b.fmul(a, m))
            near = b.fptrunc(total, F32)
            size, back = (intrinsic(b, "llvm.fabs", one) for one in (total, b.fpext(near, F64)))
            bits = b.bitcast(near, I32)
            below = b.bitcast(b.sub(bits, I32(1)), F32)
            b.ret(b.select(b.fcmp_ordered(">", back, size), below, near))
            self._tensor_sum_made = made
        return self._tensor_sum_made

    def _slot(self, register: str, kind: ir.Type) -> ir.Value:
        return self._pointer(self._b.add(self._frame, I64(self._slots[register])), kind)

    # Operands

    def _pointer(self, address: ir.Value, kind: ir.Type) -> ir.Value:
        return self._b.inttoptr(address, kind.as_pointer())

    def _read(self, operand: str | None, kind: str) -> ir.Value:
        """An operand as a value of a PTX type."""
        assert operand is not None
        wanted = llvm_type(kind)
        if operand in SPECIAL:
            address = self._b.add(self._special, I64(8 * SPECIAL[operand]))
            value = self._b.load(self._pointer(address, I32), typ=I32)
        elif operand in LANES:
            value = LANES[operand](self._b, self._b.and_(self._thread, I32(31)))
        elif operand == "WARP_SZ":
            value = I32(WARP)
        elif operand in self._registers:
            stored = llvm_type(self._kernel.registers[operand])
            value = self._b.load(self._registers[operand], typ=stored)
        elif re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", operand):
            value = ir.Constant(ir.IntType(4 * (len(operand) - 2)), int(operand[2:], 16))
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            bits = wanted.width if isinstance(wanted, ir.IntType) else 8 * size_of(kind)
            value = ir.Constant(ir.IntType(bits), int(operand.rstrip("U"), 0) & ((1 << bits) - 1))
        else:
            value = self._symbol(operand)
        if value.type == wanted:
            return value
        if isinstance(value.type, ir.IntType) and isinstance(wanted, ir.IntType):
            return resize(self._b, value, wanted, False)
        return self._b.bitcast(value, wanted)

    def _symbol(self, name: str) -> ir.Value:
        """The address of a variable."""
        if name in self._shared:
            return self._b.add(self._shared_at, I64(self._shared[name]))
        if name in self._local:
            return self._b.add(self._frame, I64(self._local[name]))
        if name in self._tables:
            place = self._b.add(self._parameters_at, I64(self._tables[name]))
            return self._b.load(self._pointer(place, I64), typ=I64)
        raise UnknownPtx(f"the operand {name}")

    def _write(self, register: str, value: ir.Value, kind: str) -> None:
        """Put a value of a PTX type into a register, which may be wider; "_" drops it."""
        if register == "_":
            return
        if register not in self._registers:
            raise UnknownPtx(f"the register {register}")
        stored = llvm_type(self._kernel.registers[register])
        if isinstance(value.type, ir.IntType) and isinstance(stored, ir.IntType):
            value = resize(self._b, value, stored, kind[0] == "s")
        elif value.type != stored:
            value = self._b.bitcast(value, stored)
        self._b.store(value, self._registers[register])

    # Instructions

    def _compute(self, code: Instruction) -> None:
        operation: Operation = find(code.opcode)
        target, *operands = code.operands
        pairs = zip(operands, operation.operands, strict=True)
        values = [self._read(operand, kind) for operand, kind in pairs]
        if operation.carry:
            carry = self._b.load(self._carry, typ=BOOL)
            value, carry = operation.emit(self._b, *values, carry)
            self._b.store(carry, self._carry)
        else:
            value = operation.emit(self._b, *values)
        self._write(target, value, operation.result)

    def _move(self, code: Instruction) -> None:
        target, source = code.operands
        kind = code.opcode[-1]
        if len(code.opcode) != 2:
            raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        parts, into = elements(source), elements(target)
        if len(parts) == len(into) == 1:
            self._write(target, self._read(source, kind), kind)
            return
        part = f"b{8 * size_of(kind) // max(len(parts), len(into))}"
        width = 8 * size_of(part)
        whole = llvm_type(kind)
        if len(parts) > 1:
            value: ir.Value = ir.Constant(whole, 0)
            for k, operand in enumerate(parts):
                extended = self._b.zext(self._read(operand, part), whole)
                value = self._b.or_(value, self._b.shl(extended, whole(k * width)))
            self._write(target, value, kind)
            return
        value = self._read(source, kind)
        for k, register in enumerate(into):
            shifted = self._b.lshr(value, whole(k * width))
            self._write(register, self._b.trunc(shifted, llvm_type(part)), part)

    def _load_or_store(self, code: Instruction) -> None:
        name, *modifiers, kind = code.opcode
        space, n = take_space(modifiers), 1
        for modifier in modifiers:
            if modifier in ("v2", "v4"):
                n = int(modifier[1])
            elif modifier not in ("nc", "volatile", "relaxed", "gpu", "cta"):
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        where, registers = code.operands if name == "st" else reversed(code.operands)
        address, vector = self._address(where, space), elements(registers)
        if len(vector) != n or (
            name == "st" and re.findall(r"[\w$]+", where)[0] in self._parameters
        ):
            raise UnknownPtx(str(code))
        pointers = [
            self._pointer(self._b.add(address, I64(k * size_of(kind))), llvm_type(kind))
            for k in range(n)
        ]
        if name == "st":
            values = [self._read(register, kind) for register in vector]
            if space != "param":
                self._check_write(address, space, kind, pointers, values)
            for pointer, value in zip(pointers, values, strict=True):
                self._b.store(value, pointer)
            return
        if space != "param":
            reading = checks.VOLATILE if "volatile" in modifiers else checks.READ
            self._check(address, n * size_of(kind), space, reading)
        for pointer, register in zip(pointers, vector, strict=True):
            self._write(register, self._b.load(pointer, typ=llvm_type(kind)), kind)

    def _atomic(self, code: Instruction) -> None:
        """A read and a write that no other thread comes between: here none can."""
        name, *modifiers, kind = code.opcode
        space = take_space(modifiers)
        action = next((m for m in modifiers if m in ATOMS), None)
        known = {action, "relaxed", "sys", "gpu", "cta", "noftz"}
        if action is None or not set(modifiers) <= known:
            raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")
        target, where, *operands = code.operands if name == "atom" else ("", *code.operands)
        address = self._address(where, space)
        self._check(address, size_of(kind), space, checks.ATOMIC)
        pointer = self._pointer(address, llvm_type(kind))
        old = self._b.load(pointer, typ=llvm_type(kind))
        values = [self._read(operand, kind) for operand in operands]
        if action == "exch":
            new = values[0]
        elif action == "cas":
            new = self._b.select(self._b.icmp_unsigned("==", old, values[0]), values[1], old)
        elif action in ("inc", "dec"):  # within 0 and the operand; else start again
            b, (most,), zero, one = self._b, values, old.type(0), old.type(1)
            if action == "inc":
                new = b.select(b.icmp_unsigned(">=", old, most), zero, b.add(old, one))
            else:
                is_out = b.or_(b.icmp_unsigned("==", old, zero), b.icmp_unsigned(">", old, most))
                new = b.select(is_out, most, b.sub(old, one))
        else:
            new = find((action, kind)).emit(self._b, old, *values)
        self._b.store(new, pointer)
        if target:
            self._write(target, old, kind)

    def _print(self, code: Instruction) -> None:
        """Call the context's function with the addresses of a format and of its values."""
        b = self._b
        places = [self._address(operand, "param") for operand in code.operands]
        places.append(b.add(self._context, I64(8 * checks.PRINT)))
        *values, function = (b.load(self._pointer(place, I64), typ=I64) for place in places)
        b.call(self._pointer(function, ir.FunctionType(ir.VoidType(), [I64] * 2)), values)

    def _copy(self, code: Instruction) -> None:
        """An asynchronous copy, the end of a group of them, or a wait for groups."""
        _, _, *modifiers = code.opcode
        b = self._b
        match modifiers:
            case ["ca" | "cg", "shared", "global"]:
                to, start, size, *present = code.operands
                n = int(size)
                target, source = self._address(to, "shared"), self._address(start, "global")
                n_present = self._read(present[0], "u32") if present else I32(n)
                self._check(target, n, "shared", checks.START)
                with b.if_then(b.icmp_unsigned("!=", n_present, I32(0))):
                    self._check(source, n, "global", checks.READ)
                queue = self._queue(async_copies.N_COPIES)
                copy = self._context, queue, target, source, I32(n), n_present
                numbers = self._thread, I32(self._place)
                self._fail_if(b.call(self._start_copy, (*copy, *numbers)))
            case ["commit_group"]:
                groups = self._pointer(self._queue(async_copies.N_GROUPS), I64)
                b.store(b.add(b.load(groups, typ=I64), I64(1)), groups)
            case ["wait_group" | "wait_all"]:
                pending = int(code.operands[0]) if code.operands else async_copies.ALL
                self._wait_for_copies(pending)
            case _:
                raise UnknownPtx(f"the opcode {'.'.join(code.opcode)}")

    def _wait_for_copies(self, n_pending: int) -> None:
        """Call async_copies.finish_copies, and end the thread if it finds a fault."""
        queue, numbers = self._queue(async_copies.N_COPIES), (self._thread, I32(self._place))
        waited = self._context, self._frame, queue, I32(n_pending)
        self._fail_if(self._b.call(self._finish_copies, (*waited, *numbers)))

    def _queue(self, field: int) -> ir.Value:
        """The address of a field of the thread's asynchronous copies."""
        return self._b.add(self._frame, I64(self._copies_at + 8 * field))

    def _address(self, operand: str, space: str) -> ir.Value:
        match = re.fullmatch(r"\[([%$\w]+)(?:\+(-?\d+))?\]", operand)
        if not match:
            raise UnknownPtx(f"the address {operand}")
        base, offset = match[1], int(match[2] or 0)
        if space == "param" and base in self._parameters:
            return self._b.add(self._parameters_at, I64(self._parameters[base] + offset))
        return self._b.add(self._read(base, "u64"), I64(offset))

    def _check(self, address: ir.Value, size: int, space: str, kind: int) -> None:
        """Call checks.access, and end the thread if it finds a fault."""
        access = self._access(size, kind, checks.SPACES[space])
        arguments = (self._context, self._frame, address, self._thread, I32(self._place))
        self._fail_if(self._b.call(access, arguments))

    def _check_write(
        self,
        address: ir.Value,
        space: str,
        kind: str,
        pointers: list[ir.Value],
        values: list[ir.Value],
    ) -> None:
        """As `_check`, of a write; a race with a write of the same values is only noted."""
        b, size = self._b, len(values) * size_of(kind)
        arguments = self._context, self._frame, address, self._thread, I32(self._place)
        found = b.call(self._access(size, checks.WRITE, checks.SPACES[space]), arguments)
        good, compare, same = (self._function.append_basic_block() for _ in range(3))
        suspect = self._function.append_basic_block()
        b.cbranch(b.icmp_signed("==", found, I32(checks.NO_FAULT)), good, suspect)
        b.position_at_end(suspect)
        is_race = b.or_(*(b.icmp_signed("==", found, I32(one)) for one in RACES))
        b.cbranch(is_race, compare, self._failed)
        b.position_at_end(compare)
        is_same = BOOL(1)
        for pointer, value in zip(pointers, values, strict=True):
            bits = ir.IntType(8 * size_of(kind))
            there = b.load(b.bitcast(pointer, bits.as_pointer()), typ=bits)
            new = value if isinstance(value.type, ir.IntType) else b.bitcast(value, bits)
            is_same = b.and_(is_same, b.icmp_unsigned("==", there, resize(b, new, bits, False)))
        b.cbranch(is_same, same, self._failed)
        b.position_at_end(same)
        b.call(self._access(size, checks.SAME, checks.SPACES[space]), arguments)
        b.branch(good)
        b.position_at_end(good)

    def _fail_if(self, found: ir.Value) -> None:
        """End the thread if a check found a fault."""
        good = self._function.append_basic_block()
        self._b.cbranch(self._b.icmp_signed("==", found, I32(0)), good, self._failed)
        self._b.position_at_end(good)

    def _access(self, size: int, kind: int, space: int) -> ir.Function:
        """checks.access for one size, kind and space: so LLVM drops the branches of the others."""
        key = size, kind, space
        if key not in self._accesses:
            made = ir.Function(self._module, CHECK_TYPE, "check{}_{}_{}".format(*key))
            made.linkage = "internal"
            made.attributes.add("noinline")
            b = ir.IRBuilder(made.append_basic_block())
            context, frame, address, thread, place = made.args
            numbers = (I32(size), thread, place, I32(kind), I32(space))
            b.ret(b.call(self._any_access, (context, frame, address, *numbers)))
            self._accesses[key] = made
        return self._accesses[key]


def _live_registers(kernel: Kernel) -> list[frozenset[str]]:
    """For each place in the code, the registers whose values are still needed from there on.

    A thread keeps those at a barrier.
    """
    places = {c: k for k, c in enumerate(kernel.code) if isinstance(c, str)}
    alive: list[frozenset[str]] = [frozenset()] * (len(kernel.code) + 1)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(kernel.code))):
            code = kernel.code[place]
            found = alive[place + 1]
            if isinstance(code, Instruction):
                if code.opcode[0] == "bra":
                    if code.operands[0] not in places:
                        raise UnknownPtx(f"the label of {code}")
                    jumped = alive[places[code.operands[0]]]
                    found = jumped | found if code.guard else jumped
                elif code.opcode[0] in ("ret", "exit") and not code.guard:
                    found = frozenset()
                written, read = _registers_of(code, kernel)
                found = (found if code.guard else found - written) | read
            if found != alive[place]:
                alive[place], changed = found, True
    return alive


def _registers_of(code: Instruction, kernel: Kernel) -> tuple[set[str], set[str]]:
    """The registers that an instruction writes and those that it reads."""
    n_targets = 0 if code.opcode[0] in ("st", "red", "bra", "bar", "ret", "cp", "print") else 1
    found = [
        {name for name in re.findall(r"%?[\w$.]+", operand) if name in kernel.registers}
        for operand in code.operands
    ]
    written = set().union(*found[:n_targets])
    read = set().union(*found[n_targets:], [code.guard] if code.guard else [])
    return written, read
