"""Filters of image-processing layers: fixed, and not trained (2011, section 3; NORB and CIFAR10).

    hat21       two Mexican hats of 21x21, on-centre and off-centre; any odd size from 3
    sobel       two of 3x3, for edges across x and across y
    scharr      two of 3x3, the same with other weights

Guesses, where the paper gives names and sizes only: a Mexican hat of K pixels has a sigma of
(K - 1) / 8; the weights of every filter add up to 0, its positive ones to 1; pixels outside a map
are the nearest ones inside.
"""

import re

import numpy as np

SOBEL, SCHARR = (1, 2, 1), (3, 10, 3)


def bank(names: tuple[str, ...], largest: int | None = None) -> np.ndarray:
    """The filters of these names, float32 (filters, K * K), K the side of the largest of them.

    Smaller filters are zero-padded. largest: the greatest K allowed. Raises ValueError, its message
    the end of a sentence, for an unknown name or a filter that is larger.
    """
    for name in names:
        if largest is not None and int(re.sub(r"\D", "", name) or 3) > largest:
            raise ValueError(f"a filter can have at most {largest}x{largest} pixels, as a map has")
    found = [one for name in names for one in _filters(name)]
    size = max(map(len, found))
    rows = [np.pad(one, (size - len(one)) // 2).ravel() for one in found]
    return np.stack(rows).astype(np.float32)


def _filters(name: str) -> tuple[np.ndarray, np.ndarray]:
    if match := re.fullmatch(r"hat(\d+)", name):
        size = int(match[1])
        if size < 3 or size % 2 == 0:
            raise ValueError("a Mexican hat has an odd number of pixels, 3 or more")
        hat = _hat(size)
        return _scaled(hat), _scaled(-hat)
    if name in ("sobel", "scharr"):
        across_x = np.outer(SOBEL if name == "sobel" else SCHARR, (-1, 0, 1))
        return _scaled(across_x), _scaled(across_x.T)
    raise ValueError("expected hat21, sobel or scharr, joined by +")


def _hat(size: int) -> np.ndarray:
    squares = (np.arange(size) - size // 2) ** 2 / ((size - 1) / 8) ** 2
    r2 = (squares[:, None] + squares) / 2
    hat = (1 - r2) * np.exp(-r2)
    return hat - hat.mean()


def _scaled(weights: np.ndarray) -> np.ndarray:
    return weights / weights[weights > 0].sum()
