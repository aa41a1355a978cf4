"""`python -m experiments.committee`, with made-up trainings: tables, pictures, options."""

from types import SimpleNamespace

import numpy as np
import pytest
from committee_cases import AVERAGES, ERRORS, HERE, TABLE4_ERRORS, make_run, read_csv, tables_of

from experiments import committee
from experiments.datasets import data
from experiments.drawing import figures
from experiments.results.committees import EXPERIMENTS, TABLE4
from experiments.training import jobs


def bars(*widths):
    """Images of digits 20 high with bounding boxes of these widths."""
    images = np.full((len(widths), 29, 29), -1, np.float32)
    for image, width in zip(images, widths, strict=True):
        image[4:24, 3 : 3 + width] = 0.5
    return images


# Of the 40 test digits 4 are ones, 3 of these narrow, as are 2 of the 36 others.
MNIST = data.Dataset(
    "MNIST",
    bars(*[12] * 66),
    (np.arange(66) % 10).astype(np.uint8),
    bars(5, 3, *[11] * 8, 5, 5, *[12] * 8, 13, 4, *[12] * 8, 14, 15, *[11] * 8),
    (np.arange(40) % 10).astype(np.uint8),
    "cd" * 32,
    "nowhere",
)


@pytest.fixture
def made_up(monkeypatch):
    """MNIST in small, and trainings that take no time; `broken` holds labels of those that fail."""
    found = SimpleNamespace(dataset=MNIST, broken=(), trained=[], pictures={})

    def train_all(queue, pool):
        found.trained = [job.label for job in queue]
        outcomes = []
        for job in queue:
            if job.label in found.broken:
                outcomes.append(jobs.Outcome(None, "it was not to be", jobs.FAILED))
                continue
            labels = found.dataset.test_labels
            rng = np.random.default_rng(list(job.label.encode()))
            outputs = rng.uniform(size=(len(labels), 10)) + 0.7 * np.eye(10)[labels]
            outputs = (outputs / outputs.sum(axis=1, keepdims=True)).astype(np.float32)
            outcomes.append(jobs.Outcome(make_run(job.config, outputs, labels)))
        return outcomes

    def keep(figure, path):
        found.pictures[path.name] = figure

    for load in ("cached", "cached_pixels"):
        monkeypatch.setattr(data, load, lambda *_: found.dataset)
    monkeypatch.setattr(jobs, "train_all", train_all)
    monkeypatch.setattr(figures, "save_figure", keep)
    return found


