"""The hidden activation y(a) = A tanh(B a) and its derivative, as scalar formulas.

Plain Python, so that each engine compiles the same source for its own target. The library's tanh is
a call, which no loop over neurons vectorises: so here it is multiplications and one division.
Source: 2010 paper, section 3 (after LeCun et al., 1998).
"""

import numpy as np

A = np.float32(1.7159)
B = np.float32(0.6666)
SLOPE = np.float32(0.6666 / 1.7159)  # B / A

LIMIT = np.float32(9)  # tanh of more is 1 in float32
EIGHTH, ONE, TWO = np.float32(0.125), np.float32(1), np.float32(2)
N1, D1, D2 = np.float32(10 / 105), np.float32(45 / 105), np.float32(1 / 105)


def scaled_tanh(a):
    """State y of a hidden neuron, float32, from its activation a, float32; NaN stays NaN.

    Lambert's continued fraction gives tanh(z) = z (105 + 10 z^2) / (105 + 45 z^2 + z^4) for small
    z, and tanh(2z) = 2 tanh(z) / (1 + tanh(z)^2) leads from an eighth to the whole. The error is at
    most 4e-7.
    """
    z = B * a
    z = LIMIT if z > LIMIT else z
    z = -LIMIT if z < -LIMIT else z
    z *= EIGHTH
    u = z * z
    n, d = z * (ONE + N1 * u), ONE + u * (D1 + D2 * u)
    n, d = TWO * n * d, d * d + n * n
    n, d = TWO * n * d, d * d + n * n
    n, d = TWO * n * d, d * d + n * n
    return A * (n / d)


def scaled_tanh_derivative(y):
    """dy/da, float32, from the state y itself, float32: (B / A) (A - y) (A + y)."""
    return SLOPE * (A - y) * (A + y)
