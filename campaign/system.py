"""Faults of the system under small trainings: disks, folders, handles, memory, clock, outputs."""

import errno
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from campaign import commands
from campaign.commands import Ended
from campaign.trial import Outcome
from experiments.running import nets, store
from experiments.running.provenance import REPOSITORY

NAME, UNIT, GOAL = "system", "faults", 300
CLAIM = (
    "status 0, or 2 or 1 with a sentence; the same command without the fault ends with the same "
    "bits; nothing is left over"
)

SMALL = ("--data=digits", "--limit=60", "--out=out")
# Trainings, which end with the same bits, and commands that only read a run.
TRAININGS = {
    "table1": ("table1", "--nets=1", "--epochs=3", *SMALL),
    "table1 workers": ("table1", "--nets=1", "--seeds=1,2", "--epochs=2", "--workers=2", *SMALL),
    "cnn": ("cnn", "--net=2M5s1-MP5-9N", "--epochs=3", *SMALL),
    "committee": ("committee", "--experiment=1", "--epochs=1", "--workers=2", *SMALL),
}
READERS = {
    "report": ("report", "--runs=out", "--out=pages/report.html"),
    "export": ("export", "--csv", "out/2M5s1-MP5-9N-seed0-load_digits.h5", "--out=csv"),
    "watch": ("watch", "out"),
    "figure1": ("figure1", "out/2M5s1-MP5-9N-seed0-load_digits.h5", "--out=csv/figure1"),
}
DISKS = ("full disk", "quota", "read-only", "broken disk", "no permission")
FOLDERS = ("folder removed", "folder renamed")
OUTPUTS = ("closed", "full", "no reader", "read-only file")
CACHES = ("stranger's", "open to others", "a file", "missing", "closed")
KINDS = (
    *(*DISKS, *FOLDERS, "slow disk", "no handles", "no memory", "clock", "no semaphores"),
    *("two commands", "cache", "stdout", "stderr"),
)
AT_AN_OPERATION = *DISKS, *FOLDERS, "slow disk", "no handles", "no memory"
MET = "met"  # a file that is there once the command has met its fault
LIMIT_SECONDS = 240
METRICS = ("epoch", "eta", "train_loss", "validation_errors", "test_errors")


_locks = {name: threading.Lock() for name in TRAININGS}


def prepare(shared: Path) -> None:
    """Nothing: undisturbed runs are made by the first trial that needs them."""


def undisturbed(name: str, shared: Path) -> Path:
    """The folder of an undisturbed run of a training. Raises RuntimeError if it fails."""
    folder = shared / name
    with _locks[name]:
        if not folder.exists():
            folder.mkdir()
            ended = start(TRAININGS[name], folder)
            if ended.status != 0:
                shutil.rmtree(folder)
                raise RuntimeError(f"no undisturbed run\n{ended}")
    return folder


def draw(rng: random.Random, number: int) -> dict:
    kind = KINDS[number % len(KINDS)]
    trainings = ["table1", "table1 workers", "cnn", "cnn", "committee"]
    if kind in (*DISKS, "no handles", "no memory", "slow disk", "stdout", "stderr"):
        trainings += ["report", "export", "figure1"]
    if kind in ("stdout", "stderr", "clock"):
        trainings += ["watch"]
    if kind == "no semaphores":
        trainings = ["table1", "table1 workers", "committee"]
    trial = {"kind": kind, "command": rng.choice(trainings), "at": rng.randint(1, 45)}
    if trial["command"] in READERS or rng.random() < 0.3:
        trial["at"] = rng.randint(1, 8)
    values: dict[str, Callable[[], float | str]] = {
        "slow disk": lambda: rng.choice((0.02, 0.1, 0.3)),
        "no handles": lambda: rng.choice((0, 1, 2, 3, 5, 10)),
        "no memory": lambda: rng.choice((0, 1, 5, 20, 50, 100, 200)) * 2**20,
        "no semaphores": lambda: rng.choice((errno.ENOENT, errno.EACCES, errno.ENOSYS)),
        "two commands": lambda: round(rng.choice((0.0, rng.uniform(0, 4))), 2),
        "cache": lambda: rng.choice(CACHES),
        "stdout": lambda: rng.choice(OUTPUTS),
        "stderr": lambda: rng.choice(OUTPUTS),
    }
    return trial | {"value": values.get(kind, lambda: 0)()}