def test_mnist_has_the_papers_figures_beside_ours(made_up, tmp_path, capsys):
    assert committee.main([*HERE, "--out", str(tmp_path)]) == 0
    assert len(made_up.trained) == len(set(made_up.trained)) == 39
    names = [f"experiment{number}" for number in range(1, 7)]
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"committees.md"} | {
        f"{name}.{end}" for name in names for end in ("md", "csv")
    }
    pictures = {f"{name}.{which}" for name in names for which in ("best", "committee")}
    assert set(made_up.pictures) == pictures
    printed = capsys.readouterr().out
    rows = {n: read_csv(tmp_path / f"experiment{n}.csv") for n in range(1, 7)}
    for number, name in enumerate(names, 1):
        assert [float(row["paper"]) for row in rows[number]] == list(ERRORS[number])
        text = (tmp_path / f"{name}.md").read_text()
        assert text in printed
        assert text.startswith(f"# Experiment {number} of 2012: {EXPERIMENTS[number].title}, on MN")
        assert f"The paper's figures are from its Table {1 if number < 3 else 2};" in text
        assert "NOT MNIST" not in text
        narrow = "by at most 0.08 of their height: 3 of the 4 ones and 2 of the 36 others among the"
        assert (narrow in text) == (number in (2, 6))
        members = tables_of(text)[0]
        assert [line["paper %"] for line in members] == [f"{e:.2f}" for e in ERRORS[number]]
    text = (tmp_path / "committees.md").read_text()
    assert printed.endswith(text + "\n")

    assert text.startswith("# 6 committees on MNIST, errors in percent, the paper / ours\n\n|")
    summary, lines, order = tables_of(text)
    assert [line["net"] for line in summary] == [*"1234567", "average member", "**committee**"]
    for number, line in zip(range(1, 7), lines, strict=True):
        column = [line[f"exp. {number}"] for line in summary]
        percents = [float(row["percent"]) for row in rows[number]]
        cells = [f"{p:.2f} / {q:.2f}" for p, q in zip(ERRORS[number], percents, strict=True)]
        members = [member.name for member in EXPERIMENTS[number].members]
        assert column[:7] == [f"{m}: {c}" for m, c in zip(members, cells[:-1], strict=True)]
        assert column[7] == f"{AVERAGES[number]} / {np.mean(percents[:-1]):.2f}"
        assert column[8] == f"**{cells[-1]}**"
        last, best = rows[number][-1], int(np.argmin(percents[:-1]))
        expected = {
            "committee": f"exp. {number}",
            "error %": f"{percents[-1]:.2f}",
            "95 % interval": f"{float(last['low']):.2f}-{float(last['high']):.2f}",
            "wrong": f"{last['errors']} of 40",
            "second guess right": last["second_guesses"],
            "average member %": f"{np.mean(percents[:-1]):.2f}",
            "best member %": f"{percents[best]:.2f}, {members[best]}",
            "only committee / only best wrong": f"{last['only_committee']} / {last['only_best']}",
            "p": f"{float(last['mcnemar_p']):.2g}",
            "time (sum)": "0:00:28",  # seven times 4 s
        }
        assert expected.items() <= line.items()
    assert len(order) == 4
    papers = *(member.paper for member in TABLE4.members), TABLE4.paper
    assert papers == TABLE4_ERRORS


def test_pictures_are_of_the_best_member_and_of_the_committee(made_up, tmp_path):
    committee.main([*HERE, "--experiment", "6", "--seed", "1", "--out", str(tmp_path)])
    rows = read_csv(tmp_path / "experiment6.csv")
    best = min(rows[:-1], key=lambda row: int(row["errors"]))
    for which, row, who in (
        ("best", best, f"Best net, {best['member']}"),
        ("committee", rows[-1], "Committee"),
    ):
        figure = made_up.pictures[f"experiment6.{which}"]
        (text,) = figure.texts
        title, count = text.get_text().split("\n")
        assert title == f"{who}. Experiment 6 of 2012: deformed, seven widths, on MNIST:"
        assert count == (
            f"{row['errors']} of 40 wrong; second guess right for {row['second_guesses']}"
        )
        assert len(figure.axes[0].texts) == 2 * int(row["errors"])
    assert best != rows[0]
    assert best["errors"] != rows[-1]["errors"]


def test_one_committee_needs_no_summary(made_up, tmp_path):
    assert committee.main([*HERE, "--experiment", "3", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"experiment3.md", "experiment3.csv"}
    committee.main([*HERE, "--experiment", "3,1", "--out", str(tmp_path)])
    assert len(tables_of((tmp_path / "committees.md").read_text())) == 2  # no order of two


def test_failed_net_spoils_only_its_own_committees(made_up, tmp_path, capsys):
    # Net 4 of experiment 3 is also net 4 of experiment 5; net 2 of experiment 6 is of one only.
    made_up.broken = ("original-seed3", "WN12-seed1", "WN14-seed2")
    assert committee.main([*HERE, "--experiment", "3,4,5,6", "--out", str(tmp_path)]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"experiment4.md", "experiment4.csv"}
    said = capsys.readouterr()
    assert said.out.startswith("# Experiment 4 of 2012")
    for number, n in ((3, 1), (4, None), (5, 1), (6, 2)):
        sentence = f"experiment{number}: no committee, because {n} of its nets failed\n"
        assert (sentence in said.err) == (n is not None)
    made_up.broken = ("original-seed6",)
    assert committee.main([*HERE, "--experiment", "6", "--out", str(tmp_path / "none")]) == 1
    assert list((tmp_path / "none").iterdir()) == []
    assert capsys.readouterr().out == ""
