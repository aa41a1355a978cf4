"""Committees of nets (2012, sections 5 and 6.2): Tables 1, 2 and 4, and Figure 5.

Trains the members, each from where its run file ends, and prints the figures of each committee
beside the paper's. Given run files, RUN.h5 RUN.h5 ..., it trains nothing and forms a committee of
them. Tables, and pictures of the digits that the best member and the committee get wrong, are
written to the folder --out. Ctrl-C stops it; the same command continues.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepbig_runtime import files
from deepbig_runtime.errors import Problem, tell
from experiments.datasets import data
from experiments.datasets.dataset import DIGIT, is_mnist
from experiments.results import committee_report, committees
from experiments.results.committee_report import Committee
from experiments.results.committees import (
    EXPERIMENTS,
    IMAGES_PER_VALIDATION_IMAGE,
    TABLE4,
    Experiment,
)
from experiments.results.records import GIVEN
from experiments.results.rows import rows_text
from experiments.training import cli, configs, jobs, plans
from experiments.training.configs import fit_deformation, make_config
from experiments.training.formatting import markdown_table, printable
from experiments.training.store import Run, read_run, without_weights


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("committee", __doc__)
    parser.add_argument(
        "runs",
        nargs="*",
        type=Path,
        default=[],
        metavar="RUN.h5",
        help="run files to form a committee of; nothing is trained",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--experiment",
        type=cli.integers(1, 6),
        metavar="N,N",
        help="experiments of section 5: 1 seeds, 2 widths, both undeformed; deformed: 3 seeds, "
        "4 training sets, 5 strengths, 6 widths (default: 1,2,3,4,5,6)",
    )
    what.add_argument(
        "--table4", action="store_true", help="seven nets of net 4's shape instead (section 6.2)"
    )
    parser.add_argument(
        "--seed",
        type=cli.integer(0, 2**63),
        default=0,
        metavar="N",
        help="seed of the first net of each experiment; the others have the seeds after it "
        "(default: 0)",
    )
    plans.add_trainer_arguments(
        parser,
        "runs/committee",
        "all six within 40 minutes on two cores",
        written="run files, tables and pictures",
    )
    arguments = parser.parse_args(argv)
    arguments.runs = without_weights(arguments.runs)
    if arguments.runs:
        given = [
            name
            for name, value in vars(arguments).items()
            if name not in ("runs", "out", "data_dir") and value != parser.get_default(name)
        ]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            parser.error(f"{options}: not allowed with run files, which are trained already")
    plans.choose_out(arguments)
    return arguments


def chosen_experiments(arguments: argparse.Namespace) -> dict[str, Experiment]:
    """The experiments that the command line names, by the names of their files."""
    if arguments.table4:
        return {"table4": TABLE4}
    numbers = arguments.experiment or list(EXPERIMENTS)
    return {f"experiment{number}": EXPERIMENTS[number] for number in numbers}


def make_jobs(
    arguments: argparse.Namespace, experiment: Experiment, dataset: data.Dataset, engine: str
) -> list[jobs.Job]:
    """The trainings of an experiment's members."""
    quick = plans.quick(plans.QUICK_COMMITTEE, dataset)
    if experiment is TABLE4:
        quick = plans.quick(plans.QUICK_TABLE1, dataset)[4]
    sizes = dataset.kind.source.n_neurons, *experiment.sizes[1:-1], dataset.kind.n_classes
    plan = plans.choose(arguments, engine, len(dataset.train_labels), quick)
    images = data.limit(dataset, plan.n_images)
    # At least 1: 0 would mean no validation set of its own.
    n_validation = max(1, len(images.train_labels) // IMAGES_PER_VALIDATION_IMAGE)
    _refuse_variations(experiment, dataset)
    made = []
    for seed, member in enumerate(experiment.members, arguments.seed):
        name = committees.run_name(experiment, member, seed, dataset.name)
        path = arguments.out / f"{name}.h5"
        config = make_config(
            images,
            sizes,
            plan.schedule,
            seed,
            member.deformation and fit_deformation(member.deformation, dataset.kind),
            engine,
            width=member.width,
            n_validation=n_validation if member.resample else None,
            windows=jobs.takes_windows(arguments, path),
        )
        made.append(jobs.make_job(arguments, path, name, config))
    return made


def _refuse_variations(experiment: Experiment, dataset: data.Dataset) -> None:
    """Raise Problem for a committee whose members these images would not tell apart."""
    source, varied = dataset.kind.source, {member.deformation for member in experiment.members}
    reason = ""
    is_normalised = any(member.width for member in experiment.members)
    if is_normalised and (source != DIGIT or dataset.background != -1):
        reason = "makes digits of 28x28 or 29x29 pixels on black equally wide"
    elif len(varied) > 1 and source.n > 1:
        reason = "varies elastic deformations, and colour images are only translated"
    if reason:
        others = "1, 3 or 4" if source.n > 1 else "1, 3, 4 or 5"
        raise Problem(f"{experiment.title} {reason}; expected --experiment {others}")


def train_committees(arguments: argparse.Namespace) -> tuple[list[Committee], int]:
    """Train what the command line names. Returns the committees, and the exit status."""
    experiments = chosen_experiments(arguments)
    n_runs = sum(len(experiment.members) for experiment in experiments.values())
    nets = list({experiment.sizes for experiment in experiments.values()})
    with jobs.session(arguments, n_runs, nets) as (dataset, pool, engine):
        own = {
            name: make_jobs(arguments, experiment, dataset, engine)
            for name, experiment in experiments.items()
        }
        # The same training is done once, whichever experiments it belongs to.
        queue = {job.path: job for all_jobs in own.values() for job in all_jobs}
        outcomes = jobs.train_all(list(queue.values()), pool)
    trained = {path: outcome.run for path, outcome in zip(queue, outcomes, strict=True)}
    choice = data.choice_of(dataset.name, arguments.data_dir)
    dataset = data.cached(choice, arguments.data_dir, dataset.size)

    formed = []
    for name, experiment in experiments.items():
        members = [run for job in own[name] if (run := trained[job.path]) is not None]
        if missing := len(own[name]) - len(members):
            tell(f"{name}: no committee, because {missing} of its nets failed")
            continue
        formed.append(
            committees.of_experiment(name, experiment, members, _note(experiment, dataset))
        )
    return formed, max(outcome.status for outcome in outcomes)


def _note(experiment: Experiment, dataset: data.Dataset) -> str:
    if is_mnist(dataset.name):
        note = f"The paper's figures are from its {experiment.table}; it does not say how long it "
        note += "trained. The table gives our epochs and images."
    else:
        note = f"{dataset.name} is NOT MNIST: these figures must not be compared with the paper's."
    if any(member.width for member in experiment.members):
        from deform_gpu.width import NARROW, is_narrow  # imports numba

        narrow, ones = is_narrow(dataset.test_images), dataset.test_labels == 1
        note += (
            "\nNot normalised, because their ink is spread within rows by at most "
            f"{NARROW:g} of their height: "
            f"{np.count_nonzero(narrow & ones):,} of the {np.count_nonzero(ones):,} ones and "
            f"{np.count_nonzero(narrow & ~ones):,} of the {np.count_nonzero(~ones):,} others among "
            "the test digits."
        )
    return note


def form_committee(paths: Sequence[Path]) -> Committee:
    """The committee of the runs in these files.

    Raises Problem if they were not tested on the same digits, files.FileFault if one is damaged.
    """
    if len(paths) < 2:
        raise Problem(f"a committee needs two runs at least, only {paths[0]} is named")
    for path in paths:
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise Problem(f"{path} is named twice; name different runs")
    runs = [read_run(path) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        same_data = run.config.data.sha256 == runs[0].config.data.sha256
        if not (same_data and np.array_equal(run.labels, runs[0].labels)):
            raise Problem(
                f"{path} was tested on {_test_set(run)}, and {paths[0]} on {_test_set(runs[0])}; a "
                "committee needs runs on the same test set"
            )
    names = [printable(path.stem) for path in paths]
    if len(set(names)) < len(names):
        names = [printable(str(path)) for path in paths]
    unfinished = [name for name, run in zip(names, runs, strict=True) if not run.finished]
    note = "Each net as it was at the epoch with its lowest validation error."
    if unfinished:
        note += f"\nNot trained to the end: {', '.join(unfinished)}."
    return Committee(
        name=GIVEN,
        title=f"A committee of {len(runs)} nets on {runs[0].config.data.name}",
        members=tuple(names),
        runs=tuple(runs),
        note=note,
    )


def _test_set(run: Run) -> str:
    found = run.config.data
    return f"{found.n_test:,} images of {found.name} (SHA-256 {found.sha256[:8]}...)"


def write(committee: Committee, folder: Path, test_images: np.ndarray) -> str:
    """Write a committee's tables and its Figure 5; returns the tables as they are printed."""
    text = committee_report.committee_markdown(committee)
    files.replace(folder / f"{committee.name}.md", text.encode())
    rows = committee_report.tidy_rows(committee)
    files.replace(folder / f"{committee.name}.csv", rows_text(rows).encode())

    def draw(ending: str, name: str, outputs: np.ndarray) -> None:
        from experiments.drawing.error_plots import plot_wrong  # imports matplotlib
        from experiments.drawing.figures import save_figure

        title, config = f"{name}. {committee.title}", committee.runs[0].config
        figure = plot_wrong(outputs, committee.labels, test_images, title, config)
        save_figure(figure, folder / f"{committee.name}.{ending}")

    best = committee.best
    name, outputs = f"Best net, {committee.members[best]}", committee.runs[best].outputs
    cli.add_picture(lambda: draw("best", name, outputs))
    cli.add_picture(lambda: draw("committee", "Committee", committee.outputs))
    return text


def report_all(formed: Sequence[Committee]) -> str:
    """Several committees side by side, as Markdown."""
    rows = [row for committee in formed for row in committee_report.tidy_rows(committee)]
    paper = rows[0].paper is not None
    head = f"# {len(formed)} committees on {rows[0].data}, errors in percent"
    head += ", the paper / ours" if paper else " (NOT MNIST: not to be compared with the paper's)"
    parts = [head, *map(markdown_table, committee_report.side_by_side(rows))]
    return "\n\n".join(parts) + "\n"


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    status = 0
    if arguments.runs:
        formed = [form_committee(arguments.runs)]
        files.make_folder(arguments.out)
    else:
        formed, status = train_committees(arguments)
    for committee in formed:
        images = configs.load(committee.runs[0].config, arguments.data_dir).test_images
        print(write(committee, arguments.out, images))
    if len(formed) > 1:
        text = report_all(formed)
        suffix = formed[0].name.partition("-")[1:]
        files.replace(arguments.out / f"committees{''.join(suffix)}.md", text.encode())
        print(text)
    if formed:
        names = ", ".join(committee.name for committee in formed)
        tell(
            f"written to {arguments.out}: {names}, each .md, .csv, and the pictures .best and "
            ".committee, .png and .pdf"
        )
    return status


if __name__ == "__main__":
    cli.run(main)
