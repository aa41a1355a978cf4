"""Draw a digit and its deformations, in four pictures, PNG and PDF (2012 Figures 1 and 3).

field    displacement fields, as arrows and as warped grids, and the digits they make
strips   each parameter alone, from weak to strong
hundred  the digit deformed 100 times: one batch
widths   the digit normalised to widths of 10 to 20 pixels, and then deformed
"""

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, Deformation
from experiments.datasets import data
from experiments.drawing.figures import save_figure
from experiments.training import cli


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("deformations", __doc__)
    cli.add_data_arguments(parser)

    # Where an end is not allowed, as a sigma of 0, Deformation says so.
    pixels, percent = cli.number(0, 1000), cli.number(0, 100)
    sigma = "standard deviation of the Gaussian that smooths the random field"
    angles = " or ".join(f"{angle:g}" for angle in sorted(set(TABLE1.beta)))
    largest = "largest angle of rotation or shear, degrees (default: the digit's in Table 1,"
    size, image = "largest change of size, percent", "pixels of the 29x29 image"
    for option, kind, default, metavar, text in (
        ("--digit", cli.integer(0, 9), 4, "N", "class of the digit, 0 to 9"),
        ("--index", cli.integer(0), 0, "N", "which of that digit's training images, from 0"),
        ("--sigma", pixels, TABLE1.sigma, "PIXELS", f"{sigma}, {image}"),
        ("--alpha", pixels, TABLE1.alpha, "PIXELS", f"elastic scaling, {image}"),
        ("--beta", cli.number(0, 90), None, "DEGREES", f"{largest} {angles})"),
        ("--gamma-x", percent, TABLE1.gamma_x, "PERCENT", f"{size}, horizontal"),
        ("--gamma-y", percent, TABLE1.gamma_y, "PERCENT", f"{size}, vertical"),
        ("--seed", cli.integer(0, 2**64 - 1), 0, "N", "seed of the random deformations"),
    ):
        text += "" if default is None else " (default: %(default)s)"
        parser.add_argument(option, type=kind, default=default, metavar=metavar, help=text)
    cli.add_out_argument(parser, "folder for the four pictures", "runs/deformations")
    args = parser.parse_args(argv)

    from experiments.drawing import deform_plots  # imports numba

    beta = TABLE1.beta[args.digit] if args.beta is None else args.beta
    betas = (beta,) * len(TABLE1.beta)
    try:
        deformation = Deformation(args.sigma, args.alpha, betas, args.gamma_x, args.gamma_y)
    except ValueError as error:
        raise Problem(str(error)) from None
    digit = deform_plots.find_digit(data.load(args.data, args.data_dir), args.digit, args.index)

    drawings = {"field": deform_plots.plot_field, "strips": deform_plots.plot_strips}
    drawings |= {"hundred": deform_plots.plot_hundred, "widths": deform_plots.plot_widths}
    # All are drawn before the first is written.
    figures = {name: draw(digit, deformation, args.seed) for name, draw in drawings.items()}
    for name, figure in figures.items():
        for path in save_figure(figure, args.out / name):
            print(f"written to {path}")


if __name__ == "__main__":
    cli.run(main)
