"""The study of our guesses: on which setting of deformation and training the errors of a net hang.

Trains 841-800-10 once for each setting of some factors, each from where its run file ends. The
training images of MNIST are parted: 10,000 are held out, choose the epoch and count; the others are
trained on. No test image is looked at: a run is evaluated on the images held out and on its
undeformed training images. Tables and a figure are written to the folder --out. Ctrl-C stops it;
the same command continues.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deepbig_runtime import files
from deform_gpu import COMMITTEE, Deformation
from experiments.datasets import data
from experiments.results.rows import StudyRow, rows_text
from experiments.results.schedules import takes_windows
from experiments.results.tables import interval
from experiments.training import cli, jobs, plans
from experiments.training.configs import make_config, settings
from experiments.training.formatting import duration, markdown_table
from experiments.training.messages import tell
from experiments.training.store import STUDY_SUFFIX, Run
from mlp_gpu.engine import PERCEPTRON_SCHEDULES
from mlp_gpu.network import N_CLASSES, N_INPUTS
from mlp_gpu.training import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL = "as now"  # the name of today's setting, which all factors share
N_VALIDATION = 10_000
EPOCHS, LAST_ETA = 100, 1e-4  # of a setting that names no others; where every schedule ends


@dataclass(frozen=True)
class Setting:
    """How a net of the study is trained. name: of the value that its factor has here.

    variant: one of configs.VARIANTS, which is trained on the CPU.
    """

    name: str
    deformation: Deformation | None = COMMITTEE
    epochs: int = EPOCHS
    eta: float = 3e-3
    variant: str = ""

    @property
    def schedule(self) -> Schedule:
        """The learning rates, from eta to LAST_ETA."""
        steps = max(1, self.epochs - 1)
        decay = float(f"{(LAST_ETA / self.eta) ** (1 / steps):.5g}")
        return Schedule(self.epochs, self.eta, decay)


@dataclass(frozen=True)
class Factor:
    """A factor of the study. expected: of it, before any of its nets was trained."""

    expected: str
    settings: tuple[Setting, ...]


def spread(sigma: float) -> float:
    """The standard deviation of the elastic field for alpha 1, relative to that of the noise."""
    from deform_gpu.field import gaussian_weights  # imports numba

    return float(np.square(gaussian_weights(sigma), dtype=np.float64).sum())


def _deformed(name: str, **values: Any) -> Setting:
    return Setting(name, replace(COMMITTEE, **values))


def _variant(name: str) -> Setting:
    return Setting(name, variant=name)


def factors() -> dict[str, Factor]:
    """The list of the study, by the names of the factors. The first setting of each is today's."""
    usual, alpha, beta, gamma = Setting(USUAL), COMMITTEE.alpha, COMMITTEE.beta, COMMITTEE.gamma_x
    found = {
        "strength": Factor(
            "A field of half to three quarters of today's is best; without one, and with 1.5 "
            "times as much, the net is worse than today. The Gaussian's normalisation, the range "
            "of the random numbers and the units of another grid all come to such a factor.",
            tuple(_deformed(f"alpha x {x:g}", alpha=alpha * x) for x in (0, 0.25, 0.5, 0.75, 1.5)),
        ),
        "sigma": Factor(
            "At equal spread of the displacement a rough field, sigma 4, hurts, and from 6 on "
            "little changes.",
            tuple(
                _deformed(f"sigma {x}", sigma=x, alpha=alpha * spread(COMMITTEE.sigma) / spread(x))
                for x in (4, 5, 7, 8)
            ),
        ),
        "scaling": Factor(
            "Half of today's range is a little worse, 1.5 times as much the same.",
            tuple(
                _deformed(f"gamma x {x:g}", gamma_x=gamma * x, gamma_y=gamma * x)
                for x in (0, 0.5, 1.5)
            ),
        ),
        "angle": Factor(
            "Half of today's angles is a little worse, 1.5 times as much the same; without "
            "rotation the net is clearly worse.",
            tuple(
                _deformed(f"beta x {x:g}", beta=tuple(angle * x for angle in beta))
                for x in (0, 0.5, 1.5)
            ),
        ),
        "shear": Factor(
            "Shear instead of rotation, and either of them, are no different from rotation.",
            tuple(_deformed(f"shear {x:g}", shear_probability=x) for x in (0.5, 1.0)),
        ),
        "scales": Factor(
            "One scale for x and y, or the largest angle and scales with random signs, are no "
            "different.",
            (_variant("equal scaling"), _variant("fixed sizes")),
        ),
        "padding": Factor(
            "Digits of 28x28 with a row and a column of background are no different from "
            "stretched ones, deformed before or after.",
            (_variant("padded"), _variant("padded after")),
        ),
        "outputs": Factor(
            "With squared error softmax learns more slowly and is worse after 100 epochs; "
            "hyperbolic tangents are about as good as today's outputs.",
            (_variant("softmax, squared error"), _variant("tanh, squared error")),
        ),
        "field": Factor(
            "A field for each image, zero beyond it, is weaker at the border and no different; "
            "one for all images of an epoch is worse.",
            (_variant("field an image"), _variant("field an epoch")),
        ),
        "mixing": Factor(
            "With a tenth of the images undeformed fewer of those are wrong, and as many of the "
            "images held out.",
            (_variant("a tenth undeformed"),),
        ),
        "rate": Factor(
            "A first rate of 0.001 is a little worse after 100 epochs.",
            (Setting("eta 0.001", eta=1e-3),),
        ),
        "length": Factor(
            "Three times as long brings a tenth of the errors less, ten times a fifth.",
            tuple(Setting(f"{n} epochs", epochs=n) for n in (300, 1000)),
        ),
    }
    return {
        name: replace(factor, settings=(usual, *factor.settings)) for name, factor in found.items()
    }


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


