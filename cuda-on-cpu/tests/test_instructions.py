"""Tests of cuda_on_cpu/translate.py: memory, moves, branches, special registers."""

import numpy as np
import pytest
from ptx_cases import INTEGER_KINDS, wrap
from ptx_kernels import DTYPES, ORDERS, assert_same, edges, indexed, run_body, run_text

from cuda_on_cpu import KernelFault

WIDTHS = (8, 16, 32, 64)

# Memory


def values_of(kind, n=64):
    rng = np.random.default_rng(5)
    return rng.choice(edges(kind), n)


@pytest.mark.parametrize("kind", [*INTEGER_KINDS, "b8", "b16", "b32", "b64"])
def test_a_load_extends_to_the_registers_width(kind):
    data = values_of(kind)
    wider = [w for w in WIDTHS[1:] if w >= 8 * data.itemsize]
    found = [np.zeros(64, f"u{w // 8}") for w in wider]
    body = indexed(data.itemsize, *(w // 8 for w in wider))
    for k, w in enumerate(wider):
        body += (
            f".reg .b{w} %r{k}; ld.global.{kind} %r{k}, [%a0]; st.global.b{w} [%a{k + 1}], %r{k};"
        )
    run_body(body, data, *found, block=(64,))
    for w, result in zip(wider, found, strict=True):
        extended = [wrap(f"u{w}", int(value)) for value in data]
        np.testing.assert_array_equal(result, np.array(extended, result.dtype))


@pytest.mark.parametrize("register", [16, 32, 64])
def test_a_store_cuts_off(register):
    data = values_of(f"u{register}")
    widths = [w for w in WIDTHS if w <= register]
    found = [np.zeros((64, 2), f"u{w // 8}") for w in widths]
    body = indexed(data.itemsize, *(w // 4 for w in widths))
    body += f".reg .b{register} %r; ld.global.u{register} %r, [%a0];"
    for k, w in enumerate(widths):
        body += f"st.global.{'us'[k % 2]}{w} [%a{k + 1}], %r;"
    run_body(body, data, *found, block=(64,))
    for w, result in zip(widths, found, strict=True):
        np.testing.assert_array_equal(result[:, 0], data.astype(f"u{w // 8}"))
        assert not result[:, 1].any()  # nothing beside it


@pytest.mark.parametrize("modifier", ["", "nc."])
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("kind", ["u8", "s8", "s16", "b32", "f32", "u64", "f64"])
def test_vectors_keep_their_order(kind, n, modifier):
    if n * DTYPES[kind].itemsize > 16:
        n = 16 // DTYPES[kind].itemsize
    data = values_of(kind, 64 * n)
    found = [np.zeros_like(data) for _ in range(2)]
    size = n * data.itemsize
    register = kind if kind[1:] != "8" else f"{kind[0]}16"
    ahead = ", ".join(f"%r{k}" for k in range(n))
    back = ", ".join(f"%r{n - 1 - k}" for k in range(n))
    body = f"""
    .reg .{register} %r<{n}>;
    ld.global.{modifier}v{n}.{kind} {{{ahead}}}, [%a0];
    st.global.v{n}.{kind} [%a1], {{{ahead}}};
    st.global.v{n}.{kind} [%a2], {{{back}}};
    """
    run_body(indexed(size, size, size) + body, data, *found, block=(64,))
    assert_same(found[0], data)
    assert_same(found[1], np.ascontiguousarray(data.reshape(64, n)[:, ::-1]).reshape(-1))


def test_addresses_have_offsets():
    data, found = np.arange(10, 16, dtype=np.uint32), np.zeros(6, np.uint32)
    run_body(
        """
        .reg .b32 %r<3>; .reg .b64 %d;
        ld.global.u32 %r0, [%a0];
        add.s64 %d, %a0, 16;
        ld.global.u32 %r1, [%d+-12];
        ld.global.u32 %r2, [%d+4];
        st.global.u32 [%a1+8], %r0;
        st.global.v2.u32 [%a1+16], {%r1, %r2};
        """,
        data,
        found,
    )
    assert found.tolist() == [0, 0, 10, 0, 11, 15]


def test_parameters_have_their_types():
    kinds = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")
    for pick in (0, -1, 5):
        values = [np.sort(edges(kind)[~np.isnan(edges(kind))])[pick] for kind in kinds]
        found = [np.zeros(1, v.dtype if v.itemsize > 1 else f"{v.dtype.kind}4") for v in values]
        head = ", ".join(f".param .{kind} v{k}" for k, kind in enumerate(kinds))
        outputs = ", ".join(f".param .u64 p{k}" for k in range(len(kinds)))
        body = ".reg .b64 %a;"
        for k, kind in enumerate(kinds):
            wide = kind if kind[1:] != "8" else f"{kind[0]}32"
            body += f".reg .{wide} %r{k}; ld.param.{kind} %r{k}, [v{k}]; ld.param.u64 %a, [p{k}];"
            body += f"st.global.{wide} [%a], %r{k};"
        ptx = f".visible .entry k({outputs}, {head}) {{ {body} ret; }}"
        run_text(ptx, found, more=[value.tobytes() for value in values])
        for value, result in zip(values, found, strict=True):
            assert result[0] == value


def test_a_parameter_may_be_a_structure():
    found = np.zeros(3, np.uint64)
    body = """
    .reg .b64 %a<4>;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [s+8];
    ld.param.u32 %a2, [s+16]; ld.param.u64 %a3, [n];
    st.global.u64 [%a0], %a1; st.global.u64 [%a0+8], %a2; st.global.u64 [%a0+16], %a3;
    """
    head = ".param .u64 p0, .param .align 8 .b8 s[20], .param .u64 n"
    more = np.uint64([1, 2]).tobytes() + np.uint32(3).tobytes(), np.uint64(4).tobytes()
    run_text(f".visible .entry k({head}) {{ {body} ret; }}", [found], more=more)
    assert found.tolist() == [2, 3, 4]


def test_constant_tables_are_read():
    table = np.array([0.5, -0.0, 1e30, np.inf], np.float32)
    content = ", ".join(map(str, table.tobytes()))
    found = np.zeros((2, 5), np.float32)
    body = """
    .reg .b64 %d<3>; .reg .b32 %i; .reg .f32 %f; .reg .f32 %g;
    mov.u32 %i, %tid.x; mov.u64 %d0, other; mov.u64 %d2, _ZN5Table$1;
    mad.wide.u32 %a0, %i, 4, %a0; mad.wide.u32 %d1, %i, 4, %d2;
    ld.global.nc.f32 %f, [%d1]; st.global.f32 [%a0], %f;
    ld.const.f32 %f, [%d0+4]; ld.volatile.const.f32 %g, [%d0+8]; add.f32 %f, %f, %g;
    st.global.f32 [%a0+20], %f;
    """
    before = f"""
    .const .align 4 .b8 other[12] = {{1, 2, 3, 4, 0, 0, 128, 63}};
    .visible .global .align 4 .b8 _ZN5Table$1[16] = {{{content}}};
    """
    run_body(body, found, before=before, block=(4,))
    np.testing.assert_array_equal(found[0, :4], table)
    assert np.signbit(found[0, 1])
    assert found[1].tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("order", ORDERS)
def test_local_memory_is_a_threads_own_and_stays_across_barriers(order):
    found = np.zeros((40, 4), np.uint32)
    body = """
    .local .align 8 .b8 first[3]; .local .align 8 .b8 depot[16];
    .reg .b64 %SP; .reg .b64 %SPL; .reg .b64 %d; .reg .b32 %i; .reg .b32 %k; .reg .b32 %v;
    .reg .pred %p;
    mov.u64 %SPL, depot;
    cvta.local.u64 %SP, %SPL;
    mov.u32 %i, %tid.x;
    mad.wide.u32 %a0, %i, 16, %a0;
    mov.u64 %d, first;
    st.local.u8 [%d+2], %i;
    mov.u32 %k, 0;
    $L_fill:
    mad.wide.u32 %d, %k, 4, %SPL;
    mad.lo.s32 %v, %i, 100, %k;
    st.local.u32 [%d], %v;
    add.s32 %k, %k, 1;
    setp.lt.u32 %p, %k, 4;
    @%p bra $L_fill;
    bar.sync 0;
    mov.u32 %k, 3;
    $L_read:
    mad.wide.u32 %d, %k, 4, %SP;
    ld.local.u32 %v, [%d];
    mad.wide.u32 %d, %k, 4, %a0;
    st.global.u32 [%d], %v;
    add.s32 %k, %k, -1;
    setp.ge.s32 %p, %k, 0;
    @%p bra $L_read;
    """
    run_body(body, found, block=(40,), order=order)
    np.testing.assert_array_equal(found, np.arange(40)[:, None] * 100 + np.arange(4))


ANYWHERE = """
    .shared .align 8 .b8 row[128]; .local .align 4 .b8 own[4];
    .reg .b64 %s; .reg .b64 %l; .reg .b64 %g; .reg .b32 %i; .reg .b32 %v; .reg .b32 %n;
    mov.u32 %i, %tid.x; mov.u64 %s, row; mad.wide.u32 %s, %i, 4, %s; cvta.shared.u64 %s, %s;
    mov.u64 %l, own; cvta.local.u64 %l, %l; mad.wide.u32 %g, %i, 4, %a0;
    st.u32 [%s], %i; bar.sync 0; ld.u32 %v, [%s]; st.u32 [%l], %v; ld.u32 %n, [%l];
    st.u32 [%g], %n; atom.add.u32 %v, [%a1], %n;
"""


def test_an_address_decides_where_no_space_of_memory_is_named():
    found, total = np.zeros(32, np.uint32), np.zeros(1, np.uint32)
    run_body(ANYWHERE, found, total, block=(32,))
    assert found.tolist() == list(range(32))
    assert total == 31 * 16
    for wrong, fault in (
        ("ld.u32 %v, [%a1+4];", "is outside of every array"),
        ("ld.u32 %v, [%l+64];", "is outside of every array"),
        ("xor.b64 %s, %s, 4; st.u32 [%s], %i;", "races with another thread"),
    ):
        with pytest.raises(KernelFault, match=fault):
            run_body(ANYWHERE + wrong, found, total, block=(32,))


@pytest.mark.parametrize("order", ORDERS)
def test_registers_keep_their_values_at_barriers(order):
    """Of all types; also one that is written after it, but only by some threads; in a loop."""
    found = np.zeros((6, 4))
    body = """
    .reg .pred %p<2>; .reg .b16 %h; .reg .b32 %r<3>; .reg .f32 %f; .reg .f64 %d<4>;
    and.b32 %r0, %i, 1; setp.eq.s32 %p0, %r0, 0;
    cvt.u16.u32 %h, %i; cvt.rn.f32.u32 %f, %i; cvt.rn.f64.u32 %d0, %i;
    mov.u32 %r1, 0; mov.u32 %r2, 0;
    $L_again:
    add.s32 %r1, %r1, %i;
    bar.sync 0;
    @%p0 mov.b32 %f, 0fC0000000;
    add.f64 %d0, %d0, %d0;
    add.s32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 3;
    bar.sync 0;
    @%p1 bra $L_again;
    cvt.rn.f64.u16 %d1, %h; cvt.f64.f32 %d2, %f; cvt.rn.f64.u32 %d3, %r1;
    st.global.v2.f64 [%a0], {%d0, %d1};
    st.global.v2.f64 [%a0+16], {%d2, %d3};
    """
    run_body(indexed(32) + body, found, block=(6,), order=order)
    assert found.tolist() == [[8 * k, k, k if k % 2 else -2, 3 * k] for k in range(6)]


@pytest.mark.parametrize("order", ORDERS)
def test_shared_memory_is_a_blocks_own(order):
    """Each thread writes, and after a barrier reads what another wrote."""
    found = np.zeros((5, 32), np.uint32)
    body = """
    .shared .align 1 .b8 one[1]; .shared .align 4 .b8 buffer[128];
    .reg .b64 %d<3>; .reg .b32 %i; .reg .b32 %b; .reg .b32 %v; .reg .b32 %other;
    mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x;
    mov.u64 %d0, buffer;
    cvta.shared.u64 %d0, %d0;
    mad.wide.u32 %d1, %i, 4, %d0;
    mad.lo.s32 %v, %b, 1000, %i;
    st.shared.u32 [%d1], %v;
    bar.sync 0;
    mov.u32 %other, 31;
    sub.s32 %other, %other, %i;
    mad.wide.u32 %d2, %other, 4, %d0;
    ld.shared.u32 %v, [%d2];
    mad.lo.s32 %b, %b, 32, %i;
    mad.wide.u32 %a0, %b, 4, %a0;
    st.global.u32 [%a0], %v;
    """
    run_body(body, found, grid=(5,), block=(32,), order=order)
    np.testing.assert_array_equal(found, np.arange(5)[:, None] * 1000 + np.arange(32)[::-1])


# mov and cvta


def test_immediate_operands():
    cases = {
        "b16": {"-1": 0xFFFF, "255": 255, "0xABCD": 0xABCD},
        "u32": {"-5": 2**32 - 5, "4294967295": 2**32 - 1, "7U": 7, "0x10U": 16},
        "s64": {"-9223372036854775808": -(2**63), "0x7FFFFFFFFFFFFFFF": 2**63 - 1},
        "f32": {"0f3FC00000": 1.5, "0fFF800000": -np.inf, "0f00000001": 2.0**-149},
        "f64": {"0d3FF8000000000000": 1.5, "0D8000000000000000": -0.0},
    }
    for kind, values in cases.items():
        found = np.zeros(len(values), DTYPES[kind])
        body = f".reg .{kind} %r;"
        for k, text in enumerate(values):
            body += f"mov.{kind} %r, {text}; st.global.{kind} [%a0+{k * found.itemsize}], %r;"
        run_body(body, found)
        assert_same(found, np.array(list(values.values()), found.dtype))


@pytest.mark.parametrize(
    ("whole", "part", "n"), [(32, 16, 2), (64, 32, 2), (64, 16, 4), (32, 8, 4)]
)
def test_mov_unpacks_and_packs(whole, part, n):
    data = values_of(f"u{whole}")
    parts, again = np.zeros((64, n), f"u{part // 8}"), np.zeros_like(data)
    register = max(part, 16)
    reads = ", ".join(f"%r{k}" for k in range(n))
    body = indexed(data.itemsize, whole // 8, data.itemsize)
    body += f"""
    .reg .b{register} %r<{n}>; .reg .b{whole} %w<2>;
    ld.global.b{whole} %w0, [%a0];
    mov.b{whole} {{{reads}}}, %w0;
    mov.b{whole} %w1, {{{reads}}};
    st.global.b{whole} [%a2], %w1;
    """
    for k in range(n):
        body += f"st.global.b{part} [%a1+{k * part // 8}], %r{k};"
    run_body(body, data, parts, again, block=(64,))
    np.testing.assert_array_equal(parts, data.view(parts.dtype).reshape(64, n))
    np.testing.assert_array_equal(again, data)


def test_mov_of_floats_keeps_their_bits():
    data = np.array([1.5, -0.0, np.nan, 2.0**-149, np.inf], np.float32)
    bits, pairs, wholes = np.zeros(5, np.uint32), np.zeros(5, np.uint64), np.zeros((5, 2), "f4")
    body = """
    .reg .f32 %f<3>; .reg .b32 %r; .reg .b64 %d; .reg .f64 %g;
    ld.global.f32 %f0, [%a0];
    mov.b32 %r, %f0;
    st.global.u32 [%a1], %r;
    mov.b64 %d, {%r, %f0};
    st.global.u64 [%a2], %d;
    mov.b64 %g, {0, %r};
    mov.b64 {%f1, %f2}, %g;
    st.global.v2.f32 [%a3], {%f1, %f2};
    """
    run_body(indexed(4, 4, 8, 8) + body, data, bits, pairs, wholes, block=(5,))
    np.testing.assert_array_equal(bits, data.view(np.uint32))
    np.testing.assert_array_equal(pairs, bits * np.uint64(2**32 + 1))
    np.testing.assert_array_equal(wholes.view(np.uint32), np.stack([bits * 0, bits], 1))


def test_the_sink_register_drops_what_is_written_to_it():
    data = np.array([1, 2, 3, 4], np.uint32)
    found = np.zeros(3, np.uint32)
    run_body(
        """
        .reg .b32 %r<3>; .reg .b64 %d;
        ld.global.u64 %d, [%a0];
        mov.b64 {_, %r0}, %d;
        ld.global.v4.u32 {_, _, %r1, _}, [%a0];
        atom.global.add.u32 _, [%a0+12], 5;
        ld.global.u32 %r2, [%a0+12];
        st.global.u32 [%a1], %r0; st.global.u32 [%a1+4], %r1; st.global.u32 [%a1+8], %r2;
        """,
        data,
        found,
    )
    assert found.tolist() == [2, 3, 9]


@pytest.mark.parametrize("opcode", ["cvta.global.u64", "cvta.to.global.u64"])
def test_cvta_keeps_addresses(opcode):
    found = np.zeros(1, np.uint64)
    run_body(f".reg .b64 %d; {opcode} %d, %a0; st.global.u64 [%d], %d;", found)
    assert found[0] == found.ctypes.data


def test_predicates_move():
    found = np.zeros(2, np.uint32)
    run_body(
        """
        .reg .pred %p<3>; .reg .b32 %r;
        mov.pred %p0, 1; mov.pred %p1, %p0; not.pred %p2, %p1;
        selp.b32 %r, 5, 6, %p1; st.global.u32 [%a0], %r;
        selp.b32 %r, 5, 6, %p2; st.global.u32 [%a0+4], %r;
        """,
        found,
    )
    assert found.tolist() == [5, 6]


# Guards and branches


def test_guards_hold_both_ways():
    """Of arithmetic, a load, a store and an end: odd threads, then even ones."""
    n = 8
    found = np.zeros((n, 4), np.uint32)
    body = """
    .reg .pred %p; .reg .b32 %r<4>;
    and.b32 %r0, %i, 1;
    setp.ne.s32 %p, %r0, 0;
    mov.u32 %r1, 10; mov.u32 %r2, 20; mov.u32 %r3, 99;
    @%p add.s32 %r1, %r1, 1;
    @!%p add.s32 %r2, %r2, 1;
    st.global.v2.u32 [%a0], {%r1, %r2};
    @!%p ld.global.u32 %r3, [%a0+4];
    @%p st.global.u32 [%a0+8], %r3;
    @!%p st.global.u32 [%a0+8], %r3;
    @!%p ret;
    st.global.u32 [%a0+12], %i;
    """
    run_body(indexed(16) + body, found, block=(n,))
    for k, row in enumerate(found.tolist()):
        assert row == ([11, 20, 99, k] if k % 2 else [10, 21, 21, 0])


def test_branches():
    """Collatz's steps from each number to 1: branches forwards and back, both ways."""
    n = 40
    found = np.zeros(n, np.uint32)
    body = """
    .reg .pred %p; .reg .b32 %v; .reg .b32 %r; .reg .b32 %steps;
    add.s32 %v, %i, 1; mov.u32 %steps, 0;
    $L__BB0_1:
    setp.eq.s32 %p, %v, 1;
    @%p bra $L__BB0_4;
    and.b32 %r, %v, 1;
    setp.eq.s32 %p, %r, 1;
    @!%p bra $L__BB0_2;
    mad.lo.s32 %v, %v, 3, 1;
    bra.uni $L__BB0_3;
    $L__BB0_2:
    shr.u32 %v, %v, 1;
    $L__BB0_3:
    add.s32 %steps, %steps, 1;
    bra $L__BB0_1;
    $L__BB0_4:
    st.global.u32 [%a0], %steps;
    exit;
    st.global.u32 [%a0], %v;
    """

    def steps(v):
        return 0 if v == 1 else 1 + steps(3 * v + 1 if v % 2 else v // 2)

    run_body(indexed(4) + body, found, block=(n,))
    assert found.tolist() == [steps(v) for v in range(1, n + 1)]


FUNCTIONS = """
.extern .func (.param .b32 result) elsewhere (.param .b32 x);
.func (.param .b32 result) of_the_thread_beside (.param .b64 row, .param .b32 i);
.visible .func (.param .align 4 .b8 result[8]) both (.param .b64 row, .param .b32 i) {
.reg .b64 %r<3>; .reg .b32 %v<4>; .local .align 4 .b8 depot[4];
ld.param.u64 %r1, [row]; ld.param.u32 %v1, [i]; mov.u64 %r2, depot; st.local.u32 [%r2], %v1;
{ .param .b64 p; st.param.b64 [p+0], %r1; .param .b32 q; st.param.b32 [q+0], %v1; .param .b32 s;
call.uni (s), of_the_thread_beside, (p, q); ld.param.b32 %v2, [s+0]; }
ld.local.u32 %v3, [%r2]; st.param.b32 [result+0], %v2; st.param.b32 [result+4], %v3; ret;
}
.func (.param .b32 result) of_the_thread_beside (.param .b64 row, .param .b32 i) {
.reg .b64 %r<4>; .reg .b32 %v<4>; .reg .pred %p;
ld.param.u64 %r1, [row]; ld.param.u32 %v1, [i]; mad.wide.u32 %r2, %v1, 4, %r1;
bar.sync 0; st.shared.u32 [%r2], %v1; bar.sync 0; setp.lt.u32 %p, %v1, 32;
@%p bra $L_low; st.param.b32 [result+0], 99; ret;
$L_low: xor.b32 %v2, %v1, 1; mad.wide.u32 %r3, %v2, 4, %r1; ld.shared.u32 %v3, [%r3];
st.param.b32 [result+0], %v3; ret;
}
"""
CALLS = """
.shared .align 4 .b8 row[256]; .reg .b64 %r; .reg .b32 %i; .reg .b32 %v<4>; .reg .pred %p;
mov.u64 %r, row; mov.u32 %i, %tid.x; mad.wide.u32 %a0, %i, 8, %a0; mov.u32 %v0, 0;
$L_again:
{ .param .b64 p; st.param.b64 [p+0], %r; .param .b32 q; st.param.b32 [q+0], %i;
.param .align 4 .b8 s[8]; call.uni (s), both, (p, q);
ld.param.b32 %v1, [s+0]; ld.param.b32 %v2, [s+4]; }
{ .param .b64 p; st.param.b64 [p+0], %r; .param .b32 q; st.param.b32 [q+0], %i;
.param .b32 s; call.uni (s), of_the_thread_beside, (p, q); ld.param.b32 %v3, [s+0]; }
add.u32 %v1, %v1, %v3; add.u32 %v0, %v0, 1; setp.lt.u32 %p, %v0, 2; @%p bra $L_again;
st.global.u32 [%a0], %v1; st.global.u32 [%a0+4], %v2;
"""


@pytest.mark.parametrize("order", ORDERS)
def test_functions_are_called_and_barriers_may_be_in_them(order):
    found, i = np.zeros((64, 2), np.uint32), np.arange(64)
    run_body(CALLS, found, before=FUNCTIONS, block=(64,), order=order)
    np.testing.assert_array_equal(found[:, 0], 2 * np.where(i < 32, i ^ 1, 99))
    np.testing.assert_array_equal(found[:, 1], i)


@pytest.mark.parametrize("order", ORDERS)
def test_special_registers(order):
    grid, block = (2, 3, 4), (3, 5, 2)
    names = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    found = np.zeros((2 * 3 * 4 * 3 * 5 * 2, 12), np.uint32)
    body = "".join(f"mov.u32 %v{k}, {name};" for k, name in enumerate(names))
    body = (
        f".reg .b32 %v<12>; .reg .b32 %n; {body}"
        + """
    mad.lo.s32 %n, %v8, %v10, %v7;
    mad.lo.s32 %n, %n, %v9, %v6;
    mad.lo.s32 %n, %n, %v5, %v2;
    mad.lo.s32 %n, %n, %v4, %v1;
    mad.lo.s32 %n, %n, %v3, %v0;
    mad.wide.u32 %a0, %n, 48, %a0;
    """
    )
    body += "".join(f"st.global.u32 [%a0+{4 * k}], %v{k};" for k in range(12))
    run_body(body, found, grid=grid, block=block, order=order)
    expected = [
        (*thread[::-1], *block, *number[::-1], *grid)
        for number in np.ndindex(grid[::-1])
        for thread in np.ndindex(block[::-1])
    ]
    np.testing.assert_array_equal(found, expected)


# Atomics

ACTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, x: np.where(old >= x, 0, old + 1).astype(old.dtype),
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - 1),
    "exch": lambda old, x: x,
    "cas": lambda old, x, y: np.where(old == x, y, old),
}
KINDS = {
    "u32": "add min max inc dec",
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
    atom.relaxed.sys.global.add.u32 %r, [%a0], 1;
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
