"""Sentences that summarise the recorded errors."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.datasets.dataset import is_mnist
from experiments.results import cnn_tables, committee_report, tables
from experiments.results.records import by_folder
from experiments.results.rows import CommitteeRow, ResultRow
from experiments.training.formatting import duration, plural
from experiments.training.store import Run
from mlp_gpu.training import Schedule

PAPER_EPOCHS = Schedule().epochs


def longest_sentence(runs: Sequence[Run]) -> str:
    """The longest of the runs, all on deformed MNIST, beside the paper's of the same net."""
    run = tables.most_trained(runs)
    row = tables.table1_row(run)
    net = tables.net_number(run)
    paper = tables.PAPER[net]
    text = (
        f"Net {net} {_result(row)}; {tables.spread(tables.with_other_seeds(run, runs))}. The "
        f"paper's net {net} has {paper.tefbv:.2f} %, after {PAPER_EPOCHS:,} epochs in "
        f"{paper.hours} hours on a GTX 280."
    )
    errors = run.metrics.test_errors
    below = next((epoch for epoch, n in enumerate(errors, 1) if n < row.n_test / 100), None)
    if below:
        text += (
            f" Our net's test error is below 1 % for the first time after epoch {below}; the "
            "paper's nets get there after 20-30 epochs."
        )
    return text


def _result(row: ResultRow) -> str:
    """The errors of a run and what they cost, as the rest of a sentence that begins with a net."""
    return (
        f"gets {row.tefbv_errors} of {row.n_test:,} test digits wrong: {row.tefbv:.2f} % (95 % "
        f"interval {row.tefbv_low:.2f}-{row.tefbv_high:.2f}), after {row.epochs_done} epochs in "
        f"{duration(row.seconds_by_median)} on {row.source.device}"
    )


def convolutional_sentence(runs: Iterable[Run]) -> str | None:
    """The longest run of a net of Table 1 of 2011 on deformed MNIST; None without any."""
    nets = {paper.layers: paper for paper in cnn_tables.PAPER.values()}
    own = [run for run in filter(tables.is_on_deformed_mnist, runs) if run.config.layers in nets]
    if not own:
        return None
    run = tables.most_trained(own)
    row = cnn_tables.row(run)
    paper = nets[row.layers]
    return (
        f"{paper.name} {_result(row)}, with kernel sizes that we guessed; "
        f"{tables.spread(tables.with_other_seeds(run, own))}. The paper's has "
        f"{paper.tefbv:.2f} %, after {cnn_tables.PAPER_EPOCHS} epochs."
    )


def schedule_sentence(runs: Sequence[Run]) -> str | None:
    """How far the paper's schedule is away: by the longest run that follows it, and by our longest
    run of net 4. None if net 4 followed it to its end.

    runs: on deformed MNIST.
    """
    begun = [run for run in runs if follows_paper(run)]
    if any(run.finished and tables.net_number(run) == 4 for run in begun):
        return None
    if begun:
        row = max(map(tables.table1_row, begun), key=lambda row: row.epochs)
        text = f"Net {row.net} has followed it for {row.epochs_done} epochs."
    else:
        text = f"Not measured yet: no net has followed it for its {PAPER_EPOCHS:,} epochs."
    paper = tables.PAPER[4]
    text += f" Nothing here confirms or refutes the {paper.tefbv:.2f} % of net 4."
    whole = [run for run in runs if run.config.data.n_train == 60_000]
    if fourth := [run for run in whole if tables.net_number(run) == 4]:
        run = max(fourth, key=lambda run: run.epochs)
        seconds, device = run.seconds_by_median / run.epochs, run.provenance[-1].device
        text += (
            f" The median epoch of net 4 took {seconds:.1f} s on {device}. At that rate, "
            f"{PAPER_EPOCHS:,} of them would take {seconds * PAPER_EPOCHS / 3600:.1f} hours; the "
            f"paper's GTX 280 took {paper.hours}."
        )
    return text


def follows_paper(run: Run) -> bool:
    """Whether a run follows the schedule of 2010, with all images."""
    return run.config.learning_rates == Schedule() and run.config.data.n_train == 60_000


def claims_sentence(found: Mapping[Path, Sequence[CommitteeRow]]) -> str | None:
    """Which of the paper's claims show. None if no folder of runs has all committees compared.

    Of several such folders the one that was trained longest counts, then the first by its path.
    The counts of wrong digits decide; the table of committees has the tests.

    found: the rows of each committee, by the paths of their records.
    """
    folders = by_folder(found, "MNIST")
    complete = [path for path in folders if committee_report.has_order(folders[path])]
    if not complete:
        return None
    images = committee_report.images_trained
    rows = folders[min(complete, key=lambda path: (-images(folders[path]), path))]
    claims = committee_report.order_table(rows)
    shown = [_claim(claim) for claim in claims if claim["shows"] == "yes"]
    missed = [_claim(claim) for claim in claims if claim["shows"] == "no"]
    unlike = [claim["claim"] for claim in claims if claim["shows"] == "-"]
    epochs = " or ".join(dict.fromkeys(row.epochs for row in rows))
    return (
        f"Of the paper's {len(claims)} claims {len(shown)} show in the counts of wrong digits "
        f"after {epochs} epochs, one training of each net (p: McNemar's test, Holm's correction): "
        f"{'; '.join(shown) or 'none'}. "
        + (f"Not shown: {'; '.join(missed)}. " if missed else "")
        + (f"Not compared, as trainings differ: {'; '.join(unlike)}." if unlike else "")
    ).strip()


def _claim(claim: Mapping[str, str]) -> str:
    """A line of the table of claims, in words."""
    if not claim["paper %"]:
        return f"{claim['claim']} {claim['ours %']}"
    p = claim[committee_report.P_VALUE]
    return f"{claim['claim']}, {claim['ours %']} % (paper: {claim['paper %']} %; p: {p})"


def mixed_sentence(found: Iterable[Sequence[CommitteeRow]]) -> str | None:
    """The result of nets of all kinds together, of the committee trained last.

    None if there is none. found: the rows of each committee.
    """
    given = [rows for rows in found if rows[-1].experiment == committee_report.GIVEN]
    mixed = [rows for rows in given if is_mnist(rows[-1].data)]
    if not mixed:
        return None
    *members, last = max(mixed, key=lambda rows: rows[-1].source.date)
    shapes = {row.layers for row in members}
    best = min(row.percent for row in members)
    text = (
        f"{len(members)} nets, {plural(len(shapes), 'shape')} of net, a mix that the papers lack, "
        f"get {last.errors} of {last.n_test:,} test digits wrong together: "
        f"{last.percent:.2f} % (95 % interval {last.low:.2f}-"
        f"{last.high:.2f}); the best of them alone {best:.2f} %."
    )
    all_wrong = committee_report.wrong_for_all([*members, last])
    if all_wrong is not None:
        text += f" Wrong for all members: {plural(len(all_wrong), 'digit')}."
    return text
