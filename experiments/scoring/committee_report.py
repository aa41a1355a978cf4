"""A committee of runs, and its tables: the members beside it, the errors that they share.

Where the paper has figures, they stand beside ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from experiments.running import configs, provenance
from experiments.running.formatting import duration, markdown_table, plural
from experiments.running.store import Run
from experiments.scoring import tables, voting

COMMITTEE = "committee"  # in place of a member's name
GIVEN = "committee"  # name of a committee of given run files, which has no row in the papers
AND = " and "  # between several values in a cell


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
        """The mean of the members' outputs, float64 (n_test, 10)."""
        return voting.average([run.outputs for run in self.runs])

    @cached_property
    def wrong(self) -> list[np.ndarray]:
        """What each member gets wrong, and last the committee, bool (n_test,)."""
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

    def compare(self) -> voting.Comparison:
        """The committee, a, against its best member, b."""
        return voting.compare(self.wrong[-1], self.wrong[self.best])


def unfinished(runs: Sequence[Run]) -> str:
    """What a title adds if not all runs are finished; else nothing."""
    return "" if all(run.finished for run in runs) else ", not trained to the end"


def tidy_rows(committee: Committee) -> list[dict]:
    """A row for each member, and one for the committee, its provenance included.

    Errors in percent. shared_k: errors that the row has in common with member k. wrong_digits:
    the places of the misclassified digits among the test digits, the first at 0.
    """
    shared = voting.count_shared(committee.wrong)
    comparison = committee.compare()
    outputs = [*(run.outputs for run in committee.runs), committee.outputs]
    rows = []
    for k, name in enumerate((*committee.members, COMMITTEE)):
        errors, n_test = int(shared[k, k]), len(committee.labels)
        low, high = tables.interval(errors, n_test)
        is_member = k < len(committee.runs)
        rows.append(
            {
                "experiment": committee.name,
                "net": k + 1 if is_member else "",
                "member": name,
                "errors": errors,
                "n_test": n_test,
                "percent": 100 * errors / n_test,
                "low": low,
                "high": high,
                "paper": committee.paper[k] if committee.paper else "",
                "second_guesses": voting.count_second_guesses(outputs[k], committee.labels),
                "mean_percent": "" if is_member else committee.mean_percent,
                "best_member": "" if is_member else committee.members[committee.best],
                "only_committee": "" if is_member else comparison.only_a,
                "only_best": "" if is_member else comparison.only_b,
                "mcnemar_p": "" if is_member else comparison.p,
                **{f"shared_{i + 1}": int(n) for i, n in enumerate(shared[k, :-1])},
                "wrong_digits": " ".join(map(str, np.flatnonzero(committee.wrong[k]))),
                **(_of_run(committee.runs[k]) if is_member else _of_all(committee.runs)),
            }
        )
    return rows


def _of_run(run: Run) -> dict:
    config = run.config
    return {
        "data": config["data"]["name"],
        "layers": configs.net_name(config),
        "seed": config["seed"],
        "epochs": run.epochs,
        "finished": run.finished,
        "images_an_epoch": config["data"]["n_train"],
        "eta": config["eta"],
        "eta_decay": config["decay"],
        "chosen_epoch": run.chosen,
        "seconds": run.seconds,
        "engine": tables.engine_name(run),
        **provenance.columns(run.provenance[-1]),
        "commit": AND.join(
            dict.fromkeys(provenance.columns(session)["commit"] for session in run.provenance)
        ),
    }


