"""One page: your runs beside our records and the papers, then the tables of recorded nets.

Writes one HTML file that holds its pictures and needs no network. Below a table stand its sources.
Files that cannot be read are named, on the page and on stderr.
"""

from pathlib import Path

from deepbig_runtime import files
from deepbig_runtime.errors import tell
from experiments.drawing.report_sections import Report
from experiments.training import cli, store
from experiments.training.formatting import printable


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("report", __doc__)
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="folder with run files, also in folders below it (default: $RUNS_DIR, or else runs)",
    )
    cli.add_out_argument(
        parser,
        "the page to write (default: report.html in $RUNS_DIR, or else in runs)",
        metavar="FILE",
    )
    arguments = parser.parse_args(argv)
    report = Report(store.find_folder(arguments.runs))
    out = arguments.out or store.find_folder() / "report.html"
    for fault in report.faults:
        tell(f"left out: {fault}")
    content = printable(report.build()).encode()
    files.make_folder(out.parent)
    files.replace(out, content)
    print(f"written to {out}")


if __name__ == "__main__":
    cli.run(main)
