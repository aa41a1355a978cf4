"""Instructions of PTX that Numba lacks, for kernels from compute capability 8.0 on.

Products on tensor cores, which multiply TF32 numbers, the upper 19 bits of float32, and add up in
float32; and asynchronous copies of 4 or 16 bytes from global to shared memory.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

DROPPED = 13  # bits of a float32 that TF32 lacks
MOST_WORDS = 4  # float32 of an asynchronous copy
FLOAT, WORD, LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
SHARED = 3  # LLVM's number of that memory
MMA = (
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
)


@intrinsic
def to_tf32(typing_context: Any, x: Any) -> tuple[Any, Callable]:
    """The TF32 nearest to a float32, as a float32. Of NaN it may be a zero; x minus it is NaN.

    PTX's cvt.rna.tf32 does the same and keeps NaN, by twice as many instructions.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        half = builder.add(builder.bitcast(values[0], WORD), WORD(1 << (DROPPED - 1)))
        return builder.bitcast(builder.and_(half, WORD(-(1 << DROPPED))), FLOAT)

    return types.float32(types.float32), generate


@intrinsic
def multiply_add(
    typing_context: Any,
    a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any, c0: Any, c1: Any, c2: Any, c3: Any,
) -> tuple[Any, Callable]:  # fmt: skip
    """d = A B + c of a warp, which calls it together; returns the thread's four numbers of d.

    A is 16 x 8, B 8 x 8, both of TF32 numbers. With g = lane // 4 and t = lane % 4 a thread has
    A[g, t], A[g + 8, t], A[g, t + 4], A[g + 8, t + 4]; B[t, g], B[t + 4, g]; and of c and d
    [g, 2 t], [g, 2 t + 1], [g + 8, 2 t], [g + 8, 2 t + 1] (PTX ISA, mma.m16n8k8).
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        result = ir.LiteralStructType([FLOAT] * 4)
        kind = ir.FunctionType(result, [WORD] * 6 + [FLOAT] * 4)
        constraints = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
        words = [builder.bitcast(value, WORD) for value in values[:6]]
        code = ir.InlineAsm(kind, MMA, constraints, side_effect=True)
        found = builder.call(code, [*words, *values[6:]])
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_value(found, k) for k in range(4)]
        )

    return types.UniTuple(types.float32, 4)(*[types.float32] * 10), generate


@intrinsic(prefer_literal=True)
def start_copy(
    typing_context: Any,
    target: Any,
    place: Any,
    source: Any,
    offset: Any,
    is_present: Any,
    n_words: Any,
) -> tuple[Any, Callable]:
    """Begin to copy n_words numbers, or as many zeros if not is_present, in the background.

    target: a shared array, from `place` on. source: a float32 array in C order, from its number
    `offset` on, as if it had one dimension. n_words: a literal, 1 or MOST_WORDS. place and offset
    are multiples of it, and both arrays begin at a multiple of as many words. A thread waits for
    all its copies before it ends. Raises TypeError for a variable n_words.
    """
    if not isinstance(n_words, types.IntegerLiteral):
        raise TypeError("expected a literal number of words")
    n_bytes = 4 * n_words.literal_value

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        places = []
        for k in (0, 2):
            array = context.make_array(signature.args[k])(context, builder, value=values[k])
            places.append(builder.gep(array.data, [values[k + 1]], source_etype=FLOAT))
        to = builder.addrspacecast(places[0], ir.PointerType(FLOAT, SHARED))
        n = builder.select(values[4], WORD(n_bytes), WORD(0))
        kind = ir.FunctionType(ir.VoidType(), [LONG, LONG, WORD])
        level = "cg" if n_bytes == 4 * MOST_WORDS else "ca"  # cg takes 16 bytes alone
        code = f"cp.async.{level}.shared.global [$0], [$1], {n_bytes}, $2;"
        found = [builder.ptrtoint(to, LONG), builder.ptrtoint(places[1], LONG), n]
        builder.call(ir.InlineAsm(kind, code, "l,l,r,~{memory}", side_effect=True), found)
        return context.get_dummy_value()

    kinds = target, types.uint64, source, types.uint64, types.boolean, n_words
    return types.void(*kinds), generate


@intrinsic
def end_group(typing_context: Any) -> tuple[Any, Callable]:
    """Make the thread's copies since its last group a group, for `wait_for_groups`."""
    return types.void(), _statement("cp.async.commit_group;")


@intrinsic
def wait_for_groups(typing_context: Any) -> tuple[Any, Callable]:
    """Wait until all of the thread's groups of copies are there."""
    return types.void(), _statement("cp.async.wait_group 0;")


def _statement(code: str) -> Callable:
    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> ir.Value:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(kind, code, "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    return generate
