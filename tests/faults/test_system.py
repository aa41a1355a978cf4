"""Faults of the system under small trainings: disks, folders, handles, memory, clock, outputs.

The same command without the fault must then end with the bits of an undisturbed run. A test's
number gives its fault.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import commands
import pytest
from run_bits import bits
from tries import SEED, tries

from experiments.running import store
from experiments.running.provenance import REPOSITORY

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
DISKS = "full disk", "quota", "read-only", "broken disk", "no permission"
OUTPUTS = "closed", "full", "no reader", "read-only file"
# The values that each fault may have.
FAULTS = {
    **dict.fromkeys((*DISKS, "folder removed", "folder renamed", "clock"), (0,)),
    "slow disk": (0.02, 0.1, 0.3),
    "no handles": (0, 1, 2, 3, 5, 10),
    "no memory": [n * 2**20 for n in (0, 1, 5, 20, 50, 100, 200)],
    "no semaphores": (errno.ENOENT, errno.EACCES, errno.ENOSYS),
    "two commands": (0, 0.5, 1, 1.5, 2, 3),
    "cache": ("stranger's", "open to others", "a file", "missing", "closed"),
    "stdout": OUTPUTS,
    "stderr": OUTPUTS,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A function that returns the folder in which nothing disturbed a training."""
    made = {}

    def run(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("undisturbed")
            commands.run(line_of(name), made[name]).check(0)
        return made[name]

    return run


def line_of(name):
    command, *options = (TRAININGS | READERS)[name]
    return [f"experiments.{command}", *options]


def drawn(number):
    """The fault of a number: its name, its value, a command, and at which operation it begins."""
    rng = random.Random(f"{SEED} {number}")
    fault = list(FAULTS)[number % len(FAULTS)]
    names = ["cnn", "table1", "table1 workers", "cnn", "committee"]
    if fault in (*DISKS, "no handles", "no memory", "slow disk", "stdout", "stderr"):
        names += ["report", "export", "figure1"]
    if fault in ("stdout", "stderr", "clock"):
        names += ["watch"]
    if fault == "no semaphores":
        names = ["table1 workers", "table1", "committee"]
    name = names[number // len(FAULTS) % len(names)]
    at = rng.randint(1, 8 if name in READERS or rng.random() < 0.3 else 45)
    return fault, rng.choice(FAULTS[fault]), name, at


def describe(number):
    fault, value, name, at = drawn(number)
    return f"{number}: {name}, {fault} {value}, at {at}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tries(len(FAULTS), 330)), ids=describe)
def test_after_a_fault_the_same_command_ends_with_the_same_bits(
    number, undisturbed, tmp_path, tried
):
    fault, value, name, at = drawn(number)
    expected = undisturbed("cnn" if name in READERS else name)
    work = tmp_path / "work"
    work.mkdir()
    if name in READERS:
        shutil.copytree(expected / "out", work / "out")
    before = content(work)
    ended = disturbed(fault, value, name, at, work)
    # A command may end before the operation at which the fault would have come.
    tried(fault not in FAULTS_OF_FILES or (tmp_path / "met").exists())
    # What says stderr when nobody can read it, does not count.
    ended.check(0, 1, 2, n_sentences=(0, 1) if fault == "stderr" else (1,))
    away = work / "out-away"
    if away.exists():  # what a user would do who finds it
        shutil.rmtree(work / "out", ignore_errors=True)
        away.rename(work / "out")
    assert before.keys() <= content(work).keys(), ended
    if fault in ("full disk", "quota", "no handles", "no memory"):
        assert not list(work.rglob("*.tmp")), ended  # else nothing can be removed
    again = commands.run(line_of(name), work)
    again.check(0)
    assert not list(work.rglob("*.tmp")), again
    if name in TRAININGS:
        assert content(work) == content(expected), f"{ended}\n{again}"


FAULTS_OF_FILES = {*DISKS, "folder removed", "folder renamed", "slow disk", "no handles"}
FAULTS_OF_FILES |= {"no memory"}


def disturbed(fault, value, name, at, work):
    """How a command ends that meets a fault."""
    run = partial(commands.run, line_of(name), work)
    if fault in ("stdout", "stderr"):
        return run(**output(fault, value))
    if fault == "cache":
        return run({"XDG_CACHE_HOME": str(cache(value, work.parent / "cache"))})
    if fault == "two commands":
        other = []

        def start_other(process):
            time.sleep(value)
            other.append(run())

        first = run(meanwhile=start_other)
        first.check(0, 1, 2)
        return other[0]
    return run(layer(fault, value, at, work / "out" if name in TRAININGS else work))


def layer(fault, value, at, folder):
    """Environment variables that put the layer between a command and the system."""
    met = str(folder.parent.parent / "met")
    told = {"fault": fault, "at": at, "value": value, "folder": str(folder), "met": met}
    path = f"{LAYER}{os.pathsep}{REPOSITORY}"
    return {"PYTHONPATH": path, "DEEPBIG_FAULT": json.dumps(told)}


def output(name, value):
    """Options of subprocess.Popen for an output that takes nothing."""
    if value == "closed":
        return {"preexec_fn": partial(os.close, 1 if name == "stdout" else 2)}
    if value == "no reader":
        reader, writer = os.pipe()
        os.close(reader)
        return {name: writer}
    return {name: open("/dev/full", "w") if value == "full" else open("/dev/null")}


def cache(value, place):
    """A cache folder in which no compiled code can be kept safely."""
    inner = place / "deepbig" / "compiled"
    if value == "a file":
        place.touch()
    elif value != "missing":
        inner.mkdir(parents=True, mode=0o700)
        inner.chmod(0 if value == "closed" else 0o777)
        if value == "stranger's" and os.geteuid() == 0:
            inner.chmod(0o700)
            os.chown(inner, 12345, 12345)
    return place


def content(work):
    """The bits of all runs below a folder, but for their provenance."""
    return {str(path.relative_to(work)): bits(path) for path in store.run_files(work)}


REPLACE = """
import sys
from pathlib import Path
from deepbig_runtime import files
try:
    files.replace(Path(sys.argv[1]), b"new")
except files.FileFault as fault:
    sys.exit(str(fault))
"""


@pytest.mark.parametrize("at", range(1, 6))
def test_a_full_disk_at_each_operation_of_a_save_keeps_the_old_file(at, tmp_path):
    """They are: open, write, fsync, replace; then the sync of the folder, which may fail."""
    path = tmp_path / "folder" / "folder" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", REPLACE, str(path)],
        env=os.environ | layer("full disk", 0, at, path.parent),
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "met").exists()
    assert ("No space left on device" in done.stderr) == (at < 5)
    assert path.read_bytes() == (b"old" if at < 5 else b"new")
    assert os.listdir(path.parent) == ["file"]
