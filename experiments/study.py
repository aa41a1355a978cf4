"""The study of our guesses: on which setting of deformation and training the errors of a net hang.

Trains 841-800-10 once for each setting of some factors, each from where its run file ends. The
training images of MNIST are parted: 10,000 are held out, choose the epoch and count; the others are
trained on. No test image is looked at: a run is evaluated on the images held out and on its
undeformed training images. Its table and figure, of the nets that are trained to their end, are
written to the folder --out. Ctrl-C stops it; the same command continues.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepbig_runtime import files
from experiments.datasets import data
from experiments.results.rows import StudyRow, rows_text
from experiments.results.schedules import takes_windows
from experiments.results.studies import EPOCHS, factors, report, study_row
from experiments.training import cli, jobs, plans
from experiments.training.configs import make_config
from experiments.training.messages import tell
from experiments.training.store import STUDY_SUFFIX, read_run
from mlp_gpu.engine import PERCEPTRON_SCHEDULES
from mlp_gpu.network import N_CLASSES, N_INPUTS

N_VALIDATION = 10_000


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = cli.Parser("study", __doc__)
    names = list(factors())
    parser.add_argument(
        "--factors",
        type=cli.words(names),
        metavar="NAME,NAME",
        help=f"factors to vary, one at a time (default: {','.join(names)}; with --epochs all but "
        "the length)",
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
    cli.add_out_argument(parser, "folder for run files, tables and the figure", "runs/study")
    arguments = parser.parse_args(argv)
    if arguments.epochs and "length" in (arguments.factors or []):
        parser.error("argument --epochs: not allowed with the factor length, which varies them")
    usual = [name for name in names if name != "length"] if arguments.epochs else names
    arguments.factors = arguments.factors or usual
    return arguments


def make_jobs(
    arguments: argparse.Namespace, dataset: data.Dataset, engine: str
) -> dict[tuple[str, str, int], jobs.Job]:
    """The trainings, by factor, name of the setting and seed; the same one for equal settings."""
    sizes = (N_INPUTS, *arguments.hidden, N_CLASSES)
    images, list_of, part = (
        data.limit(dataset, arguments.limit),
        factors(),
        arguments.validation_part,
    )
    made: dict[tuple[str, str, int], jobs.Job] = {}
    for factor in arguments.factors:
        for setting in list_of[factor].settings:
            if arguments.epochs:
                setting = replace(setting, epochs=arguments.epochs)
            for seed in arguments.seeds:
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
                    windows=takes_windows(arguments, sizes, path),
                    study=setting.variant,
                )
                label = f"{setting.name}, seed {seed}"
                made[factor, setting.name, seed] = jobs.make_job(arguments, path, label, config)
    return made


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    list_of, sizes = factors(), (N_INPUTS, *arguments.hidden, N_CLASSES)
    n_jobs = sum(len(list_of[factor].settings) for factor in arguments.factors)
    with jobs.session(arguments, n_jobs * len(arguments.seeds), [sizes]) as (dataset, pool, engine):
        made = make_jobs(arguments, dataset, engine)
        queue = {job.path: job for job in made.values()}  # factors share today's setting
        try:
            outcomes = jobs.train_all(list(queue.values()), pool)
        finally:  # a study takes days: a table of what is finished is there whenever it is stopped
            _write(arguments.out, made)
    return max(outcome.status for outcome in outcomes)


def _write(folder: Path, made: dict[tuple[str, str, int], jobs.Job]) -> None:
    """Write and print the tables and the figure of all nets that are trained to their end."""
    runs = {job.path: read_run(job.path, True) for job in made.values() if job.path.exists()}
    rows = [
        study_row(factor, setting, runs[job.path])
        for (factor, setting, _), job in made.items()
        if job.path in runs and runs[job.path].finished
    ]
    if rows:
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
