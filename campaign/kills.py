"""Kills: a command is killed at random moments, again and again, until it has come to its end.

Moments are given as parts of the time that the undisturbed command takes on this machine, or as
changes of its folder. So the same trial kills at about the same points, not at the very same.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from campaign import commands
from campaign.commands import Ended
from campaign.run_bits import bits
from campaign.trial import Outcome
from experiments.running import runs, store
from experiments.running.errors import Problem

NAME, UNIT, GOAL = "kills", "kills", 1000
CLAIM = (
    "after a kill at any moment no saved epoch is lost, and no process lives on; the same command "
    "goes on to the same bits and leaves no file over"
)

# Runs of some seconds that save often. The best epoch is not always the last.
DIGITS = ["--data", "digits", "--engine", "cpu"]
SMALL = [*DIGITS, "--seeds", "0,1", "--epochs"]
COMMANDS = {
    "table1": [*SMALL, "5", "--nets", "1", "--limit", "100", "--eta", "0.004"],
    "cnn": [*SMALL, "8", "--net", "2M5s2-MP3-20N", "--limit", "300", "--eta", "0.05"],
    "committee": [*DIGITS, "--experiment", "1", "--epochs", "2", "--limit", "60"],
}
# One or two workers, and now and then a cluster, which takes long to start.
WHERE = (*3 * ("1", "2"), "cluster")
CLUSTER_WORKERS = 2
KILLS = {"table1": 5, "cnn": 5, "committee": 3}  # of a trial; then the command may go to its end
COLD_SHARE, COLD_KILLS, COLD_FACTOR = 0.08, 3, 4  # of trials without compiled code, which are long
AIMED_SHARE, MAX_CHANGES = 0.4, 20  # of kills, at one of so many changes of the folder
POLL_SECONDS = 0.001
CLUSTER_SECONDS = 60  # to start, or to replace a worker
STATUSES = {
    "SIGKILL": (-signal.SIGKILL,),
    # Negative: before the command can say what it does on a signal.
    "SIGTERM": (143, -signal.SIGTERM),
    "SIGINT": (130,),
    # While it tries out how long an epoch takes, the loss of a worker ends the command.
    "worker": (0, 2),
}

_locks = {name: threading.Lock() for name in COMMANDS}


def prepare(shared: Path) -> None:
    """Only asks for what is needed: undisturbed runs are made by the first trial of a command."""
    if find_spec("distributed") is None:
        raise Problem(
            "the part kills needs Dask, which is not installed; install it with "
            "pip install -e '.[distributed]', or name other parts"
        )


def draw(rng: random.Random, number: int) -> dict | None:
    command = list(COMMANDS)[number % len(COMMANDS)]
    where = rng.choice(WHERE)
    is_cold = where == "1" and command != "committee" and rng.random() < COLD_SHARE * len(WHERE) / 3
    names = [name for name in STATUSES if name != "worker" or where != "1"]
    kills = [_draw_kill(rng, names) for _ in range(COLD_KILLS if is_cold else KILLS[command])]
    return {"command": command, "where": where, "is_cold": is_cold, "kills": kills}


def _draw_kill(rng: random.Random, names: Sequence[str]) -> dict:
    """how: a name of STATUSES. to_all: to the workers too, as a terminal does.

    moment: a part of the undisturbed time; after it, change: a number of changes of the folder,
    and delay: seconds.
    """
    kill = {"how": rng.choice(names), "to_all": rng.random() < 0.5}
    if rng.random() < AIMED_SHARE:
        aim = {"change": rng.randint(1, MAX_CHANGES), "delay": round(rng.uniform(0, 0.02), 4)}
        return kill | {"moment": 0.0} | aim
    return kill | {"moment": round(rng.uniform(0, 0.9), 4), "change": 0, "delay": 0.0}


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    expected, seconds = undisturbed(trial["command"], shared)
    if trial["where"] != "cluster":
        return _Trial(trial, expected, seconds, folder).make()
    outcomes = []

    def work(process: subprocess.Popen, mark: str) -> None:
        cluster = _Cluster(folder / "cluster" / "address", process, mark)
        outcomes.append(_Trial(trial, expected, seconds, folder, cluster).make())
        process.terminate()

    (folder / "cluster").mkdir()
    address = str(folder / "cluster" / "address")
    commands.run("campaign.local_cluster", [address], folder / "cluster", meanwhile=work)
    return outcomes[0]


def undisturbed(command: str, shared: Path) -> tuple[Path, float]:
    """The folder of a command that nobody killed, and how many seconds it took at least.

    Made twice: the first time it may have to compile. Raises RuntimeError if it fails, or if the
    two do not have the same bits.
    """
    said = shared / f"{command}.json"
    outs = [shared / f"{command}-{number}" for number in range(2)]
    with _locks[command]:
        if not said.exists():
            seconds = []
            for out in outs:
                out.mkdir()
                ended = _run(command, ["--workers", "1"], out / "out", out)
                if complaint := ended.complaint([0]):
                    raise RuntimeError(f"undisturbed, but {complaint}")
                seconds.append(ended.seconds)
            first, second = (list(map(bits, store.run_files(out / "out"))) for out in outs)
            if first != second:
                raise RuntimeError(f"two undisturbed runs of {command} differ")
            said.write_text(json.dumps(min(seconds)))
    return outs[1] / "out", json.loads(said.read_text())


def _run(
    command: str,
    where: Sequence[str],
    out: Path,
    folder: Path,
    variables: dict[str, str] | None = None,
    meanwhile: Callable[[subprocess.Popen, str], None] = lambda process, mark: None,
) -> Ended:
    arguments = [*COMMANDS[command], *where, "--out", str(out)]
    return commands.run(f"experiments.{command}", arguments, folder, variables or {}, meanwhile)


class _Cluster:
    """A cluster in a process of its own: see `local_cluster`."""

    def __init__(self, path: Path, process: subprocess.Popen, mark: str):
        self._path, self._process, self.mark = path, process, mark

    def address(self) -> str:
        """Its scheduler's, as soon as it has all its workers. Raises RuntimeError if it fails."""
        end = time.monotonic() + CLUSTER_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            if self._path.exists():
                address, workers = self._path.read_text().split()
                if int(workers) == CLUSTER_WORKERS:
                    return address
            time.sleep(0.1)
        raise RuntimeError(f"no cluster of {CLUSTER_WORKERS} workers within {CLUSTER_SECONDS} s")


