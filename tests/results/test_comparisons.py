"""Runs and committees beside records and the papers' figures."""

from math import comb

import pytest
from committee_cases import of_committees
from factories import make_run
from msgspec.structs import replace

from deform_gpu import TRANSLATION
from experiments.results import cnn_tables
from experiments.results.comparisons import (
    committee_with_paper,
    committee_with_record,
    fisher,
    with_paper,
    with_record,
)
from mlp_gpu.network import NETS

SMALL, DEEP = cnn_tables.PAPER[1].layers, cnn_tables.PAPER[3].layers
UNDEFORMED = {"deformation": None, "deformed_on": None}


def with_errors(*errors, **changes):
    """A run with that many of 10,000 wrong after each epoch, in validation and test."""
    metrics = {"test_errors": list(errors), "validation_errors": list(errors)}
    return make_run(len(errors), metrics, **{"epochs": len(errors)} | changes)


@pytest.mark.parametrize(
    ("errors", "verdict"), [(131, "worse than"), (128, "within chance of"), (73, "better than")]
)
def test_the_verdict_is_by_the_sum_of_all_splits_that_are_no_likelier(errors, verdict):
    ways = [comb(10_000, k) * comb(10_000, errors + 100 - k) for k in range(errors + 101)]
    p = sum(way for way in ways if way <= ways[errors]) / sum(ways)
    assert (p < 0.05) == (verdict != "within chance of")
    found = with_record(with_errors(errors), {"one": with_errors(100)})
    assert found == (f"**{verdict}** 1.00", "one")
    assert fisher(errors, 100, 10_000) == pytest.approx(p, rel=1e-9)


def test_the_record_most_like_a_run_is_compared_after_as_many_epochs():
    run = with_errors(300, 200, 100)
    records = {
        "another net": with_errors(300, 200, 100, sizes=NETS[2]),
        "undeformed": with_errors(300, 200, 100, **UNDEFORMED),
        "other data": with_errors(300, 200, 100, data={"sha256": "1" * 64}),
    }
    assert with_record(run, records) == ("-", "")
    records |= {
        "short": with_errors(200, 100),
        "few images": with_errors(9, 9, 9, data={"n_train": 50_000}),
        "longest": with_errors(400, 300, 200, 50, 50),
        "other rates": with_errors(400, 300, 200, 50, eta=0.5),
        "long": with_errors(400, 300, 200, 50),
    }
    expected = {  # each is taken where the ones above it are not there
        "long": "**better than** 2.00 after 3 of 4 epochs",
        "other rates": "**better than** 2.00 after 3 of 4 epochs",
        "longest": "**better than** 2.00 after 3 of 5 epochs",
        "few images": "**worse than** 0.09 on 50,000 images",
        "short": "2.00, **worse than** 1.00 after 2 epochs",
    }
    for name, text in expected.items():
        found = with_record(run, records)
        assert (found.record, found.text) == (name, text)
        del records[name]


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (with_errors(178, **UNDEFORMED), "**within chance of** 1.78"),
        (with_errors(*[490] * 2300, 40), "4.90, **worse than** 0.49 after 2,300 epochs"),
        (with_errors(90, 80, 91, layers=DEEP), "0.91, **better than** 1.58 after 3 of 500 epochs"),
        (with_errors(*[90] * 499, 38, layers=DEEP), "**within chance of** 0.38"),
        (
            with_errors(150, layers=SMALL, data={"n_train": 600}),
            "**worse than** 1.02 after 500 epochs on 60,000 images",
        ),
        (with_errors(50, layers=SMALL, **UNDEFORMED), "-"),
        (with_errors(50, sizes=(841, 9, 10)), "-"),
        (with_errors(50, data={"name": "mine", "classes": tuple("0123456789")}), "-"),
        (
            with_errors(
                50,
                data={"name": "CIFAR10"},
                layers=cnn_tables.cifar10_net(100),
                deformation=TRANSLATION,
            ),
            "20.26 ± 0.21, 11 runs",
        ),
    ],
)
def test_the_papers_figure_is_of_as_many_epochs_or_its_last(run, text):
    assert with_paper(run).text == text


def committee(n_wrong, **changes):
    """The rows of experiment 3, whose committee gets the first n_wrong of 10,000 digits wrong."""
    ((member, last),) = of_committees({3: (200, n_wrong)}).values()
    return replace(member, **changes), replace(last, wrong_digits=list(range(n_wrong)), **changes)


def test_committees_are_compared_by_their_wrong_digits_where_they_are_known():
    own = committee(100)[-1]
    assert committee_with_record(own, {}) == ("-", "")
    records = {"short": committee(6, epochs="6"), "long": committee(150, epochs="9")}
    found = committee_with_record(own, records)
    assert found == ("**better than** 1.50 after 9 epochs", "long")
    records["equal"] = committee(110, images_an_epoch="50000")
    found = committee_with_record(own, records)
    assert found == ("**better than** 1.10 on 50000 images", "equal")
    records["other rates"] = committee(90, images_an_epoch="50000", eta="0.0077")
    assert committee_with_record(own, records).record == "equal"
    assert committee_with_record(own, dict(reversed(records.items()))).record == "equal"
    records["equal"][-1].wrong_digits = None
    assert committee_with_record(own, records).text == "**within chance of** 1.10 on 50000 images"
    assert committee_with_paper(own).text == "**worse than** 0.56"
    assert committee_with_paper(replace(own, paper=None)).text == "-"
