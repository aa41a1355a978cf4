"""A committee of runs, and its tables: the members beside it, the errors that they share.

Where the paper has figures, they stand beside ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import to_builtins

from experiments.results import tables, voting
from experiments.results.records import GIVEN
from experiments.results.rows import CommitteeRow
from experiments.results.tables import AND, run_source, source_line
from experiments.training.formatting import duration, hundredths, markdown_table, plural
from experiments.training.provenance import SourceColumns
from experiments.training.store import Run

COMMITTEE = "committee"  # in place of a member's name
KINDS = "experiment", "table4", GIVEN  # of equal size each: their names begin so
JOINED = "data", "layers", "epochs", "images_an_epoch", "eta", "eta_decay", "engine"


@dataclass(frozen=True)
class Committee:
    """Runs that were tested on the same digits, and what they decide together.

    name: of its files. title: for people. members: the name of each run. paper: the errors of the
    members and of the committee in the paper, percent; None where the paper has none. note: what a
    reader of the table must know.
    """

    name: str
    title: str
    members: tuple[str, ...]
    runs: tuple[Run, ...]
    paper: tuple[float, ...] | None = None
    note: str = ""

    @property
    def labels(self) -> np.ndarray:
        """The truth, uint8 (n_test,)."""
        return self.runs[0].labels

    @cached_property
    def outputs(self) -> np.ndarray:
        """The mean of the members' outputs, float64 (n_test, n_classes)."""
        return voting.average([run.outputs for run in self.runs])

    @cached_property
    def wrong(self) -> list[np.ndarray]:
        """Misclassified digits, bool (n_test,): of each member, and last of the committee."""
        everybody = [*(run.outputs for run in self.runs), self.outputs]
        return [voting.find_wrong(outputs, self.labels) for outputs in everybody]

    @property
    def best(self) -> int:
        """The index of the member with the fewest test errors, of equal ones the first."""
        return int(np.argmin([wrong.sum() for wrong in self.wrong[:-1]]))

    @property
    def mean_percent(self) -> float:
        """The average of the members' errors, percent."""
        return 100 * float(np.mean(self.wrong[:-1]))


def unfinished(runs: Sequence[Run]) -> str:
    """What a title adds if not all runs are finished; else nothing."""
    return "" if all(run.finished for run in runs) else ", not trained to the end"


def tidy_rows(committee: Committee) -> list[CommitteeRow]:
    """A row for each member, and one for the committee."""
    labels, n_test = committee.labels, len(committee.labels)
    shared = voting.count_shared(committee.wrong)
    comparison = voting.compare(committee.wrong[-1], committee.wrong[committee.best])
    own: list[dict[str, Any]] = [
        {"net": net, "member": name} | _of_run(run)
        for net, (name, run) in enumerate(zip(committee.members, committee.runs, strict=True), 1)
    ]
    best = {"best_member": committee.members[committee.best], "mcnemar_p": comparison.p}
    best |= {"only_committee": comparison.only_a, "only_best": comparison.only_b}
    best |= {"mean_percent": committee.mean_percent}
    own.append({"member": COMMITTEE} | best | _of_all(committee.runs))
    outputs = [*(run.outputs for run in committee.runs), committee.outputs]
    rows = []
    for k, fields in enumerate(own):
        errors = int(shared[k, k])
        low, high = tables.interval(errors, n_test)
        row = CommitteeRow(
            experiment=committee.name,
            errors=errors,
            n_test=n_test,
            percent=100 * errors / n_test,
            low=low,
            high=high,
            paper=committee.paper[k] if committee.paper else None,
            second_guesses=voting.count_second_guesses(outputs[k], labels),
            shared=shared[k, :-1].tolist(),
            wrong_digits=np.flatnonzero(committee.wrong[k]).tolist(),
            **fields,
        )
        rows.append(row)
    return rows


def _of_run(run: Run) -> dict[str, Any]:
    fields = tables.result_fields(run)
    same = {name: fields[name] for name in ("data", "seed", "chosen_epoch", "seconds", "engine")}
    texts = {n: str(fields[n]) for n in ("epochs", "images_an_epoch", "eta", "eta_decay")}
    more = {"layers": run.config.net_name, "finished": run.finished, "source": run_source(run)}
    return same | texts | more


