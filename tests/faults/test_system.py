"""Faults of the system under small trainings: disks, folders, handles, memory, outputs.

The same command without the fault must then end with the bits of an undisturbed run. A test's
number gives its fault.
"""

import json
import os
import random
import shutil
import time
from functools import partial
from pathlib import Path

import commands
import pytest
from run_bits import bits
from tries import SEED, tries

from experiments.training import store

LAYER = Path(__file__).parent / "layer"
SMALL = ("--data=digits", "--limit=60", "--out=out")
RUN = "out/2M5s1-MP5-9N-seed0-load_digits.h5"
# Trainings, which end with the same bits, and commands that only read the run of cnn.
TRAININGS = {
    "table1": ("table1", "--nets=1", "--epochs=3", *SMALL),
    "table1 workers": ("table1", "--nets=1", "--seeds=1,2", "--epochs=2", "--workers=2", *SMALL),
    "cnn": ("cnn", "--net=2M5s1-MP5-9N", "--epochs=3", *SMALL),
    "committee": ("committee", "--experiment=1", "--epochs=1", "--workers=2", *SMALL),
}
READERS = {
    "report": ("report", "--runs=out", "--out=pages/report.html"),
    "export": ("export", "--csv", RUN, "--out=csv"),
    "watch": ("watch", "out"),
    "figure1": ("figure1", RUN, "--out=csv/figure1"),
}
OUTPUTS = "closed", "full", "no reader", "read-only file"
# Faults that begin at an operation on files, and the values that each may have; then all faults.
# Few tries make the first of them only.
OF_FILES = {
    **dict.fromkeys(("full disk", "folder removed"), (0,)),
    "no handles": (0, 1, 2, 3, 5, 10),
    "no memory": [n * 2**20 for n in (0, 1, 5, 20, 50, 100, 200)],
}
FAULTS = {
    **OF_FILES,
    "two commands": (0, 0.5, 1, 1.5, 2, 3),
    "stdout": OUTPUTS,
    "stderr": OUTPUTS,
}


def line_of(name):
    command, *options = (TRAININGS | READERS)[name]
    return [f"experiments.{command}", *options]


def drawn(number):
    """The fault of a number: its name, its value, a command, and at which operation it begins."""
    rng = random.Random(f"{SEED} {number}")
    fault = list(FAULTS)[number % len(FAULTS)]
    names = ["cnn", "table1", "table1 workers", "cnn", "committee"]
    if fault not in ("folder removed", "two commands"):
        names += READERS
    name = names[number // len(FAULTS) % len(names)]
    at = rng.randint(1, 8 if name in READERS or rng.random() < 0.3 else 45)
    return fault, rng.choice(FAULTS[fault]), name, at


def describe(number):
    fault, value, name, at = drawn(number)
    return f"{number}: {name}, {fault} {value}, at {at}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tries(8, 330)), ids=describe)
def test_after_a_fault_the_same_command_ends_with_the_same_bits(
    number, undisturbed, tmp_path, tried
):
    fault, value, name, at = drawn(number)
    expected, _ = undisturbed(*line_of("cnn" if name in READERS else name))
    work = tmp_path / "work"
    work.mkdir()
    if name in READERS:
        shutil.copytree(expected / "out", work / "out")
    before = set(store.run_files(work))
    ended = disturbed(fault, value, name, at, work)
    # A command may end before the operation at which the fault would have come.
    tried(fault not in OF_FILES or (tmp_path / "met").exists())
    # Nobody can read a sentence on such a stderr.
    ended.check(0, 1, 2, n_sentences=(0, 1) if fault == "stderr" else (1,))
    assert before <= set(store.run_files(work)), ended
    if fault in ("full disk", "no handles", "no memory"):
        assert not list(work.rglob("*.tmp")), ended  # else nothing can be removed
    again = commands.run(line_of(name), work)
    again.check(0)
    assert not list(work.rglob("*.tmp")), again
    if name in TRAININGS:
        assert content(work) == content(expected), f"{ended}\n{again}"


def disturbed(fault, value, name, at, work):
    """How a command ends that meets a fault."""
    run = partial(commands.run, line_of(name), work)
    if fault in ("stdout", "stderr"):
        return run(**output(fault, value))
    if fault == "two commands":
        other = []

        def start_other(process):
            time.sleep(value)
            other.append(run())

        first = run(meanwhile=start_other)
        first.check(0, 1, 2)
        return other[0]
    told = {"fault": fault, "at": at, "value": value, "met": str(work.parent / "met")}
    told["folder"] = str(work / "out" if name in TRAININGS else work)
    path = f"{LAYER}{os.pathsep}{os.environ['PYTHONPATH']}"
    return run({"PYTHONPATH": path, "DEEPBIG_FAULT": json.dumps(told)})


def output(name, value):
    """Options of subprocess.Popen for an output that takes nothing."""
    if value == "closed":
        return {"preexec_fn": partial(os.close, 1 if name == "stdout" else 2)}
    if value == "no reader":
        reader, writer = os.pipe()
        os.close(reader)
        return {name: os.fdopen(writer, "w")}
    return {name: open("/dev/full", "w") if value == "full" else open("/dev/null")}


def content(work):
    """The bits of all runs below a folder, but for their provenance."""
    return {str(path.relative_to(work)): bits(path) for path in store.run_files(work)}
