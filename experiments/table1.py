"""Table 1 of the 2010 paper: five deep MLPs, trained on-line on digits deformed every epoch.

Also trains perceptrons of your own, by other deformations, or with training images held out; the
paper has no figures for these.

Trains each net with each seed, from where its run file ends, then prints our figures beside the
paper's and writes them as table1.md and table1.csv; unusual settings and data follow in the names.
Ctrl-C stops it; the same command continues.
"""

import argparse
import math
import time
from dataclasses import replace
from itertools import product

from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1, Deformation
from deform_gpu.parameters import DIGITS, LARGEST_SIGMA
from experiments.datasets import data
from experiments.datasets.dataset import KINDS, is_mnist
from experiments.results import tables
from experiments.training import cli, jobs, plans, store
from experiments.training.configs import changes, fit_deformation, make_config
from experiments.training.store import Run
from mlp_gpu.network import HIDDEN, N_CLASSES, N_INPUTS


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("table1", __doc__)
    parser.add_argument(
        "--nets",
        type=cli.integers(1, 5),
        metavar="N,N",
        help="nets of Table 1 to train (default: 1,2,3,4,5, or none with --hidden)",
    )
    plans.add_hidden_argument(parser, usual="none")
    cli.add_seeds_argument(parser)
    parser.add_argument(
        "--no-distortion",
        action="store_true",
        help="train on the images as they are: last column of Table 3 (2012), written as table3.md "
        "and table3.csv",
    )
    parser.add_argument(
        "--minutes",
        type=cli.number(0.1, 1e6),
        metavar="N",
        help="stop after at most about N minutes, compiling included, at the end of an epoch if "
        "possible; the same command goes on (default: train to the end)",
    )
    add_deformation_arguments(parser)
    usual = "none; the undeformed training images choose it, as in the paper"
    plans.add_validation_arguments(parser, None, usual)
    plans.add_trainer_arguments(parser, "runs/table1", "some minutes per net on a CPU", cores=4)
    arguments = parser.parse_args(argv)
    arguments.deadline = time.monotonic() + 60 * (arguments.minutes or math.inf)
    plans.choose_out(arguments)
    if arguments.minutes and arguments.scheduler:
        parser.error(
            "argument --minutes: not allowed with --scheduler, whose workers' clocks differ"
        )
    if arguments.validation_part > 1 and not arguments.validation:
        parser.error("argument --validation-part: needs --validation")
    if arguments.no_distortion and changes(deformation_of(arguments), TABLE1):
        parser.error("argument --no-distortion: not allowed with options of the deformation")
    return arguments


def add_deformation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the deformation of Table 1."""
    largest, twice = f"{LARGEST_SIGMA:g}", "{:g}, but {:g} for 1 and 7".format(*TABLE1.beta)
    for name, default, kind, text in (
        (
            "--sigma",
            TABLE1.sigma,
            cli.number(0.1, LARGEST_SIGMA),
            f"standard deviation of the Gaussian, pixels of a side of 29, from 0.1 to {largest}, "
            "where its filter is cut (default: %(default)g)",
        ),
        (
            "--alpha",
            TABLE1.alpha,
            cli.number(0, 1e6),
            "strength of the elastic field, pixels of a side of 29; 0: no field (default: "
            "%(default)g)",
        ),
        (
            "--beta",
            TABLE1.beta,
            cli.several(cli.number(0, 89), (1, DIGITS)),
            f"largest angle, degrees; or {DIGITS}, one for each digit (default: {twice})",
        ),
        (
            "--gamma",
            (TABLE1.gamma_x, TABLE1.gamma_y),
            cli.several(cli.number(0, 99), (1, 2)),
            f"largest scaling, percent; or two, in x and in y (default: {TABLE1.gamma_x:g})",
        ),
        (
            "--shear",
            TABLE1.shear_probability,
            cli.number(0, 1),
            "probability that the angle is a shear and not a rotation (default: %(default)g)",
        ),
    ):
        parser.add_argument(name, type=kind, default=default, metavar="X", help=text)


def deformation_of(arguments: argparse.Namespace) -> Deformation:
    """The deformation that the command line asks for."""
    return replace(
        TABLE1,
        sigma=arguments.sigma,
        alpha=arguments.alpha,
        beta=tuple(arguments.beta) * (DIGITS // len(arguments.beta)),
        gamma_x=arguments.gamma[0],
        gamma_y=arguments.gamma[-1],
        shear_probability=arguments.shear,
    )


def chosen_nets(arguments: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The hidden layers of the nets that the command line names, by their names in files."""
    numbers = arguments.nets or ([] if arguments.hidden else list(HIDDEN))
    nets = {f"net{net}": HIDDEN[net] for net in numbers}
    if arguments.hidden:
        hidden, own = tuple(arguments.hidden), own_name(arguments.hidden)
        nets[next((f"net{net}" for net in HIDDEN if HIDDEN[net] == hidden), own)] = hidden
    return nets


