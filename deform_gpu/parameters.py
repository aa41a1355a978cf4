"""The parameters of the deformations, named as in the papers, and the papers' presets."""

import math
from dataclasses import dataclass

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
DIGITS = 10  # classes, and so entries of beta
SIDE = 29  # width and height of the papers' images, pixels
LARGEST_SIGMA = 10.0  # pixels from the middle of the papers' 21x21 kernel to its border

# WN10, WN12, ..., WN20: widths of the normalised bounding boxes (2012 section 5). Guess: in pixels
# of the 29x29 images that nets see. The paper does not say whether it normalises before or after
# it scales images to that size.
WIDTHS = (10, 12, 14, 16, 18, 20)

# Guess: sigma, alpha and gamma of the 2010 paper's Table 1. The papers give only ranges (2010
# section 4: sigma 5.0-6.0, alpha 36.0-38.0, gamma 15-20); these are the middles.
TABLE1_SIGMA, TABLE1_ALPHA, TABLE1_GAMMA = 5.5, 37.0, 17.5


@dataclass(frozen=True)
class Deformation:
    """How strongly images are deformed (2010 section 4, 2011 section 4, 2012 sections 4 and 5).

    sigma: standard deviation of the Gaussian that smooths the random field, pixels, above 0. The
        papers' kernel has 21x21 pixels. So the Gaussian is cut off at 10 pixels, and values above
        some 6 change little.
    alpha: elastic scaling, pixels, from 0.
    beta: for each of the ten digits, the largest angle of rotation or shear, degrees, in (-90, 90).
    gamma_x, gamma_y: largest horizontal and vertical change of size, percent, in [0, 100).
    shear_probability: how often the angle is a shear and not a rotation, in [0, 1].
    background: the value of pixels outside the image.
    translation: largest translation in x and in y, percent of the side of the image, in [0, 100).
        A positive one moves the image to the right, or down.

    `dataclasses.asdict` gives a dictionary that JSON can hold, and `Deformation(**dictionary)` is
    the deformation again. Raises ValueError if a value is outside its range or NaN.
    """

    sigma: float
    alpha: float
    beta: tuple[float, ...]
    gamma_x: float
    gamma_y: float
    # Guess: the papers say "either rotation or horizontal shearing" and no more.
    shear_probability: float = 0.5
    # Guess: the papers do not define pixels outside the image; this is the value of MNIST's 0.
    background: float = -1.0
    # Guess: x and y are drawn apart, each uniformly, and applied after scaling and rotation or
    # shear. 2011 says only "at most 5 %".
    translation: float = 0.0

    def __post_init__(self) -> None:
        # Written so that NaN fails: a comparison with NaN is false.
        _require(0 < self.sigma < math.inf, "sigma", self.sigma, "a number of pixels above 0")
        _require(0 <= self.alpha <= LARGEST, "alpha", self.alpha, "a number of pixels from 0")
        object.__setattr__(self, "beta", tuple(self.beta))  # JSON makes lists of tuples
        _require(
            len(self.beta) == DIGITS and all(-90 < angle < 90 for angle in self.beta),
            "beta",
            self.beta,
            f"{DIGITS} angles, one per digit, each above -90 and below 90 degrees",
        )
        for name in ("gamma_x", "gamma_y", "translation"):
            value = getattr(self, name)
            _require(0 <= value < 100, name, value, "a percentage from 0 to below 100")
        probability = self.shear_probability
        _require(0 <= probability <= 1, "shear_probability", probability, "a number from 0 to 1")
        valid = abs(self.background) <= LARGEST
        _require(valid, "background", self.background, "a finite number, float32")

    def beta_of(self, labels: np.ndarray | None, n: int) -> np.ndarray:
        """The largest angle of each of n images, float32 (n,), degrees.

        labels: (n,) integers in 0..9. None, if all beta are equal. Raises ValueError otherwise.
        """
        if labels is None:
            if len(set(self.beta)) > 1:
                raise ValueError(
                    "labels are missing; expected one for each image, because beta differs from "
                    "digit to digit, or a deformation with one beta"
                )
            return np.full(n, self.beta[0], np.float32)
        labels = np.asarray(labels, None if np.size(labels) else int)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(f"labels are {labels.dtype} {labels.shape}; expected integers, (n,)")
        if len(labels) != n:
            raise ValueError(f"{len(labels)} labels for {n} images; expected one each")
        if n and not (labels.min() >= 0 and labels.max() < DIGITS):
            raise ValueError(
                f"labels run from {labels.min()} to {labels.max()}; expected 0 to {DIGITS - 1}"
            )
        return np.array(self.beta, np.float32)[labels]

    def affine_strengths(self, side: int) -> tuple[np.float32, ...]:
        """gamma_x, gamma_y, shear_probability and the largest translation, for `draw_matrices`.

        side: of the images, pixels. The translation is in pixels, the others as they are here.
        """
        largest = self.translation / 100 * side
        strengths = (self.gamma_x, self.gamma_y, self.shear_probability, largest)
        return tuple(map(np.float32, strengths))


def _require(valid: bool, name: str, value: object, expected: str) -> None:
    if not valid:
        raise ValueError(f"{name} is {value}; expected {expected}")


# 2010 section 4 (2012 section 4): 15 degrees, but 7.5 for 1 and 7, which are alike.
TABLE1 = Deformation(
    sigma=TABLE1_SIGMA,
    alpha=TABLE1_ALPHA,
    beta=tuple(7.5 if digit in (1, 7) else 15.0 for digit in range(DIGITS)),
    gamma_x=TABLE1_GAMMA,
    gamma_y=TABLE1_GAMMA,
)

# 2011 section 4, NORB and CIFAR10: whole images are translated; on NORB anything else hurts.
TRANSLATION = Deformation(
    sigma=1.0,  # of a field that is multiplied by nothing
    alpha=0.0,
    beta=(0.0,) * DIGITS,
    gamma_x=0.0,
    gamma_y=0.0,
    background=0.0,  # Guess: half way between black and white; the paper does not say.
    translation=5.0,
)

# 2012 section 5, all experiments with deformed images: "scaling of maximum 12.5% and a maximum
# rotation of +-12.5 degrees".
COMMITTEE = Deformation(
    sigma=6.0,
    alpha=36.0,
    beta=(12.5,) * DIGITS,
    gamma_x=12.5,
    gamma_y=12.5,
    shear_probability=0.0,  # Guess: section 5 names no shear.
)
