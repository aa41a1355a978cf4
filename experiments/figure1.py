"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit has its label at the top right and the two most likely predictions below; where classes
have longer names, all are below. Of more than a hundred the first hundred are drawn. Prints how
many there are and how often the second guess is right.
"""

from pathlib import Path

from deepbig import pretrained
from experiments.drawing.error_plots import plot_wrong
from experiments.drawing.figures import save_figure
from experiments.results import trained
from experiments.results.tables import best_of
from experiments.results.voting import count_sentence
from experiments.training import cli, jobs, net_files
from experiments.training.messages import tell
from experiments.training.store import find_folder, read_run, read_runs


def find_best(folder: Path) -> Path:
    """The run file below `folder` with the lowest TEfBV, MNIST before any other data.

    If there is none, the file of a net that comes along. Files that cannot be read are named on
    stderr.
    """
    runs = read_runs(folder, lambda fault: tell(f"left out: {fault}"))
    return best_of(runs) if runs else pretrained.FILES[0]


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("figure1", __doc__)
    parser.add_argument(
        "run",
        nargs="?",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE} (default: of the runs below $RUNS_DIR, or else runs, the one "
        "with the lowest error, MNIST first; if there is none, a net that comes along)",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(
        parser,
        "pictures to write, NAME.png and NAME.pdf (default: RUN.figure1 beside the run file; of a "
        "net that comes along, in $RUNS_DIR, or else in runs)",
        metavar="NAME",
    )
    arguments = parser.parse_args(argv)
    path = arguments.run or find_best(find_folder())
    if path.suffix == net_files.SUFFIX:
        member = trained.load(path)
        known = jobs.load_known(member.config, arguments.data_dir)
        dataset, outputs = trained.on_test_images(member, known)
        config, labels, images = member.config, dataset.test_labels, dataset.test_images
    else:
        run = read_run(path)
        config, labels, outputs = run.config, run.labels, run.outputs
        images = jobs.load_known(config, arguments.data_dir).test_images
    folder = find_folder() if path in pretrained.FILES else path.parent
    out = arguments.out or folder / f"{path.stem}.figure1"
    written = save_figure(plot_wrong(outputs, labels, images, config.title, config), out)
    print(f"{config.title}:\n{count_sentence(outputs, labels)}")
    print(f"written to {' and '.join(map(str, written))}")


if __name__ == "__main__":
    cli.run(main)
