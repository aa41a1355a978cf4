"""Products of float32 matrices in compiled code: the sgemm that SciPy exports, without the GIL.

The rows of a matrix may lie further apart than they are long, and a product may be added to what is
there; Numba's own np.dot can do neither. All matrices here are float32 with contiguous rows, which
is column by column for sgemm: so it is given the transposed product.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import get_cython_function_address, intrinsic

from mlp_gpu.jit import njit

# Compiled code takes the address as an argument: kept code must not hold that of another process.
SGEMM = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
PLAIN, TRANSPOSED = ord("N"), ord("T")
# Multiply-adds of a product that OpenBLAS makes without copying matrices first, which is faster.
SMALL = 1_000_000

_CHAR, _INT, _FLOAT = ir.IntType(8), ir.IntType(32), ir.FloatType()
# What Fortran's sgemm takes a pointer to; None: it is one, as an integer.
_KINDS = (_CHAR, _CHAR, _INT, _INT, _INT, _FLOAT, None, _INT, None, _INT, _FLOAT, None, _INT)


@intrinsic
def _sgemm(_context, sgemm, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Call Fortran's sgemm. alpha, beta: float32; all others, addresses too, int64."""

    def generate(_context, builder, _signature, values):
        pointers = []
        for kind, value in zip(_KINDS, values[1:], strict=True):
            if kind is None:
                pointers.append(builder.inttoptr(value, _FLOAT.as_pointer()))
                continue
            place = builder.alloca(kind)
            builder.store(builder.trunc(value, kind) if kind in (_CHAR, _INT) else value, place)
            pointers.append(place)
        function = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in pointers])
        builder.call(builder.inttoptr(values[0], function.as_pointer()), pointers)

    kinds = [types.float32 if kind is _FLOAT else types.int64 for kind in _KINDS]
    return types.void(types.int64, *kinds), generate


@njit(nogil=True)
def _row(matrix):
    """How far apart the rows of a float32 matrix lie, in elements."""
    return matrix.strides[0] // 4


@njit(nogil=True)
def _rows_at_once(rest):
    """Rows of a product to be made at once; rest: multiply-adds for each."""
    return max(1, SMALL // rest)


@njit(nogil=True)
def product(sgemm, C, A, B):
    """C = A B. Modifies C (m, n). A (m, k), B (k, n). sgemm: SGEMM."""
    m, n = C.shape
    k, one, zero = A.shape[1], np.float32(1), np.float32(0)
    step, b = _rows_at_once(n * k), B.ctypes.data
    for i in range(0, m, step):
        rows, a, c = min(step, m - i), A[i:].ctypes.data, C[i:].ctypes.data
        _sgemm(sgemm, PLAIN, PLAIN, n, rows, k, one, b, _row(B), a, _row(A), zero, c, _row(C))


@njit(nogil=True)
def product_with_transposed(sgemm, C, A, B):
    """C = A B^T. Modifies C (m, n). A (m, k), B (n, k). sgemm: SGEMM."""
    m, n = C.shape
    one, zero = np.float32(1), np.float32(0)
    a, b, c = A.ctypes.data, B.ctypes.data, C.ctypes.data
    _sgemm(
        sgemm, TRANSPOSED, PLAIN, n, m, A.shape[1], one, b, _row(B), a, _row(A), zero, c, _row(C)
    )


@njit(nogil=True)
def add_product_of_transposed(sgemm, C, alpha, A, B):
    """C += alpha A^T B. Modifies C (m, n). A (k, m), B (k, n). alpha: float32. sgemm: SGEMM."""
    m, n = C.shape
    k, one = A.shape[0], np.float32(1)
    step, b = _rows_at_once(n * k), B.ctypes.data
    for i in range(0, m, step):
        rows, a, c = min(step, m - i), A[:, i:].ctypes.data, C[i:].ctypes.data
        _sgemm(sgemm, PLAIN, TRANSPOSED, n, rows, k, alpha, b, _row(B), a, _row(A), one, c, _row(C))