def _of_all(runs: Sequence[Run]) -> dict:
    """What the rows of all members have in common; the time is the sum."""
    rows = [_of_run(run) for run in runs]
    common: dict = {
        name: AND.join(dict.fromkeys(AND.join(str(row[name]) for row in rows).split(AND)))
        for name in rows[0]
    }
    common |= {
        "seed": "",
        "chosen_epoch": "",
        "finished": all(row["finished"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "date": max(row["date"] for row in rows),
    }
    return common


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
    all_wrong = np.flatnonzero(np.all(committee.wrong[:-1], axis=0))
    numbers = f": {', '.join(map(str, all_wrong))}, counted from 0" if len(all_wrong) else ""
    lines += [
        f"The committee gets {last['errors']} of {last['n_test']:,} wrong, "
        f"{last['percent']:.2f} %; its average member {last['mean_percent']:.2f} %.",
        f"Second guess of the committee: right for {last['second_guesses']} of these "
        f"{last['errors']}.",
        f"Against its best member, {last['best_member']} (best on these test digits, which favours "
        f"it): {plural(last['only_committee'], 'digit')} wrong for the committee alone, "
        f"{last['only_best']} for the member alone; p = {last['mcnemar_p']:.2g} (McNemar, exact, "
        "two-sided).",
        f"Wrong for every member: {plural(len(all_wrong), 'digit')}{numbers}.",
        "",
        "Errors in common, each member's own on the diagonal:",
        "",
        markdown_table(_shared_table(rows)),
        "",
        *dict.fromkeys(f"- {source_line(row)}" for row in rows[:-1]),
    ]
    return "\n".join(lines) + "\n"


def _members_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    lines = []
    for row in rows:
        is_member = row["net"] != ""
        line = {"net": str(row["net"]), "": row["member"] if is_member else "**committee**"}
        if row["paper"] != "":
            line["paper %"] = f"{row['paper']:.2f}"
        line |= {
            "error %": f"{row['percent']:.2f}",
            "95 % interval": f"{row['low']:.2f}-{row['high']:.2f}",
            "wrong": f"{row['errors']} of {row['n_test']:,}",
            "second guess right": str(row["second_guesses"]),
            "epochs x images": f"{row['epochs']} x {row['images_an_epoch']:,}" if is_member else "",
            "eta, decay": f"{row['eta']:g}, {row['eta_decay']:g}" if is_member else "",
            "seed": str(row["seed"]),
            "time": duration(row["seconds"]),
        }
        lines.append(line)
    return lines


def _shared_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    names = [row["member"] for row in rows[:-1]]
    return [
        {"": row["member"]} | {name: str(row[f"shared_{k + 1}"]) for k, name in enumerate(names)}
        for row in rows
    ]


def source_line(row: Mapping) -> str:
    """Where and when a member was trained, in one line.

    row: of `tidy_rows`, or as CSV gives it back.
    """
    return (
        f"{row['device']}"
        + (f", driver {row['driver']}" if row["driver"] else "")
        + f", engine {row['engine']}; {row['versions'].replace('=', ' ')}; "
        f"{row['date'][:10]}; commit "
        + ", ".join(
            commit[:12] + (" with changes" if commit.endswith("-dirty") else "")
            for commit in row["commit"].split(AND)
        )
    )


def rates(rows: Sequence[Mapping]) -> str:
    """The learning rates of the members. Rows as for `summary_table`."""
    pairs = dict.fromkeys(f"{row['eta']}, {row['eta_decay']}" for row in rows if row["net"])
    return f"eta and decay {'; '.join(pairs)}"


def by_committee(rows: Sequence[Mapping]) -> dict[str, list[Mapping]]:
    """The rows of each committee, under its name without the data's: 'experiment1', 'committee'."""
    groups: dict[str, list[Mapping]] = {}
    for row in rows:
        groups.setdefault(row["experiment"].partition("-")[0], []).append(row)
    return groups


def wrong_for_all(rows: Sequence[Mapping]) -> list[int] | None:
    """The places of the digits that every member of a committee gets wrong; None if a record does
    not have them. Rows of one committee, as `tidy_rows` gives them or as CSV gives them back.
    """
    wrong = [_wrong(row) for row in rows if row["net"] != ""]
    found = [places for places in wrong if places is not None]
    return sorted(set.intersection(*found)) if len(found) == len(wrong) else None


def check_wrong_digits(rows: Sequence[Mapping]) -> None:
    """Raise ValueError unless each row names as many wrong digits as it counts, if it names any."""
    for row in rows:
        wrong, errors, n_test = _wrong(row), int(row["errors"]), int(row["n_test"])
        if wrong is not None and (len(wrong) != errors or max(wrong, default=0) >= n_test):
            raise ValueError(f"wrong_digits are not {errors} of {n_test} digits")


def _wrong(row: Mapping) -> set[int] | None:
    """The places of what a row's net gets wrong; None in a record that does not have them."""
    return set(map(int, row["wrong_digits"].split())) if "wrong_digits" in row else None


def summary_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    """Several committees of equal size side by side: paper / ours, percent.

    Rows as `tidy_rows` gives them or as CSV gives them back.
    """
    groups = by_committee(rows)
    lines = []
    for k in range(len(rows) // len(groups)):
        first = next(iter(groups.values()))[k]
        is_member = first["net"] != ""
        line = {"net": str(first["net"]) if is_member else "**committee**"}
        for name, own in groups.items():
            row = own[k]
            cell = _paper_and_ours(row["paper"], float(row["percent"]))
            line[_short_name(name)] = f"{row['member']}: {cell}" if is_member else f"**{cell}**"
        lines.append(line)
    means = {"net": "average member"}
    for name, own in groups.items():
        papers = [float(row["paper"]) for row in own[:-1] if row["paper"] != ""]
        paper = sum(papers) / len(papers) if papers else ""
        means[_short_name(name)] = _paper_and_ours(paper, float(own[-1]["mean_percent"]))
    lines.insert(-1, means)
    return lines


def _short_name(name: str) -> str:
    return name.replace("experiment", "exp. ").replace("table", "Table ")


def _paper_and_ours(paper: float | str, ours: float) -> str:
    return f"{ours:.2f}" if paper == "" else f"{float(paper):.2f} / {ours:.2f}"


def committee_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    """The result of each committee, one line each. Rows as for `summary_table`."""
    lines = []
    for name, own in by_committee(rows).items():
        row = own[-1]
        all_wrong = wrong_for_all(own)
        best = next(member for member in own[:-1] if member["member"] == row["best_member"])
        lines.append(
            {
                "committee": _short_name(name),
                "error %": f"{float(row['percent']):.2f}",
                "95 % interval": f"{float(row['low']):.2f}-{float(row['high']):.2f}",
                "wrong": f"{row['errors']} of {int(row['n_test']):,}",
                "second guess right": str(row["second_guesses"]),
                "average member %": f"{float(row['mean_percent']):.2f}",
                "best member %": f"{float(best['percent']):.2f}, {row['best_member']}",
                "only committee / only best wrong": f"{row['only_committee']} / {row['only_best']}",
                "p": f"{float(row['mcnemar_p']):.2g}",
                "wrong for all": "-" if all_wrong is None else str(len(all_wrong)),
                "epochs x images": f"{row['epochs']} x {row['images_an_epoch']}",
                "time": duration(float(row["seconds"])),
            }
        )
    return lines


# What must be the same of two committees that are compared.
TRAINING = "epochs", "eta", "eta_decay"
ORDER = (
    ("deformed beats undeformed", "experiment3", "experiment1"),
    ("widths beat seeds, undeformed", "experiment2", "experiment1"),
    ("widths beat seeds, deformed", "experiment6", "experiment3"),
)


def images_trained(rows: Sequence[Mapping]) -> int:
    """The number of images that the least trained member of committees was trained with."""
    return min(int(row["epochs"]) * int(row["images_an_epoch"]) for row in rows if row["net"])


def has_order(rows: Sequence[Mapping]) -> bool:
    """Whether all committees of ORDER are there."""
    return {name for _, *pair in ORDER for name in pair} <= by_committee(rows).keys()


def order_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    """Whether our committees come in the paper's order. Rows as for `summary_table`.

    Two that were trained differently show nothing. Needs the committees of ORDER.
    """
    groups = by_committee(rows)
    lines = []
    for claim, first, second in ORDER:
        a, b = groups[first][-1], groups[second][-1]
        line = {"claim": claim, "committees": f"{first[-1]} against {second[-1]}"}
        if a["paper"] != "":
            line["paper %"] = f"{float(a['paper']):.2f} against {float(b['paper']):.2f}"
        line["ours %"] = f"{float(a['percent']):.2f} against {float(b['percent']):.2f}"
        alike = all(a.get(name) == b.get(name) for name in TRAINING)
        line["McNemar's p"] = _mcnemar(a, b) if alike else "-"
        better = "yes" if float(a["percent"]) < float(b["percent"]) else "no"
        line["shows"] = better if alike else "-"
        lines.append(line)
    beaten = [
        name[-1]
        for name, own in groups.items()
        # In counts: two means may differ by rounding.
        if (len(own) - 1) * int(own[-1]["errors"]) < sum(int(row["errors"]) for row in own[:-1])
    ]
    line = dict.fromkeys(lines[0], "") | {
        "claim": "the committee beats its average member",
        "committees": f"{len(groups)} of them",
        "ours %": f"in {len(beaten)} of {len(groups)}",
        "shows": "yes" if len(beaten) == len(groups) else "no",
    }
    return [*lines, line]


def _mcnemar(a: Mapping, b: Mapping) -> str:
    """McNemar's p of two committees on the same digits; "-" if a record does not have them."""
    wrong_a, wrong_b = _wrong(a), _wrong(b)
    if wrong_a is None or wrong_b is None:
        return "-"
    places = sorted(wrong_a | wrong_b)
    both = [np.array([place in wrong for place in places], bool) for wrong in (wrong_a, wrong_b)]
    return f"{voting.compare(*both).p:.2g}"
