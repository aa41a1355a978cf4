"""Table 1 of the 2010 paper: five deep MLPs, trained on-line on digits deformed every epoch.

Trains each net with each seed, from where its run file ends, then prints our figures beside the
paper's and writes them as table1.md and table1.csv. Ctrl-C stops it; the same command continues.
"""

import argparse
from itertools import product
from pathlib import Path

from deform_gpu import TABLE1
from experiments.running import cli, data, jobs, plans, store
from experiments.running.configs import make_config
from experiments.running.dataset import is_mnist
from experiments.running.store import Run
from experiments.scoring import tables
from experiments.scoring.rows import rows_text
from experiments.scoring.schedules import takes_windows
from mlp_gpu.engine import PERCEPTRON_SCHEDULES
from mlp_gpu.network import NETS


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
    plans.add_arguments(parser, "some minutes per net on a CPU")
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
    cli.add_engine_arguments(parser, PERCEPTRON_SCHEDULES)
    cli.add_worker_arguments(parser, cores=4)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/table1"),
        metavar="DIR",
        help="folder for run files and tables (default: %(default)s)",
    )
    return parser.parse_args(argv)


def needed_bytes(arguments: argparse.Namespace, dataset: data.Dataset) -> int:
    """An upper bound of the GPU memory that the largest of the nets needs, in bytes."""
    from deform_gpu import cuda as deform_cuda  # imports numba
    from mlp_gpu.window.engine import device_bytes

    n = len(dataset.train_labels)
    needed = max(device_bytes(NETS[net], n) for net in arguments.nets)
    if not (arguments.no_distortion or arguments.cpu_deformation):
        needed += deform_cuda.device_bytes(n, data.SIDE)
    return needed


def make_jobs(arguments: argparse.Namespace, dataset: data.Dataset, engine: str) -> list[jobs.Job]:
    """A job for each net and seed that the command line names. engine: one of ENGINE_NAMES."""
    deformation = None if arguments.no_distortion else TABLE1
    made = []
    for net, seed in product(arguments.nets, arguments.seeds):
        plan = plans.choose(arguments, engine, plans.QUICK_TABLE1[dataset.name][net])
        distortion = deformation is not None
        path = store.table1_path(arguments.out, net, seed, dataset.name, distortion)
        config = make_config(
            data.limit(dataset, plan.n_images),
            NETS[net],
            plan.schedule,
            seed,
            deformation,
            engine,
            arguments.cpu_deformation,
            windows=takes_windows(arguments, NETS[net], path),
        )
        made.append(jobs.make_job(arguments, path, f"net {net}, seed {seed}", config))
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)

    def needed(dataset: data.Dataset) -> int:
        return needed_bytes(arguments, dataset)

    n_jobs = len(arguments.nets) * len(arguments.seeds)
    with jobs.session(arguments, n_jobs, needed) as (dataset, pool, engine):
        outcomes = jobs.train_all(make_jobs(arguments, dataset, engine), pool)

    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    if runs:
        name = "table3" if arguments.no_distortion else "table1"
        rows = [tables.table1_row(run) for run in runs]
        cli.write_table(arguments.out, name, report(runs), rows_text(rows))
    return max(outcome.status for outcome in outcomes)


def report(runs: list[Run]) -> str:
    """The table with what its reader must know, as Markdown."""
    name = runs[0].config.data.name
    distortion = runs[0].config.deformation is not None
    if is_mnist(name):
        title = "Table 1 on MNIST, the paper beside ours"
        note = "The paper trained for 2,300 epochs of 60,000 images; what we did is in the table."
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
