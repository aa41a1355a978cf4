"""The CPU's kernel: C = S + A B, A^T B or A B^T for float32 matrices, sums in vector registers.

A B: C, S (rows, columns), A (rows, k), B (k, columns)

        B     ________________
             |    |    |    |    |     one row of B: VECTORS vectors of LANES floats, loaded once
    A        |____|____|____|____|     a step
     ___
    | a |    | += a * row of B   |     each element of A is broadcast to a vector; each
    | a |    | += a * row of B   |     accumulator takes one fused multiply-add a step
    | a |    | += a * row of B   |     ROWS x VECTORS accumulators stay in registers
     ---

A^T B is the same with other distances between the elements of A.

A B^T, B (columns, k): a tile is rows x columns scalar products. At each step a line of LINE floats
of every row of A is multiplied with one of every row of B; a scalar product is the sum of its LINE
partial sums. Where a line is several vectors, a pass over k multiplies some of each line, so that
no more accumulators are needed than there are registers.

For each CHUNK or DOTS_CHUNK of k the accumulators begin at zero; at its end they are added to S,
later to C. So each element is a sum of chunks, and each chunk a chain of fused multiply-adds in the
order of k, or LINE of them: the same bits for any number of lanes and any shape of tile. A chunk of
a PANEL of B is 24 KB and stays in the first cache while all rows of A pass over it.

Tiles follow from the registers there are: see `tile_widths`. A processor without fused multiply-add
computes each one by a call to the C library: right, but slow.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from deepbig_runtime.jit import njit

LINE = 16  # floats in a cache line and in the widest vector; columns of C: a multiple of it
CHUNK = 96  # steps whose products are summed before they are added to C
ROWS = 6  # of a tile, at most
PANEL = 64  # columns of B that stay in the first cache, and that are in one piece in A B^T
DOTS_CHUNK = 1024  # the same as CHUNK for A B^T: a multiple of PANEL


def _features() -> set[str]:
    """Names of the vector instructions that Numba compiles for."""
    features = config.CPU_FEATURES
    if features is None:
        features = get_host_cpu_features()
    return {name[1:] for name in features.split(",") if name.startswith("+")}


class Registers(NamedTuple):
    """The vector registers of a processor: floats in each, and their number, 16 or 32."""

    lanes: int
    number: int


def choose_registers(features: set[str]) -> Registers:
    """The vector registers of a processor with these features."""
    if "avx512f" in features:
        return Registers(16, 32)
    return Registers(8, 16) if "avx" in features else Registers(4, 32 if "neon" in features else 16)


def tile_widths(registers: Registers) -> tuple[int, ...]:
    """Vectors in each row of a tile of 0, 1, ..., ROWS rows, at most.

    16 registers hold 3 x 4 accumulators, 3 vectors of A and one of B, or 6 x 2, one and 2; 32 hold
    6 x 4. A multiply-add takes 4 or 5 cycles, and two can begin in each: 8 sums or more, if a PANEL
    has them.
    """
    return (0, min(8, PANEL // registers.lanes), 4, 4, *[registers.number // 8] * (ROWS - 3))


def dots_widths(registers: Registers) -> tuple[int, ...]:
    """Columns of a tile of A B^T of 0, 1, ... rows, at most.

    The operands of several passes, DOTS_CHUNK floats a row and column, stay in a cache of 32 KB.
    """
    columns = registers.number // 8
    rows = ROWS if registers.lanes == LINE else 7 - columns
    return (0, min(2 * columns, registers.lanes), *[columns] * (rows - 1))


REGISTERS = choose_registers(_features())
LANES = REGISTERS.lanes
WIDTHS, DOTS_WIDTHS = tile_widths(REGISTERS), dots_widths(REGISTERS)
VECTORS = WIDTHS[ROWS]
# Rows after a panel. Without one, the first cache could not keep the operands of several passes: a
# row's parts in all panels are whole pages apart.
GAP = 0 if LANES == LINE else 1
SHAPE = 16  # numbers of tiles: see `Tiles`

_FLOAT, _INT, _BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(8)
_LINE = ir.VectorType(_FLOAT, LINE)


def _int(value: int) -> ir.Constant:
    return ir.Constant(_INT, value)


def _mask(lanes: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def _vector_at(builder, base, offset, vector):
    """The address of a vector, `offset` floats after the address `base`."""
    return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())


def _generate_tile(registers, builder, rows, vectors, values):
    """Generate the loop over k of a tile of `rows` x `vectors` accumulators, and C = S + them."""
    C, c_row, S, s_row, A, a_row, a_step, B, b_step, later, later_step, k = values
    lanes, vector = registers.lanes, ir.VectorType(_FLOAT, registers.lanes)
    lines = range(0, vectors, LINE // lanes)
    row_offsets = [builder.mul(_int(r), a_row) for r in range(rows)]
    for r, v in product(range(rows), lines):
        row = builder.gep(S, [builder.mul(_int(r), s_row)])
        _prefetch(builder, builder.gep(row, [_int(v * lanes)]))
    before, after = _begin_loop(builder)
    i, a, b, p = (builder.phi(kind) for kind in (_INT, A.type, B.type, B.type))
    sums = {at: builder.phi(vector) for at in product(range(rows), range(vectors))}

    def load_a(r):
        element = builder.load(builder.gep(a, [row_offsets[r]]))
        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, element, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, nothing, _mask([0] * lanes))

    def load_b(v):
        return builder.load(_vector_at(builder, b, _int(v * lanes), vector), align=4)

    totals = _add_products(builder, sums, rows, vectors, load_a, load_b)
    # With few sums a step, prefetches would cost more than they save.
    for v in lines if rows * LINE // lanes >= 6 else ():
        _prefetch(builder, builder.gep(p, [_int(v * lanes)]))
    following = {
        i: (_int(0), builder.add(i, _int(1))),
        a: (A, builder.gep(a, [a_step])),
        b: (B, builder.gep(b, [b_step])),
        p: (later, builder.gep(p, [later_step])),
    }
    for at, total in totals.items():
        following[sums[at]] = ir.Constant(vector, [0.0] * lanes), total
    _end_loop(builder, following, before, builder.icmp_signed("<", following[i][1], k), after)
    for (r, v), total in totals.items():
        c_offset, s_offset = (
            builder.add(builder.mul(_int(r), row), _int(v * lanes)) for row in (c_row, s_row)
        )
        _store_sum(builder, C, S, c_offset, s_offset, total)


def _add_products(builder, sums, rows, columns, load_row, load_column):
    """sums[r, c] + a row's vector * a column's, for all r, c. load_row(r), load_column(c): loads.

    Each vector is loaded once. Those of the rows or of the columns, whichever are fewer, stay in
    registers meanwhile; of the others one at a time.
    """
    kind = next(iter(sums.values())).type
    name, function = f"llvm.fma.v{kind.count}f32", ir.FunctionType(kind, [kind] * 3)
    multiply_add = cgutils.get_or_insert_function(builder.module, function, name)
    is_wide, totals = columns > rows, {}
    few = (
        [load_row(r) for r in range(rows)] if is_wide else [load_column(c) for c in range(columns)]
    )
    for i in range(columns if is_wide else rows):
        one = load_column(i) if is_wide else load_row(i)
        for j, other in enumerate(few):
            at, a, b = ((j, i), other, one) if is_wide else ((i, j), one, other)
            totals[at] = builder.call(multiply_add, [a, b, sums[at]])
    return totals


def _generate_dots(registers, builder, rows, columns, values):
    """Generate the loops over k of `rows` x `columns` scalar products, and C = S + them."""
    C, c_row, S, s_row, *_ = values
    vectors = LINE // registers.lanes
    n = next(n for n in (1, 2, 4) if n == vectors or rows * columns * n >= 8)  # of a pass: 8 sums
    parts = []
    for first in range(0, vectors, n):
        places = range(first, first + n)
        parts += _generate_pass(registers, builder, rows, columns, places, values)
    while len(parts) > 1:  # the upper half of a line is added to the lower, as in `_sum_lanes`
        halves = zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True)
        parts = [{at: builder.fadd(low[at], high[at]) for at in low} for low, high in halves]
    for r in range(rows):
        offsets = builder.mul(_int(r), c_row), builder.mul(_int(r), s_row)
        row = [parts[0][r, c] for c in range(columns)]
        _store_sum(builder, C, S, *offsets, _sum_lanes(builder, row))


def _generate_pass(registers, builder, rows, columns, places, values):
    """Generate a loop over k that multiplies some vectors of each line, those at `places`.

    Returns the sums, {(row, column): vector} for each place.
    """
    *_, A, a_row, B, b_row, b_jump, later, later_panel, lines = values
    lanes, vector = registers.lanes, ir.VectorType(_FLOAT, registers.lanes)
    a_offsets = [builder.mul(_int(r), a_row) for r in range(rows)]
    b_offsets = [builder.mul(_int(c), b_row) for c in range(columns)]
    before, after = _begin_loop(builder)
    i, a, b, p = (builder.phi(kind) for kind in (_INT, A.type, B.type, B.type))
    tile = list(product(range(rows), range(columns)))
    sums = [{at: builder.phi(vector) for at in tile} for _ in places]
    totals, following = [], {}
    for place, before_step in zip(places, sums, strict=True):

        def load(base, offset, place=place):
            at = builder.add(offset, _int(place * lanes))
            return builder.load(_vector_at(builder, base, at, vector), align=4)

        load_a, load_b = (lambda r: load(a, a_offsets[r])), (lambda c: load(b, b_offsets[c]))
        totals.append(_add_products(builder, before_step, rows, columns, load_a, load_b))
        for at in tile:
            following[before_step[at]] = ir.Constant(vector, [0.0] * lanes), totals[-1][at]
    n, passes = len(places), LINE // lanes // len(places)
    for c in range(columns)[places[0] // n :: passes]:  # each pass for other columns
        _prefetch(builder, builder.gep(p, [builder.mul(_int(c), later_panel)]))
    next_i = builder.add(i, _int(1))
    is_in_panel = builder.icmp_signed("!=", builder.and_(next_i, _int(PANEL // LINE - 1)), _int(0))
    following |= {
        i: (_int(0), next_i),
        a: (A, builder.gep(a, [_int(LINE)])),
        b: (B, builder.gep(b, [builder.select(is_in_panel, _int(LINE), b_jump)])),
        p: (later, builder.gep(p, [_int(LINE)])),
    }
    _end_loop(builder, following, before, builder.icmp_signed("<", next_i, lines), after)
    return totals


def _begin_loop(builder):
    """Begin the block of a loop. Returns the blocks before and after it."""
    before = builder.block
    step, after = (builder.append_basic_block(name) for name in ("step", "after"))
    builder.branch(step)
    builder.position_at_end(step)
    return before, after


def _end_loop(builder, following, before, goes_on, after):
    """End the block of a loop; go on behind it, in the block `after`.

    following: the first and the next value of each phi. LLVM must not unroll the loop: it would
    load several steps' vectors at once, and run out of registers.
    """
    step, module = builder.block, builder.module
    for phi, (first, next_value) in following.items():
        phi.add_incoming(first, before)
        phi.add_incoming(next_value, step)
    branch = builder.cbranch(goes_on, step, after)
    once = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    name = module.add_metadata([once, _int(len(module.metadata))])
    name.operands = name, once  # LLVM's way to name a loop: its first operand is itself
    branch.set_metadata("llvm.loop", name)
    builder.position_at_end(after)


def _store_sum(builder, C, S, c_offset, s_offset, vector):
    """Store S + `vector` in C. Offsets in floats."""
    source = _vector_at(builder, S, s_offset, vector.type)
    target = _vector_at(builder, C, c_offset, vector.type)
    builder.store(builder.fadd(builder.load(source, align=4), vector), target, align=4)


def _prefetch(builder, address):
    """Ask for the line at an address that will be read soon, into the second cache."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer()] + [ir.IntType(32)] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    read, second, data = (ir.Constant(ir.IntType(32), value) for value in (0, 2, 1))
    builder.call(function, [builder.bitcast(address, _BYTE.as_pointer()), read, second, data])


