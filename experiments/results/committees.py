"""The committees of the 2012 paper: Tables 1 and 2 (section 5) and Table 4 (section 6.2)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deform_gpu import COMMITTEE, TABLE1, Deformation
from deform_gpu.parameters import WIDTHS
from experiments.datasets.dataset import is_mnist, name_parts
from experiments.results import committee_report
from experiments.results.committee_report import Committee
from experiments.results.rows import CommitteeRow
from experiments.training.formatting import hundredths
from experiments.training.store import Run
from mlp_gpu.network import NETS


@dataclass(frozen=True)
class Member:
    """A net of a committee.

    name: as the paper prints it, shorter. paper: its error there, percent. width: of the bounding
    boxes, pixels of 29; None for original digits. deformation: None for undeformed digits.
    resample: whether it draws a validation set of its own out of the training images.
    """

    name: str
    paper: float
    width: int | None = None
    deformation: Deformation | None = COMMITTEE
    resample: bool = False


@dataclass(frozen=True)
class Experiment:
    """A committee. title: what its members have in common. paper: its error there, percent."""

    title: str
    table: str
    paper: float
    members: tuple[Member, ...]
    sizes: tuple[int, ...] = (841, 800, 10)


# Experiment 4, "we randomly reselect training and validation sets". Guess: one image of six is for
# validation, after section 2's "50,000 images for training and 10,000 for validation".
IMAGES_PER_VALIDATION_IMAGE = 6

Variation = dict[str, Any]  # fields of a member
SEEDS: list[Variation] = [{"name": f"init {n}"} for n in range(1, 8)]
ALL_WIDTHS: list[Variation] = [{"name": f"WN{width}", "width": width} for width in WIDTHS]
ALL_WIDTHS.append({"name": "original"})
STRENGTHS: list[Variation] = [
    {"name": f"{sigma}/{alpha:.0f}", "deformation": replace(COMMITTEE, sigma=sigma, alpha=alpha)}
    for sigma, alphas in ((4.5, (36.0, 42.0)), (6.0, (30.0, 36.0, 42.0)), (7.5, (30.0, 36.0)))
    for alpha in alphas
]


def _members(
    variations: list[Variation], errors: Sequence[float], **common: Any
) -> tuple[Member, ...]:
    """Members that differ in some fields. errors: of each, in the paper. common: other fields."""
    pairs = zip(variations, errors, strict=True)
    return tuple(Member(paper=error, **variation, **common) for variation, error in pairs)


# Guess for experiments 1 and 2: undeformed nets too are chosen by their errors on all training
# images, which here are the ones that they learned.
EXPERIMENTS = {
    1: Experiment(
        "undeformed, seven initialisations",
        "Table 1",
        1.70,
        _members(SEEDS, (1.79, 1.80, 1.77, 1.72, 1.91, 1.86, 1.75), deformation=None),
    ),
    2: Experiment(
        "undeformed, seven widths",
        "Table 1",
        1.31,
        _members(ALL_WIDTHS, (1.62, 1.37, 1.48, 1.53, 1.56, 1.49, 1.79), deformation=None),
    ),
    3: Experiment(
        "deformed, seven initialisations",
        "Table 2",
        0.56,
        _members(SEEDS, (0.72, 0.71, 0.72, 0.71, 0.62, 0.65, 0.69)),
    ),
    4: Experiment(
        "deformed, seven training and validation sets",
        "Table 2",
        0.53,
        _members(SEEDS, (0.68, 0.82, 0.73, 0.69, 0.71, 0.70, 0.75), resample=True),
    ),
    5: Experiment(
        "deformed, seven strengths sigma/alpha",
        "Table 2",
        0.49,
        _members(STRENGTHS, (0.69, 0.94, 0.55, 0.72, 0.60, 0.86, 0.79)),
    ),
    6: Experiment(
        "deformed, seven widths",
        "Table 2",
        0.43,
        _members(ALL_WIDTHS, (0.64, 0.78, 0.70, 0.60, 0.59, 0.70, 0.71)),
    ),
}

# Guess: deformed as net 4 was for Table 3, of which this is a committee; section 6.2 does not say.
TABLE4 = Experiment(
    "net 4 of Table 3, deformed, seven widths",
    "Table 4",
    0.31,
    _members(ALL_WIDTHS, (0.52, 0.45, 0.44, 0.49, 0.36, 0.38, 0.35), deformation=TABLE1),
    sizes=NETS[4],
)

NAMED = {f"experiment{number}": experiment for number, experiment in EXPERIMENTS.items()}
NAMED["table4"] = TABLE4


def run_name(experiment: Experiment, member: Member, seed: int, data_name: str) -> str:
    """The name of a member's run file, without its ending: equal trainings have equal names.

    So experiment 2 shares a net with experiment 1, and 5 and 6 each share one with 3.
    """
    parts = ["net4"] if experiment is TABLE4 else []
    parts += [f"WN{member.width}" if member.width else "original"]
    strength = member.deformation
    if strength is None:
        parts += ["undeformed"]
    elif strength not in (COMMITTEE, TABLE1):
        parts += [f"sigma{strength.sigma:g}-alpha{strength.alpha:g}"]
    parts += ["resampled"] if member.resample else []
    parts += [f"seed{seed}"]
    parts += name_parts(data_name)
    return "-".join(parts)


def _title(name: str) -> str:
    """The title of an experiment, by its name."""
    heading = "Table 4 of 2012" if name == "table4" else f"Experiment {name[-1]} of 2012"
    return f"{heading}: {NAMED[name].title}"


def of_experiment(
    name: str, experiment: Experiment, runs: Sequence[Run], note: str = ""
) -> Committee:
    """The committee of an experiment's members; name: experiment1 to experiment6, or table4."""
    data_name = runs[0].config.data.name
    on_mnist = is_mnist(data_name)
    unfinished = committee_report.unfinished(runs)
    return Committee(
        name=name if on_mnist else f"{name}-{data_name}",
        title=f"{_title(name)}, on {data_name}{unfinished}",
        members=tuple(member.name for member in experiment.members),
        runs=tuple(runs),
        paper=(*(m.paper for m in experiment.members), experiment.paper) if on_mnist else None,
        note=note,
    )


