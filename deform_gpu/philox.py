"""Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
easy as 1, 2, 3", section 3.3; the Random123 library).

A call maps a counter of four words and a key of two to four random words, and keeps no state. So
every random number of a deformation is a function of its purpose and place:

    key     = (low half, high half) of the 64-bit seed
    counter = (index, batch or image, epoch, purpose)

    purpose         index                               second word
    PURPOSE_FIELD   call within the field, see field    batch of 100 images
    PURPOSE_AFFINE  0, and 1 for the translation        image
"""

import numpy as np

from deepbig_runtime.jit import njit
from deform_gpu.checks import check_integer

PURPOSE_FIELD = 0
PURPOSE_AFFINE = 1


def philox4x32_formula(c0, c1, c2, c3, k0, k1):
    """Four random uint32 from the counter c0..c3 and the key k0, k1, all uint32."""
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * np.uint64(c0)
        p1 = np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0 = np.uint32(np.uint32(p1 >> np.uint64(32)) ^ c1 ^ k0)
        c2 = np.uint32(np.uint32(p0 >> np.uint64(32)) ^ c3 ^ k1)
        c1 = np.uint32(p1)
        c3 = np.uint32(p0)
        # In 64 bits, so that the sum wraps only where it becomes a uint32 again.
        k0 = np.uint32(np.uint64(k0) + np.uint64(0x9E3779B9))
        k1 = np.uint32(np.uint64(k1) + np.uint64(0xBB67AE85))
    return c0, c1, c2, c3


def uniform_formula(word):
    """A float32 uniform in [-1, 1) from the upper 24 bits of a uint32; no rounding takes place."""
    return np.float32(np.int32(word >> np.uint32(8))) * np.float32(2.0**-23) - np.float32(1)


# inline="always": only then do the loops that call them become vector instructions.
philox4x32 = njit(philox4x32_formula, inline="always")
uniform = njit(uniform_formula, inline="always")


def split_seed(seed: int) -> tuple[np.uint32, np.uint32]:
    """The key (k0, k1) of a 64-bit seed. Raises ValueError unless it is an integer below 2**64."""
    seed = check_integer("seed", seed, 0, 2**64 - 1)
    return np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
