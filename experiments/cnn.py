"""Table 1 of the 2011 paper: convolutional nets, trained on-line on digits deformed every epoch.

Trains each net with each seed, from where its run file ends, then prints our figures beside the
paper's and writes them as cnn.md and cnn.csv. Ctrl-C stops it; the same command continues. With
--net it trains a net of your own.
"""

import argparse
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from cnn_gpu import layers
from cnn_gpu.layers import Layer, Maps
from cnn_gpu.network import ConvNetwork
from deform_gpu import TABLE1
from experiments.running import cli, data, jobs, plans
from experiments.running.configs import make_config
from experiments.running.formatting import markdown_table
from experiments.running.store import Run
from experiments.scoring import cnn_tables, tables
from mlp_gpu.network import N_CLASSES

DIGIT = Maps(1, data.SIDE, data.SIDE)
SMALL = "1M1-MP29"  # every kind of layer, in little time


def description(text: str) -> str:
    """The layers of a net, for argparse."""
    try:
        layers.parse(text, DIGIT, N_CLASSES)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.cnn",
        description=__doc__,
        epilog=layers.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nets",
        type=cli.integers(1, 4),
        default=[1, 2, 3, 4],
        metavar="N,N",
        help="nets of Table 1 to train (default: 1,2,3,4)",
    )
    parser.add_argument(
        "--net",
        type=description,
        metavar="LAYERS",
        help="a net of your own in their place, such as 20M5s1-MP2-150N, see below",
    )
    parser.add_argument(
        "--describe",
        action="store_true",
        help="print maps, sizes, connections, weights and multiply-adds of each layer, and train "
        "nothing",
    )
    cli.add_seeds_argument(parser)
    plans.add_arguments(parser, "some minutes per net on a CPU", plans.PAPER_CNN)
    cli.add_engine_arguments(parser)
    cli.add_worker_arguments(parser)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/cnn"),
        metavar="DIR",
        help="folder for run files and tables (default: %(default)s)",
    )
    return parser.parse_args(argv)


def describe(net: str) -> str:
    """The layers of a net as a Markdown table."""
    found = layers.parse(net, DIGIT, N_CLASSES)
    lines = [_line(layer) for layer in found]
    weights = sum(layer.n_weights for layer in found)
    multiply_adds = sum(layer.n_multiply_adds for layer in found)
    total = dict.fromkeys(lines[0], "") | {"layer": "all"}
    lines.append(total | {"weights": f"{weights:,}", "multiply-adds": f"{multiply_adds:,}"})
    return f"{net}, input {DIGIT}\n\n{markdown_table(lines)}\n"


def _line(layer: Layer) -> dict[str, str]:
    (height, width), (dy, dx) = layer.kernel, layer.step
    return {
        "layer": layer.kind,
        "maps": str(layer.maps.n),
        "size": f"{layer.maps.width}x{layer.maps.height}",
        "kernel": f"{width}x{height}",
        "skips": f"{dx - 1}x{dy - 1}" if layer.kind == layers.CONVOLUTION else "",
        "connections": f"{layer.n_connections:,}" if layer.has_weights else "",
        "weights": f"{layer.n_weights:,}",
        "multiply-adds": f"{layer.n_multiply_adds:,}",
    }


def run_path(folder: Path, net: str, seed: int, data_name: str) -> Path:
    """The run file of a net and seed."""
    parts = [re.sub(r"[^\w-]", "", net.replace("%", "p")), f"seed{seed}"]
    parts += [] if data_name == "MNIST" else [data_name]
    return folder / ("-".join(parts) + ".h5")


def needed_bytes(described: Iterable[str], dataset: data.Dataset) -> int:
    """An upper bound of the GPU memory that the largest of the nets needs, in bytes."""
    from cnn_gpu import cuda  # imports numba
    from deform_gpu import cuda as deform_cuda

    n = len(dataset.train_labels)
    found = [ConvNetwork.initial(net, DIGIT, N_CLASSES, 0) for net in described]
    largest = max(cuda.device_bytes(network, n) for network in found)
    return largest + deform_cuda.device_bytes(n, data.SIDE)


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.net:
        own = {arguments.net: 1}
    else:
        own = {cnn_tables.PAPER[net].layers: net for net in arguments.nets}
    if arguments.describe:
        print("\n".join(map(describe, own)))
        return 0
    combinations = list(product(own, arguments.seeds))

    def needed(dataset: data.Dataset) -> int:
        return needed_bytes(own, dataset)

    with jobs.session(arguments, len(combinations), needed, SMALL) as (dataset, pool, engine):
        queue = []
        for net, seed in combinations:
            quick = plans.QUICK_CNN[dataset.name][own[net]]
            plan = plans.choose(arguments, engine, quick, plans.PAPER_CNN)
            some = data.limit(dataset, plan.n_images)
            config = make_config(some, net, plan.schedule, seed, TABLE1, engine)
            path = run_path(arguments.out, net, seed, dataset.name)
            queue.append(jobs.make_job(arguments, path, f"{net}, seed {seed}", config))
        outcomes = jobs.train_all(queue, pool)

    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    if runs:
        cli.write_table(arguments.out, "cnn", report(runs), [cnn_tables.row(run) for run in runs])
    return max(outcome.status for outcome in outcomes)


def report(runs: list[Run]) -> str:
    """The table with what its reader must know, as Markdown."""
    name = runs[0].config["data"]["name"]
    if name == "MNIST":
        title = "Table 1 of the 2011 paper, on MNIST, the paper beside ours"
        note = "The paper trained for 500 epochs of 60,000 images, with kernels that it does not "
        note += "print: ours are guesses. What we did is in the table."
    else:
        title = f"The nets of Table 1 of the 2011 paper on {name}, which is NOT MNIST"
        note = "These figures must not be compared with the paper's."
    return tables.report(title, note, cnn_tables.table(runs), [], runs)


if __name__ == "__main__":
    cli.run(main)
