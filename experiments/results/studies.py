"""Studies of our guesses: their factors, and the tables of their results."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from msgspec import structs

from deform_gpu import COMMITTEE, Deformation
from experiments.results.rows import StudyRow
from experiments.results.tables import AND, TIME_SUM, interval, run_source, source_line
from experiments.training.configs import settings
from experiments.training.formatting import duration, hundredths, markdown_table
from experiments.training.provenance import SourceColumns
from experiments.training.store import Run
from mlp_gpu.training import Schedule

USUAL = "as now"  # the name of today's setting, which all factors share
EPOCHS, LAST_ETA = 100, 1e-4  # of a setting that names no others
HELD_OUT = {1: "", 2: "(`--validation-part 2`) "}  # what is told of a part


@dataclass(frozen=True)
class Setting:
    """How a net of the study is trained. name: of the value that its factor has here.

    variant: one of configs.VARIANTS, which is trained on the CPU.
    """

    name: str
    deformation: Deformation | None = COMMITTEE
    epochs: int = EPOCHS
    eta: float = 3e-3
    last_eta: float = LAST_ETA
    variant: str = ""

    @property
    def schedule(self) -> Schedule:
        """The learning rates, from eta to last_eta."""
        steps = max(1, self.epochs - 1)
        decay = float(f"{(self.last_eta / self.eta) ** (1 / steps):.5g}")
        return Schedule(self.epochs, self.eta, decay)

    def of_length(self, epochs: int | None) -> "Setting":
        """The setting with another number of epochs; None: its own."""
        return replace(self, epochs=epochs) if epochs else self


@dataclass(frozen=True)
class Factor:
    """A factor of the study. expected: of it, before any of its nets was trained."""

    expected: str
    settings: tuple[Setting, ...]

    @property
    def varies_epochs(self) -> bool:
        """Whether a setting is not trained for EPOCHS."""
        return any(setting.epochs != EPOCHS for setting in self.settings)


def spread(sigma: float) -> float:
    """The standard deviation of the elastic field for alpha 1, relative to that of the noise."""
    from deform_gpu.field import gaussian_weights  # imports numba

    return float(np.square(gaussian_weights(sigma), dtype=np.float64).sum())


def _deformed(name: str, **values: Any) -> Setting:
    return Setting(name, replace(COMMITTEE, **values))


def _variant(name: str, **values: Any) -> Setting:
    return Setting(name, variant=name, **values)


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
            "Three times as long brings a tenth of the errors less, ten times a fifth; the papers' "
            "schedule of 2,300 epochs brings as much as ten times.",
            (
                *(Setting(f"{n} epochs", epochs=n) for n in (300, 1000)),
                Setting("rates of 2010", epochs=2300, eta=1e-3, last_eta=1e-6),
            ),
        ),
        "rate-long": Factor(
            "In longer trainings a first rate of 0.001 instead of 0.003 helps: 300 epochs get a "
            "tenth fewer wrong, a thousand a fifth.",
            tuple(Setting("eta 0.001", epochs=n, eta=1e-3) for n in (300, 1000)),
        ),
        "strength-300": Factor(
            "The longer the training, the stronger the field that it can learn: half of today's is "
            "no better than today's any more.",
            tuple(
                replace(_deformed(f"alpha x {x:g}", alpha=alpha * x), epochs=300)
                for x in (0.5, 0.75)
            ),
        ),
        "together": Factor(
            "Begun at 0.001 and trained for 300 epochs, nets with shear or with three quarters of "
            "the field get at most a tenth fewer wrong than with today's deformation, and nets "
            "with both no fewer than with one of them.",
            tuple(
                replace(_deformed(f"eta 0.001, {name}", **values), epochs=300, eta=1e-3)
                for name, values in (
                    ("shear 1", {"shear_probability": 1.0}),
                    ("alpha x 0.75", {"alpha": alpha * 0.75}),
                    ("both", {"shear_probability": 1.0, "alpha": alpha * 0.75}),
                )
            ),
        ),
        "outputs-long": Factor(
            "With squared error, which has smaller gradients, 300 epochs of softmax begun at 0.003 "
            "come near to cross-entropy begun at 0.001; hyperbolic tangents begun at 0.001 are far "
            "better than at 0.003, and still behind.",
            (
                _variant("softmax, squared error", epochs=300),
                replace(
                    _variant("tanh, squared error", epochs=300, eta=1e-3),
                    name="eta 0.001, tanh, squared error",
                ),
            ),
        ),
    }
    return {
        name: replace(factor, settings=(usual, *factor.settings)) for name, factor in found.items()
    }


def study_rows(runs: Sequence[Run], epochs: int | None = None) -> list[StudyRow]:
    """The runs of the study's settings as rows, factor by factor.

    epochs: of all settings, and then of no factor that varies them; None: their own.
    """
    rows = []
    known = {name: f for name, f in factors().items() if not (epochs and f.varies_epochs)}
    for factor, setting in ((name, one) for name, f in known.items() for one in f.settings):
        setting = setting.of_length(epochs)
        trained_as = setting.deformation, setting.variant, setting.schedule
        for run in sorted(runs, key=lambda run: run.config.seed):
            config = run.config
            if (config.deformation, config.study, config.learning_rates) == trained_as:
                rows.append(_row(factor, setting.name, run))
    return rows


def _row(factor: str, setting: str, run: Run) -> StudyRow:
    config, chosen, deformation = run.config, run.chosen - 1, run.config.deformation
    errors, n = run.metrics.validation_errors[chosen], config.n_validation
    return StudyRow(
        factor=factor,
        setting=setting,
        layers=config.net_name,
        seed=config.seed,
        epochs=run.epochs,
        images_an_epoch=config.data.n_train,
        eta=config.eta,
        eta_decay=config.decay,
        deformation=" ".join(map("=".join, settings(deformation))) if deformation else "",
        n_validation=n,
        validation_part=config.data.validation_part or 1,
        held_out_errors=errors,
        chosen_epoch=run.chosen,
        training_errors=run.chosen_errors,
        train_loss=run.metrics.train_loss[chosen],
        seconds=run.seconds,
        source=run_source(run),
    )


def joined(records: Mapping[Path, Sequence[StudyRow]]) -> dict[str, list[StudyRow]]:
    """The rows of each study, by its name, in the order of the list; from several machines.

    A net has the same bits on each of them.
    """
    settings = ((name, one.name) for name, factor in factors().items() for one in factor.settings)
    places = {setting: place for place, setting in enumerate(settings)}
    studies: dict[str, list[StudyRow]] = {}
    for path, rows in records.items():
        studies.setdefault(path.stem, []).extend(rows)
    for rows in studies.values():
        rows.sort(key=lambda row: places.get((row.factor, row.setting), len(places)))
    return studies


def groups(rows: Sequence[StudyRow]) -> list[list[StudyRow]]:
    """The rows of each setting, one for each seed; today's setting is the first, and there once."""
    found: dict[tuple[str, str, int], list[StudyRow]] = {}
    for row in sorted(rows, key=lambda row: row.setting != USUAL):
        factor = "" if row.setting == USUAL else row.factor
        own = found.setdefault((factor, row.setting, row.epochs), [])
        if row.seed not in {one.seed for one in own}:  # factors share today's
            own.append(row)
    return list(found.values())


