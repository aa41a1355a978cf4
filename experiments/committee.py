"""Committees of nets (2012, sections 5 and 6.2): Tables 1, 2 and 4, and Figure 5.

Trains the members, from wherever their run files are, and prints for each committee our figures
beside the paper's; or forms a committee of runs that are there: RUN.h5 RUN.h5 .... Tables, and the
digits that the best member and the committee get wrong, are written to the folder --out. Ctrl-C
stops it; the same command goes on.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from deform_gpu import cuda as deform_cuda
from deform_gpu import is_narrow
from deform_gpu.width import NARROW
from experiments import cli, committee_report, committees, data, figure1, jobs, plans, tables
from experiments.cli import Problem
from experiments.committee_report import Committee
from experiments.committees import EXPERIMENTS, RESAMPLED, TABLE4, Experiment
from experiments.configs import make_config
from experiments.plans import Plan
from experiments.plots import save_figure
from experiments.store import Run, read_run
from experiments.table1 import QUICK as QUICK_TABLE1
from mlp_gpu import cuda, files
from mlp_gpu.training import Schedule

# The nets of experiments 1 to 6: all six within 40 minutes on two cores, or within 8.
QUICK = {
    "MNIST": Plan(Schedule(epochs=8, eta=5e-3, decay=0.65)),
    "load_digits": Plan(Schedule(epochs=60, eta=5e-3, decay=0.94)),
}

# Options that say how nets are trained.
TRAINING = ("seed", "profile", "epochs", "limit", "eta", "eta_decay", "engine", "schedule")
TRAINING += ("workers", "scheduler", "data")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.committee",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "runs",
        nargs="*",
        type=Path,
        default=[],
        metavar="RUN.h5",
        help="run files to form a committee of; nothing is trained then",
    )
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
        help="seed of the first net of each experiment; the k-th has k - 1 more (default: 0)",
    )
    plans.add_arguments(parser, "all six within 40 minutes on two cores")
    cli.add_engine_arguments(parser)
    cli.add_worker_arguments(parser)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/committee"),
        metavar="DIR",
        help="folder for run files, tables and pictures (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if arguments.runs:
        given = [name for name in TRAINING if vars(arguments)[name] != parser.get_default(name)]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            parser.error(f"{options}: not allowed with run files, which are trained already")
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
    quick = QUICK_TABLE1[dataset.name][4] if experiment is TABLE4 else QUICK[dataset.name]
    plan = plans.choose(arguments, engine, quick)
    images = data.limit(dataset, plan.n_images)
    n_apart = max(1, len(images.train_labels) // RESAMPLED)  # 0 would mean that none is kept apart
    made = []
    for seed, member in enumerate(experiment.members, arguments.seed):
        config = make_config(
            images,
            experiment.sizes,
            plan.schedule,
            seed,
            member.deformation,
            engine,
            width=member.width,
            n_validation=n_apart if member.resample else None,
        )
        name = committees.run_name(experiment, member, seed, dataset.name)
        made.append(jobs.make_job(arguments, arguments.out / f"{name}.h5", name, config))
    return made


def train_committees(arguments: argparse.Namespace) -> tuple[list[Committee], list[str]]:
    """Train what the command line asks for; the committees, and why others could not be formed."""
    experiments = chosen_experiments(arguments)
    n_runs = sum(len(experiment.members) for experiment in experiments.values())

    def needed_bytes(dataset: data.Dataset) -> int:
        n, side = dataset.train_images.shape[:2]
        largest = max(cuda.device_bytes(e.sizes, n) for e in experiments.values())
        return largest + deform_cuda.device_bytes(n, side)

    with jobs.session(arguments, n_runs, needed_bytes) as (dataset, pool, engine):
        own = {
            name: make_jobs(arguments, experiment, dataset, engine)
            for name, experiment in experiments.items()
        }
        # The same training is done once, whichever experiments it belongs to.
        queue = {job.path: job for all_jobs in own.values() for job in all_jobs}
        runs, failures = jobs.train_all(list(queue.values()), pool)
    trained = dict(zip(queue, runs, strict=True))

    formed = []
    for name, experiment in experiments.items():
        members = [trained[job.path] for job in own[name]]
        if any(run is None for run in members):
            missing = sum(run is None for run in members)
            failures.append(f"{name}: no committee, for {missing} of its nets failed")
            cli.tell(failures[-1])
            continue
        formed.append(of_experiment(name, experiment, members, _note(experiment, dataset)))
    return formed, failures


def of_experiment(
    name: str, experiment: Experiment, runs: Sequence[Run], note: str = ""
) -> Committee:
    """The committee of an experiment's members; name: experiment1 to experiment6, or table4."""
    data_name = runs[0].config["data"]["name"]
    on_mnist = data_name == "MNIST"
    heading = "Table 4 of 2012" if experiment is TABLE4 else f"Experiment {name[-1]} of 2012"
    unfinished = committee_report.unfinished(runs)
    return Committee(
        name=name if on_mnist else f"{name}-{data_name}",
        title=f"{heading}: {experiment.title}, on {data_name}{unfinished}",
        members=tuple(member.name for member in experiment.members),
        runs=tuple(runs),
        paper=(*(m.paper for m in experiment.members), experiment.paper) if on_mnist else None,
        note=note,
    )


