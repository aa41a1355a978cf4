"""Draw Figure 1 of the 2012 paper: digits, displacement fields, and the digits they deform."""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from deform_gpu import TABLE1, Deformation, deform
from deform_gpu.batches import make_displacement, make_matrices
from deform_gpu.field import SIDE
from experiments import cli, data
from experiments.plots import save_figure

FIELDS = 4  # drawn for each digit, one an epoch
STEP = 2  # pixels from one arrow to the next


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.deformations",
        description="Draw two digits, four displacement fields for each, and the deformed digits, "
        "as in Figure 1 of the 2012 paper.",
    )
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--seed",
        type=cli.integer(0, 2**64 - 1),
        default=0,
        metavar="N",
        help="of the random deformations (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/deformations.png"),
        metavar="FILE",
        help="the image to write, in the format its name ends in (default: %(default)s)",
    )
    args = parser.parse_args(argv)

    dataset = data.load(args.data, args.data_dir)
    figure = draw(dataset.train_images, dataset.train_labels, TABLE1, args.seed, dataset.name)
    save_figure(figure, args.out)
    print(f"written to {args.out}")


def draw(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation, seed: int, name: str
) -> Figure:
    """The first two images of a set: on top as they are, then fields, then deformed.

    images: (n, 29, 29) float32, n >= 2. labels: (n,) integers. name: what to call the set. The
    fields are those of epochs 0 to 3, affine and elastic together. An arrow goes from where a pixel
    is read to where it is put, true to scale.
    """
    # Only the first two: what happens to an image does not depend on how many follow.
    images, labels = images[:2], labels[:2]
    figure = Figure(figsize=(10, 4.9), layout="constrained")
    angles = " or ".join(f"{beta:g}°" for beta in sorted({deformation.beta[i] for i in labels}))
    figure.suptitle(
        f"{name}: σ = {deformation.sigma:g} pixels, α = {deformation.alpha:g} pixels, "
        f"β = {angles}, γx = {deformation.gamma_x:g} %, γy = {deformation.gamma_y:g} %, "
        f"seed {seed}",
        fontsize=11,
    )
    halves = figure.subfigures(1, 2, wspace=0.03)
    for i, half in enumerate(halves):
        grid = half.add_gridspec(3, FIELDS)
        original = half.add_subplot(grid[0, :])
        _show(original, images[i])
        original.set_title(f"label {labels[i]}", fontsize=10)
        for epoch in range(FIELDS):
            shift = _total_displacement(labels, i, deformation, seed, epoch)
            _draw_arrows(half.add_subplot(grid[1, epoch]), shift)
            result = deform(images, labels, deformation, seed, epoch)[i]
            _show(half.add_subplot(grid[2, epoch]), result)
    figure.supxlabel(
        "top: original; middle: displacement fields, each arrow from where a pixel is read to "
        "where it is put, in pixels; bottom: deformed",
        fontsize=9,
    )
    return figure


def _total_displacement(labels, i, deformation, seed, epoch):
    """Source minus target position of every pixel of image i < 100: (2, 29, 29), y and x."""
    row, column = divmod(i, 10)
    elastic = make_displacement(deformation, seed, epoch, 0)[
        :, row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE
    ]
    inverse = make_matrices(labels, deformation, seed, epoch)[i]
    target = np.indices((SIDE, SIDE)) - SIDE // 2
    return np.tensordot(inverse, target, 1) - target + elastic


def _show(axes, image):
    axes.imshow(image, cmap="gray_r", vmin=-1, vmax=1)
    axes.set(xticks=[], yticks=[])


def _draw_arrows(axes, shift):
    at = slice(STEP // 2, None, STEP)
    y, x = np.indices((SIDE, SIDE))[:, at, at]
    dy, dx = shift[:, at, at]
    axes.quiver(x + dx, y + dy, -dx, -dy, angles="xy", scale_units="xy", scale=1, width=0.007)
    # As wide as the images below and drawn like them, y pointing down.
    axes.set(xlim=(-0.5, SIDE - 0.5), ylim=(SIDE - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")


if __name__ == "__main__":
    cli.run(main)
