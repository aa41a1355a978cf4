"""`python -m experiments.committee`, which trains nets on load_digits or takes their run files."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import reference
from committee_cases import HERE, WIDTHS, read_csv, tables_of
from factories import changed

from deepbig_runtime.errors import Problem
from deepbig_runtime.files import FileFault
from deform_gpu import is_narrow, normalize_width
from experiments import committee
from experiments.datasets import data
from experiments.results import committee_report
from experiments.results.committees import EXPERIMENTS
from experiments.training import jobs, store, workers
from mlp_gpu import network
from mlp_gpu.network import Network

TINY = ["--data", "digits", *HERE, "--epochs", "1", "--limit", "120"]

# The ends of the names of a committee's files.
ENDS = ("md", "csv", "best.png", "best.pdf", "committee.png", "committee.pdf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What tiny trainings of experiments 1 and 2 leave behind."""
    folder = tmp_path_factory.mktemp("committee")
    assert committee.main([*TINY, "--experiment", "1,2", "--out", str(folder)]) == 0
    return folder


UNDEFORMED = [f"original-undeformed-seed{seed}-load_digits" for seed in range(7)]
NORMALIZED = [f"WN{w}-undeformed-seed{k}-load_digits" for k, w in enumerate(WIDTHS[:-1])]
MEMBERS = {1: UNDEFORMED, 2: [*NORMALIZED, UNDEFORMED[6]]}


def run_files(folder, number):
    return [folder / f"{name}.h5" for name in MEMBERS[number]]


def test_experiments_on_load_digits_leave_runs_and_tables_without_the_papers_figures(folder):
    expected = {"committees-load_digits.md"}
    for name in {*UNDEFORMED, *NORMALIZED}:
        expected |= {f"{name}.h5", f"{name}.weights.h5"}
    for number in (1, 2):
        expected |= {f"experiment{number}-load_digits.{end}" for end in ENDS}
        text = (folder / f"experiment{number}-load_digits.md").read_text()
        assert "load_digits is NOT MNIST: these figures must not be compared" in text
        assert "paper %" not in text
    assert {path.name for path in folder.iterdir() if path.suffix != ".lock"} == expected
    text = (folder / "committees-load_digits.md").read_text()
    assert text.startswith("# 2 committees on load_digits, errors in percent (NOT MNIST: not to be")
    summary, lines = tables_of(text)
    assert list(summary[0]) == ["net", "exp. 1", "exp. 2"]
    assert "/" not in "".join("".join(line.values()) for line in summary)
    assert [line["committee"] for line in lines] == ["exp. 1", "exp. 2"]


def predictions(path, images):
    """Class probabilities of a run's chosen net, computed again in float64."""
    networks, _ = network.load(store.weights_path(path), Network)
    weights = [W.astype(np.float64) for W in networks["chosen"].unpadded()]
    rows = images.reshape(len(images), -1).astype(np.float64)
    return np.array([reference.forward(weights, row)[1] for row in rows])


def test_members_are_tested_on_digits_of_their_own_width(folder, digits):
    for path, width in list(zip(run_files(folder, 2), WIDTHS, strict=True))[2::4]:
        outputs = store.read_run(path).outputs
        images = digits.test_images
        if width:
            images = normalize_width(images, width, is_narrow(images))
            assert abs(outputs - predictions(path, digits.test_images)).max() > 1e-2
        assert abs(outputs - predictions(path, images)).max() <= 1e-4


def test_resampled_net_is_validated_on_its_own_set(digits, tmp_path):
    options = ["--epochs", "2", "--limit", "120", "--eta", "0.003", "--out", str(tmp_path)]
    job = committee.make_jobs(committee.parse_arguments(options), EXPERIMENTS[4], digits, "cpu")[3]
    # Undeformed: that takes no compiling.
    job = replace(job, config=changed(job.config, deformation=None, deformed_on=None))
    (outcome,) = jobs.train_all([job], workers.InProcess())
    run = outcome.run
    parts = data.split(data.limit(digits, 120), 20, job.config.seed)
    wrong = predictions(job.path, parts.validation[0]).argmax(axis=1) != parts.validation[1]
    assert wrong.sum() == run.metrics.validation_errors[run.chosen - 1]


