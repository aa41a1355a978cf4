"""Tests of the campaign's damage, command lines and faults of the system: each can fail."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from campaign import __main__ as campaign
from campaign import arguments, commands, damage, forks, mutations, report, samples, system, trial
from campaign.commands import Ended
from campaign.damaged import Batch
from campaign.trial import Outcome
from experiments.running import cli, data, mnist, provenance
from experiments.running.errors import Interrupted, Problem

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the campaign needs Linux"
)


@pytest.fixture(autouse=True)
def _nothing_at_the_end_of_a_fork(monkeypatch):
    """What other tests have registered for the end of this process is not for a fork of it."""
    monkeypatch.setattr(forks.atexit, "_run_exitfuncs", lambda: None)


def ended(status=0, stderr="", seconds=1.0):
    return Ended(["x"], status, "", stderr, seconds, 0)


@pytest.mark.parametrize(
    ("main", "status", "complaint"),
    [
        (lambda: None, 0, None),
        (lambda: sys.exit(1), 1, "the status is 1"),
        (lambda: os.abort(), -6, "the status is -6"),
        (lambda: 1 / 0, 1, "a traceback"),
        (lambda: bytearray(3 * 2**30), 1, "a traceback"),
        (lambda: time.sleep(60), -9, "the status is -9"),
    ],
)
def test_a_fork_ends_as_a_program(main, status, complaint, tmp_path, monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 1)
    (tmp_path / "work").mkdir()
    found = forks.fork(main, ["x"], tmp_path / "work", 2)
    assert found.status == status
    wrong = found.complaint((0, 2))
    assert (wrong is None) if complaint is None else wrong.startswith(complaint)


@pytest.mark.slow
def test_a_process_that_a_fork_leaves_is_found_and_killed(tmp_path):
    (tmp_path / "work").mkdir()
    found = forks.fork(lambda: subprocess.Popen(["sleep", "60"]), ["x"], tmp_path / "work", 5)
    assert found.left_behind == 1


# Damage


@pytest.fixture
def batch(tmp_path, monkeypatch):
    """Inputs of damaged IDX files."""
    monkeypatch.setattr(mnist, "FILES", mnist.FILES)
    monkeypatch.setattr(provenance, "REPOSITORY", provenance.REPOSITORY)
    for folder in ("shared/idx", "own"):
        (tmp_path / folder).mkdir(parents=True)
    samples.write_idx(tmp_path / "shared" / "idx")
    drawn = {"kind": "idx bytes", "seed": 1, "first": 0, "inputs": 12}
    return Batch(drawn, tmp_path / "shared", tmp_path / "own")


def failures(batch):
    return [wrong for _, make in batch.tries() if (wrong := make())]


def test_damaged_files_are_refused_or_right(batch):
    assert not failures(batch)


def test_readers_that_break_are_found(batch, monkeypatch):
    load, calls = data.load_pixels, []

    def crash(*arguments):
        raise KeyError("x")

    def write(choice, folder):
        (folder / "new").touch()
        raise Problem("no")

    def trust(choice, folder):  # whatever the files hold
        calls.append(folder)
        found = load(choice, batch.shared / "idx")
        found.test_labels[0] ^= len(calls) > 1
        return found

    batch._expect("idx", lambda: "of the whole files")
    for reader, complaint in (
        (crash, "a traceback"),
        (write, "something was written"),
        (trust, "the status is 3"),
    ):
        monkeypatch.setattr(data, "load_pixels", reader)
        found = failures(batch)
        assert found
        assert all(wrong.startswith(complaint) for wrong in found)


def test_each_kind_of_damage_is_drawn_and_can_be_repeated():
    drawn = [trial.draw(damage, 0, number) for number in range(len(damage.KINDS))]
    assert {one["kind"] for one in drawn} == set(damage.KINDS)
    assert drawn == [trial.draw(damage, 0, number) for number in range(len(damage.KINDS))]
    assert json.loads(json.dumps(drawn)) == drawn


def test_mutations_change_and_can_be_repeated():
    content = bytes(range(256)) * 4
    changed = [mutations.mutate_bytes(random.Random(seed), content) for seed in range(40)]
    assert changed == [mutations.mutate_bytes(random.Random(seed), content) for seed in range(40)]
    assert sum(one != content for one in changed) > 35


# Command lines


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (ended(2, "error: no\n"), None),
        (ended(2, "no\n"), "0 sentences"),
        (ended(2, f"error: {'9' * 1000}\n"), "the sentence has 1007 letters"),
        (ended(3), "the status is 3"),
        (ended(130, "stopped by SIGINT\n"), "the status is 130"),
        (ended(130, "stopped by SIGINT\n", 9.0), None),
        (ended(130, "", 9.0), "Ctrl-C is not told of"),
    ],
)
def test_command_lines_are_judged(found, complaint):
    wrong = arguments.judge(found, 5)
    assert (wrong is None) if complaint is None else wrong.startswith(complaint)


@pytest.mark.slow
def test_command_lines_name_every_command_and_every_option():
    lines = []
    for number in range(150):
        drawn = trial.draw(arguments, 0, number)
        lines += [*drawn["lines"], drawn["whole"]]
    assert lines[:16] == [
        *trial.draw(arguments, 0, 0)["lines"],
        trial.draw(arguments, 0, 0)["whole"],
    ]
    commands = {path.stem for path in (provenance.REPOSITORY / "experiments").glob("[!_]*.py")}
    assert {line[0] for line in lines} == commands | {"campaign"}
    for command in arguments.OTHERS:
        said = {word.partition("=")[0] for line in lines if line[0] == command for word in line[1:]}
        for strings, _, _ in arguments.options_of(command):
            assert not strings or said & set(strings)


# Faults of the system

REPLACE = """
import sys
from pathlib import Path
from deepbig_runtime import files
try:
    files.replace(Path(sys.argv[1]), b"new")
