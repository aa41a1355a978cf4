"""Tests of atom and red in cuda_on_cpu/translate.py."""

import numpy as np
import pytest
from ptx_kernels import ORDERS, assert_same, edges, indexed, run_body

ACTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, x: x,
    "cas": lambda old, x, y: np.where(old == x, y, old),
}
KINDS = {
    "u32": "add min max",
    "s32": "add min max",
    "u64": "add min max",
    "s64": "min max",
    "b32": "and or xor exch cas",
    "b64": "and or xor exch cas",
    "f32": "add",
    "f64": "add",
}
N = 200


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("kind", KINDS)
def test_atomics_change_memory_and_return_what_was_there(kind, space):
    rng = np.random.default_rng(8)
    old, x, y = rng.choice(edges(kind), (3, N))
    x = np.where(rng.random(N) < 0.5, old, x)  # so that cas does it as often as not
    size = old.itemsize
    opcodes = [f"atom.{space}.{action}.{kind}" for action in KINDS[kind].split()]
    opcodes += [
        f"red.{space}.{action}.{kind}"
        for action in KINDS[kind].split()
        if action not in ("exch", "cas")
    ]
    memories = [old.copy() for _ in opcodes]
    returned = [np.zeros_like(old) for _ in opcodes]
    body = (
        indexed(*[size] * (2 + 2 * len(opcodes)))
        + f"""
    .shared .align {size} .b8 buffer[{N * size}];
    .reg .{kind} %x; .reg .{kind} %y; .reg .{kind} %old; .reg .b64 %where;
    ld.global.{kind} %x, [%a0]; ld.global.{kind} %y, [%a1];
    """
    )
    for k, opcode in enumerate(opcodes):
        memory, answer = f"%a{2 + k}", f"%a{2 + len(opcodes) + k}"
        body += f"mov.u64 %where, {memory};"
        if space == "shared":
            body += f"""
            mov.u64 %where, buffer; mad.wide.u32 %where, %i, {size}, %where;
            ld.global.{kind} %old, [{memory}]; st.shared.{kind} [%where], %old;
            """
        operands = "[%where], %x, %y;" if "cas" in opcode else "[%where], %x;"
        if opcode.startswith("atom"):
            body += f"{opcode} %old, {operands} st.global.{kind} [{answer}], %old;"
        else:
            body += f"{opcode} {operands}"
        body += f"ld.{space}.{kind} %old, [%where]; st.global.{kind} [{memory}], %old;"
    run_body(body, x, y, *memories, *returned, block=(N,))
    for opcode, memory, answer in zip(opcodes, memories, returned, strict=True):
        action = opcode.split(".")[2]
        with np.errstate(all="ignore"):
            expected = ACTIONS[action](*[old, x, y][: 3 if action == "cas" else 2])
        assert_same(memory, expected, [old, x, y], opcode)
        assert_same(answer, old if opcode.startswith("atom") else np.zeros_like(old))


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_of_all_threads_add_up(order):
    """All threads count in one cell, and those of a block in one of its own."""
    total, seen, in_block = np.zeros(1, np.uint32), np.zeros(60, np.uint32), np.zeros(4, np.uint32)
    body = """
    .shared .align 4 .b8 cell[4];
    .reg .b64 %d; .reg .b32 %i; .reg .b32 %n; .reg .b32 %r; .reg .pred %p;
    mov.u32 %i, %tid.x; mov.u64 %d, cell;
    setp.eq.s32 %p, %i, 0;
    @%p st.shared.u32 [%d], 7;
    bar.sync 0;
    red.shared.add.u32 [%d], 2;
    atom.global.add.u32 %r, [%a0], 1;
    mad.wide.u32 %a1, %r, 4, %a1;
    st.global.u32 [%a1], %r;
    bar.sync 0;
    ld.shared.u32 %r, [%d];
    mov.u32 %n, %ctaid.x; mad.wide.u32 %a2, %n, 4, %a2;
    @%p st.global.u32 [%a2], %r;
    """
    run_body(body, total, seen, in_block, grid=(4,), block=(15,), order=order)
    assert total[0] == 60
    assert seen.tolist() == list(range(60))
    assert in_block.tolist() == [37] * 4
