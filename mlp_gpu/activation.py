"""The activations as scalar formulas: y(a) = A tanh(B a) and its derivative, and the softmax's exp.

Plain Python, so that each engine compiles the same source for its own target. The library's tanh,
exp and log are calls, which no loop over neurons vectorises and which round as the C library of the
machine does: so here they are multiplications, and one division.
Source: 2010 paper, section 3 (after LeCun et al., 1998).
"""

import numpy as np

A = np.float32(1.7159)
B = np.float32(0.6666)
SLOPE = np.float32(0.6666 / 1.7159)  # B / A

LIMIT = np.float32(9)  # from here on tanh is at most half a rounding away from 1
EIGHTH, ONE, TWO = np.float32(0.125), np.float32(1), np.float32(2)
N1, D1, D2 = np.float32(10 / 105), np.float32(45 / 105), np.float32(1 / 105)


def scaled_tanh(a):
    """State y of a hidden neuron, float32, from its activation a, float32; NaN stays NaN.

    Lambert's continued fraction gives tanh(z) = z (105 + 10 z^2) / (105 + 45 z^2 + z^4) for small
    z, and tanh(2z) = 2 tanh(z) / (1 + tanh(z)^2) leads from an eighth to the whole. The error is at
    most 5e-7; no state lies beyond A, and from LIMIT on it is A, so that no derivative is negative.
    """
    whole = B * a
    z = EIGHTH * (LIMIT if whole > LIMIT else -LIMIT if whole < -LIMIT else whole)
    u = z * z
    n, d = z * (ONE + N1 * u), ONE + u * (D1 + D2 * u)
    n, d = TWO * n * d, d * d + n * n
    n, d = TWO * n * d, d * d + n * n
    n, d = TWO * n * d, d * d + n * n
    t = n / d
    t = ONE if whole >= LIMIT or t > ONE else t
    t = -ONE if whole <= -LIMIT or t < -ONE else t
    return A * t


def scaled_tanh_derivative(y):
    """dy/da, float32, from the state y itself, float32: (B / A) (A - y) (A + y)."""
    return SLOPE * (A - y) * (A + y)


# e^z = 2^n e^r with n whole and |r| at most half of log 2, which is subtracted in two parts.
LOWEST = np.float32(-87)  # 2^n is a normal number down to here
LOG2_E = np.float32(1.4426950408889634)
LOG_2_HIGH, LOG_2_LOW = np.float32(0.693359375), np.float32(-2.1219444005469057e-4)
ROUNDING = np.float32(1.5 * 2**23)  # added and subtracted, it leaves the nearest whole number
C2, C3, C4, C5, C6, C7 = (np.float32(1 / n) for n in (2, 6, 24, 120, 720, 5040))


def exp_of_negative(z):
    """e^z, float32, for z <= 0, float32; NaN stays NaN. Below LOWEST: e^LOWEST.

    The Taylor polynomial of degree 7 in r. The relative error is at most 1.1e-7.
    """
    z = LOWEST if z < LOWEST else z
    n = (z * LOG2_E + ROUNDING) - ROUNDING
    r = (z - n * LOG_2_HIGH) - n * LOG_2_LOW
    p = ONE + r * (ONE + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * (C6 + r * C7))))))
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


def log_of_sum(x):
    """log x, float64, for x from 1 to 2^24, float32; NaN stays NaN.

    x = 2^n m with m up to 4/3, log m = 2 artanh s with s = (m - 1) / (m + 1), its series to s^11.
    The error is at most 1.4e-10.
    """
    m, n = np.float64(x), 0
    while m > 4 / 3:
        m *= 0.5
        n += 1
    s = (m - 1) / (m + 1)
    u = s * s
    series = 1 + u * (1 / 3 + u * (1 / 5 + u * (1 / 7 + u * (1 / 9 + u / 11))))
    return n * 0.6931471805599453 + 2 * s * series
