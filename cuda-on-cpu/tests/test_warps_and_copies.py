"""Exchanges between the threads of a warp, tensor cores and asynchronous copies, executed."""

import numpy as np
import pytest
from numba import cuda
from programs import needs_toolkit
from ptx_kernels import ORDERS, run_body

from cuda_on_cpu import Executor, KernelFault, access_stats

WHOLE, ROW = 96, 8  # threads of a block, more than a warp; inputs of a tensor core's product


def execute(function, *arrays, threads=WHOLE, order="forward"):
    kernel = cuda.jit(function)
    Executor((9, 0), order=order).launch(kernel, 1, threads, arrays)


# Warps


def butterfly(out, x):
    i = cuda.threadIdx.x
    value = cuda.shfl_xor_sync(-1, x[i], 1)
    out[i] = cuda.shfl_xor_sync(-1, value, 16 | 32) + value  # of a mask five bits count


@needs_toolkit
@pytest.mark.parametrize("order", ORDERS)
def test_a_shuffle_takes_the_value_of_the_lane_that_differs_in_the_mask(order):
    x, out = np.arange(1.0, WHOLE + 1, dtype=np.float32), np.zeros(WHOLE, np.float32)
    execute(butterfly, out, x, order=order)
    lane = np.arange(WHOLE)
    np.testing.assert_array_equal(out, x[lane ^ 1 ^ 16] + x[lane ^ 1])


def halves_of_a_warp(out, x, mask):
    i = cuda.threadIdx.x
    if i % 32 < 16:
        out[i] = cuda.shfl_xor_sync(mask, x[i], 1)
    else:
        cuda.syncwarp()
        out[i] = 0


@needs_toolkit
@pytest.mark.parametrize("mask", [-1, 0xFFFE0000])
def test_a_shuffle_that_not_all_threads_of_its_mask_reach_is_a_fault(mask):
    arrays = np.zeros(64, np.float32), np.ones(64, np.float32)
    with pytest.raises(KernelFault, match="waits for threads that wait at another barrier"):
        execute(halves_of_a_warp, *arrays, mask, threads=64)


def leaves_lane_12_out(out, x):
    i = cuda.threadIdx.x
    if 8 <= i < 16 and i != 12:
        cuda.syncwarp(0xFF00)
    cuda.syncthreads()
    out[i] = x[i]


@needs_toolkit
def test_the_lane_that_is_missing_is_one_that_the_mask_names():
    arrays = np.zeros(32, np.float32), np.ones(32, np.float32)
    with pytest.raises(KernelFault, match=r"warp.sync.*: thread \(12, 0, 0\) waits at bar.sync"):
        execute(leaves_lane_12_out, *arrays, threads=32)


def several_shuffles(out, x):
    i, lane = cuda.threadIdx.x, cuda.laneid
    out[0, i] = cuda.shfl_sync(-1, x[i], 5)
    out[1, i] = cuda.shfl_up_sync(-1, x[i], 3)
    out[2, i] = cuda.shfl_down_sync(-1, x[i], 7)
    out[3, i] = cuda.shfl_sync(-1, x[i], lane * 3)
    if lane >= 20:  # whose other lanes wait below
        out[4, i] = cuda.shfl_down_sync(0xFFF00000, x[i], 1)
    else:
        out[4, i] = cuda.shfl_up_sync(0x000FFFFF, x[i], 1)


@needs_toolkit
@pytest.mark.parametrize("order", ORDERS)
def test_shuffles_take_lanes_by_number_above_and_below(order):
    x, out = np.arange(1.0, WHOLE + 1, dtype=np.float32), np.zeros((5, WHOLE), np.float32)
    execute(several_shuffles, out, x, order=order)
    lane, first = np.arange(WHOLE) % 32, np.arange(WHOLE) // 32 * 32
    np.testing.assert_array_equal(out[0], x[first + 5])
    np.testing.assert_array_equal(out[1], x[first + np.where(lane < 3, lane, lane - 3)])
    np.testing.assert_array_equal(out[2], x[first + np.where(lane > 24, lane, lane + 7)])
    np.testing.assert_array_equal(out[3], x[first + lane * 3 % 32])
    beside = np.where(lane >= 20, np.minimum(lane + 1, 31), np.maximum(lane - 1, 0))
    np.testing.assert_array_equal(out[4], x[first + beside])


