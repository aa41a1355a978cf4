"""results/findings.py: sentences on recorded committees."""

from committee_cases import of_committees
from msgspec.structs import replace

from experiments.results import committee_report, findings


def test_claims_that_show_and_that_do_not():
    found = of_committees({1: (250, 221), 2: (200, 207), 3: (210, 169), 6: (180, 171)})
    text = findings.claims_sentence(found)
    assert text.startswith("Of the paper's 4 claims 2 show in the counts of wrong digits after 8 ")
    shown, missed = text.split("Not shown: ")
    assert "1.69 against 2.21 % (paper: 0.56 against 1.7" in shown
    assert "2.07 against 2.21 %" in shown
    assert "1.71 against 1.69 % (paper: 0.43 against 0.56 %; p: -)" in missed
    assert "in 3 of 4" in missed  # the committee of experiment 2 is worse than its member
    better = of_committees({1: (250, 220), 2: (200, 207), 3: (210, 168), 6: (180, 167)}, folder="z")
    assert findings.claims_sentence(found | better) == text  # not the fewest errors: the first path
    assert findings.claims_sentence(better | found) == text
    best = of_committees({6: (180, 9)}, folder="without-the-others")
    assert findings.claims_sentence(found | best) == text
    longer = of_committees({1: (250, 222), 2: (200, 207), 3: (210, 170), 6: (180, 172)}, folder="b")
    for rows in longer.values():
        rows[0].epochs = "9"  # of the member, which is what counts
    assert "1.70 against 2.22 %" in findings.claims_sentence(found | longer)
    next(iter(longer.values()))[0].epochs = "7"  # one net that was trained for less
    assert findings.claims_sentence(found | longer) == text
    found.popitem()
    assert findings.claims_sentence(found | best) is None
    assert findings.claims_sentence(of_committees({1: (2, 1)}, data="load_digits")) is None


def test_claims_of_committees_whose_wrong_digits_are_known():
    found = of_committees({1: (250, 221), 2: (200, 207), 3: (210, 169), 6: (180, 171)})
    first, _, third, sixth = found.values()
    for rows, places in ((third, range(169)), (sixth, range(1, 172))):
        rows[-1].wrong_digits = list(places)

    def p_values():
        lines = committee_report.order_table([row for rows in found.values() for row in rows])
        return [line[committee_report.P_VALUE] for line in lines]

    # Digit 0 is wrong for one, digits 169, 170 and 171 for the other: p = 2 (1 + 4) / 16.
    assert p_values() == ["-", "-", "0.62", ""]
    first[-1].wrong_digits = list(range(8, 169))  # 8 digits less than the third: p = 2 / 256
    assert p_values() == ["0.016", "-", "0.62", ""]  # the smaller of two, twice
    text = findings.claims_sentence(found)
    assert "Not compared" not in text
    assert "1.71 against 1.69 % (paper: 0.43 against 0.56 %; p: 0.62)" in text


def test_committees_that_were_trained_differently_show_nothing():
    found = of_committees({1: (250, 221), 2: (200, 207), 3: (210, 169), 6: (180, 171)})
    _, second, *others = found.values()
    for rows in others:
        rows[-1].wrong_digits, rows[-1].epochs = [1], "100"
    text = findings.claims_sentence(found)
    assert "claims 1 show in the counts of wrong digits after 8 or 100 epochs" in text
    assert text.endswith(" Not compared, as trainings differ: deformed beats undeformed.")
    second[-1].eta = "0.1"
    lines = committee_report.order_table([row for rows in found.values() for row in rows])
    assert [line["shows"] for line in lines] == ["-", "-", "no", "no"]


def test_a_mixed_committee_stands_apart():
    found = list(of_committees({1: (250, 221), 6: (180, 171)}).values())
    assert findings.mixed_sentence(found) is None
    net, last = found.pop()
    mixed = [replace(net, member=name, experiment="committee") for name in "ab"]
    mixed.append(replace(last, experiment="committee", errors=29, percent=0.29))
    mixed[1].percent, mixed[1].layers = 0.41, "841-10"
    mixed[0].percent, mixed[0].layers = 0.43, "20M-150N"
    day_before = replace(last.source, date="2025-12-31T00:00:00+00:00")
    older = [replace(row, errors=20, source=day_before) for row in (mixed[0], *mixed)]
    text = findings.mixed_sentence([*found, older, mixed])
    assert text == (
        "2 nets, 2 shapes of net, a mix that the papers lack, get 29 of 10,000 test digits "
        "wrong together: 0.29 % (95 % interval 1.00-2.00); the best of them alone 0.41 %."
    )
    assert findings.mixed_sentence([mixed, older]) == text
    for row, places in zip(mixed, ([3, 5, 9], [5, 9, 11], [5]), strict=True):
        row.wrong_digits = places
    assert findings.mixed_sentence([mixed]) == f"{text} Wrong for all members: 2 digits."
    for row in mixed:
        row.data = "load_digits"
    assert findings.mixed_sentence([mixed]) is None