def own_name(hidden: list[int]) -> str:
    """The name of a perceptron of your own in names of files."""
    return store.net_part("hidden" + "-".join(map(str, hidden)))


def name_parts(arguments: argparse.Namespace) -> list[str]:
    """The parts that unusual settings have in the names of files."""
    n, part = arguments.validation, arguments.validation_part
    parts = [name + value for name, value in changes(deformation_of(arguments), TABLE1)]
    return parts + [f"validation{n}"] * bool(n) + ["part2"] * (part == 2)


def make_jobs(arguments: argparse.Namespace, dataset: data.Dataset, engine: str) -> list[jobs.Job]:
    """A job for each net and seed that the command line names. engine: one of ENGINE_NAMES."""
    made, deformation = [], deformation_of(arguments)
    if changes(deformation, TABLE1) and dataset.kind.source.n > 1:
        raise Problem(
            "images in colour are only translated: leave out --sigma, --alpha and the like"
        )
    angles = tuple(arguments.beta)
    if angles != TABLE1.beta and len(set(angles)) > 1 and dataset.kind not in KINDS.values():
        raise Problem(f"--beta has an angle for each digit; give one for all of {dataset.name}")
    settings = ["no-distortion"] * arguments.no_distortion + name_parts(arguments)
    part = arguments.validation and arguments.validation_part
    for (name, hidden), seed in product(chosen_nets(arguments).items(), arguments.seeds):
        sizes = dataset.kind.source.n_neurons, *hidden, dataset.kind.n_classes
        quick = plans.quick(plans.QUICK_TABLE1, dataset)[plans.nearest(hidden)]
        plan = plans.choose(arguments, engine, len(dataset.train_labels), quick)
        path = store.table1_path(arguments.out, name, seed, dataset.name, settings)
        config = make_config(
            data.limit(dataset, plan.n_images),
            sizes,
            plan.schedule,
            seed,
            None if arguments.no_distortion else fit_deformation(deformation, dataset.kind),
            engine,
            n_validation=arguments.validation,
            validation_part=part,
            windows=jobs.takes_windows(arguments, path),
        )
        label = f"net {name[3:]}" if name.startswith("net") else config.net_name
        made.append(jobs.make_job(arguments, path, f"{label}, seed {seed}", config))
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    nets = [(N_INPUTS, *hidden, N_CLASSES) for hidden in chosen_nets(arguments).values()]
    n_jobs = len(nets) * len(arguments.seeds)
    with jobs.session(arguments, n_jobs, nets) as (dataset, pool, engine):
        outcomes = jobs.train_all(make_jobs(arguments, dataset, engine), pool)
    table = "table3" if arguments.no_distortion else "table1"
    own = [own_name(arguments.hidden)] if arguments.hidden else []
    name = "-".join([table, *own, *name_parts(arguments)])
    return tables.write(arguments.out, name, outcomes, report, tables.table1_row)


def report(runs: list[Run]) -> str:
    """The table with what its reader must know, as Markdown."""
    name = runs[0].config.data.name
    distortion = runs[0].config.deformation is not None
    if is_mnist(name):
        title = "Table 1 on MNIST, the paper beside ours"
        note = "The paper trained for 2,300 epochs of 60,000 images; ours are in the table."
        others = "The paper has no figure for other nets, other deformations, or images held out."
        if not any(map(tables.is_table1, runs)):
            title, note = "Perceptrons on MNIST", others
        elif not all(map(tables.is_table1, runs)):
            note += f" {others}"
        elif not distortion:
            title = "Table 3 on MNIST, column 'no distortion', the paper beside ours"
    else:
        title = f"The nets of Table 1 on {name}, which is NOT MNIST"
        note = "These figures must not be compared with the paper's."
    if not distortion:
        note += " Trained without distortion."
    return tables.report(title, note, tables.table1_table(runs), runs)


if __name__ == "__main__":
    cli.run(main)
