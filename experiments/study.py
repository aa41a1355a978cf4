"""The study of our guesses: which settings of deformation and training a net's errors depend on.

Trains 841-800-10 once for each setting of some factors, each from where its run file ends. The
training images of MNIST are split: 10,000 are held out, and their errors choose the epoch and are
compared; the others are trained on. No test image is looked at: a run is evaluated on the images
held out and on its undeformed training images. The table and the figure are of all such nets in
the folder --out that are trained to their end. Ctrl-C stops it; the same command continues.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from deepbig_runtime import files
from deepbig_runtime.errors import tell
from experiments.datasets import data
from experiments.results.rows import StudyRow, rows_text
from experiments.results.studies import EPOCHS, factors, report, study_rows
from experiments.training import cli, jobs, plans
from experiments.training.configs import Config, make_config
from experiments.training.store import STUDY_SUFFIX, read_run
from mlp_gpu.engine import PERCEPTRON_SCHEDULES
from mlp_gpu.network import N_CLASSES, N_INPUTS

N_VALIDATION = 10_000


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("study", __doc__)
    known = factors()
    names, varying = list(known), [name for name in known if known[name].varies_epochs]
    parser.add_argument(
        "--factors",
        type=cli.words(names),
        metavar="NAME,NAME",
        help=f"factors to vary, one at a time (default: {','.join(names)}; with --epochs all but "
        f"{' and '.join(varying)})",
    )
    plans.add_hidden_argument(parser, [800], "800")
    cli.add_seeds_argument(parser)
    plans.add_validation_arguments(parser, N_VALIDATION, f"{N_VALIDATION:,}")
    parser.add_argument(
        "--epochs",
        type=cli.integer(2, 1_000_000),
        metavar="N",
        help=f"passes over the training images of each setting (default: its own, {EPOCHS} or "
        "what its name says)",
    )
    parser.add_argument(
        "--limit",
        type=cli.integer(1),
        metavar="N",
        help="training images used, the first N (default: all)",
    )
    cli.add_engine_arguments(parser, PERCEPTRON_SCHEDULES)
    cli.add_worker_arguments(parser)
    cli.add_data_arguments(parser)
    usual = "runs/study"
    cli.add_out_argument(
        parser,
        f"folder for run files, the table and the figure (default: {usual}; unusual nets, images "
        f"and epochs are put behind it, as in {usual}-part2)",
    )
    arguments = parser.parse_args(argv)
    if arguments.epochs:
        for name in varying:
            if name in (arguments.factors or []):
                parser.error(
                    f"argument --epochs: not allowed with the factor {name}, which varies them"
                )
        names = [name for name in names if name not in varying]
    arguments.factors = arguments.factors or names
    parts = {
        "": "-".join(map(str, arguments.hidden)) * (arguments.hidden != [800]),
        "validation": arguments.validation * (arguments.validation != N_VALIDATION),
        "part": arguments.validation_part * (arguments.validation_part > 1),
        "epochs": arguments.epochs,
        "limit": arguments.limit,
        "of-": "digits" * (arguments.data == "digits"),
    }
    unusual = (f"-{name}{value}" for name, value in parts.items() if value)
    arguments.out = arguments.out or Path(usual + "".join(unusual))
    return arguments


def make_jobs(arguments: argparse.Namespace, dataset: data.Dataset, engine: str) -> list[jobs.Job]:
    """The trainings. Factors share today's setting, which is trained once."""
    sizes = (N_INPUTS, *arguments.hidden, N_CLASSES)
    images, part, known = data.limit(dataset, arguments.limit), arguments.validation_part, factors()
    settings = [setting for name in arguments.factors for setting in known[name].settings]
    made: dict[Path, jobs.Job] = {}
    for setting, seed in product(settings, arguments.seeds):
        setting = setting.of_length(arguments.epochs)
        net, what = "-".join(map(str, sizes)), setting.name.replace(" ", "")
        of_part = f"-part{part}" if part > 1 else ""
        name = f"{net}-{what}-{setting.epochs}epochs{of_part}-seed{seed}"
        path = arguments.out / f"{name}{STUDY_SUFFIX}"
        config = make_config(
            images,
            sizes,
            setting.schedule,
            seed,
            setting.deformation,
            "cpu" if setting.variant else engine,
            n_validation=arguments.validation,
            validation_part=part,
            windows=jobs.takes_windows(arguments, path),
            study=setting.variant,
        )
        label = f"{setting.name}, seed {seed}, {setting.epochs} epochs"
        made[path] = jobs.make_job(arguments, path, label, config)
    return list(made.values())


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    known, sizes = factors(), (N_INPUTS, *arguments.hidden, N_CLASSES)
    settings = {setting for name in arguments.factors for setting in known[name].settings}
    n_jobs = len(settings) * len(arguments.seeds)
    with jobs.session(arguments, n_jobs, [sizes]) as (dataset, pool, engine):
        if engine != "cpu" and any(setting.variant for setting in settings):
            tell("settings that no training has an option for are trained on the CPU")
        made = make_jobs(arguments, dataset, engine)
        try:
            outcomes = jobs.train_all(made, pool)
        finally:  # a study takes hours: a table of its finished runs is there after Ctrl-C, too
            _write(arguments, made[0].config)
    return max(outcome.status for outcome in outcomes)


def _write(arguments: argparse.Namespace, config: Config) -> None:
    """Write and print the table and the figure of the finished runs in the folder --out.

    config: of a run with the net and the images that all of them must have.
    """
    folder = arguments.out
    like, found = (config.sizes, config.data), []
    for path in sorted(folder.glob(f"*{STUDY_SUFFIX}")):
        try:
            run = read_run(path, True)
        except files.FileFault as fault:  # the others are shown
            tell(f"left out: {fault}")
            continue
        if run.finished and (run.config.sizes, run.config.data) == like:
            found.append(run)
    if rows := study_rows(found, arguments.epochs):
        text = report(rows)
        files.replace(folder / "study.md", text.encode())
        files.replace(folder / "study.csv", rows_text(rows).encode())
        cli.add_picture(lambda: _draw(rows, folder))
        print(text)
        tell(f"written to {folder}: study.md, study.csv, study.png, study.pdf")


def _draw(rows: Sequence[StudyRow], folder: Path) -> None:
    from experiments.drawing import figures, run_plots  # imports matplotlib

    figures.save_figure(run_plots.plot_study(rows), folder / "study")


if __name__ == "__main__":
    cli.run(main)