def votes(out, x):
    i, lane = cuda.threadIdx.x, cuda.laneid
    out[0, i] = cuda.all_sync(-1, x[i] > 0)
    out[1, i] = cuda.any_sync(-1, x[i] > 0)
    out[2, i] = cuda.eq_sync(-1, x[i] > 0)
    out[3, i] = cuda.ballot_sync(-1, x[i] > 1)
    out[4, i] = cuda.match_any_sync(-1, x[i])
    found, is_all = cuda.match_all_sync(-1, x[i])
    out[5, i], out[6, i] = found, is_all
    if lane < 5:
        out[7, i] = cuda.activemask()
        out[8, i] = cuda.ballot_sync(0b11111, x[i] > 1)
    out[9, i] = cuda.lanemask_lt()


@needs_toolkit
@pytest.mark.parametrize("order", ORDERS)
def test_votes_and_matches_are_of_the_lanes_that_take_part(order):
    x, out = np.ones((3, 32), np.int32), np.zeros((10, WHOLE), np.uint32)
    x[0, 3:9] = 0
    x[1] = 0
    execute(votes, out, x.reshape(-1), order=order)
    out = out.reshape(10, 3, 32)
    assert [row.tolist() for row in out[:3, :, 7]] == [[0, 0, 1], [1, 0, 1], [0, 1, 1]]
    assert not out[3].any()
    zeros = sum(1 << lane for lane in range(3, 9))
    assert (out[4, 0] == np.where(x[0] == 0, zeros, 2**32 - 1 - zeros)).all()
    assert out[5, :, 7].tolist() == [0, 2**32 - 1, 2**32 - 1]
    assert out[6, :, 7].tolist() == [0, 1, 1]
    assert (out[7, :, :5] == 0b11111).all()
    assert not out[8].any()
    assert (out[9, 2] == (1 << np.arange(32)) - 1).all()