def held_out(rows: Sequence[StudyRow]) -> tuple[float, float, float]:
    """Images held out that are wrong, on average of the seeds, and the interval; percent."""
    n = rows[0].n_validation
    errors = mean(row.held_out_errors for row in rows)
    return (100 * errors / n, *interval(math.floor(errors + 0.5), n))


def study_table(rows: Sequence[StudyRow]) -> list[dict[str, str]]:
    """A line for each setting. Means of the seeds."""
    lines = []
    for own in groups(rows):
        first, (percent, low, high) = own[0], held_out(own)
        wrong = mean(row.training_errors / row.images_an_epoch for row in own)
        loss = mean(row.train_loss for row in own)
        lines.append(
            {
                "factor": "" if first.setting == USUAL else first.factor,
                "setting": first.setting,
                "held out: wrong, %": f"{hundredths(percent)} ({low:.2f}-{high:.2f})",
                "undeformed training images: wrong, %": f"{100 * wrong:.2f}",
                "loss": "-" if "squared error" in first.setting else f"{loss:.4f}",
                "epochs": f"{first.epochs:,}",
                "seeds": str(len(own)),
                TIME_SUM: duration(mean(row.seconds for row in own)),
            }
        )
    return lines


def report(rows: Sequence[StudyRow]) -> str:
    """The table of a study, and what it is of, as Markdown."""
    first = rows[0]
    return (
        f"{first.layers}, {first.images_an_epoch:,} training images; {first.n_validation:,} others "
        f"{HELD_OUT[first.validation_part]}are held out, choose the epoch, and count. No test "
        "image was looked at. Means of the seeds; intervals: 95 %, Clopper-Pearson, of one net "
        "with the mean.\n\n"
        f"{markdown_table(study_table(rows))}\n\n"
        f"{'; '.join(_source_lines([row.source for row in rows]))}."
    )


def _source_lines(sources: Sequence[SourceColumns]) -> list[str]:
    """A line for each machine and its versions, with the days and commits of all its nets."""
    alike: dict[tuple[str, str, str], list[SourceColumns]] = {}
    for source in sources:
        alike.setdefault((source.device, source.driver, source.versions), []).append(source)
    lines = []
    for own in alike.values():
        days = sorted({source.date[:10] for source in own})
        commits = dict.fromkeys(commit for source in own for commit in source.commit.split(AND))
        source = structs.replace(own[0], commit=AND.join(commits), date=days[0])
        lines.append(source_line(source, last_day=days[-1]))
    return lines


def expectations() -> str:
    """What was expected of each factor before any of its nets was trained, as Markdown."""
    return "\n".join(f"- **{name}:** {factor.expected}" for name, factor in factors().items())
