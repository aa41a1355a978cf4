"""What the scripts that draw have in common."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from experiments.cli import Problem
from mlp_gpu import files

DPI = 200


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of `path` names; makes the folder.

    Raises Problem or files.FileFault if that cannot be done; what was there before then stays.
    """
    known = figure.canvas.get_supported_filetypes()
    ending = path.suffix.lstrip(".").lower()
    if ending not in known:
        raise Problem(f"cannot draw {path}: expected a name that ends in .{', .'.join(known)}")
    image = io.BytesIO()
    figure.savefig(image, format=ending, dpi=DPI)
    files.make_folder(path.parent)
    files.replace(path, image.getvalue())
