"""Scale images to another size: bilinear, corner pixels on corner pixels."""

import numpy as np

from deepbig_runtime.jit import njit


def resize(images: np.ndarray, side: int) -> np.ndarray:
    """Square images of any real dtype (n, k, k) as new float32 (n, side, side), C order.

    Constant areas and the four corner pixels keep their values exactly. side: 2 or more.
    """
    source_side = images.shape[-1]
    low, rest = np.divmod(np.arange(side) * (source_side - 1), side - 1)
    high = np.minimum(low + 1, source_side - 1)
    weight = (rest / (side - 1)).astype(np.float32)
    resized = np.empty((len(images), side, side), np.float32)
    interpolate(resized, images, low, high, weight)
    return resized


@njit(nogil=True)
def interpolate(resized, images, low, high, weight):
    """Interpolate between rows, then between columns.

    resized: (n, side, side) float32, modified. images: (n, k, k). low, high: (side,) integers, the
    rows, or columns, that a row or column lies between. weight: (side,) float32, that of high.
    """
    side, source_side = len(low), images.shape[2]
    row = np.empty(source_side, np.float32)
    for i in range(len(images)):
        for y in range(side):
            upper, lower = images[i, low[y]], images[i, high[y]]
            for x in range(source_side):
                a, b = np.float32(upper[x]), np.float32(lower[x])
                # Not (1 - w) a + w b, which would not keep constants exactly.
                row[x] = a + weight[y] * (b - a)
            for x in range(side):
                a, b = row[low[x]], row[high[x]]
                resized[i, y, x] = a + weight[x] * (b - a)