class _Trial:
    """A command in a folder of its own, killed and started again.

    expected: the folder of the undisturbed command. seconds: that it took.
    """

    def __init__(
        self,
        trial: dict,
        expected: Path,
        seconds: float,
        folder: Path,
        cluster: _Cluster | None = None,
    ):
        self._trial, self._expected, self._cluster = trial, expected, cluster
        self._seconds = seconds * (COLD_FACTOR if trial["is_cold"] else 1)
        self._folder, self._out = folder, folder / "out"
        self._n_kills = 0
        self._killed = False

    def make(self) -> Outcome:
        failure = None
        before = self._epochs()
        for kill in [*self._trial["kills"], None]:
            if kill and self._n_kills and commands.time_is_up():
                continue
            self._killed = False
            ended = self._start(kill)
            self._n_kills += self._killed
            statuses = STATUSES[kill["how"]] if kill and self._killed else ()
            failure = ended.complaint((0, *statuses))
            after = {} if failure else self._epochs()
            if lost := [name for name in after if after[name] < before[name]]:
                failure = f"{lost[0]}: {before[lost[0]]} epochs were saved, now {after[lost[0]]}"
                failure += f"\n{ended}"
            if failure:
                failure = f"{failure}\nthe last kill: {json.dumps(kill)}"
                break
            before = after
            if ended.status == 0:
                failure = self._different()
                break
        return Outcome(self._n_kills, failure)

    def _start(self, kill: dict | None) -> Ended:
        where = ["--workers", self._trial["where"]]
        if self._cluster:
            where = ["--scheduler", self._cluster.address()]
        cache = {"XDG_CACHE_HOME": str(self._folder / "cache")} if self._trial["is_cold"] else {}

        def meanwhile(process: subprocess.Popen, mark: str) -> None:
            if kill:
                self._kill(kill, process, mark)

        command = self._trial["command"]
        return _run(command, where, self._out, self._folder, cache, meanwhile)

    def _kill(self, kill: dict, process: subprocess.Popen, mark: str) -> None:
        """Wait for the moment, then kill, unless the command has ended before."""
        moment = time.monotonic() + kill["moment"] * self._seconds
        changes, last = 0, _contents(self._out)
        while time.monotonic() < moment or changes < kill["change"]:
            if process.poll() is not None:
                return
            if kill["change"]:
                changes += (now := _contents(self._out)) != last
                last = now
            time.sleep(POLL_SECONDS)
        time.sleep(kill["delay"])
        if kill["how"] == "worker":
            self._killed = _kill_worker(process, self._cluster.mark if self._cluster else mark)
        elif kill["how"] != "SIGINT" or _wait_until_it_catches(process):
            self._killed = process.poll() is None
            send = os.killpg if kill["to_all"] else os.kill
            if self._killed:
                send(process.pid, signal.Signals[kill["how"]])

    def _epochs(self) -> dict[str, int]:
        """How many epochs of each run are saved. Raises Fault if files are damaged."""
        saved = {}
        for path in store.run_files(self._expected):
            config, own = store.read_run(path).config, self._out / path.name
            if self._cluster:  # its workers may need a moment to notice that a command is gone
                with runs.lock(own, CLUSTER_SECONDS):
                    saved[path.name] = runs.epochs_done(own, config)
            else:
                saved[path.name] = runs.epochs_done(own, config)
        return saved

    def _different(self) -> str | None:
        """What distinguishes a command that has come to its end from the undisturbed one."""
        for path in store.run_files(self._expected):
            if bits(self._out / path.name) != bits(path):
                return f"{path.name} has other bits than undisturbed"
        names = [sorted(path.name for path in out.iterdir()) for out in (self._expected, self._out)]
        return None if names[0] == names[1] else f"the files are {names[1]}, expected {names[0]}"


def _contents(folder: Path) -> set[tuple[str, int]]:
    """Names and times of a folder's files."""
    found = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.add((entry.name, entry.stat().st_mtime_ns))
    except OSError:  # it is not there yet, or a file has gone meanwhile
        pass
    return found


def _wait_until_it_catches(process: subprocess.Popen) -> bool:
    """Wait until a command has handlers of its own; returns whether it lives until then.

    Before that Python, which begins to start, answers to SIGINT with a traceback of its own.
    """
    mask = 1 << (signal.SIGTERM - 1)  # which Python catches only if it is told to
    while process.poll() is None:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            if int(status.partition("SigCgt:")[2].split()[0], 16) & mask:
                return True
        time.sleep(POLL_SECONDS)
    return False


def _kill_worker(process: subprocess.Popen, mark: str) -> bool:
    """Kill one of the workers, as soon as there is one. Returns whether there was."""
    while process.poll() is None:
        for worker in commands.processes(mark):
            try:
                is_worker = b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes()
                if is_worker and process.poll() is None:
                    os.kill(worker, signal.SIGKILL)
                    return True
            except OSError:
                pass  # it has just ended
        time.sleep(POLL_SECONDS)
    return False
