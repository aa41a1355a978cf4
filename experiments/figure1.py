"""Figure 1 of the 2010 paper: the digits that a net gets wrong.

Each digit has its label at the top right and the two most likely predictions below; longer names
of classes are all below. At most the first hundred wrong digits are drawn. Prints their number,
and how often the second guess is right.
"""

from pathlib import Path

from deepbig import pretrained
from experiments.drawing.error_plots import plot_wrong
from experiments.drawing.figures import save_figure
from experiments.results import trained
from experiments.results.voting import count_sentence
from experiments.training import cli, configs, net_files
from experiments.training.store import find_folder, read_run


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("figure1", __doc__)
    parser.add_argument(
        "run",
        nargs="?",
        type=Path,
        metavar="FILE",
        help=f"{trained.NET_FILE} (default: {trained.DEFAULT})",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(
        parser,
        "pictures to write, NAME.png and NAME.pdf (default: RUN.figure1 beside the run file; of a "
        "pretrained net, in $RUNS_DIR, or else in runs)",
        metavar="NAME",
    )
    arguments = parser.parse_args(argv)
    path = arguments.run or trained.find_best(find_folder(), pretrained.FILES)
    if net_files.is_net_file(path):
        member = trained.read(path)
        known = configs.load(member.config, arguments.data_dir)
        dataset, outputs = trained.on_test_images(member, known)
        config, labels, images = member.config, dataset.test_labels, dataset.test_images
    else:
        run = read_run(path)
        config, labels, outputs = run.config, run.labels, run.outputs
        images = configs.load(config, arguments.data_dir).test_images
    is_pretrained = any(path.samefile(one) for one in pretrained.FILES)
    folder = find_folder() if is_pretrained else path.parent
    out = arguments.out or folder / f"{path.stem}.figure1"
    written = save_figure(plot_wrong(outputs, labels, images, config.title, config), out)
    print(f"{config.title}:\n{count_sentence(outputs, labels)}")
    print(f"written to {' and '.join(map(str, written))}")


if __name__ == "__main__":
    cli.run(main)