def find_committees(runs: Mapping[str, Run]) -> list[Committee]:
    """The committees of 2012 whose members are all among these runs.

    runs: all on the same data, by the paths of their files without .h5, as experiments.committee
    names them. The members of a committee are in one folder and have the seeds 0, 1, 2 and so on.
    Of several trainings of one committee the titles name the folders.
    """
    found: list[tuple[Path, Committee]] = []
    for folder in sorted({Path(name).parent for name in runs}):
        for name, experiment in NAMED.items():
            data_name = next(iter(runs.values())).config.data.name
            paths = [
                str(folder / run_name(experiment, member, seed, data_name))
                for seed, member in enumerate(experiment.members)
            ]
            if all(path in runs for path in paths):
                one = of_experiment(name, experiment, [runs[path] for path in paths])
                found.append((folder, one))
    n = Counter(one.title for _, one in found)
    return [
        replace(one, title=f"{one.title}, in {folder}") if n[one.title] > 1 else one
        for folder, one in found
    ]


def longest_committees(
    found: Collection[Sequence[CommitteeRow]],
) -> dict[str, Sequence[CommitteeRow]]:
    """The rows of our longest training on MNIST of each experiment that has one, by its name.

    found: the rows of each record. Of equally long trainings the newest counts, which is by the
    guesses of today: none is chosen by its test errors.
    """
    longest = {}
    for name in NAMED:
        if own := [rows for rows in found if rows[-1].experiment == name]:
            longest[name] = max(own, key=_length_and_date)
    return longest


def _length_and_date(rows: Sequence[CommitteeRow]) -> tuple[int, str]:
    return committee_report.images_trained(rows), rows[-1].source.date


def recorded_committees(
    found: Collection[Sequence[CommitteeRow]],
) -> dict[str, Sequence[CommitteeRow]]:
    """The rows of the records that `experiments_table` shows, by their titles."""
    return {
        f"{_title(name)}, on MNIST, {rows[-1].epochs} epochs": rows
        for name, rows in longest_committees(found).items()
    }


def experiments_table(found: Collection[Sequence[CommitteeRow]]) -> list[dict[str, str]]:
    """A line for each committee of the paper: our longest training on MNIST beside the paper's.

    found: the rows of each record.
    """
    lines, longest = [], longest_committees(found)
    for name, experiment in NAMED.items():
        paper = [member.paper for member in experiment.members]
        line = {
            "experiment": "Table 4" if experiment is TABLE4 else name[-1],
            "seven nets": experiment.title,
            "paper: average net %": hundredths(sum(paper) / len(paper)),
            "paper: committee %": f"{experiment.paper:.2f}",
            "average net %": "",
            "committee % (95 % interval)": "not measured yet",
            "epochs x images": "",
        }
        if rows := longest.get(name):
            row = rows[-1]
            line |= {
                "average net %": hundredths(row.mean_percent or 0),
                "committee % (95 % interval)": f"{row.percent:.2f} ({row.low:.2f}-{row.high:.2f})",
                "epochs x images": f"{row.epochs} x {int(row.images_an_epoch):,}",
            }
        lines.append(line)
    return lines
