"""Random numbers as a function of (seed, purpose, epoch): no generator state to save.

The host draws initial weights, connections, orders of images, splits of data and what studies vary
from them. Deformations have their own random numbers, see `deform_gpu.philox`, because an engine
draws those.
"""

import numpy as np

WEIGHTS = 1
ORDER = 2
SPLIT = 3  # images for training, validation or test
CONNECTIONS = 4
VARIANTS = 5  # of studies' deformations


def generator(seed: int, purpose: int, epoch: int = 0) -> np.random.Generator:
    """A numpy generator keyed by a seed in [0, 2**64), one of the purposes above and an epoch."""
    key = np.array([seed, purpose], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, epoch]))
