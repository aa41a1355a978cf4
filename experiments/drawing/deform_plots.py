"""Figures of a digit and its deformations (2012, Figures 1 and 3)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from deform_gpu import TABLE1, Deformation, deform
from deform_gpu.batches import make_displacement, make_matrices
from deform_gpu.parameters import WIDTHS
from deform_gpu.philox import PURPOSE_AFFINE, philox4x32, split_seed, uniform
from deform_gpu.width import is_narrow, normalize_width
from experiments.datasets.data import Dataset
from experiments.drawing.figures import BLUE, VERMILION, frame

N_FIELDS = 4  # displacement fields that are drawn, one per epoch
SPACING = 2  # pixels from one arrow, or one line of a grid, to the next
STRONG_FACTOR = 0.8  # a number from [-1, 1) beyond it shows the effect of its parameter well

# The strips: symbol and unit, the number drawn for it (u0 to u3 of deform_gpu.warp), and the values
# after "none", from weak to strong. A small sigma smooths little: that makes a field strong.
ANGLES, SIZES = (3.75, 7.5, 15, 22.5, 30, 45, 60), (5, 10, 17.5, 25, 35, 50, 70)
STRIPS: dict[str, tuple[str, int | None, tuple[float, ...]]] = {
    "sigma": ("σ, pixels", None, (12, 8, 5.5, 4, 3, 2, 1)),
    "alpha": ("α, pixels", None, (10, 20, 37, 50, 70, 100, 150)),
    "rotation": ("rotation\nβ, degrees", 1, ANGLES),
    "shear": ("shear\nβ, degrees", 1, ANGLES),
    "gamma_x": ("γx, %", 2, SIZES),
    "gamma_y": ("γy, %", 3, SIZES),
}


@dataclass(frozen=True)
class Digit:
    """A digit to draw: its image, float32 (side, side), its class, and what captions call it."""

    image: np.ndarray
    label: int
    name: str


def find_digit(dataset: Dataset, label: int, index: int) -> Digit:
    """Number `index`, from 0, of a class among the training images."""
    place = np.flatnonzero(dataset.train_labels == label)[index]
    name = f"{dataset.name}, training image {place}, a {label}"
    return Digit(dataset.train_images[place], label, name)


def deform_one(digit: Digit, deformation: Deformation, seed: int, epoch: int) -> np.ndarray:
    """A digit deformed as image 0 of an epoch, float32 (side, side)."""
    return deform(digit.image[None], np.array([digit.label]), deformation, seed, epoch)[0]


def source_positions(
    digit: Digit, deformation: Deformation, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where `deform_one` reads each pixel, and where it puts it, in pixels.

    (2, side, side) each, y and x. Affine and elastic together (see deform_gpu.warp).
    """
    side = len(digit.image)
    target = np.indices((side, side))
    matrix = make_matrices(np.array([digit.label]), deformation, seed, epoch, side=side)[0]
    elastic = make_displacement(deformation, seed, epoch, 0, side)[:, :side, :side]
    centre = (side - 1) / 2
    affine = np.tensordot(matrix[:, :2], target - centre, 1) + matrix[:, 2, None, None]
    return centre + affine + elastic, target


def plot_field(digit: Digit, deformation: Deformation, seed: int) -> Figure:
    """2012 Figure 1: on top the digit; for four epochs arrows, warped grid and deformed digit.

    An arrow goes from where a pixel is read to where it is put. The lines of a grid are straight on
    the original, and are drawn where the deformation puts them. Both are true to scale.
    """
    figure = frame(7.7)
    _write_caption(
        figure,
        *(digit, deformation, seed),
        "Top: the original. Arrows: from where a pixel is read to where it is put.\n"
        f"Grid: lines, straight on the original and {SPACING} pixels apart, where they are put.\n"
        "Arrows and grids are to the scale of the images; affine and elastic together.",
    )
    grid = figure.add_gridspec(4, N_FIELDS)
    _plot_image(figure.add_subplot(grid[0, :]), digit.image)
    for epoch in range(N_FIELDS):
        arrows, lines, result = (figure.add_subplot(grid[row, epoch]) for row in (1, 2, 3))
        source, target = source_positions(digit, deformation, seed, epoch)
        _plot_arrows(arrows, source, target)
        _plot_grid(lines, source)
        _plot_image(result, deform_one(digit, deformation, seed, epoch))
        arrows.set_title(f"epoch {epoch}", fontsize=9)
        if epoch == 0:
            for axes, text in ((arrows, "arrows"), (lines, "grid"), (result, "deformed")):
                axes.set_ylabel(text, fontsize=9)
    return figure


