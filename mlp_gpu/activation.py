"""The hidden activation y(a) = A tanh(B a) and its derivative, as scalar formulas.

Plain Python, so that each engine compiles the same source for its own target.
Source: 2010 paper, section 3 (after LeCun et al., 1998).
"""

import math

import numpy as np

A = np.float32(1.7159)
B = np.float32(0.6666)
SLOPE = np.float32(0.6666 / 1.7159)  # B / A


def scaled_tanh(a):
    """State y of a hidden neuron, float32, from its activation a, float32."""
    return A * math.tanh(B * a)


def scaled_tanh_derivative(y):
    """dy/da, float32, from the state y itself, float32: (B / A) (A - y) (A + y)."""
    return SLOPE * (A - y) * (A + y)
