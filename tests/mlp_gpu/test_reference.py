"""The reference itself, by finite differences."""

import numpy as np
import reference


def test_gradients_are_finite_differences():
    rng = np.random.default_rng(1)
    sizes = (7, 5, 6, 4)
    weights = reference.random_weights(sizes, rng)
    x, label, step = rng.uniform(-1, 1, 7), 2, 1e-6
    for layer, gradient in enumerate(reference.gradients(weights, x, label)):
        for index in np.ndindex(gradient.shape):
            values = []
            for sign in (1, -1):
                moved = [W.copy() for W in weights]
                moved[layer][index] += sign * step
                values.append(reference.loss(moved, x, label))
            difference = (values[0] - values[1]) / (2 * step)
            # Rounding of the loss over the step, plus the third derivative times its square.
            assert abs(difference - gradient[index]) <= 1e-15 / step + 100 * step**2