REDUCTIONS = {
    "add.u32": np.add,
    "min.s32": np.minimum,
    "max.u32": np.maximum,
    "and.b32": np.bitwise_and,
    "or.b32": np.bitwise_or,
    "xor.b32": np.bitwise_xor,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_of_the_lanes_that_take_part(name, order):
    """All lanes; then two groups of a warp, each of which elects its first lane, too."""
    x = np.random.default_rng(4).integers(0, 1 << 32, WHOLE, np.uint32)
    out = np.zeros((WHOLE, 4), np.uint32)
    body = f"""
    .reg .b32 %i; .reg .b32 %x; .reg .b32 %y<4>; .reg .pred %p<3>;
    mov.u32 %i, %tid.x; mad.wide.u32 %a0, %i, 4, %a0; mad.wide.u32 %a1, %i, 16, %a1;
    ld.global.u32 %x, [%a0]; redux.sync.{name} %y0, %x, -1;
    mov.u32 %i, %laneid; setp.lt.u32 %p0, %i, 5; @%p0 bra $L_low;
    redux.sync.{name} %y1, %x, 0xFFFFFFE0; elect.sync %y2|%p1, 0xFFFFFFE0; bra $L_end;
    $L_low: redux.sync.{name} %y1, %x, 0x1F; elect.sync %y2|%p1, 0x1F;
    $L_end: selp.u32 %y3, 1, 0, %p1; st.global.v4.u32 [%a1], {{%y0, %y1, %y2, %y3}};
    """
    run_body(body, x, out, block=(WHOLE,), order=order)
    found, values = out.reshape(3, 32, 4), x.reshape(3, 32).view("i4" if "s32" in name else "u4")
    whole = [REDUCTIONS[name].reduce(values[:, part], 1, values.dtype) for part in LANES]
    for k, part in enumerate(LANES):
        column = 0 if k == 0 else 1
        assert (found[:, part, column].view(values.dtype) == whole[k][:, None]).all()
    first = np.where(np.arange(32) < 5, 0, 5)
    assert (found[:, :, 2] == first).all()
    assert (found[:, :, 3] == (np.arange(32) == first)).all()


LANES = slice(32), slice(5), slice(5, 32)


def leaves_early(out, x, n):
    shared = cuda.shared.array(WHOLE, np.float32)
    i = cuda.threadIdx.x
    if i >= n:
        return
    shared[i] = x[i]
    if n % 32 == 0:
        cuda.syncthreads()
    else:
        cuda.syncwarp()
    out[i] = shared[np.uint64(i ^ 1)] + (cuda.ballot_sync(-1, True) & 0xFFFF)


@needs_toolkit
@pytest.mark.parametrize("n", [16, 32, 64])
def test_nobody_waits_for_lanes_and_warps_that_have_left(n):
    x, out = np.arange(WHOLE, dtype=np.float32), np.zeros(WHOLE, np.float32)
    execute(leaves_early, out, x, n)
    np.testing.assert_array_equal(out[:n], x[np.arange(n) ^ 1] + 0xFFFF)


def read_and_write(out, reader, writer, reads_first):
    """A thread writes; one, or all if `reader` is -1, read the word before or afterwards."""
    word = cuda.shared.array(1, np.float32)
    i = cuda.threadIdx.x
    if i == 0:
        word[0] = 0
    cuda.syncthreads()
    reads = i == reader or reader < 0
    if reads_first and reads:
        out[i] = word[0]
    if not reads_first and i == writer:
        word[0] = 1
    cuda.syncwarp()
    if reads_first and i == writer:
        word[0] = 1
    if not reads_first and reads:
        out[i] = word[0]


@needs_toolkit
@pytest.mark.parametrize("reads_first", [False, True])
@pytest.mark.parametrize(("reader", "writer"), [(40, 0), (0, 40), (-1, 63), (-1, 0)])
def test_warps_race_between_two_barriers_of_the_block(reader, writer, reads_first):
    out = np.zeros(64, np.float32)
    with pytest.raises(KernelFault, match="races with another thread"):
        execute(read_and_write, out, reader, writer, reads_first, threads=64)
    same_warp = (writer ^ 1, writer, reads_first)
    execute(read_and_write, out, *same_warp, threads=64)


# Tensor cores

PRODUCT = """
.reg .b32 %i; .reg .b32 %r<6>; .reg .f32 %f<8>; .reg .f32 %g<4>;
mov.u32 %i, %tid.x;
mad.wide.u32 %a0, %i, 24, %a0; mad.wide.u32 %a1, %i, 16, %a1; mad.wide.u32 %a2, %i, 16, %a2;
ld.global.u32 %r0, [%a0]; ld.global.u32 %r1, [%a0+4]; ld.global.u32 %r2, [%a0+8];
ld.global.u32 %r3, [%a0+12]; ld.global.u32 %r4, [%a0+16]; ld.global.u32 %r5, [%a0+20];
ld.global.f32 %f0, [%a1]; ld.global.f32 %f1, [%a1+4];
ld.global.f32 %f2, [%a1+8]; ld.global.f32 %f3, [%a1+12];
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f4, %f5, %f6, %f7}, {%r0, %r1, %r2, %r3},
    {%r4, %r5}, {%f0, %f1, %f2, %f3};
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%g0, %g1, %g2, %g3}, {%r0, %r1, %r2, %r3},
    {%r4, %r5}, {%f4, %f5, %f6, %f7};
st.global.f32 [%a2], %g0; st.global.f32 [%a2+4], %g1;
st.global.f32 [%a2+8], %g2; st.global.f32 [%a2+12], %g3;
"""
LANE = np.arange(32)
G, T = LANE // 4, LANE % 4
A_AT = np.stack([G, G + 8, G, G + 8], 1), np.stack([T, T, T + 4, T + 4], 1)
B_AT = np.stack([T, T + 4], 1), np.stack([G, G], 1)
C_AT = np.stack([G, G, G + 8, G + 8], 1), np.stack([2 * T, 2 * T + 1] * 2, 1)


def tensor_product(A, B, C, order="forward"):
    """C + 2 A B, of tensor cores: two products one after the other, by a warp."""
    parts = np.hstack((A[A_AT], B[B_AT])).astype(np.float32)
    start, out = C[C_AT].astype(np.float32), np.zeros((32, 4), np.float32)
    run_body(PRODUCT, parts, start, out, block=(32,), order=order)
    found = np.zeros((16, ROW), np.float32)
    found[C_AT] = out
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_tensor_cores_multiply_matrices_that_a_warp_holds(order):
    rng = np.random.default_rng(3)
    A, B, C = (rng.integers(-99, 99, shape) for shape in ((16, ROW), (ROW, 8), (16, 8)))
    np.testing.assert_array_equal(tensor_product(A, B, C, order), C + 2 * A @ B)


def test_tensor_cores_drop_13_bits_of_a_factor_and_cut_sums_toward_zero():
    A, B, C = np.zeros((16, ROW)), np.eye(ROW), np.zeros((16, ROW))
    A[0] = 1 + 2.0**-11  # of which 1 is left
    A[1] = 1 + 2.0**-10
    A[2:4] = 2.0**-30
    C[2], C[3] = 1, -1  # and what is added is lost, or rounds toward zero
    A[4], C[4] = -(2.0**-30), 1
    found = tensor_product(A, B, C)
    below_one = 1 - 2.0**-23  # the second float32 below it, after two products
    expected = [2, 2 + 2.0**-9, 1, -below_one, below_one]
    np.testing.assert_array_equal(found[:5], np.repeat(np.array(expected)[:, None], ROW, 1))


def test_operations_of_tensor_cores_are_counted():
    arrays = [np.zeros((32, n), np.float32) for n in (6, 4, 4)]
    launched = run_body(PRODUCT, *arrays, block=(32,))
    assert access_stats.float_operations(launched) == 2 * (16 * 8 * 8 * 2)


# Asynchronous copies: of 16 bytes a thread, from %a0 to a row of shared memory, then to %a1

COPY = """
.shared .align 16 .b8 tile[1536];
.reg .b32 %i; .reg .b64 %s<3>; .reg .f32 %f<4>; .reg .b32 %n;
mov.u32 %i, %tid.x; mov.u64 %s0, tile; mov.u32 %n, 16;
mad.wide.u32 %s1, %i, 16, %s0; xor.b32 %i, %i, READS; mad.wide.u32 %s2, %i, 16, %s0;
mov.u32 %i, %tid.x; mad.wide.u32 %a0, %i, 16, %a0; mad.wide.u32 %a1, %i, 16, %a1;
STATEMENTS
ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%s2];
st.global.v4.f32 [%a1], {%f0, %f1, %f2, %f3};
"""
START, END = "cp.async.cg.shared.global [%s1], [%a0], 16;", "cp.async.commit_group;"
WAIT, BARRIER = "cp.async.wait_group 0;", "bar.sync 0;"


def copied(*statements, reads=0, n=WHOLE, order="forward"):
    """The numbers 1, 2, ... after a copy, of which thread i reads those of thread i ^ reads."""
    x, out = np.arange(1.0, 4 * n + 1, dtype=np.float32).reshape(n, 4), np.zeros((n, 4), np.float32)
    body = COPY.replace("READS", str(reads)).replace("STATEMENTS", "\n".join(statements))
    run_body(body, x, out, block=(n,), order=order)
    return x, out


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wait", [f"{END} {WAIT}", "cp.async.wait_all;"])
def test_a_copy_is_there_after_its_thread_waited_and_for_others_after_a_barrier(wait, order):
    x, out = copied(START, wait, reads=0, order=order)
    np.testing.assert_array_equal(out, x)
    x, out = copied(START, wait, BARRIER, reads=1, order=order)
    np.testing.assert_array_equal(out, x[np.arange(WHOLE) ^ 1])


def test_a_copy_of_fewer_bytes_ends_with_zeros():
    x, out = copied("mov.u32 %n, 8;", START.replace("16;", "16, %n;"), END, WAIT)
    np.testing.assert_array_equal(out, x * [1, 1, 0, 0])
    # With none, the source is not read: it may be anywhere.
    _, out = copied("mov.u32 %n, 0; mov.u64 %a0, 64;", START.replace("16;", "16, %n;"), END, WAIT)
    assert not out.any()


def test_a_wait_may_leave_the_last_groups_under_way():
    second = START.replace("%a0", "%a0+4").replace("16;", "4;").replace(".cg", ".ca")
    x, out = copied(START, END, WAIT, END, "cp.async.wait_group 1;", BARRIER)
    np.testing.assert_array_equal(out, x)
    with pytest.raises(KernelFault, match="reads uninitialised memory"):
        copied(START, END, WAIT, second, END, "cp.async.wait_group 1;", BARRIER)
    x, out = copied(START, END, second, END, WAIT)  # the second is made after the first
    np.testing.assert_array_equal(out, x[:, [1, 1, 2, 3]])


@pytest.mark.parametrize(
    ("statements", "reads", "fault"),
    [
        ([START, END], 0, "reads uninitialised memory"),
        ([START, WAIT], 0, "reads uninitialised memory"),  # the copy is in no group
        ([START, END, BARRIER], 1, "reads uninitialised memory"),
        ([START, END, WAIT], 1, "races with another thread|reads uninitialised memory"),
        ([START, END, "st.shared.f32 [%s2], %f0;", WAIT, BARRIER], 1, "races with another thread"),
        (["add.u64 %a0, %a0, 16;", START, END, WAIT, BARRIER], 0, "outside of every array"),
        (["add.u64 %s1, %s1, 16;", START, END, WAIT, BARRIER], 0, "outside of every array"),
        (["add.u64 %a0, %a0, 4;", START], 0, "is not a multiple of its size"),
        ([START] * 65, 0, "one more asynchronous copy"),
        ([START, END, "ret;"], 0, "ends a thread whose asynchronous copy is under way"),
    ],
)
def test_a_copy_with_a_fault_is_found(statements, reads, fault):
    with pytest.raises(KernelFault, match=fault):
        copied(*statements, reads=reads)
