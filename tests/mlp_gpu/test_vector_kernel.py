"""The CPU's kernel: products and transposed matrices, with vectors of any width."""

import hashlib
from functools import cache
from itertools import product

import numba
import numpy as np
import pytest
from narrow_vectors import NARROWER, needs_avx2, printed_by

from mlp_gpu.vector_kernel import (
    CHUNK,
    DOTS_CHUNK,
    LINE,
    PANEL,
    add_product,
    add_product_nt_at,
    aligned_zeros,
    choose_registers,
    pointer,
    round_up,
    transpose,
)

MAX_ROWS, MAX_COLUMNS = 13, 112
COLUMNS = range(LINE, MAX_COLUMNS + 1, LINE)
STEPS = (1, CHUNK - 1, CHUNK, CHUNK + 1, 200, 300)
GUARD = 3  # rows and columns around a matrix; no multiple of a vector, so that no row is aligned


def guarded(matrix, fill):
    """A copy of a matrix inside a larger one that is full of `fill`; returns both."""
    rows, columns = matrix.shape
    memory = np.full((rows + 2 * GUARD, columns + 2 * GUARD), fill, np.float32)
    inside = memory[GUARD:-GUARD, GUARD:-GUARD]
    inside[:] = matrix
    return inside, memory


def factors(rows, k, columns):
    """S (rows, columns), A (rows, k), B (k, columns): random float32 numbers."""
    rng = np.random.default_rng(k)
    sizes = [(rows, columns), (rows, k), (k, columns)]
    return [rng.standard_normal(size, dtype=np.float32) for size in sizes]


def as_transposed_view(A):
    return np.ascontiguousarray(A.T).T


def as_strided_slice(A):
    memory = np.full((2 * A.shape[0], 3 * A.shape[1]), np.nan, np.float32)
    memory[::2, ::3] = A
    return memory[::2, ::3]


def fused(a, b, c):
    """a b + c of float32 numbers, rounded once, to float32.

    In float64 the product is exact and the sum is not. Rounded to odd it has the digits that
    rounding to float32 afterwards needs (Boldo and Melquiond, 2008).
    """
    ab, c = a.astype(float) * b, c.astype(float)
    total = ab + c
    of_c = total - ab
    error = (ab - (total - of_c)) + (c - of_c)  # ab + c - total, exactly
    odd = np.nextafter(total, np.copysign(np.inf, error))
    is_even = total.view(np.int64) % 2 == 0
    return np.where(is_even & (error != 0), odd, total).astype(np.float32)


@cache
def add_product_of_any_layout():
    """`add_product`, compiled once; otherwise Numba compiles it for each combination of layouts."""
    matrix = numba.float32[:, :]
    return numba.njit((matrix, matrix, matrix, matrix))(add_product.py_func)


@pytest.mark.parametrize("start", ["C itself", "another matrix", "one row"])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, as_transposed_view, as_strided_slice])
def test_add_product_of_any_size_has_the_bits_of_its_definition(layout, start):
    """For each CHUNK of k, a chain of fused multiply-adds from zero; then it is added.

    All memory around S, A and B is NaN; that around C keeps its value.
    """
    for k in STEPS:
        S, A, B = factors(MAX_ROWS, k, MAX_COLUMNS)
        if start == "one row":
            S[1:] = S[0]
        expected = S
        for first in range(0, k, CHUNK):
            total = np.zeros_like(S)
            for i in range(first, min(first + CHUNK, k)):
                total = fused(A[:, i : i + 1], B[i], total)
            expected = expected + total
        for rows, columns in product(range(1, MAX_ROWS + 1), COLUMNS):
            part = S[:rows, :columns]
            C, memory = guarded(part if start == "C itself" else np.nan * part, 7)
            read = C
            if start != "C itself":
                read, _ = guarded(part[:1] if start == "one row" else part, np.nan)
            right, _ = guarded(B[:, :columns], np.nan)
            add_product_of_any_layout()(C, read, layout(A[:rows]), right)
            assert C.tobytes() == expected[:rows, :columns].tobytes()
            C[:] = 7
            assert (memory == 7).all()


