"""Table 1 of the 2010 paper: five deep MLPs, trained on-line on digits deformed every epoch.

Trains each net with each seed, from where its run file ends, then prints our figures beside the
paper's and writes them as table1.md and table1.csv. Ctrl-C stops it; the same command continues.
"""

import argparse
from itertools import product

from deform_gpu import TABLE1
from experiments.datasets import data
from experiments.datasets.dataset import is_mnist
from experiments.results import tables
from experiments.results.schedules import takes_windows
from experiments.training import cli, jobs, plans, store
from experiments.training.configs import fitted, make_config
from experiments.training.store import Run
from mlp_gpu.network import HIDDEN, NETS


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("table1", __doc__)
    parser.add_argument(
        "--nets",
        type=cli.integers(1, 5),
        default=[1, 2, 3, 4, 5],
        metavar="N,N",
        help="nets of Table 1 to train (default: 1,2,3,4,5)",
    )
    cli.add_seeds_argument(parser)
    parser.add_argument(
        "--no-distortion",
        action="store_true",
        help="train on the images as they are: last column of Table 3 (2012), written as table3.md "
        "and table3.csv",
    )
    parser.add_argument(
        "--cpu-deformation",
        action="store_true",
        help="deform on the CPU before each epoch, not on the GPU during the training; the images "
        "differ by rounding",
    )
    plans.add_trainer_arguments(parser, "runs/table1", "some minutes per net on a CPU", cores=4)
    return parser.parse_args(argv)


def make_jobs(arguments: argparse.Namespace, dataset: data.Dataset, engine: str) -> list[jobs.Job]:
    """A job for each net and seed that the command line names. engine: one of ENGINE_NAMES."""
    made = []
    for net, seed in product(arguments.nets, arguments.seeds):
        sizes = dataset.kind.source.n_neurons, *HIDDEN[net], dataset.kind.n_classes
        plan = plans.choose(arguments, engine, plans.quick(plans.QUICK_TABLE1, dataset)[net])
        path = store.table1_path(
            arguments.out, net, seed, dataset.name, not arguments.no_distortion
        )
        config = make_config(
            data.limit(dataset, plan.n_images),
            sizes,
            plan.schedule,
            seed,
            None if arguments.no_distortion else fitted(TABLE1, dataset.kind),
            engine,
            arguments.cpu_deformation,
            windows=takes_windows(arguments, sizes, path),
        )
        made.append(jobs.make_job(arguments, path, f"net {net}, seed {seed}", config))
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    nets = [NETS[net] for net in arguments.nets]
    n_jobs = len(nets) * len(arguments.seeds)
    on_gpu = not (arguments.no_distortion or arguments.cpu_deformation)
    with jobs.session(arguments, n_jobs, nets, on_gpu) as (dataset, pool, engine):
        outcomes = jobs.train_all(make_jobs(arguments, dataset, engine), pool)
    name = "table3" if arguments.no_distortion else "table1"
    return tables.write(arguments.out, name, outcomes, report, tables.table1_row)


def report(runs: list[Run]) -> str:
    """The table with what its reader must know, as Markdown."""
    name = runs[0].config.data.name
    distortion = runs[0].config.deformation is not None
    if is_mnist(name):
        title = "Table 1 on MNIST, the paper beside ours"
        note = "The paper trained for 2,300 epochs of 60,000 images; ours are in the table."
        if not distortion:
            title = "Table 3 on MNIST, column 'no distortion', the paper beside ours"
    else:
        title = f"The nets of Table 1 on {name}, which is NOT MNIST"
        note = "These figures must not be compared with the paper's."
    if not distortion:
        note += " Trained without distortion."
    return tables.report(title, note, tables.table1_table(runs), runs)


if __name__ == "__main__":
    cli.run(main)
