"""results/committee_report.py: rows and tables of committees, counted by hand."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from committee_cases import make_config, make_run, numbered, of_committees, tables_of
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


def test_tidy_rows_agree_with_counts_by_hand():
    rows = committee_report.tidy_rows(small_committee())
    names = "member", "net", "errors", "paper", "second_guesses", "shared", "wrong_digits"
    assert [tuple(getattr(row, name) for name in names) for row in rows] == [
        ("a", 1, 3, 9.0, 2, [3, 2, 1], [1, 2, 3]),
        ("b", 2, 2, 8.0, 2, [2, 2, 1], [1, 2]),
        ("c", 3, 3, 7.0, 2, [1, 1, 3], [0, 2, 5]),
        ("committee", None, 3, 6.5, 3, [2, 2, 2], [1, 2, 5]),
    ]
    for row in rows:
        k = row.errors
        assert (row.experiment, row.n_test) == ("experiment9", 6)
        assert row.percent == pytest.approx(100 * k / 6)
        assert row.low == pytest.approx(100 * beta.ppf(0.025, k, 6 - k + 1))
        assert row.high == pytest.approx(100 * beta.ppf(0.975, k + 1, 6 - k))
    names = "mean_percent", "best_member", "only_committee", "only_best", "mcnemar_p"
    found = [tuple(getattr(row, name) for name in names) for row in rows]
    # Digit 5 is wrong for the committee and right for b.
    assert found == [(None, "", None, None, None)] * 3 + [(pytest.approx(800 / 18), "b", 1, 0, 1)]
    for forged in ([1, 2], [1, 2, 2], [1, 2, 6]):
        with pytest.raises(ValueError, match="wrong_digits are not 3 of 6 digits"):
            structs.replace(rows[0], wrong_digits=forged)
    older = [structs.replace(row, wrong_digits=None) for row in rows]
    for known, expected, cell in ((rows, [2], "1"), (older, None, "-")):
        cells = csv.DictReader(rows_text(known).splitlines())
        assert [from_cells("it", one, CommitteeRow) for one in cells] == known
        assert committee_report.wrong_for_all(known) == expected
        assert committee_report.committee_table(known)[0]["wrong for all"] == cell


def test_rows_have_the_provenance_of_their_runs():
    odd = small_committee()
    _, second, third = odd.runs
    second.config = changed(second.config, engine="cuda")
    later = {"schedule": "graph", "driver": "580.1", "device": "Some GPU", "dirty": True}
    later["end"] = "2026-02-03T00:00:00+00:00"
    second.provenance.append(structs.replace(second.provenance[0], **later))
    third.config = changed(third.config, epochs=third.config.epochs + 1)
    rows = committee_report.tidy_rows(odd)
    clean, both = "0123456789abcdef", "0123456789abcdef and 0123456789abcdef-dirty"
    found = [
        (row.engine, row.seed, row.finished, row.seconds, row.source.device, row.source.date[:10])
        for row in rows
    ]
    assert found == [
        ("cpu", 0, True, 100, "Some CPU", "2026-01-02"),
        ("cuda graph", 1, True, 200, "Some GPU", "2026-02-03"),
        ("cpu", 2, False, 300, "Some CPU", "2026-01-02"),
        ("cpu and cuda graph", None, False, 600, "Some CPU and Some GPU", "2026-02-03"),
    ]
    assert [row.source.commit for row in rows] == [clean, both, clean, both]
    assert tables.source_line(rows[1].source, rows[1].engine) == (
        "Some GPU, driver 580.1, engine cuda graph; python 3.11 numpy 2.4; 2026-02-03; "
        "commit 0123456789ab, 0123456789ab with changes"
    )
    # Once for all that have it in common.
    assert committee_report.committee_markdown(odd).count("\n- ") == 2


def test_markdown_of_a_committee_agrees_with_counts_by_hand():
    text = committee_report.committee_markdown(small_committee())
    assert text.startswith("# Some\n\nMind this.\n\n|")
    for line in (
        "The committee gets 3 of 6 wrong, 50.00 %; its average member 44.44 %.",
        "Second guess of the committee: right for 3 of these 3.",
        "Against its best member, b (best on these test digits, which favours it): 1 digit wrong "
        "for the committee alone, 0 for the member alone; p = 1 (McNemar, exact, two-sided).",
        "Wrong for every member: 1 digit: 2, counted from 0.",
    ):
        assert f"{line}\n" in text
    members, shared = tables_of(text)
    assert [" | ".join(line.values()) for line in members[1::2]] == [
        "2 | b | 8.00 | 33.33 | 4.33-77.72 | 2 of 6 | 2 | 3 x 66 | 0.001, 0.997 | 1 | 0:03:20",
        " | **committee** | 6.50 | 50.00 | 11.81-88.19 | 3 of 6 | 3 |  |  |  | 0:10:00",
    ]
    assert [list(line.values()) for line in shared] == [
        ["a", "3", "2", "1"],
        ["b", "2", "2", "1"],
        ["c", "1", "1", "3"],
        ["committee", "2", "2", "2"],
    ]
    assert list(shared[0]) == ["", "a", "b", "c"]


def test_committee_without_the_papers_figures_or_with_a_member_of_its_name():
    bare = small_committee(paper=None, members=("committee", "x", "y"))
    text = committee_report.committee_markdown(bare)
    assert "paper" not in text
    members, shared = tables_of(text)
    assert [line[""] for line in members] == ["committee", "x", "y", "**committee**"]
    assert members[0]["seed"] == "0"
    assert list(shared[0]) == ["", "committee", "x", "y"]


def test_claims_have_the_corrected_p_of_committees_trained_alike():
    found = of_committees({1: (250, 221), 2: (200, 207), 3: (210, 169), 6: (180, 171)})
    first, second, third, sixth = found.values()
    for rows, places in ((third, range(169)), (sixth, range(1, 172))):
        rows[-1].wrong_digits = list(places)

    def column(name):
        lines = committee_report.order_table([row for rows in found.values() for row in rows])
        return [line[name] for line in lines]

    # Digit 0 is wrong for one, digits 169, 170 and 171 for the other: p = 2 (1 + 4) / 16.
    assert column(committee_report.P_VALUE) == ["-", "-", "0.62", ""]
    first[-1].wrong_digits = list(range(8, 169))  # 8 digits less than the third: p = 2 / 256
    assert column(committee_report.P_VALUE) == ["0.016", "-", "0.62", ""]  # the smaller, twice
    assert column("shows") == ["yes", "yes", "no", "no"]
    third[-1].epochs = sixth[-1].epochs = "100"
    assert column(committee_report.P_VALUE) == ["-", "-", "0.62", ""]
    assert column("shows") == ["-", "yes", "no", "no"]
    second[-1].eta = "0.1"
    assert column("shows") == ["-", "-", "no", "no"]
    third[-1].images_an_epoch = "20000"
    assert column("shows") == ["-", "-", "-", "no"]