def add_product_nt(C, S, A, B):
    """C = S + A B by a copy of B^T in panels, in memory that is NaN behind each row's last line."""
    (rows, k), columns = A.shape, B.shape[1]
    left = np.full((rows, round_up(k) + GUARD), np.nan, np.float32)
    left[:, : round_up(k)] = 0
    left[:, :k] = A
    panels = np.full((-(-k // PANEL), columns + GUARD, PANEL), np.nan, np.float32)
    for i in range(round_up(k)):
        panels[i // PANEL, :columns, i % PANEL] = B[i] if i < k else 1
    parts = [pointer(M, 0, 0) for M in (C, S, left, panels[0])]
    add_product_nt_at(*parts, panels[0].size, rows, columns, k)


@pytest.mark.parametrize("columns", [4, 12, 52, 64])
@pytest.mark.parametrize("k", [1, 16, 40, 64, 100, DOTS_CHUNK, DOTS_CHUNK + 70])
def test_add_product_nt_of_any_size_has_the_bits_of_its_definition(k, columns):
    """LINE chains for each DOTS_CHUNK of k; halves of their sums are added. C keeps its margins."""
    for rows in range(1, MAX_ROWS + 1):
        S, A, B = factors(rows, k, columns)
        C, memory = guarded(S, 7)
        add_product_nt(C, C, A, B)
        expected = S
        for start in range(0, k, DOTS_CHUNK):
            end = min(start + DOTS_CHUNK, k)
            lanes = np.zeros((rows, columns, LINE), np.float32)
            for i in range(start, end, LINE):
                n = min(LINE, end - i)
                a, b = A[:, None, i : i + n], B.T[None, :, i : i + n]
                lanes[:, :, :n] = fused(a, b, lanes[:, :, :n])
            while lanes.shape[2] > 1:
                half = lanes.shape[2] // 2
                lanes = lanes[:, :, :half] + lanes[:, :, half:]
            expected = expected + lanes[:, :, 0]
        assert C.tobytes() == expected.tobytes()
        C[:] = 7
        assert (memory == 7).all()


def digest():
    """SHA-256 of products and of a transposed matrix; equal for every width of vectors."""
    results = hashlib.sha256()
    for rows, k, columns in product(range(1, MAX_ROWS + 1), STEPS, COLUMNS):
        S, A, B = factors(rows, k, columns)
        C = np.full_like(S, np.nan)
        for product_of in (add_product, add_product_nt):
            product_of(C, S, A, B)
            results.update(C.tobytes())
    source, *_ = factors(48, 1, MAX_COLUMNS)
    target = np.full((MAX_COLUMNS, 48), np.nan, np.float32)
    transpose(target, source)
    results.update(target.tobytes())
    return results.hexdigest()


@needs_avx2
@pytest.mark.parametrize(("processor", "lanes"), NARROWER)
def test_add_product_with_narrower_vectors_has_the_same_bits(processor, lanes):
    code = "import mlp_gpu.vector_kernel, test_vector_kernel as test\n"
    code += "print(mlp_gpu.vector_kernel.LANES, test.digest())"
    assert printed_by(processor, code) == [str(lanes), digest()]


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 48), (17, 33), (47, 15)])
def test_transpose_of_any_size_moves_whole_blocks(rows, columns):
    """Sizes are rounded up to LINE. All memory around the target keeps its value."""
    height, width = round_up(rows), round_up(columns)
    values = np.arange(height * width, dtype=np.float32).reshape(height, width)
    source, _ = guarded(values, np.nan)
    target, memory = guarded(np.full((width, height), np.nan, np.float32), -1)
    transpose(target[:columns, :rows], source[:rows, :columns])
    assert (target == values.T).all()
    target[:] = -1
    assert (memory == -1).all()


@pytest.mark.parametrize(
    ("features", "registers"),
    [
        (set(), (4, 16)),
        ({"neon"}, (4, 32)),
        ({"sse4.2", "avx"}, (8, 16)),
        ({"avx", "avx2", "fma"}, (8, 16)),
        ({"avx", "avx2", "fma", "avx512f"}, (16, 32)),
    ],
)
def test_choose_registers_gives_all_of_the_widest(features, registers):
    assert choose_registers(features) == registers


@pytest.mark.parametrize("shape", [(1,), (13, 7), (3, 5, 31)])
def test_aligned_zeros_begin_at_a_cache_line(shape):
    """Kept alive together, so that they do not all get the same memory."""
    arrays = [aligned_zeros(*shape) for _ in range(20)]
    assert all(array.ctypes.data % (4 * LINE) == 0 for array in arrays)
    assert all(array.shape == shape and array.flags.c_contiguous for array in arrays)
    assert all(array.dtype == np.float32 and not array.any() for array in arrays)
