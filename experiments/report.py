"""Everything there is to see on one page: all runs, and all records in results/.

Writes one HTML file that holds its pictures and asks nothing of the network. Each number leads to
where it comes from. Files that cannot be read are named, on the page and on stderr.
"""

from pathlib import Path

from experiments.drawing.page import DRAW, Html
from experiments.drawing.report_files import collect
from experiments.drawing.report_sections import build
from experiments.running import cli
from experiments.running.errors import Problem
from experiments.running.formatting import printable
from experiments.running.messages import tell
from mlp_gpu import files

DEFAULT_RUNS = Path("runs")


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("report", __doc__)
    parser.add_argument(
        "--runs",
        type=Path,
        default=DEFAULT_RUNS,
        metavar="DIR",
        help="folder with run files, also in folders below it (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/report.html"),
        metavar="FILE",
        help="the page to write (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if arguments.runs != DEFAULT_RUNS and not arguments.runs.is_dir():
        raise Problem(
            f"there is no folder {arguments.runs}: name one with run files in or below it"
        )
    found = collect(arguments.runs)
    for fault in found.faults:
        tell(f"left out: {fault}")
    if (arguments.out.parent / DRAW).is_file():
        found.links.append(Html(f'<a href="{DRAW}">Draw a digit</a> and see what a net says.'))
    content = printable(build(found)).encode()
    files.make_folder(arguments.out.parent)
    files.replace(arguments.out, content)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    cli.run(main)