def _plot_arrows(axes: Axes, source: np.ndarray, target: np.ndarray) -> None:
    at = slice(SPACING // 2, None, SPACING)
    y, x = source[:, at, at]
    dy, dx = (target - source)[:, at, at]
    axes.quiver(x, y, dx, dy, color=BLUE, angles="xy", scale_units="xy", scale=1, width=0.007)
    _frame_as_image(axes, len(target[0]))


def _plot_grid(axes: Axes, source: np.ndarray) -> None:
    # The line y = 6 of the original is put where pixels are read at y = 6. That is a contour of the
    # source positions: exact, and nothing has to be inverted.
    side = len(source[0])
    lines = np.arange(side // 2 % SPACING - side * SPACING, 2 * side, SPACING)
    for positions in source:
        inside = lines[(positions.min() < lines) & (lines < positions.max())]
        axes.contour(positions, levels=inside, colors=BLUE, linewidths=0.7, linestyles="solid")
    _frame_as_image(axes, side)


def strip(
    kind: str, label: int, deformation: Deformation, seed: int
) -> tuple[int, list[float], list[Deformation]]:
    """A row of STRIPS: its epoch, its values from none (0) to strong, and the deformation of each.

    The value that `deformation` has is always among them. All else is off, but a sigma has the
    alpha of `deformation`, and an alpha its sigma. The epoch is the first whose number is beyond
    STRONG_FACTOR, or 0.
    """
    _, number, strengths = STRIPS[kind]
    values = sorted({*strengths, value_of(kind, label, deformation)} - {0}, reverse=kind == "sigma")
    betas = len(deformation.beta)
    none = replace(deformation, alpha=0, beta=(0,) * betas, gamma_x=0, gamma_y=0, translation=0)
    alone = replace(none, shear_probability=float(kind == "shear"))
    if kind == "sigma":
        alone = replace(alone, alpha=deformation.alpha)
    angle = kind in ("rotation", "shear")
    changes: list[dict[str, Any]]
    changes = [{"beta": (value,) * betas} if angle else {kind: value} for value in values]
    epoch = 0
    while number is not None and abs(random_factor(number, seed, epoch)) <= STRONG_FACTOR:
        epoch += 1
    return epoch, [0, *values], [none, *(replace(alone, **changed) for changed in changes)]


def value_of(kind: str, label: int, deformation: Deformation) -> float:
    """The value that a deformation has in a row of STRIPS."""
    angle = kind in ("rotation", "shear")
    return deformation.beta[label] if angle else getattr(deformation, kind)


def random_factor(number: int, seed: int, epoch: int) -> float:
    """One of the four numbers in [-1, 1), u0 to u3, that image 0 draws in an epoch."""
    zero, purpose = np.uint32(0), np.uint32(PURPOSE_AFFINE)
    words = philox4x32(zero, zero, np.uint32(epoch), purpose, *split_seed(seed))
    return float(uniform(np.uint32(words[number])))


def plot_strips(digit: Digit, deformation: Deformation, seed: int) -> Figure:
    """A row a parameter: the digit deformed with that parameter alone, from none to far too strong.

    Along a row only the value changes: the random numbers are those of one epoch.
    """
    rows = {kind: strip(kind, digit.label, deformation, seed) for kind in STRIPS}
    columns = max(len(values) for _, values, _ in rows.values())
    figure = frame(7.2, width=0.8 * columns + 0.8)
    _write_caption(
        figure,
        *(digit, deformation, seed),
        "A row for each parameter, its value under each image. The others are off,\n"
        f"but σ comes with α = {deformation.alpha:g} pixels and α with "
        f"σ = {deformation.sigma:g} pixels.\n"
        "Blue frame: our value for Table 1 (2010); vermilion: the title's value, if it differs.\n"
        "Random numbers are the same along a row: for σ and α those of epoch 0, else those of\n"
        "the first epoch whose factor of β, γx or γy, drawn from -1 to 1, is beyond "
        f"±{STRONG_FACTOR}.",
    )
    grid = figure.add_gridspec(len(rows), columns)
    for row, (kind, (epoch, values, steps)) in enumerate(rows.items()):
        text, number, _ = STRIPS[kind]
        text += f"\nfactor {random_factor(number, seed, epoch):.2f}" if number is not None else ""
        for column, (value, step) in enumerate(zip(values, steps, strict=True)):
            axes = figure.add_subplot(grid[row, column])
            _plot_image(axes, deform_one(digit, step, seed, epoch))
            if column == 0:
                axes.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8)
            axes.set_xlabel(f"{value:g}" if column else "none", fontsize=8, labelpad=2)
            usual = value == value_of(kind, digit.label, TABLE1)
            if usual or value == value_of(kind, digit.label, deformation):
                colour = BLUE if usual else VERMILION
                axes.spines[:].set(color=colour, linewidth=2)
                axes.xaxis.label.set(color=colour, weight="bold")
    return figure


def plot_widths(digit: Digit, deformation: Deformation, seed: int) -> Figure:
    """2012 Figure 3: the digit and its width-normalised copies, and below each it deformed.

    All are deformed with the same random numbers, those of image 0 in epoch 0.
    """
    background = deformation.background
    narrow = is_narrow(digit.image[None], background)
    copies = {"original": digit.image}
    for width in WIDTHS:
        copies[f"WN{width}"] = normalize_width(digit.image[None], width, narrow, background)[0]
    figure = frame(3.3, width=7.6)
    text = (
        "Top: the digit and its width-normalised copies, with bounding box and its width, pixels.\n"
        "Bottom: each of them deformed, with the same random numbers; epoch 0."
    )
    if narrow[0]:
        text += "\nSo narrow in its rows, it is taken for a one and not normalised."
    _write_caption(figure, digit, deformation, seed, text)
    axes = figure.subplots(2, len(copies))
    for above, below, (title, image) in zip(*axes, copies.items(), strict=True):
        above.set_title(title, fontsize=9)
        _plot_image(above, image)
        rows, columns = np.nonzero(image != background)
        corner = columns.min() - 0.5, rows.min() - 0.5
        width, height = int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1
        above.add_patch(Rectangle(corner, width, height, fill=False, color=VERMILION))
        above.set_xlabel(f"{width}", fontsize=8, color=VERMILION, labelpad=2)
        _plot_image(below, deform_one(replace(digit, image=image), deformation, seed, 0))
    return figure


def _write_caption(
    figure: Figure, digit: Digit, deformation: Deformation, seed: int, text: str
) -> None:
    figure.suptitle(
        f"{digit.name}, seed {seed}\n"
        f"σ = {deformation.sigma:g} pixels, α = {deformation.alpha:g} pixels, "
        f"β = {deformation.beta[digit.label]:g}°, "
        f"γx = {deformation.gamma_x:g} %, γy = {deformation.gamma_y:g} %",
        fontsize=10,
    )
    figure.supxlabel(text, fontsize=8.5)


def _plot_image(axes: Axes, image: np.ndarray) -> None:
    axes.imshow(image, cmap="gray_r", vmin=-1, vmax=1)
    axes.set(xticks=[], yticks=[])


def _frame_as_image(axes: Axes, side: int) -> None:
    # As wide as the images and drawn like them, y pointing down.
    axes.set(xlim=(-0.5, side - 0.5), ylim=(side - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")