except files.FileFault as fault:
    sys.exit(str(fault))
"""


def test_the_layer_fails_at_each_operation(tmp_path):
    """And says when it has."""
    path, met = tmp_path / "file", tmp_path.with_suffix(".met")
    layer = Path(system.__file__).parent / "layer"
    for at in range(1, 8):
        path.write_bytes(b"old")
        fault = {"fault": "full disk", "at": at, "value": 0, "folder": str(tmp_path)}
        fault["met"] = str(met)
        done = subprocess.run(
            [sys.executable, "-c", REPLACE, str(path)],
            env=os.environ
            | {"DEEPBIG_FAULT": json.dumps(fault)}
            | {"PYTHONPATH": f"{layer}{os.pathsep}{provenance.REPOSITORY}"},
            capture_output=True,
            text=True,
        )
        assert met.exists()  # the folder's sync too, which may fail
        if done.returncode == 0:
            break
        met.unlink()
        assert "No space left on device" in done.stderr
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]
    assert at == 5  # open, write, fsync, replace; then the sync of the folder
    assert path.read_bytes() == b"new"


def test_lost_and_other_results_are_found(tmp_path, monkeypatch):
    drawn = {"kind": "full disk", "command": "cnn", "at": 1, "value": 0}
    found: dict = {"first": ended(2, "error: full\n"), "second": ended(), "content": {}}
    (tmp_path / "shared" / "cnn").mkdir(parents=True)  # what is undisturbed

    def start(line, folder, **options):
        return found["first" if "variables" in options else "second"]

    monkeypatch.setattr(system, "start", start)
    monkeypatch.setattr(
        system, "content", lambda work: found["content"] if "work" in work.parts else {}
    )

    def attempt(**changes):
        before = found | {}
        found.update(changes)
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        folder.mkdir()
        try:
            return system.attempt(drawn, tmp_path / "shared", folder).failure
        finally:
            found.update(before)

    assert attempt() is None
    assert attempt(first=ended(1, "Traceback (most recent call last)")).startswith("a traceback")
    assert attempt(first=ended(2)).startswith("0 sentences")
    assert attempt(second=ended(2, "error: no")).startswith("the status is 2")
    assert attempt(content={"run.h5": ()}).startswith("the bits are others")
    monkeypatch.setattr(system, "leftovers", lambda work: ["x.tmp"])
    assert "left over: ['x.tmp']" in attempt()


def test_a_failed_undisturbed_run_is_made_again(tmp_path, monkeypatch):
    ends = [ended(2, "error: no"), ended()]
    monkeypatch.setattr(system, "start", lambda line, folder: ends.pop(0))
    with pytest.raises(RuntimeError, match="no undisturbed run"):
        system.undisturbed("cnn", tmp_path)
    assert system.undisturbed("cnn", tmp_path) == tmp_path / "cnn"
    assert system.undisturbed("cnn", tmp_path) == tmp_path / "cnn"
    assert not ends


def test_every_kind_of_fault_is_drawn():
    drawn = [trial.draw(system, 0, number) for number in range(len(system.KINDS))]
    assert [one["kind"] for one in drawn] == list(system.KINDS)
    assert json.loads(json.dumps(drawn)) == drawn


def test_batches_that_end_early_are_found(tmp_path, monkeypatch):
    def run(*arguments, **options):
        return Ended(["x"], -11, '{"try": "one"}\n{"failure": null}\n{"try": "two"}', "", 1.0, 0)

    monkeypatch.setattr(commands, "run", run)
    outcome = forks.run_batch("x", {}, tmp_path, tmp_path)
    assert outcome.tries == 1
    assert "two" in outcome.failure


# What the campaign found


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(24, "Too many open files"), "ulimit -n"),
        (OSError(12, "Cannot allocate memory"), "no more memory"),
        (RuntimeError("can't start new thread"), "starts no more processes or threads"),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(error, said, capsys):
    def main():
        try:
            raise error
        finally:
            raise ImportError("some module")

    with pytest.raises(SystemExit) as ending:
        cli.run(main)
    assert ending.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_other_exceptions_are_not_hidden():
    def main():
        raise LookupError("a mistake in our code")

    with pytest.raises(LookupError):
        cli.run(main)


class Fake:
    """A part of the campaign whose trials fail as often as is said."""

    CLAIM, UNIT, GOAL = "nothing happens", "tries", 3

    def __init__(self, name, failing):
        self.NAME, self._failing = name, failing

    def prepare(self, shared):
        pass

    def draw(self, rng, number):
        return {"number": number}

    def attempt(self, trial, shared, folder):
        return Outcome(1, "it broke" if trial["number"] < self._failing else None)


def test_a_part_made_again_replaces_its_row_and_its_failures_only(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign.os, "nice", lambda n: None)

    def run(*failing):
        fakes = [Fake(name, n) for name, n in zip(("a", "b"), failing, strict=True)]
        monkeypatch.setattr(campaign, "PARTS", fakes)

    run(1, 2)
    assert campaign.main(["--out", str(tmp_path)]) == 1
    run(0, 2)
    assert campaign.main(["--out", str(tmp_path), "--parts", "a", "--seed", "7"]) == 0
    rows = report.read(tmp_path)
    assert [(row.part, row.seed, row.failures) for row in rows.values()] == [
        ("a", 7, 0),
        ("b", 0, 2),
    ]
    names = sorted(path.name for path in (tmp_path / "failures").iterdir())
    assert names == ["b-0-0.json", "b-0-1.json"]


def test_a_part_that_was_stopped_goes_on(tmp_path, monkeypatch):
    """With the trials that were under way, and those that were not drawn yet; saved each time."""
    monkeypatch.setattr(campaign.os, "nice", lambda n: None)
    monkeypatch.setattr(campaign.commands, "stop", lambda: None)  # what it stops is for good
    fake, made, stopped = Fake("a", 0), [], []
    monkeypatch.setattr(campaign, "PARTS", [fake])

    def attempt(trial, shared, folder):
        if trial["number"] in stopped:
            raise campaign.commands.Stopped
        made.append(trial["number"])
        if made == [0, 2]:
            raise Interrupted(2)
        return Outcome(1)

    fake.GOAL, fake.attempt = 6, attempt
    monkeypatch.setattr(campaign.provenance, "cores", lambda: 1)
    stopped.append(1)
    with pytest.raises(Interrupted):  # in the third trial; the second was stopped before
        campaign.main(["--out", str(tmp_path)])
    (row,) = report.read(tmp_path).values()
    assert (row.tries, row.left, row.drawn) == (1, [1], 2)
    stopped.clear()
    made.clear()
    assert campaign.main(["--out", str(tmp_path)]) == 0
    assert made == [1, 2, 3, 4, 5]
    (row,) = report.read(tmp_path).values()
    assert (row.tries, row.left, len(row.earlier)) == (6, [], 1)
    assert campaign.main(["--out", str(tmp_path)]) == 0  # a part at its goal begins anew
    assert made == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert campaign.main(["--out", str(tmp_path), "--seed", "1"]) == 0
    assert len(made) == 17
