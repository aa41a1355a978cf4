"""What the scripts that draw have in common."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from experiments.cli import Problem
from mlp_gpu import files

DPI = 200
ENDINGS = (".png", ".pdf", ".svg")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the ending of `path` names; makes the folder.

    Raises Problem or files.FileFault if that cannot be done; what was there before then stays.
    """
    if path.suffix not in ENDINGS:
        raise Problem(f"cannot draw {path}: expected a name that ends in {', '.join(ENDINGS)}")
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:], dpi=DPI)
    files.make_folder(path.parent)
    files.replace(path, image.getvalue())
