"""PTX that cuda_on_cpu does not know: it says what."""

import numpy as np
import pytest
from ptx_kernels import run_body

from cuda_on_cpu.opcodes import find
from cuda_on_cpu.parse import UnknownPtx
from cuda_on_cpu.run import Program

# Opcodes

OPCODES = """
    add.sat.s32 add.rm.f32 add.ftz.f32 addc.cc.f32 and.f32 bfe.u32 cvt.f32.f64
    cvt.f32.s32 cvt.sat.f16.f32 cvt.rz.f32.f64 cvt.s32.f32 cvt.sat.s32.s32 cvt.sat.u8.s32
    cvt.rni.f64.f32 copysign.f16 div.f32 div.rz.f32 dp4a.u32.u32 ex2.f32 ex2.approx.f64
    fma.f32 fma.rn.ftz.f32 fma.rz.f64 lop3.b32 mad.f32 mad.s32 max.NaN.f32 min.ftz.f32 mul.s32
    mul24.lo.s32 neg.ftz.f32 prmt.b32.f4e rcp.rz.f32 selp.x.b32 setp.f32 setp.lt.and.s32
    setp.nan.s32 setp.num.u32 setp.ltx.s32 setp.ltu.s32 shf.l.b32 shf.x.wrap.b32 shf.l.wrap.u64
    add.sat.f16 set.x.f16.f16 set.lt.f16x2.f16x2 setp.lt.f16x2 shl.x.b32 sin.f32 sqrt.f16 sqrt.f32
    tanh.x trap
"""


@pytest.mark.parametrize("opcode", OPCODES.split())
def test_an_unknown_opcode_is_named(opcode):
    with pytest.raises(UnknownPtx, match=f"^the opcode {opcode}$"):
        find(tuple(opcode.split(".")))


# Statements

REGISTERS = ".reg .pred %p; .reg .b16 %h; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %d<3>;"
STATEMENTS = {
    "shfl.idx.b32 %r0, %r1, 0, 31, -1": "the opcode shfl.idx.b32",
    "vote.ballot.b32 %r0, %p, -1": "the opcode vote.ballot.b32",
    "match.any.sync.b16 %r0, %h, -1": "the opcode match.any.sync.b16",
    "call.uni f, (a)": "the function f",
    "call.uni %d0, (a)": "the function %d0",
    "@%p call f": "@%p call f",
    "trap": "the opcode trap",
    "bar.sync 0, 32": "the barrier bar.sync 0, 32",
    "cp.async.ca.global.shared [%d0], [%d1], 16": "the opcode cp.async.ca.global.shared",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %r0, %r0, %r0, %r0": "the opcode "
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "bar.arrive 0": "the barrier bar.arrive 0",
    "@%p bar.sync 0": "@%p bar.sync 0",
    "mov.u32 %r0, %clock": "the operand %clock",
    "mov.u64 %d0, nothing": "the operand nothing",
    "add.s32 %r9, %r0, 1": "the register %r9",
    "setp.eq.s32 %p|%p, %r0, 1": "the register %p|%p",
    "mov.b32.x %r0, 1": "the opcode mov.b32.x",
    "st.global.e32 [%d0], %r0": "the type e32",
    ".reg .bf16 %g": "the type bf16",
    ".reg .b32 %h": "another type of %h: .reg .b32 %h",
    "redux.sync.min.f32 %f0, %f1, -1": "the opcode redux.sync.min.f32",
    "elect.x %r0|%p, -1": "the opcode elect.x",
    "ld.global.ca.u32 %r0, [%d0]": "the opcode ld.global.ca.u32",
    "ld.global.v2.u32 %r0, [%d0]": "ld.global.v2.u32 %r0, [%d0]",
    "ld.global.u32 {%r0, %r1}, [%d0]": "ld.global.u32 <%r0, %r1>, [%d0]",
    "ld.tex.u32 %r0, [%d0]": "the opcode ld.tex.u32",
    "@!%p st.x.u32 [%d0], %r0": "the opcode st.x.u32",
    "mov.u64 %d0, _": "the operand _",
    "st.param.u32 [p0], %r0": "st.param.u32 [p0], %r0",
    "ld.global.u32 %r0, [%d0+%d1]": "the address [%d0+%d1]",
    "atom.acquire.global.add.u32 %r0, [%d0], 3": "the opcode atom.acquire.global.add.u32",
    "atom.tex.add.u32 %r0, [%d0], 3": "the opcode atom.tex.add.u32",
    ".branchtargets $L1, $L2": ".branchtargets $L1, $L2",
    ".shared .align 4 .f32 x[4]": ".shared .align 4 .f32 x[4]",
    "%r0 = 1": "%r0 = 1",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_unknown_statement_is_named(statement):
    with pytest.raises(UnknownPtx) as error:
        run_body(f"{REGISTERS} {statement};", np.zeros(1))
    assert str(error.value) == STATEMENTS[statement]


@pytest.mark.parametrize(
    ("ptx", "named"),
    [
        (".func f() { call g; } .visible .entry k() { call f; }", "the function g"),
        (
            ".func f() { call g; } .func g() { call f; } .visible .entry k() { call f; }",
            "the recursion of k -> f -> g -> f",
        ),
        (".global .align 4 .b8 x[4];", ".global .align 4 .b8 x[4]"),
        (".alias a, b;", ".alias a, b"),
        (".visible .entry k() { ret;", "a kernel without an end"),
        (".visible .entry k(.param .b8 x[]) { ret; }", "the parameter '.param .b8 x[]'"),
    ],
)
def test_an_unknown_declaration_is_named(ptx, named):
    with pytest.raises(UnknownPtx) as error:
        Program(ptx)
    assert str(error.value) == named
