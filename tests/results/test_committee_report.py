"""scoring/committee_report.py: rows and tables of committees, counted by hand."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from committee_cases import committee_row, make_config, make_run, numbered, tables_of
from factories import changed
from msgspec import structs
from scipy.stats import beta

from experiments.results import committee_report, tables
from experiments.results.committee_report import Committee
from experiments.results.rows import CommitteeRow, from_cells, rows_text

LABELS = np.array([0, 1, 2, 3, 4, 5], np.uint8)
A = [{0: 0.9, 1: 0.1}, {2: 0.6, 1: 0.4}, {3: 0.9, 2: 0.1}, {4: 0.6, 5: 0.4}, {4: 1}, {5: 1}]
B = [{0: 0.9, 1: 0.1}, {2: 0.6, 1: 0.4}, {3: 0.9, 2: 0.1}, {3: 0.9, 5: 0.1}, {4: 1}, {5: 1}]
C = [{1: 0.6, 0: 0.4}, {1: 0.6, 2: 0.4}, {3: 0.9, 2: 0.1}, {3: 0.9, 5: 0.1}, {4: 1}, {0: 1}]
B[5] = A[5] = {5: 0.6, 0: 0.4}
# A is wrong for digits 1, 2, 3; B for 1, 2; C for 0, 2, 5; together 1, 2 and 5.


def probabilities(rows):
    outputs = np.zeros((len(rows), 10), np.float32)
    for output, row in zip(outputs, rows, strict=True):
        output[list(row)] = list(row.values())
    return outputs


def small_committee(**changes):
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS)
    made = []
    for seed, votes in enumerate((A, B, C)):
        config = changed(make_config(dataset), seed=seed)
        made.append(make_run(config, probabilities(votes), LABELS, seconds=100.0 * (seed + 1)))
    fields = {"name": "experiment9", "title": "Some", "members": ("a", "b", "c"), "runs": made}
    return Committee(**fields | {"paper": (9.0, 8.0, 7.0, 6.5), "note": "Mind this."} | changes)


def test_rows_of_a_committee_counted_by_hand():
    rows = committee_report.tidy_rows(small_committee())
    assert [row.member for row in rows] == ["a", "b", "c", "committee"]
    assert [row.net for row in rows] == [1, 2, 3, None]
    assert [row.errors for row in rows] == [3, 2, 3, 3]
    assert {row.n_test for row in rows} == {6}
    assert [row.paper for row in rows] == [9.0, 8.0, 7.0, 6.5]
    assert [row.second_guesses for row in rows] == [2, 2, 2, 3]
    assert [row.shared for row in rows] == [[3, 2, 1], [2, 2, 1], [1, 1, 3], [2, 2, 2]]
    for row in rows:
        k = row.errors
        assert row.percent == pytest.approx(100 * k / 6)
        assert row.low == pytest.approx(100 * beta.ppf(0.025, k, 6 - k + 1))
        assert row.high == pytest.approx(100 * beta.ppf(0.975, k + 1, 6 - k))
        assert row.experiment == "experiment9"
    assert [row.wrong_digits for row in rows] == [[1, 2, 3], [1, 2], [0, 2, 5], [1, 2, 5]]
    assert through_csv(rows) == rows
    assert committee_report.wrong_for_all(rows) == [2]
    assert committee_report.committee_table(rows)[0]["wrong for all"] == "1"
    for forged in ([1, 2], [1, 2, 2], [1, 2, 6]):
        with pytest.raises(ValueError, match="wrong_digits are not 3 of 6 digits"):
            structs.replace(rows[0], wrong_digits=forged)
    older = [structs.replace(row, wrong_digits=None) for row in rows]
    assert through_csv(older) == older
    assert committee_report.wrong_for_all(older) is None
    assert committee_report.committee_table(older)[0]["wrong for all"] == "-"
    of_members = ("mean_percent", "only_committee", "only_best", "mcnemar_p")
    assert {getattr(row, name) for row in rows[:-1] for name in of_members} == {None}
    assert rows[-1].mean_percent == pytest.approx(100 * 8 / 18)
    assert rows[-1].best_member == "b"
    # Digit 5, of which b has no part.
    assert (rows[-1].only_committee, rows[-1].only_best) == (1, 0)
    assert rows[-1].mcnemar_p == 1


def test_a_committee_may_know_what_none_of_its_members_knows():
    votes = [{2: 0.5, 1: 0.4}, {3: 0.5, 1: 0.4}, {4: 0.5, 1: 0.4}]
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS[1:2])
    made = [make_run(make_config(dataset), probabilities([v]), LABELS[1:2]) for v in votes]
    odd = small_committee(runs=made)
    assert [int(wrong.sum()) for wrong in odd.wrong] == [1, 1, 1, 0]
    text = committee_report.committee_markdown(odd)
    assert "The committee gets 0 of 1 wrong, 0.00 %; its average member 100.00 %.\n" in text
    assert "Wrong for every member: 1 digit: 0, counted from 0.\n" in text


def test_comparison_has_the_committee_first():
    dataset = replace(numbered(name="MNIST"), test_labels=LABELS)
    right, wrong = np.eye(10, dtype=np.float32)[LABELS], np.eye(10, dtype=np.float32)[LABELS + 1]
    mixed = [np.concatenate([right[:k], 0.6 * wrong[k:]]) for k in (3, 5)]
    made = [make_run(make_config(dataset), outputs, LABELS) for outputs in (*mixed, right)]
    last = committee_report.tidy_rows(small_committee(runs=made))[-1]
    assert last.best_member == "c"
    assert (last.errors, last.only_committee, last.only_best) == (1, 1, 0)


def test_of_equal_members_the_first_is_the_best():
    runs = [small_committee().runs[k] for k in (2, 0)]
    assert small_committee(members=("c", "a"), runs=runs, paper=None).best == 0


def test_rows_have_the_provenance_of_their_runs():
    odd = small_committee()
    _, second, third = odd.runs
    second.config = changed(second.config, engine="cuda")
    second.provenance.append(
        structs.replace(
            second.provenance[0],
            schedule="graph",
            driver="580.1",
            device="Some GPU",
            dirty=True,
            end="2026-02-03T00:00:00+00:00",
        )
    )
    third.config = changed(third.config, epochs=third.config.epochs + 1)
    rows = committee_report.tidy_rows(odd)
    assert [row.engine for row in rows] == ["cpu", "cuda graph", "cpu", "cpu and cuda graph"]
    assert [row.source.device for row in rows][1:] == [
        "Some GPU",
        "Some CPU",
        "Some CPU and Some GPU",
    ]
    assert [row.seed for row in rows] == [0, 1, 2, None]
    assert [row.chosen_epoch for row in rows] == [2, 2, 2, None]
    assert [row.finished for row in rows] == [True, True, False, False]
    assert [row.seconds for row in rows] == pytest.approx([100, 200, 300, 600])
    assert [row.source.date[:10] for row in rows][1:] == ["2026-02-03", "2026-01-02", "2026-02-03"]
    assert [row.source.commit for row in rows][:2] == [
        "0123456789abcdef",
        "0123456789abcdef and 0123456789abcdef-dirty",
    ]
    assert {row.layers for row in rows} == {"841-800-10"}
    assert {row.data for row in rows} == {"MNIST"}
    assert [row.images_an_epoch for row in rows] == ["66"] * 4
    assert [(row.eta, row.eta_decay) for row in rows[:-1]] == [("0.001", "0.997")] * 3

    lines = [tables.source_line(row.source, row.engine) for row in rows]
    versions = "python 3.11 numpy 2.4"
    assert lines[0] == f"Some CPU, engine cpu; {versions}; 2026-01-02; commit 0123456789ab"
    assert lines[1] == (
        f"Some GPU, driver 580.1, engine cuda graph; {versions}; 2026-02-03; commit 0123456789ab, "
        "0123456789ab with changes"
    )
    # Once for all that have it in common.
    text = committee_report.committee_markdown(odd)
    assert [text.count(f"- {line}\n") for line in lines[:2]] == [1, 1]
    assert text.count("\n- ") == 2


def test_markdown_of_a_committee_counted_by_hand():
    text = committee_report.committee_markdown(small_committee())
    assert text.startswith("# Some\n\nMind this.\n\n|")
    assert "The committee gets 3 of 6 wrong, 50.00 %; its average member 44.44 %.\n" in text
    assert "Second guess of the committee: right for 3 of these 3.\n" in text
    assert "Against its best member, b (best on these test digits, which favours it): 1 digit " in (
        text
    )
    assert "wrong for the committee alone, 0 for the member alone; p = 1 (McNemar" in text
    assert "Wrong for every member: 1 digit: 2, counted from 0.\n" in text
    members, shared = tables_of(text)
    assert [line["net"] for line in members] == ["1", "2", "3", ""]
    assert [line[""] for line in members] == ["a", "b", "c", "**committee**"]
    assert [line["paper %"] for line in members] == ["9.00", "8.00", "7.00", "6.50"]
    assert [line["error %"] for line in members] == ["50.00", "33.33", "50.00", "50.00"]
    assert [line["wrong"] for line in members] == ["3 of 6", "2 of 6", "3 of 6", "3 of 6"]
    assert [line["second guess right"] for line in members] == ["2", "2", "2", "3"]
    assert members[1]["95 % interval"] == "4.33-77.72"
    assert [line["epochs x images"] for line in members] == ["3 x 66"] * 3 + [""]
    assert [line["eta, decay"] for line in members] == ["0.001, 0.997"] * 3 + [""]
    assert [line["seed"] for line in members] == ["0", "1", "2", ""]
    assert [line["time"] for line in members] == ["0:01:40", "0:03:20", "0:05:00", "0:10:00"]
    assert [list(line.values()) for line in shared] == [
        ["a", "3", "2", "1"],
        ["b", "2", "2", "1"],
        ["c", "1", "1", "3"],
        ["committee", "2", "2", "2"],
    ]
    assert list(shared[0]) == ["", "a", "b", "c"]


def test_a_committee_without_the_papers_figures():
    bare = small_committee(paper=None)
    assert {row.paper for row in committee_report.tidy_rows(bare)} == {None}
    assert "paper" not in committee_report.committee_markdown(bare)
    two = [bare, replace(bare, name="experiment8")]
    rows = [row for one in two for row in committee_report.tidy_rows(one)]
    assert "/" not in str(committee_report.summary_table(rows))


def through_csv(rows):
    cells = csv.DictReader(rows_text(rows).splitlines())
    return [from_cells("it", one, CommitteeRow) for one in cells]


def test_a_member_may_have_any_name():
    odd = small_committee(members=("committee", "x", "y"))
    members, shared = tables_of(committee_report.committee_markdown(odd))
    assert [line[""] for line in members] == ["committee", "x", "y", "**committee**"]
    assert members[0]["seed"] == "0"
    assert list(shared[0]) == ["", "committee", "x", "y"]
    lines = committee_report.summary_table(committee_report.tidy_rows(odd))
    assert [line["net"] for line in lines] == ["1", "2", "3", "average member", "**committee**"]


@pytest.mark.parametrize(
    ("errors", "shows"),
    [((9, 8, 8, 7, 7, 5), ["yes"] * 4), ((9, 9, 9, 1, 1, 9), ["no"] * 3 + ["yes"])],
)
def test_order_of_the_papers_committees(errors, shows):
    rows = []
    for number, wrong in enumerate(errors, 1):
        own = {"experiment": f"experiment{number}-load_digits", "percent": wrong}
        rows += [committee_row(net=k, errors=9 + k % 2, **own) for k in (1, 2)]
        rows.append(committee_row(errors=wrong, **own))
    assert committee_report.has_order(rows)
    lines = committee_report.order_table(rows)
    assert [line["shows"] for line in lines] == shows
    assert "paper %" not in lines[0]
    assert lines[3]["ours %"] == "in 6 of 6"
    for k in (2, 3):  # no worse is not better
        first, second, last = rows[3 * k : 3 * k + 3]
        first.errors = last.errors - 1
        second.errors = last.errors + 1
    assert committee_report.order_table(rows)[3]["ours %"] == "in 4 of 6"
    assert committee_report.order_table(rows)[3]["shows"] == "no"
    assert not committee_report.has_order(rows[3:])
