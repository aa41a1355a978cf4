"""The ladder: 784-128-10, on-line, and seven rungs of kernels that train it (mlp_gpu/ladder).

Trains the net on the CPU and prints how many test digits it gets right, beside the blog's figures.
Then, for each rung, what its compiled kernels do for an image, counted by executing them; the time
of the same steps in compiled code and NumPy; and on a GPU the time of each rung. All of it goes
into ladder.json, and a figure.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from cuda_on_cpu import missing_toolkit
from deepbig_runtime import files, gpu
from deepbig_runtime.errors import tell
from deform_gpu.resize import resize
from experiments.benchmarks import ladder_times
from experiments.datasets import data
from experiments.datasets.data import Dataset
from experiments.datasets.dataset import is_mnist
from experiments.results import ladder_tables
from experiments.results.records import LADDER, AccuracyRow, LadderRecord, RungKernel, SearchRow
from experiments.training import cli, provenance
from experiments.training.validation import to_json
from mlp_gpu.ladder import cpu, formulas
from mlp_gpu.ladder.net import MAX_HIDDEN, MIN_HIDDEN, SIDE, Net, black_and_white
from mlp_gpu.training import image_order

REPEATS = 7
# What the search tries: with momentum, and without it.
SEARCHED = [*product((0.002, 0.005, 0.01, 0.02, 0.05, 0.1), (0.9,)), (0.1, 0), (0.2, 0), (0.3, 0)]
APART = 6  # one training image in APART is held out for the search


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("ladder", __doc__)
    parser.add_argument(
        "--hidden",
        type=cli.integer(MIN_HIDDEN, MAX_HIDDEN),
        default=128,
        metavar="N",
        help=f"hidden neurons, from {MIN_HIDDEN} to {MAX_HIDDEN} (default: %(default)s)",
    )
    parser.add_argument(
        "--epochs",
        type=cli.integer(1, 1000),
        default=2,
        metavar="N",
        help="passes over the training images (default: %(default)s)",
    )
    cli.add_seeds_argument(parser)
    parser.add_argument(
        "--search",
        action="store_true",
        help="first, try learning rates and momenta on a part of the training images; the net is "
        f"still trained with {formulas.ETA:g} and {formulas.MOMENTUM:g}, whatever the result",
    )
    cli.add_data_arguments(parser)
    cli.add_out_argument(parser, "folder for ladder.json and its figure", "runs/ladder")
    return parser.parse_args(argv)


def as_seen(dataset: Dataset) -> Dataset:
    """The data as the net sees them: images float32 (n, 784), 0 or 1."""

    def seen(pixels: np.ndarray) -> np.ndarray:
        return black_and_white(pixels if pixels.shape[1] == SIDE else resize(pixels, SIDE))

    return replace(
        dataset, train_images=seen(dataset.train_images), test_images=seen(dataset.test_images)
    )


def count_wrong(net: Net, images: np.ndarray, labels: np.ndarray) -> int:
    """How many digits the net gets wrong."""
    return int(np.count_nonzero(cpu.predict(net, images).argmax(axis=1) != labels))


def epochs_of(
    arguments: argparse.Namespace, dataset: Dataset, seed: int, *rates: np.float32
) -> Iterator[Net]:
    """A net, trained on the training images, after each epoch. rates: as of `cpu.train`."""
    net, labels = Net.initial(arguments.hidden, seed), dataset.train_labels
    for epoch in range(1, arguments.epochs + 1):
        order = image_order(len(labels), seed, epoch)
        cpu.train(net, dataset.train_images, labels, order, *rates)
        yield net


def train(arguments: argparse.Namespace, dataset: Dataset) -> list[AccuracyRow]:
    """Train with each seed; a row for each seed and epoch."""
    rows, n_test = [], len(dataset.test_labels)
    for seed in arguments.seeds:
        for epoch, net in enumerate(epochs_of(arguments, dataset, seed), 1):
            wrong = count_wrong(net, dataset.test_images, dataset.test_labels)
            tell(f"seed {seed}, epoch {epoch}: {100 * (1 - wrong / n_test):.2f} % correct")
            rows.append(AccuracyRow(seed, epoch, wrong, n_test, dataset.name))
    return rows


def search(arguments: argparse.Namespace, dataset: Dataset) -> list[SearchRow]:
    """Train with each learning rate and momentum on a part of the training images, seed 0."""
    split = data.split(dataset, len(dataset.train_labels) // APART, seed=0)
    assert split.validation is not None
    rows, n, n_apart = [], len(split.train_labels), len(split.validation[1])
    for eta, momentum in SEARCHED:
        *_, net = epochs_of(arguments, split, 0, np.float32(eta), np.float32(momentum))
        wrong = count_wrong(net, *split.validation)
        tell(f"eta {eta:g}, momentum {momentum:g}: {100 * (1 - wrong / n_apart):.2f} % correct")
        rows.append(SearchRow(eta, momentum, arguments.epochs, n, wrong, n_apart))
    return rows


def report(record: LadderRecord) -> str:
    """A record as Markdown."""
    parts = [f"# The ladder, 784-{record.hidden}-10 on {record.data}"]
    if not is_mnist(record.data):
        parts.append("Its accuracy must not be compared with the blog's.")
    return "\n\n".join([*parts, *ladder_tables.tables(record)]) + "\n"


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    reason = gpu.missing()
    dataset = as_seen(data.cached_pixels(arguments.data, arguments.data_dir))
    source = provenance.collect("cpu" if reason else "cuda")
    folder = arguments.out
    files.make_folder(folder)
    tell(f"no rung is timed: {reason}" if reason else f"rungs are timed on {source.device}")
    net, examples = Net.initial(arguments.hidden, 0), (dataset.train_images, dataset.train_labels)
    tell("timing ...")  # first: what takes longest is not lost where a GPU fails
    times = ladder_times.time_on_cpu(net, examples, REPEATS)
    if reason is None:
        times += ladder_times.time_on_gpu(net, examples, REPEATS)
    kernels: list[RungKernel] = []
    if missing := missing_toolkit():
        tell(f"no kernel is counted: {missing}")
    else:
        tell("executing each rung for an image ...")
        kernels = ladder_times.count_rungs(net, examples)
    searched = search(arguments, dataset) if arguments.search else []
    accuracy = train(arguments, dataset)
    record = LadderRecord(
        dataset.name, arguments.hidden, kernels, times, searched, accuracy, source.ended()
    )
    path = folder / LADDER
    files.replace(path, to_json(record))

    def draw() -> None:
        from experiments.drawing import figures, ladder_plots  # imports matplotlib

        figures.save_figure(ladder_plots.plot_ladder(record), path.with_suffix(""))

    cli.add_picture(draw)
    print(report(record))
    tell(f"written to {folder}: {path.name}, and the figure, {path.stem}.png and .pdf")


if __name__ == "__main__":
    cli.run(main)