def _of_all(runs: Sequence[Run]) -> dict[str, Any]:
    """The fields of the committee's row that follow from its members'; the time is the sum."""
    rows = [_of_run(run) for run in runs]
    sources = [to_builtins(row["source"]) for row in rows]
    joined = {name: _join(row[name] for row in rows) for name in JOINED}
    source = {name: _join(source[name] for source in sources) for name in sources[0]}
    source["date"] = max(source["date"] for source in sources)
    return {
        **joined,
        "finished": all(row["finished"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "source": SourceColumns(**source),
    }


def _join(texts: Iterable[str]) -> str:
    """Different texts, each once; empty ones, such as a CPU's driver, are left out."""
    return AND.join(text for text in dict.fromkeys(AND.join(texts).split(AND)) if text)


def committee_markdown(committee: Committee) -> str:
    """Everything about a committee, as Markdown."""
    rows = tidy_rows(committee)
    lines = [
        f"# {committee.title}",
        "",
        committee.note,
        "",
        markdown_table(_members_table(rows)),
        "",
    ]
    last = rows[-1]
    all_wrong = wrong_for_all(rows) or []
    numbers = f": {', '.join(map(str, all_wrong))}, counted from 0" if len(all_wrong) else ""
    lines += [
        f"The committee gets {last.errors} of {last.n_test:,} wrong, "
        f"{last.percent:.2f} %; its average member {hundredths(last.mean_percent or 0)} %.",
        f"Second guess of the committee: right for {last.second_guesses} of these {last.errors}.",
        f"Against its best member, {last.best_member} (best on these test digits, which favours "
        f"it): {plural(last.only_committee or 0, 'digit')} wrong for the committee alone, "
        f"{last.only_best} for the member alone; p = {last.mcnemar_p:.2g} (McNemar, exact, "
        "two-sided).",
        f"Wrong for every member: {plural(len(all_wrong), 'digit')}{numbers}.",
        "",
        "Errors in common, each member's own on the diagonal:",
        "",
        markdown_table(_shared_table(rows)),
        "",
        *dict.fromkeys(f"- {source_line(row.source, row.engine)}" for row in rows[:-1]),
    ]
    return "\n".join(lines) + "\n"


def _members_table(rows: Sequence[CommitteeRow]) -> list[dict[str, str]]:
    lines = []
    for row in rows:
        line = {"net": f"{row.net or ''}", "": row.member if row.is_member else "**committee**"}
        if row.paper is not None:
            line["paper %"] = f"{row.paper:.2f}"
        work = f"{row.epochs} x {int(row.images_an_epoch):,}" if row.is_member else ""
        rate = f"{float(row.eta):g}, {float(row.eta_decay):g}" if row.is_member else ""
        line |= {
            "error %": f"{row.percent:.2f}",
            "95 % interval": f"{row.low:.2f}-{row.high:.2f}",
            "wrong": f"{row.errors} of {row.n_test:,}",
            "second guess right": str(row.second_guesses),
            "epochs x images": work,
            "eta, decay": rate,
            "seed": "" if row.seed is None else str(row.seed),
            tables.TIME_SUM: duration(row.seconds),
        }
        lines.append(line)
    return lines


def _shared_table(rows: Sequence[CommitteeRow]) -> list[dict[str, str]]:
    names = [row.member for row in rows[:-1]]
    return [{"": row.member} | dict(zip(names, map(str, row.shared), strict=True)) for row in rows]


def rates(rows: Sequence[CommitteeRow]) -> str:
    """The learning rates of the members."""
    pairs = dict.fromkeys(f"{row.eta}, {row.eta_decay}" for row in rows if row.is_member)
    return f"eta and decay {'; '.join(pairs)}"


def by_committee(rows: Sequence[CommitteeRow]) -> dict[str, list[CommitteeRow]]:
    """The rows of each committee, under its name without the data's: 'experiment1', 'committee'."""
    groups: dict[str, list[CommitteeRow]] = {}
    for row in rows:
        groups.setdefault(row.experiment.partition("-")[0], []).append(row)
    return groups


def wrong_for_all(rows: Sequence[CommitteeRow]) -> list[int] | None:
    """The places of the digits that every member of a committee gets wrong.

    None if a record does not have them.
    """
    wrong = [row.wrong_digits for row in rows if row.is_member]
    found = [set(places) for places in wrong if places is not None]
    return sorted(set.intersection(*found)) if len(found) == len(wrong) else None


def summary_table(rows: Sequence[CommitteeRow]) -> list[dict[str, str]]:
    """Several committees of equal size side by side: paper / ours, percent."""
    groups = by_committee(rows)
    lines = []
    for k in range(len(rows) // len(groups)):
        first = next(iter(groups.values()))[k]
        is_member = first.is_member
        line = {"net": str(first.net) if is_member else "**committee**"}
        for name, own in groups.items():
            row = own[k]
            cell = _paper_and_ours(row.paper, row.percent)
            line[_short_name(name)] = f"{row.member}: {cell}" if is_member else f"**{cell}**"
        lines.append(line)
    means = {"net": "average member"}
    for name, own in groups.items():
        papers = [row.paper for row in own[:-1] if row.paper is not None]
        paper = sum(papers) / len(papers) if papers else None
        means[_short_name(name)] = _paper_and_ours(paper, own[-1].mean_percent or 0)
    lines.insert(-1, means)
    return lines


def _short_name(name: str) -> str:
    return name.replace("experiment", "exp. ").replace("table", "Table ")


def _paper_and_ours(paper: float | None, ours: float) -> str:
    return hundredths(ours) if paper is None else f"{paper:.2f} / {hundredths(ours)}"


def committee_table(rows: Sequence[CommitteeRow]) -> list[dict[str, str]]:
    """The result of each committee, one line each."""
    lines = []
    for name, own in by_committee(rows).items():
        row = own[-1]
        all_wrong = wrong_for_all(own)
        best = next(member for member in own[:-1] if member.member == row.best_member)
        lines.append(
            {
                "committee": _short_name(name),
                "error %": f"{row.percent:.2f}",
                "95 % interval": f"{row.low:.2f}-{row.high:.2f}",
                "wrong": f"{row.errors} of {row.n_test:,}",
                "second guess right": str(row.second_guesses),
                "average member %": hundredths(row.mean_percent or 0),
                "best member %": f"{best.percent:.2f}, {row.best_member}",
                "only committee / only best wrong": f"{row.only_committee} / {row.only_best}",
                "p": f"{row.mcnemar_p:.2g}",
                "wrong for all": "-" if all_wrong is None else str(len(all_wrong)),
                "epochs x images": f"{row.epochs} x {row.images_an_epoch}",
                tables.TIME_SUM: duration(row.seconds),
            }
        )
    return lines


P_VALUE = "McNemar's p, Holm"
ORDER = (
    ("deformed beats undeformed", "experiment3", "experiment1"),
    ("widths beat seeds, undeformed", "experiment2", "experiment1"),
    ("widths beat seeds, deformed", "experiment6", "experiment3"),
)


def images_trained(rows: Sequence[CommitteeRow]) -> int:
    """The number of images that the least trained member of committees was trained with."""
    return min(int(row.epochs) * int(row.images_an_epoch) for row in rows if row.is_member)


def order_table(rows: Sequence[CommitteeRow]) -> list[dict[str, str]]:
    """Whether our committees come in the paper's order.

    Two that were trained differently show nothing. Needs the committees of ORDER.
    """
    groups = by_committee(rows)
    lines, p_values = [], []
    for claim, first, second in ORDER:
        a, b = groups[first][-1], groups[second][-1]
        line = {"claim": claim, "committees": f"{first[-1]} against {second[-1]}"}
        if a.paper is not None and b.paper is not None:
            line["paper %"] = f"{a.paper:.2f} against {b.paper:.2f}"
        line["ours %"] = f"{a.percent:.2f} against {b.percent:.2f}"
        settings = [(row.epochs, row.images_an_epoch, row.eta, row.eta_decay) for row in (a, b)]
        alike = settings[0] == settings[1]
        line[P_VALUE] = ""
        p_values.append(mcnemar(a, b) if alike else None)
        better = "yes" if a.percent < b.percent else "no"
        line["shows"] = better if alike else "-"
        lines.append(line)
    for line, p in zip(lines, voting.holm(p_values), strict=True):
        line[P_VALUE] = "-" if p is None else f"{p:.2g}"
    beaten = [
        name[-1]
        for name, own in groups.items()
        # In counts: two means may differ by rounding.
        if (len(own) - 1) * own[-1].errors < sum(row.errors for row in own[:-1])
    ]
    line = dict.fromkeys(lines[0], "") | {
        "claim": "the committee beats its average member",
        "committees": f"{len(groups)} of them",
        "ours %": f"in {len(beaten)} of {len(groups)}",
        "shows": "yes" if len(beaten) == len(groups) else "no",
    }
    return [*lines, line]


def side_by_side(rows: Sequence[CommitteeRow]) -> list[list[dict[str, str]]]:
    """The tables of several committees of equal size: the nets, the results, and the paper's claims
    if all committees that they compare are there.
    """
    compared = {name for _, *pair in ORDER for name in pair}
    order = [order_table(rows)] if compared <= by_committee(rows).keys() else []
    return [summary_table(rows), committee_table(rows), *order]


def mcnemar(a: CommitteeRow, b: CommitteeRow) -> float | None:
    """McNemar's p of two committees on the same digits; None if a record does not have them."""
    if a.wrong_digits is None or b.wrong_digits is None:
        return None
    wrong_a, wrong_b = set(a.wrong_digits), set(b.wrong_digits)
    places = sorted(wrong_a | wrong_b)
    both = [np.array([place in wrong for place in places], bool) for wrong in (wrong_a, wrong_b)]
    return voting.compare(*both).p