def study_row(factor: str, setting: str, run: Run) -> StudyRow:
    """A run of the study as a row."""
    config, chosen, deformation = run.config, run.chosen - 1, run.config.deformation
    errors, n = run.metrics.validation_errors[chosen], config.n_validation
    low, high = interval(errors, n)
    return StudyRow(
        factor=factor,
        setting=setting,
        layers=config.net_name,
        seed=config.seed,
        epochs=run.epochs,
        planned_epochs=config.epochs,
        images_an_epoch=config.data.n_train,
        eta=config.eta,
        eta_decay=config.decay,
        deformation=" ".join(map("=".join, settings(deformation))) if deformation else "",
        n_validation=n,
        validation_part=config.data.validation_part or 1,
        held_out_errors=errors,
        held_out=100 * errors / n,
        held_out_low=low,
        held_out_high=high,
        chosen_epoch=run.chosen,
        training_errors=run.chosen_errors,
        train_loss=run.metrics.train_loss[chosen],
        seconds=run.seconds,
        source=run.provenance[-1].columns(),
    )


def study_table(rows: Sequence[StudyRow]) -> list[dict[str, str]]:
    """Rows of one factor as they are printed."""
    return [
        {
            "setting": row.setting,
            "held out: wrong": f"{row.held_out_errors} of {row.n_validation:,}",
            "%": f"{row.held_out:.2f}",
            "95 % interval": f"{row.held_out_low:.2f}-{row.held_out_high:.2f}",
            "undeformed training images: wrong": f"{row.training_errors:,}",
            "loss": f"{row.train_loss:.4f}",
            "epochs x images": f"{row.epochs:,} x {row.images_an_epoch:,}",
            "time": duration(row.seconds),
            "seed": str(row.seed),
        }
        for row in rows
    ]


def report(rows: Sequence[StudyRow]) -> str:
    """All tables, as Markdown."""
    first = rows[0]
    lines = [
        f"# The study of our guesses, {first.layers}",
        "",
        f"{first.n_validation:,} training images are held out; they choose the epoch, and count. "
        "No test image was looked at. Interval: 95 %, Clopper-Pearson.",
    ]
    for factor, own in groupby(rows, key=lambda row: row.factor):
        lines += ["", f"## {factor.capitalize()}", "", f"Expected: {factors()[factor].expected}"]
        lines += ["", markdown_table(study_table(list(own)))]
    return "\n".join(lines) + "\n"


def plot(rows: Sequence[StudyRow]) -> "Figure":
    """The errors on the images held out against the settings, a panel for each factor."""
    from experiments.drawing import figures  # imports matplotlib

    of_factors = [list(own) for _, own in groupby(rows, key=lambda row: row.factor)]
    figure = figures.frame(2.2 * -(-len(of_factors) // 2))
    panels = figure.subplots(-(-len(of_factors) // 2), 2, squeeze=False, sharey=True).ravel()
    for axes in panels[len(of_factors) :]:
        axes.set_visible(False)
    for axes, own in zip(panels, of_factors, strict=False):
        for row in own:
            bars = [[row.held_out - row.held_out_low], [row.held_out_high - row.held_out]]
            axes.errorbar([row.setting], [row.held_out], bars, fmt="o", color=figures.BLUE)
        axes.tick_params(axis="x", labelrotation=20)
        axes.set_title(own[0].factor, fontsize=figures.LABEL_SIZE)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("images held out wrong, %")
    return figures.finish(figure, f"The study, {rows[0].layers}, 95 % intervals")


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    list_of, sizes = factors(), (N_INPUTS, *arguments.hidden, N_CLASSES)
    n_jobs = sum(len(list_of[factor].settings) for factor in arguments.factors)
    with jobs.session(arguments, n_jobs * len(arguments.seeds), [sizes]) as (dataset, pool, engine):
        made = make_jobs(arguments, dataset, engine)
        queue = {job.path: job for job in made.values()}  # factors share today's setting
        outcomes = jobs.train_all(list(queue.values()), pool)
    trained = {path: outcome.run for path, outcome in zip(queue, outcomes, strict=True)}
    rows = [
        study_row(factor, setting, run)
        for (factor, setting, _), job in made.items()
        if (run := trained[job.path]) is not None
    ]
    if rows:
        text = report(rows)
        files.replace(arguments.out / "study.md", text.encode())
        files.replace(arguments.out / "study.csv", rows_text(rows).encode())
        cli.add_picture(lambda: _draw(rows, arguments.out))
        print(text)
        tell(f"written to {arguments.out}: study.md, study.csv, study.png, study.pdf")
    return max(outcome.status for outcome in outcomes)


def _draw(rows: Sequence[StudyRow], folder: Path) -> None:
    from experiments.drawing.figures import save_figure  # imports matplotlib

    save_figure(plot(rows), folder / "study")


if __name__ == "__main__":
    cli.run(main)