def find_committees(runs: Mapping[str, Run]) -> list[Committee]:
    """The committees of 2012 whose members are all among these runs, as this script names them.

    runs: all on the same data, by the paths of their files, without .h5. The members of a
    committee are in one folder, and their seeds follow on each other from 0.
    """
    named = {f"experiment{number}": experiment for number, experiment in EXPERIMENTS.items()}
    named["table4"] = TABLE4
    found = []
    for folder in sorted({Path(name).parent for name in runs}):
        for name, experiment in named.items():
            data_name = next(iter(runs.values())).config["data"]["name"]
            paths = [
                str(folder / committees.run_name(experiment, member, seed, data_name))
                for seed, member in enumerate(experiment.members)
            ]
            if all(path in runs for path in paths):
                found.append(of_experiment(name, experiment, [runs[path] for path in paths]))
    return found


def _note(experiment: Experiment, dataset: data.Dataset) -> str:
    if dataset.name == "MNIST":
        note = f"The paper's figures are from its {experiment.table}; it does not say how long it "
        note += "trained. What we did is in the table."
    else:
        note = f"{dataset.name} is NOT MNIST: these figures must not be compared with the paper's."
    if any(member.width for member in experiment.members):
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
    first = runs[0]
    for path, run in zip(paths, runs, strict=True):
        if run.config["data"]["sha256"] != first.config["data"]["sha256"] or not np.array_equal(
            run.labels, first.labels
        ):
            raise Problem(
                f"{path} and {paths[0]} were tested on different sets: "
                f"{_test_set(run)} there and {_test_set(first)} here; a committee needs runs on "
                "the same"
            )
    names = [path.stem for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    unfinished = [name for name, run in zip(names, runs, strict=True) if not run.finished]
    note = "Each net as it was at the epoch with its lowest validation error."
    if unfinished:
        note += f"\nNot trained to the end: {', '.join(unfinished)}."
    return Committee(
        name="committee",
        title=f"A committee of {len(runs)} nets on {first.config['data']['name']}",
        members=tuple(names),
        runs=tuple(runs),
        note=note,
    )


def _test_set(run: Run) -> str:
    found = run.config["data"]
    return f"{found['n_test']:,} digits of {found['name']} (SHA-256 {found['sha256'][:8]}...)"


def write(committee: Committee, folder: Path, test_images: np.ndarray) -> str:
    """Write a committee's tables and its Figure 5; returns the tables as they are printed."""
    text = committee_report.markdown(committee)
    files.replace(folder / f"{committee.name}.md", text.encode())
    rows = committee_report.tidy_rows(committee)
    files.replace(folder / f"{committee.name}.csv", tables.csv_text(rows).encode())
    best = committee.best
    who = {
        "best": (f"Best net, {committee.members[best]}", committee.runs[best].outputs),
        "committee": ("Committee", committee.outputs),
    }
    for ending, (name, outputs) in who.items():
        title = f"{name}. {committee.title}"
        picture = figure1.draw(outputs, committee.labels, test_images, title)
        save_figure(picture, folder / f"{committee.name}.{ending}")
    return text


def report_all(formed: Sequence[Committee]) -> str:
    """Several committees side by side, as Markdown."""
    rows = [row for committee in formed for row in committee_report.tidy_rows(committee)]
    paper = rows[0]["paper"] != ""
    parts = [
        f"# {len(formed)} committees on {rows[0]['data']}, errors in percent"
        + (", the paper / ours" if paper else " (NOT MNIST: not to be compared with the paper's)"),
        committee_report.summary_table(rows),
        committee_report.committee_table(rows),
    ]
    if committee_report.has_order(rows):
        parts.append(committee_report.order_table(rows))
    return "\n\n".join(parts) + "\n"


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    failures: list[str] = []
    if arguments.runs:
        formed = [form_committee(arguments.runs)]
        files.make_folder(arguments.out)
    else:
        formed, failures = train_committees(arguments)
    for committee in formed:
        images = figure1.load_test_images(committee.runs[0], arguments.data_dir)
        print(write(committee, arguments.out, images))
    if len(formed) > 1:
        text = report_all(formed)
        suffix = formed[0].name.partition("-")[1:]
        files.replace(arguments.out / f"committees{''.join(suffix)}.md", text.encode())
        print(text)
    if formed:
        names = ", ".join(committee.name for committee in formed)
        cli.tell(
            f"written to {arguments.out}: {names}, each .md, .csv, and the pictures .best and "
            ".committee, .png and .pdf"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    cli.run(main)
