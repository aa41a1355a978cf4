"""Tables 1 to 3 of the 2011 paper: convolutional nets, trained on-line on images deformed anew.

Trains each net with each seed, from where its run file ends, then prints our figures beside the
paper's and writes them as cnn.md and cnn.csv, or cnn-DATA.md and .csv. Ctrl-C stops it; the same
command continues. With --net it trains a net of your own. Digits, Table 1, are deformed as the
perceptrons' are; --data norb and cifar10, Tables 2 and 3, are only translated.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

from cnn_gpu import layers
from deepbig_runtime.errors import tell
from deform_gpu import TABLE1, TRANSLATION, Deformation
from experiments.datasets import data
from experiments.datasets.dataset import CIFAR10_JPEG, KINDS, Kind, name_parts
from experiments.results import cnn_tables, tables
from experiments.training import cli, jobs, plans, store
from experiments.training.configs import fit_deformation, make_config
from experiments.training.formatting import markdown_table
from experiments.training.store import Run
from mlp_gpu.engine import SCHEDULES

OTHERS = {
    "norb": "small NORB, Table 2",
    "cifar10": "CIFAR-10, Table 3; where both are looked for: docs/options.md",
}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("cnn", __doc__, layers.__doc__)
    nets = parser.add_mutually_exclusive_group()
    nets.add_argument(
        "--nets",
        type=cli.integers(1, 6),
        metavar="N,N",
        help="nets to train, 1 to 4 of Table 1; with norb 1 and 2, with cifar10 1 to 6, see "
        "docs/cnn.md (default: all)",
    )
    nets.add_argument(
        "--net",
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
    parser.add_argument(
        "--translation",
        type=cli.number(0, 50),
        metavar="PERCENT",
        help="translate training images by up to PERCENT of their side (default: 5 for norb and "
        "cifar10, as in the paper's best rows, else 0)",
    )
    plans.add_trainer_arguments(
        parser,
        "runs/cnn",
        "digits in some minutes per net on a CPU, norb and cifar10 in an unknown time",
        plans.PAPER_CNN,
        " of digits, see docs/cnn.md for others",
        SCHEDULES,
        others=OTHERS,
    )
    arguments = parser.parse_args(argv)
    plans.choose_out(arguments)
    kind = kind_of(arguments)
    table = cnn_tables.table_for(kind)
    if unknown := sorted(set(arguments.nets or ()) - set(table.nets)):
        parser.error(f"argument --nets: there is no net {unknown[0]} for {arguments.data}")
    numbers, arguments.nets = arguments.nets or table.nets, {}
    if arguments.net:
        try:
            layers.parse(arguments.net, kind.source, kind.n_classes)
        except ValueError as error:
            parser.error(f"argument --net: {error}")
        arguments.nets[arguments.net] = 1
        return arguments
    for net in numbers:
        fitted_net = layers.fit_layers(table.nets[net], kind.source)
        arguments.nets[fitted_net] = net
        if fitted_net != table.nets[net]:
            size = kind.source.width
            tell(f"net {net} of Table {table.number}, fitted to {size}x{size} pixels: {fitted_net}")
    return arguments


def kind_of(arguments: argparse.Namespace) -> Kind:
    """The kind of the images that the command line names. Reads a folder of your own."""
    if cli.is_folder(arguments.data):
        return data.cached_pixels(arguments.data, Path(arguments.data), arguments.size).kind
    return KINDS[cnn_tables.TABLES[arguments.data].data]


def deformation_of(kind: Kind, translation: float | None) -> Deformation | None:
    """How training images are deformed, None for not at all. translation: percent, as asked for."""
    if kind.source.n == 1:
        return replace(fit_deformation(TABLE1, kind), translation=translation or 0.0)
    if translation == 0:
        return None
    return replace(TRANSLATION, translation=translation or TRANSLATION.translation)


def describe(net: str, kind: Kind) -> str:
    """The layers of a net as a Markdown table."""
    found = layers.parse(net, kind.source, kind.n_classes)
    lines = []
    for layer in found:
        (height, width), (dy, dx) = layer.kernel, layer.step
        lines.append(
            {
                "layer": layer.kind,
                "maps": str(layer.maps.n),
                "size": f"{layer.maps.width}x{layer.maps.height}",
                "kernel": f"{width}x{height}",
                "skips": f"{dx - 1}x{dy - 1}" if layer.kind == layers.CONVOLUTION else "",
                "connections": f"{layer.n_connections:,}" if layer.has_weights else "",
                "weights": f"{layer.n_weights:,}",
                "multiply-adds": f"{layer.n_multiply_adds:,}",
            }
        )
    weights = sum(layer.n_weights for layer in found)
    multiply_adds = sum(layer.n_multiply_adds for layer in found)
    total = dict.fromkeys(lines[0], "") | {"layer": "all"}
    lines.append(total | {"weights": f"{weights:,}", "multiply-adds": f"{multiply_adds:,}"})
    return f"{net}, input {kind.source}\n\n{markdown_table(lines)}\n"


def run_path(folder: Path, net: str, seed: int, data_name: str, translation: float) -> Path:
    """The run file of a net and seed. translation: of its images, percent."""
    parts = [store.net_part(net), f"seed{seed}"]
    parts += name_parts(data_name)
    parts += [f"translated{translation:g}"] if translation else []
    return folder / ("-".join(parts) + ".h5")


def make_jobs(
    arguments: argparse.Namespace, nets: Mapping[str, int], dataset: data.Dataset, engine: str
) -> list[jobs.Job]:
    """A job for each net and seed. nets: descriptions, with the numbers of the plans to take."""
    deformation = deformation_of(dataset.kind, arguments.translation)
    paper = plans.PAPER_NATURAL.get(arguments.data, plans.PAPER_CNN)
    made = []
    for net, seed in product(nets, arguments.seeds):
        quick = plans.quick(plans.QUICK_CNN, dataset)[nets[net]]
        plan = plans.choose(arguments, engine, len(dataset.train_labels), quick, paper)
        images = data.limit(dataset, plan.n_images)
        config = make_config(images, net, plan.schedule, seed, deformation, engine)
        translation = deformation.translation if deformation else 0.0
        path = run_path(arguments.out, net, seed, dataset.name, translation)
        made.append(jobs.make_job(arguments, path, f"{net}, seed {seed}", config))
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    nets = arguments.nets
    if arguments.describe:
        print("\n".join(describe(net, kind_of(arguments)) for net in nets))
        return 0
    n_jobs = len(nets) * len(arguments.seeds)
    with jobs.session(arguments, n_jobs, list(nets)) as (dataset, pool, engine):
        outcomes = jobs.train_all(make_jobs(arguments, nets, dataset, engine), pool)
    own = [store.net_part(arguments.net)] if arguments.net else []
    if arguments.translation is not None:
        own.append(f"translated{arguments.translation:g}")
    return tables.write(arguments.out, "-".join(["cnn", *own]), outcomes, report, cnn_tables.row)


def report(runs: list[Run]) -> str:
    """The table with what its reader must know, as Markdown."""
    name = runs[0].config.data.name
    table = cnn_tables.table_for(runs[0].config.kind)
    if name == CIFAR10_JPEG:
        title = "Table 3 of the 2011 paper, on CIFAR-10, a JPEG copy, the paper beside ours"
        note = f"{table.note} Ours are of pictures that JPEG changed, not the paper's."
    elif name == table.data:
        title = f"Table {table.number} of the 2011 paper, on {name}, the paper beside ours"
        note = f"{table.note} The table gives our epochs and images."
    else:
        title = f"The nets of Table {table.number} of the 2011 paper on {name}, which is NOT "
        title += table.data
        note = "These figures must not be compared with the paper's."
        if not all(run.config.layers in table.nets.values() for run in runs):
            note += " Layers other than the paper's are fitted to the images' side, or your own."
    return tables.report(title, note, cnn_tables.table(runs), runs)


if __name__ == "__main__":
    cli.run(main)