def _sum_lanes(builder, vectors):
    """The sum of the floats of each vector, as one vector; 1, 2, 4 or 8, no more than lanes.

    The upper half is added to the lower one until one float is left, for any number of vectors.
    """
    width = vectors[0].type.count  # floats that are left of each
    while width > 1:
        n_lanes, pairs = vectors[0].type.count, [(vectors[0], vectors[0])]
        if len(vectors) > 1:
            n_lanes, pairs = 2 * n_lanes, list(zip(vectors[::2], vectors[1::2], strict=True))
        width //= 2
        lower = [i + j for i in range(0, n_lanes, 2 * width) for j in range(width)]
        upper = [lane + width for lane in lower]
        vectors = [
            builder.fadd(*(builder.shuffle_vector(u, v, _mask(half)) for half in (lower, upper)))
            for u, v in pairs
        ]
    return vectors[0]


def define(module, name, n_arguments, generate):
    """The function of this name in a module, made if it is not there. Its arguments are int64.

    generate(builder, arguments): its body. It is never inlined: otherwise each function that
    multiplies would hold all tiles, and take minutes to compile.
    """
    kind = ir.FunctionType(ir.VoidType(), [_INT] * n_arguments)
    function = cgutils.get_or_insert_function(module, kind, name)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        body = ir.IRBuilder(function.append_basic_block("entry"))
        generate(body, list(function.args))
        body.ret_void()
    return function


