"""Shared parts of all figures: frame, title and legend, axes, intervals, colours, files.

Figures are at most 7 inches wide and can be told apart without colours: in print, and by
colour-blind eyes.
"""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath, text_to_path
from matplotlib.ticker import LogLocator, MaxNLocator
from PIL import Image

from deepbig_runtime import files
from experiments.results.tables import interval

matplotlib.rcdefaults()  # figures do not depend on a user's matplotlibrc

DPI = 200
PNG_COLOURS = 128  # a third of the bytes of a PNG in full colour
DARK_PNG_COLOURS = 32
DARK_PAGE, DARK_INK = (13, 17, 23), (240, 246, 252)  # RGB of a dark page of GitHub and of its text

# Okabe and Ito's colours, which colour-blind people can tell apart, and a grey.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#999999"

FIGURE_WIDTH = 7  # inches
TITLE_SIZE, LABEL_SIZE, SMALL_SIZE = 9, 8, 7  # points: titles, labels of axes, all else
SMALL_LEGEND: dict = {"frameon": False, "fontsize": SMALL_SIZE}
MAX_LEGEND_LETTERS = 110  # in a line of a legend as wide as the figure
MAX_NAME_LENGTH = 44  # letters of a run's name


def png(figure: Figure) -> bytes:
    """A figure as PNG of DPI dots per inch, in few colours."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)  # savefig would draw twice
    canvas.draw()
    return few_colours(Image.fromarray(np.asarray(canvas.buffer_rgba())))


def few_colours(
    picture: Image.Image,
    n_colours: int = PNG_COLOURS,
    method: Image.Quantize = Image.Quantize.MEDIANCUT,
) -> bytes:
    """A picture as PNG in at most n_colours colours, without metadata."""
    reduced = io.BytesIO()
    image = picture.convert("RGB").quantize(n_colours, method, dither=Image.Dither.NONE)
    image.save(reduced, "png", optimize=True)
    return reduced.getvalue()


def dark_variant(path: Path) -> Path:
    """The path of a picture's variant for dark pages."""
    return path.with_name(f"{path.stem}-dark.png")


def darken(picture: Image.Image) -> bytes:
    """The variant of a picture for dark pages, as PNG: luma inverted, hues kept.

    White becomes DARK_PAGE, black DARK_INK.
    """
    rgb = picture.convert("RGB")
    luma = np.asarray(rgb.convert("L"), int)[..., None]  # unlike uint8, goes below 0
    inverted = np.clip(np.asarray(rgb, int) + 255 - 2 * luma, 0, 255)
    page, ink = np.array(DARK_PAGE), np.array(DARK_INK)
    pixels = page + (ink - page) * inverted // 255
    # Colours far apart, so that a small patch of a legend keeps its own.
    far = Image.Quantize.MAXCOVERAGE
    return few_colours(Image.fromarray(pixels.astype(np.uint8)), DARK_PNG_COLOURS, far)


def pdf(figure: Figure) -> bytes:
    """A figure as PDF; without a date, so that the same figure gives the same bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="pdf", dpi=DPI, metadata={"CreationDate": None})
    return drawn.getvalue()


FORMATS = {"png": png, "pdf": pdf}


def save_figure(figure: Figure, path: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure as PATH.png and as PATH.pdf, in a folder that is made.

    formats: those to write, of FORMATS. The same figure gives the same bytes. Returns the paths of
    the files. Raises files.FileFault if they cannot be written; earlier files then stay.
    """
    images = {path.with_name(f"{path.name}.{form}"): FORMATS[form](figure) for form in formats}
    files.make_folder(path.parent)
    for target, content in images.items():
        files.replace(target, content)
    return list(images)


def literal(text: str) -> str:
    """Text for Matplotlib, which takes what stands between two $ for mathematics."""
    return text.replace("$", r"\$")


def shorten(name: str) -> str:
    """A run's name, or the end of it, where all of it would leave no room for the figure."""
    shown = name if len(name) <= MAX_NAME_LENGTH else f"…{name[1 - MAX_NAME_LENGTH :]}"
    return literal(f" {shown}" if shown.startswith("_") else shown)  # legends leave out "_..."


def text_width(text: str, size: float) -> float:
    """The width of a line of text of a size in points: inches."""
    return TextPath((0, 0), text, size).get_extents().width / 72


def fold(text: str, inches: float, size: float = TITLE_SIZE) -> str:
    """Text of a size in points, with lines of that width at most.

    Lines that are too long go on in the next one, after a space or a hyphen.
    """
    font, lines = FontProperties(size=size), []
    for line in text.split("\n"):
        lines.append("")
        for word in re.findall(r".+?(?:[\s-]+|$)", line):
            longer = f"{lines[-1]}{word}".rstrip()  # measured without its outlines, which take long
            points, *_ = text_to_path.get_text_width_height_descent(longer, font, ismath=False)
            if lines[-1] and points > 72 * inches:
                lines.append("")
            lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


def frame(height: float, width: float = FIGURE_WIDTH) -> Figure:
    """An empty figure. Sizes are inches."""
    return Figure(figsize=(width, height), layout="constrained")


def finish(figure: Figure, title: str, shown: Axes | None = None) -> Figure:
    """Give a figure its title and sizes of text, and below it a legend of what `shown` shows."""
    figure.suptitle(fold(literal(title), figure.get_figwidth() - 0.2), fontsize=TITLE_SIZE)
    for axes in figure.axes:
        axes.tick_params(labelsize=SMALL_SIZE)
        axes.xaxis.label.set_fontsize(LABEL_SIZE)
        axes.yaxis.label.set_fontsize(LABEL_SIZE)
    if shown is not None:
        handles, labels = shown.get_legend_handles_labels()
        letters = 9 + max(map(len, labels))  # with its line and the space around it
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(4, max(1, MAX_LEGEND_LETTERS // letters)),
            **SMALL_LEGEND,
        )
    return figure


def tick_integers(axis: Axis) -> None:
    """Ticks at whole numbers only, also where there is but one to show."""
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def make_logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers at its ticks."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = LogLocator(subs=(1, 2, 3, 5) if high < 300 * low else (1,))
    axes.yaxis.set_major_locator(MaxNLocator(5) if high < 3 * low else decades)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(color="0.9")


def plot_rates(
    axes: Axes,
    places: Sequence | np.ndarray,
    counts: Sequence[tuple[int, int]],
    across: bool = False,
    **style: Any,
) -> None:
    """Error rates in percent with their 95 % intervals: upwards, or across from left to right.

    counts: of each rate the errors and the images.
    """
    percent = np.array([100 * errors / n for errors, n in counts])
    low, high = np.array([interval(*pair) for pair in counts]).T
    spread = percent - low, high - percent
    if across:
        axes.errorbar(percent, places, xerr=spread, **style)
    else:
        axes.errorbar(places, percent, yerr=spread, **style)