def start(line: tuple[str, ...], folder: Path, **options: object) -> Ended:
    """A command, in a folder; what it prints goes to another one."""
    with tempfile.TemporaryDirectory(prefix="deepbig-") as printed:
        return commands.run(
            f"experiments.{line[0]}",
            line[1:],
            Path(printed),
            limit_seconds=LIMIT_SECONDS,
            **({"cwd": folder} | options),  # type: ignore[arg-type]
        )


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    name, kind = trial["command"], trial["kind"]
    line = (TRAININGS | READERS)[name]
    work = folder / "work"
    work.mkdir()
    expected = undisturbed("cnn" if name in READERS else name, shared)
    if name in READERS:
        shutil.copytree(expected / "out", work / "out")
    before = content(work)
    ended = disturb(trial, line, folder, work)
    # A command may end before the operation at which the fault would have come.
    tries = int(kind not in AT_AN_OPERATION or (folder / MET).exists())
    wrong = ended.complaint((0, 1, 2))
    if kind == "stderr" and wrong and wrong.startswith("0 sentences"):
        wrong = None  # nobody could have read it
    if wrong:
        return Outcome(tries, wrong)
    away = work / "out-away"
    if away.exists():  # what a user would do who finds it
        shutil.rmtree(work / "out", ignore_errors=True)
        away.rename(work / "out")
    lost = [path for path in before if path not in content(work)]
    # Where nothing can be removed, the next start does it.
    left = leftovers(work) if kind in ("full disk", "quota", "no handles", "no memory") else []
    if lost or left:
        return Outcome(tries, f"lost: {lost}, left over: {left}\n{ended}")
    again = start(line, work)
    wrong = again.complaint((0,))
    if not wrong and (left := leftovers(work)):
        wrong = f"{left} are left over after another start\n{again}"
    if not wrong and name in TRAININGS and content(work) != content(expected):
        wrong = f"the bits are others than of an undisturbed run\n{ended}\n{again}"
    return Outcome(tries, wrong)


def disturb(trial: dict, line: tuple[str, ...], folder: Path, work: Path) -> Ended:
    """Start the command with the fault."""
    kind, value = trial["kind"], trial["value"]
    if kind in ("stdout", "stderr"):
        return start(line, work, **outputs(kind, value, folder))
    if kind == "cache":
        return start(line, work, variables={"XDG_CACHE_HOME": str(cache(value, folder))})
    if kind == "two commands":
        return two(line, work, value)
    target = work / ("out" if trial["command"] in TRAININGS else "")
    fault = {"fault": kind, "at": trial["at"], "value": value}
    fault |= {"folder": str(target), "met": str(folder / MET)}
    path = f"{Path(__file__).parent / 'layer'}{os.pathsep}{REPOSITORY}"
    variables = {"PYTHONPATH": path, "DEEPBIG_FAULT": json.dumps(fault)}
    return start(line, work, variables=variables)


def two(line: tuple[str, ...], work: Path, seconds: float) -> Ended:
    """Start a command twice, the second so many seconds after the first; the worse end."""
    others: list[Ended] = []

    def second(process: subprocess.Popen, mark: str) -> None:
        time.sleep(seconds)
        others.append(start(line, work))

    first = start(line, work, meanwhile=second)
    for ended in (first, *others):
        if ended.complaint((0, 1, 2)):
            return ended
    return first


def outputs(name: str, value: str, folder: Path) -> dict[str, object]:
    """Options of subprocess.Popen for an output that takes nothing."""
    if value == "closed":
        number = 1 if name == "stdout" else 2
        return {"preexec_fn": partial(os.close, number)}
    if value == "full":
        return {name: open("/dev/full", "w")}
    if value == "read-only file":
        return {name: open("/dev/null")}
    reader, writer = os.pipe()
    os.close(reader)
    return {name: os.fdopen(writer, "w")}


def cache(value: str, folder: Path) -> Path:
    """A cache folder in which no compiled code can be kept safely."""
    place = folder / "cache"
    inner = place / "deepbig" / "compiled"
    if value == "a file":
        place.touch()
        return place
    if value == "missing":
        return place
    inner.mkdir(parents=True, mode=0o700)
    if value == "stranger's" and os.geteuid() == 0:
        os.chown(inner, 12345, 12345)
    elif value == "closed":
        inner.chmod(0)
    else:
        inner.chmod(0o777)
    return place


def leftovers(work: Path) -> list[str]:
    """Temporary files in a folder."""
    return [str(path.relative_to(work)) for path in work.rglob("*.tmp")]


def content(work: Path) -> dict[str, tuple]:
    """All run files below a folder: what of them must not depend on faults."""
    found = {}
    for path in store.run_files(work):
        run = store.read_run(path)
        networks, config, epoch = store.read_weights(store.weights_path(path), run.config)
        assert config == run.config
        found[str(path.relative_to(work))] = (
            run.config,
            [getattr(run.metrics, name) for name in METRICS],
            run.outputs.tobytes(),
            run.labels.tobytes(),
            epoch,
            {name: weights(network) for name, network in networks.items()},
        )
    return found


def weights(network: nets.AnyNetwork) -> list[bytes]:
    return [W.tobytes() for W in network.weights if W is not None]
