"""A run, or a committee, beside our record of the same net and beside the paper's figure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from experiments.datasets.dataset import is_mnist
from experiments.results import cnn_tables, committee_report, tables
from experiments.results.rows import CommitteeRow
from experiments.training.configs import Config
from experiments.training.store import Run

LEVEL = 0.05  # p from which on two error rates differ by chance
PAPER_IMAGES = 60_000  # an epoch
EXPLAINED = (
    f"**Worse** and **better**: p is below {LEVEL} in Fisher's exact test, two-sided, on the two "
    "counts of wrong test images, or in McNemar's on those of a committee whose record lists them. "
    "Fisher's takes the two sets of test images as independent. They are the same, so fewer than "
    "one of twenty equal pairs is called different, and a real difference may be missed. "
    "Errors are taken at the epoch with the lowest validation error; the paper of 2011 also has "
    "those after 1, 3 and 17 epochs. A cell says where the other training had other epochs or "
    "images."
)


class Comparison(NamedTuple):
    """text: 'worse than 0.49', in percent, and how the other training differs; "-" for no other.

    record: the name of the other's record.
    """

    text: str = "-"
    record: str = ""


def fisher(errors: int, other: int, n: int) -> float:
    """p of Fisher's exact test, two-sided: two classifiers, each tested on n images, are alike.

    It is too large where both get the same images wrong, which counts alone do not say.
    """
    from scipy.stats import fisher_exact  # takes most of a second to import

    return float(fisher_exact([[errors, n - errors], [other, n - other]]).pvalue)


def _judge(errors: int, n: int, percent: float, note: str, p: float | None = None) -> str:
    """errors: of n test images. percent: the other's errors. p: Fisher's where none is given."""
    if p is None:
        p = fisher(errors, round(percent * n / 100), n)
    verdict = "worse than" if 100 * errors / n > percent else "better than"
    return f"**{verdict if p < LEVEL else 'within chance of'}** {percent:.2f}{note}"


def _compare(run: Run, errors: int, percent: float, n_train: int, *epochs: int) -> Comparison:
    """errors: of the run. percent, n_train, epochs done and planned: of the other training."""
    n, note = run.config.data.n_test, ""
    if epochs != (run.epochs, run.config.epochs):
        done, planned = epochs
        note = f" after {done:,}" + (f" of {planned:,}" if done < planned else "") + " epochs"
    note += "" if n_train == run.config.data.n_train else f" on {n_train:,} images"
    text = _judge(errors, n, percent, note)
    return Comparison(text if errors == run.chosen_errors else f"{100 * errors / n:.2f}, {text}")


def _errors_after(run: Run, epochs: int) -> int:
    """Test errors at the chosen one of a run's first epochs."""
    return replace(run, metrics=run.metrics.first(epochs)).chosen_errors


def _net(config: Config) -> tuple:
    """The settings that two trainings of the same net on the same data share."""
    return config.net_name, structs.replace(config.data, n_train=1), config.deformation


def with_record(run: Run, records: Mapping[str, Run]) -> Comparison:
    """A run beside the record of the same net that is most like it, if there is one.

    Records with the most epochs in common come first, then with as many images, a schedule nearly
    as long, the same rates and seed. Both are compared as they were after their common epochs.
    """
    own = run.config

    def difference(name: str) -> tuple:
        config = records[name].config
        return (
            -min(run.epochs, records[name].epochs),
            config.data.n_train != own.data.n_train,
            abs(config.epochs - own.epochs),
            (config.eta, config.decay, config.seed) != (own.eta, own.decay, own.seed),
        )

    same = [name for name, record in records.items() if _net(record.config) == _net(own)]
    if not same:
        return Comparison()
    name = min(same, key=difference)
    record, n = records[name], min(run.epochs, records[name].epochs)
    percent = 100 * _errors_after(record, n) / own.data.n_test
    other = percent, record.config.data.n_train, n, record.config.epochs
    return _compare(run, _errors_after(run, n), *other)._replace(record=name)


def with_paper(run: Run) -> Comparison:
    """A run beside the paper's figure after the most epochs that it has reached, or else the last.

    The papers have no figures for other nets and other data.
    """
    config = run.config
    if row := cnn_tables.paper_row(config):
        return Comparison(f"{row.tefbv:.2f} ± {row.deviation:.2f}, {row.n_runs} runs")
    if not is_mnist(config.data.name):
        return Comparison()
    if tables.is_table1(run):
        paper = tables.PAPER[tables.net_number(run)]
        figures = {tables.PAPER_EPOCHS: paper.tefbv}
        if not config.deformation:  # for how many epochs, the paper does not say
            other = paper.undistorted, PAPER_IMAGES, run.epochs, config.epochs
            return _compare(run, run.chosen_errors, *other)
    elif config.deformation and (net := cnn_tables.paper_net(config.layers)):
        figures = dict(zip(cnn_tables.EARLY, net.early, strict=False))
        figures[cnn_tables.PAPER_EPOCHS] = net.tefbv
    else:
        return Comparison()
    last = max(figures)
    n = max((epochs for epochs in figures if epochs <= run.epochs), default=last)
    errors = _errors_after(run, n) if n == last else run.metrics.test_errors[n - 1]
    return _compare(run, errors, figures[n], PAPER_IMAGES, n, last)


def committee_with_record(
    own: CommitteeRow, records: Mapping[str, Sequence[CommitteeRow]]
) -> Comparison:
    """A committee's row beside one of the records of the same committee, if there are any.

    A record of as many epochs comes first, then the longest training, then one with the same rates.
    """
    if not records:
        return Comparison()

    def likeness(name: str) -> tuple:
        last = records[name][-1]
        rates = (last.eta, last.eta_decay) == (own.eta, own.eta_decay)
        return last.epochs == own.epochs, committee_report.images_trained(records[name]), rates

    name = max(records, key=likeness)
    other = records[name][-1]
    note = "" if other.epochs == own.epochs else f" after {other.epochs} epochs"
    if other.images_an_epoch != own.images_an_epoch:
        note += f" on {other.images_an_epoch} images"
    p = committee_report.mcnemar(own, other)
    return Comparison(_judge(own.errors, own.n_test, other.percent, note, p), name)


def committee_with_paper(own: CommitteeRow) -> Comparison:
    """A committee's row beside the paper's, for whose number of epochs there is no word."""
    if own.paper is None:
        return Comparison()
    return Comparison(_judge(own.errors, own.n_test, own.paper, ""))