def _call_of(name, n_arguments, generate):
    """Signature and code generation of an intrinsic: a call of `define`'s function."""

    def call(_context, builder, _signature, values):
        builder.call(define(builder.module, name, n_arguments, generate), values)

    return types.void(*[types.int64] * n_arguments), call


class Tiles(NamedTuple):
    """The tiles of a product: code of a function whose last argument chooses one of them."""

    n_arguments: int
    pointers: tuple[int, ...]  # which of the arguments are addresses
    generate_tile: Callable  # (registers, builder, rows, columns, values)
    shapes: Callable  # (registers) -> [(rows, columns) of each tile], the main tile last

    def generate(self, registers, shapes, builder, arguments):
        """The body of the function, for `define`. A tile's number is rows * SHAPE + columns."""
        *values, shape = arguments
        for index in self.pointers:
            values[index] = builder.inttoptr(values[index], _FLOAT.as_pointer())
        done = builder.append_basic_block("done")
        switch = builder.switch(shape, done)
        for rows, columns in shapes:
            case = builder.append_basic_block(f"tile_{rows}_{columns}")
            switch.add_case(_int(rows * SHAPE + columns), case)
            builder.position_at_end(case)
            self.generate_tile(registers, builder, rows, columns, values)
            builder.branch(done)
        builder.position_at_end(done)

    def intrinsic(self, name):
        """The function for this processor's registers, as an intrinsic of Numba."""
        generate = partial(self.generate, REGISTERS, self.shapes(REGISTERS))
        return _call_of(name, self.n_arguments, generate)