def test_run_files_form_the_same_committee(folder, tmp_path, capsys):
    paths = [str(path) for path in run_files(folder, 2)]
    assert committee.main([*paths, "--out", str(tmp_path)]) == 0
    names = {f"committee.{end}" for end in ENDS}
    assert {path.name for path in tmp_path.iterdir()} == names
    rows = read_csv(tmp_path / "committee.csv")
    expected = read_csv(folder / "experiment2-load_digits.csv")
    best = MEMBERS[2][[row["member"] for row in expected].index(expected[-1]["best_member"])]
    for row, other, name in zip(rows, expected, [*MEMBERS[2], "committee"], strict=True):
        assert row == other | {
            "experiment": "committee",
            "member": name,
            "best_member": "" if row["net"] else best,
        }
    text = (tmp_path / "committee.md").read_text()
    assert text.startswith("# A committee of 7 nets on load_digits\n\nEach net as it was at the ep")
    assert "Not trained to the end" not in text


def change(path, target, config=None, **fields):
    """A copy of a run file with another configuration or other fields."""
    run = store.read_run(path)
    run.config = changed(run.config, **config or {})
    store.write_run(target, replace(run, **fields))
    return target


def test_members_that_are_not_finished_are_named(folder, tmp_path):
    first, second, *_ = run_files(folder, 1)
    found = committee.form_committee([first, change(second, tmp_path / "mine.h5", {"epochs": 9})])
    assert "\nNot trained to the end: mine." in committee_report.committee_markdown(found)


def test_runs_of_equal_names_are_told_apart_by_their_folders(folder, tmp_path):
    paths = [tmp_path / name / "run.h5" for name in "xy"]
    for path, run in zip(paths, run_files(folder, 1), strict=False):
        path.parent.mkdir()
        shutil.copy(run, path)
    assert committee.form_committee(paths).members == tuple(map(str, paths))


def refused(*arguments):
    """The sentence with which the script refuses run files."""
    with pytest.raises((Problem, FileFault)) as reason:
        committee.main([str(argument) for argument in arguments])
    sentence = str(reason.value)
    assert "\n" not in sentence
    return sentence


def test_run_files_that_form_no_committee_are_refused(folder, digits, tmp_path):
    first, second, *_ = run_files(folder, 1)
    out = "--out", tmp_path / "out"
    weights = store.weights_path(second)  # no run
    for alone in ((first,), (first, weights)):
        assert refused(*alone, *out).startswith(
            f"a committee needs two runs at least, only {first}"
        )
    round_about = folder / ".." / folder.name / first.name
    assert "is named twice" in refused(first, round_about, *out)

    alien = change(second, tmp_path / "alien.h5", {"data": {"sha256": "12" * 32}})
    sentence = refused(first, alien, *out)
    assert sentence.startswith(f"{alien} was tested on 360 images of ")
    assert "SHA-256 12121212" in sentence
    assert f"SHA-256 {digits.sha256[:8]}" in sentence
    outputs = np.roll(store.read_run(second).outputs, 1, axis=0)
    labels = np.roll(digits.test_labels, 1)
    alien = change(second, tmp_path / "labels.h5", outputs=outputs, labels=labels)
    assert refused(first, alien, *out).startswith(f"{alien} was tested on 360 images of ")
    assert refused(first, tmp_path / "no.h5", *out).startswith(f"cannot read {tmp_path}/no.h5")
    assert not (tmp_path / "out").exists()


def test_runs_of_other_data_than_there_are_now_write_nothing(folder, tmp_path):
    other = {"data": {"sha256": "12" * 32}}
    paths = [change(path, tmp_path / path.name, other) for path in run_files(folder, 1)[:2]]
    assert "trained on other data" in refused(*paths, "--out", tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))
