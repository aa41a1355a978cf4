"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit stands with its label at the top right and the two most likely predictions below. Prints
how many there are and how often the second guess is right.
"""

from pathlib import Path

from deepbig_runtime.errors import Problem
from experiments.drawing.error_plots import plot_wrong
from experiments.drawing.figures import save_figure
from experiments.results.tables import best_of
from experiments.results.voting import count_sentence
from experiments.training import cli, jobs
from experiments.training.messages import tell
from experiments.training.store import find_folder, read_run, read_runs


def find_best(folder: Path) -> Path:
    """The run file below `folder` with the lowest TEfBV, MNIST before any other data.

    Files that cannot be read are named on stderr. Raises Problem if there is none that can.
    """
    runs = read_runs(folder, lambda fault: tell(f"left out: {fault}"))
    if not runs:
        raise Problem(f"there is no run in {folder}: train one with 'make table1', or name a file")
    return best_of(runs)


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("figure1", __doc__)
    parser.add_argument(
        "run",
        nargs="?",
        type=Path,
        metavar="RUN.h5",
        help="run file (default: of those below $RUNS_DIR, or else runs, the one with the lowest "
        "error, MNIST first)",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(
        parser,
        "pictures to write, NAME.png and NAME.pdf (default: RUN.figure1 beside the run file)",
        metavar="NAME",
    )
    arguments = parser.parse_args(argv)
    path = arguments.run or find_best(find_folder())
    run = read_run(path)
    images = jobs.load_known(run.config, arguments.data_dir).test_images
    out = arguments.out or path.with_suffix(".figure1")
    written = save_figure(plot_wrong(run.outputs, run.labels, images, run.config.title), out)
    print(f"{run.config.title}:\n{count_sentence(run.outputs, run.labels)}")
    print(f"written to {' and '.join(map(str, written))}")


if __name__ == "__main__":
    cli.run(main)