def _tile_shapes(registers):
    shapes = []
    for rows, widest in enumerate(tile_widths(registers)[1:], 1):
        least = min(widest, LINE // registers.lanes)  # columns are a multiple of LINE
        shapes += [(rows, vectors) for vectors in range(least, widest + 1, least)]
    return shapes


def _dots_shapes(registers):
    _, one, *more = dots_widths(registers)
    return sorted({(1, one), (1, more[0]), *enumerate(more, 2)})


TILES = Tiles(13, (0, 2, 4, 7, 9), _generate_tile, _tile_shapes)
DOTS_TILES = Tiles(13, (0, 2, 4, 6, 9), _generate_dots, _dots_shapes)


@intrinsic
def _tile(_context, C, c_row, S, s_row, A, a_row, a_step, B, b_step, later, later_step, k, shape):
    """C = S + A B for one tile and one chunk. Addresses, and distances in floats, all int64.

    later: an address; the line there is read ahead at the first step, at the next one the line
    later_step after it, and so on.
    """
    return TILES.intrinsic("deepbig_tile")


@intrinsic
def _dots(
    _context, C, c_row, S, s_row, A, a_row, B, b_row, b_jump, later, later_panel, lines, shape
):
    """C = S + A B^T for one tile and one chunk of lines. See `_tile`.

    b_jump: from the last line of a panel to the first of the next. later: an address; column c of
    the tile reads lines ahead from later_panel * c after it.
    """
    return DOTS_TILES.intrinsic("deepbig_dots")


@intrinsic
def not_inlined(_context):
    """Tell LLVM not to inline the function that calls this: large ones compile faster apart."""

    def generate(_context, builder, _signature, _values):
        builder.function.attributes.add("noinline")

    return types.void(), generate


@njit(nogil=True)
def pointer(matrix, i, j):
    """Address of a float32 matrix's element i, j, and the distance of rows in floats.

    Rows are contiguous. For a part of a matrix this costs less than a slice, to compile and to run.
    """
    return np.int64(matrix.ctypes.data + i * matrix.strides[0] + 4 * j), matrix.strides[0] // 4


@njit(nogil=True)
def row_pointer(vector, j):
    """As `pointer`, for a matrix whose rows are all the same vector, from element j on."""
    return np.int64(vector.ctypes.data + 4 * j), np.int64(0)


@njit(nogil=True)
def _product(C_at, S_at, A, a_row, a_step, B_at, rows, columns, k):
    """See `add_product_at`. All int64, so that it is compiled once; distances in floats."""
    not_inlined()
    (C, c_row), (S, s_row), (B, b_step) = C_at, S_at, B_at
    tiles = (rows + ROWS - 1) // ROWS
    for start in range(0, k, CHUNK):
        steps = min(CHUNK, k - start)
        for first in range(0, columns, PANEL):
            end, row = min(first + PANEL, columns), 0
            for tile in range(tiles):
                n = (rows - row) // (tiles - tile)  # so that no tile is much lower than others
                a, j = A + 4 * (row * a_row + start * a_step), first
                while j < end:
                    vectors = min(WIDTHS[n], (end - j) // LANES)
                    c, s = C + 4 * (row * c_row + j), S + 4 * (row * s_row + j)
                    b, shape = B + 4 * (start * b_step + j), n * SHAPE + vectors
                    later, stride = b, b_step
                    if a_row == 1:  # A^T: the line that the tiles below need
                        later, stride = a + 4 * LINE, a_step
                    elif tile == 0 and b_step == PANEL:  # of a contiguous B: the next chunk
                        later = B + 4 * ((start + steps) * PANEL + (j - first) * steps)
                        stride = vectors * LANES
                    _tile(
                        c, c_row, s, s_row, a, a_row, a_step, b, b_step, later, stride, steps, shape
                    )
                    j += vectors * LANES
                row += n
        S, s_row = C, c_row


@njit(nogil=True)
def _product_nt(C_at, S_at, A_at, B_at, panel, rows, columns, k):
    """See `add_product_nt_at`. All int64."""
    not_inlined()
    (C, c_row), (S, s_row), (A, a_row), (B, b_row) = C_at, S_at, A_at, B_at
    highest, usual = len(DOTS_WIDTHS) - 1, DOTS_WIDTHS[2]
    tiles = (rows + highest - 1) // highest
    for start in range(0, k, DOTS_CHUNK):
        lines = (min(DOTS_CHUNK, k - start) + LINE - 1) // LINE
        jump, panels = panel - PANEL + LINE, (lines + PANEL // LINE - 1) // (PANEL // LINE)
        row = 0
        for tile in range(tiles):
            n, j = (rows - row) // (tiles - tile), 0
            while j < columns:
                width = DOTS_WIDTHS[n] if j + usual < columns else usual
                c, s = C + 4 * (row * c_row + j), S + 4 * (row * s_row + j)
                a, b = A + 4 * (row * a_row + start), B + 4 * (start // PANEL * panel + j * b_row)
                later, step, shape = b, np.int64(0), n * SHAPE + width
                if tile == 0:  # of the next rows of B, as many as panels, each panel's in one go
                    done = j % panels
                    later, step = b + 4 * ((panels - done) * b_row + done * panel), panel
                _dots(c, c_row, s, s_row, a, a_row, b, b_row, jump, later, step, lines, shape)
                j += width
            row += n
        S, s_row = C, c_row


@njit(nogil=True)
def add_product(C, S, A, B):
    """C = S + A B. Modifies C (rows, columns), float32, columns a multiple of LINE.

    S: C itself; or another matrix like C, or a single row (1, columns) to be added to each of C.
    A (rows, k), B (k, columns), k at least 1: float32; the rows of B, C and S are contiguous, those
    of A need not be: A may be the transposed view of a matrix.
    """
    a_row, a_step = np.int64(A.strides[0] // 4), np.int64(A.strides[1] // 4)
    s = pointer(S, 0, 0) if S.shape[0] > 1 else row_pointer(S[0], 0)
    n, m, k = np.int64(C.shape[0]), np.int64(C.shape[1]), np.int64(A.shape[1])
    a = np.int64(A.ctypes.data)
    _product(pointer(C, 0, 0), s, a, a_row, a_step, pointer(B, 0, 0), n, m, k)


@njit(nogil=True)
def add_product_at(C, S, A, B, rows, columns, k):
    """C = S + A B as `add_product`, of parts of matrices, each given by its `pointer`."""
    n, m, k, one = np.int64(rows), np.int64(columns), np.int64(k), np.int64(1)
    _product(C, S, A[0], A[1], one, B, n, m, k)


@njit(nogil=True)
def add_product_tn_at(C, S, A, B, rows, columns, k):
    """C = S + A^T B as `add_product_at`; A (k, rows)."""
    n, m, k, one = np.int64(rows), np.int64(columns), np.int64(k), np.int64(1)
    _product(C, S, A[0], one, A[1], B, n, m, k)


@njit(nogil=True)
def add_product_nt_at(C, S, A, B, panel, rows, columns, k):
    """C = S + A B^T as `add_product_at`; B (columns, k).

    columns are rounded up to a multiple of 4, and k to one of LINE: there A or B must be zero, and
    the other finite. B is cut into panels of PANEL columns, `panel` floats from one to the next.
    """
    n, m, k, panel = np.int64(rows), np.int64(columns), np.int64(k), np.int64(panel)
    _product_nt(C, S, A, B, panel, n, m, k)


@intrinsic
def _transpose_square(_context, target, target_row, source, source_row):
    """Copy LINE x LINE floats, transposed. Addresses, and distances in floats, all int64."""

    def generate(builder, values):
        target, target_row, source, source_row = values
        target, source = (builder.inttoptr(p, _FLOAT.as_pointer()) for p in (target, source))
        rows = []
        for r in range(LINE):
            place = _vector_at(builder, source, builder.mul(_int(r), source_row), _LINE)
            rows.append(builder.load(place, align=4))
        half = 1
        while half < LINE:  # exchange squares of `half` x `half` across the diagonal
            lanes = range(LINE)
            upper = _mask([j if not j & half else LINE + j - half for j in lanes])
            lower = _mask([j + half if not j & half else LINE + j for j in lanes])
            for r in range(LINE):
                if not r & half:
                    a, b = rows[r], rows[r + half]
                    rows[r] = builder.shuffle_vector(a, b, upper)
                    rows[r + half] = builder.shuffle_vector(a, b, lower)
            half *= 2
        for r in range(LINE):
            place = _vector_at(builder, target, builder.mul(_int(r), target_row), _LINE)
            builder.store(rows[r], place, align=4)

    return _call_of("deepbig_transpose", 4, generate)


@njit(nogil=True)
def transpose(target, source):
    """target = source^T, in squares of LINE x LINE floats. Modifies target.

    Both float32 with contiguous rows. Sizes are rounded up to multiples of LINE, and there must be
    memory for that behind both.
    """
    (at, row), (source_at, source_row) = pointer(target, 0, 0), pointer(source, 0, 0)
    for r in range(0, source.shape[0], LINE):
        for c in range(0, source.shape[1], LINE):
            _transpose_square(
                at + 4 * (c * row + r), row, source_at + 4 * (r * source_row + c), source_row
            )


@intrinsic
def floats_at(_context, address):
    """A pointer to float32 at an address, for numba.carray."""

    def generate(_context, builder, _signature, values):
        return builder.inttoptr(values[0], _FLOAT.as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@intrinsic
def words_at(_context, address):
    """A pointer to int64 at an address."""

    def generate(_context, builder, _signature, values):
        return builder.inttoptr(values[0], _INT.as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


def round_up(n: int, multiple: int = LINE) -> int:
    """The smallest multiple that is at least n."""
    return -(-n // multiple) * multiple


def aligned_zeros(*shape: int) -> np.ndarray:
    """Zeros, float32, in C order, whose memory begins at a multiple of LINE floats."""
    n = int(np.prod(shape))
    memory = np.zeros(n + 2 * LINE, np.float32)
    start = -memory.ctypes.data // 4 % LINE
    return memory[start : start + n].reshape(shape)
