"""The small net as data: weights and velocities, from a seed; pixels as it sees them."""

from dataclasses import dataclass

import numpy as np

from mlp_gpu import random

SIDE = 28
N_INPUTS, N_OUTPUTS = SIDE**2, 10
MIN_HIDDEN, MAX_HIDDEN = N_OUTPUTS, 512  # a block has a thread for each neuron of either layer


@dataclass(frozen=True, eq=False)
class Net:
    """A net between engines: 784 inputs, some hidden neurons, 10 outputs, no biases.

    W1 (hidden, 784) and W2 (10, hidden): a row a neuron. V1 and V2: the last steps of these
    weights, which momentum repeats. All float32, C order.
    """

    W1: np.ndarray
    W2: np.ndarray
    V1: np.ndarray
    V2: np.ndarray

    @classmethod
    def initial(cls, hidden: int, seed: int) -> "Net":
        """A new net. Weights as in the sequential program: W1 of 0, 0.1, ..., 0.5 and W2 of 0.01,
        0.02, ..., 0.1, all equally likely and of either sign. Velocities are 0. Raises ValueError
        for fewer than MIN_HIDDEN or more than MAX_HIDDEN neurons.
        """
        if not MIN_HIDDEN <= hidden <= MAX_HIDDEN:
            raise ValueError(f"expected {MIN_HIDDEN} to {MAX_HIDDEN} neurons, got {hidden}")
        rng = random.generator(seed, random.WEIGHTS)

        def draw(shape: tuple[int, int], low: int, high: int, unit: float) -> np.ndarray:
            signs = rng.choice([-1, 1], shape)
            return (signs * rng.integers(low, high, shape, endpoint=True) * unit).astype(np.float32)

        W1 = draw((hidden, N_INPUTS), 0, 5, 0.1)
        W2 = draw((N_OUTPUTS, hidden), 1, 10, 0.01)
        return cls(W1, W2, np.zeros_like(W1), np.zeros_like(W2))

    @property
    def hidden(self) -> int:
        """The number of hidden neurons."""
        return len(self.W1)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """W1, W2, V1 and V2."""
        return self.W1, self.W2, self.V1, self.V2


def black_and_white(pixels: np.ndarray) -> np.ndarray:
    """Pixels (n, 28, 28) as the net sees them, float32 (n, 784): 0 is 0 and the others are 1."""
    return (pixels.reshape(len(pixels), -1) > 0).astype(np.float32)
