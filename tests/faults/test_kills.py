"""Kills: a command is killed at random moments, again and again, until it has come to its end.

A test's number gives its kills. Their moments are parts of the time that the undisturbed command
takes on this machine, or changes of its folder: so a test repeated kills at about the same points.
"""

import contextlib
import os
import random
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import commands
import pytest
from run_bits import bits, whys
from tries import SEED, tries
from waiting import HANG_SECONDS

from experiments.training import runs, store

# Runs of some seconds that save often. The best epoch is not always the last.
DIGITS = ("--data=digits", "--engine=cpu")
COMMANDS = {
    "table1": (*DIGITS, "--seeds=0,1", "--epochs=5", "--nets=1", "--limit=100", "--eta=0.004"),
    "cnn": (
        *(*DIGITS, "--seeds=0,1", "--epochs=8", "--net=2M5s2-MP3-20N", "--limit=300"),
        "--eta=0.05",
    ),
    "committee": (*DIGITS, "--experiment=1", "--epochs=2", "--limit=60"),
}
WHERE = "2", "1", "cluster", "1", "2", "1", "2"  # workers
KILLS = tries(2, 5)  # of a test; then the command may go to its end
COLD, COLD_TIMES = 20, 4  # one of so many tests compiles, which takes so many times as long
AIMED_SHARE, MAX_CHANGES = tries(1, 0.4), 20  # of kills, at one of so many folder changes
POLL_SECONDS = 0.001
STATUSES = {
    "SIGKILL": (-signal.SIGKILL,),
    # While it tries out how long an epoch takes, the loss of a worker ends the command.
    "worker": (0, 2),
    # Negative: before the command can say what it does on a signal.
    "SIGTERM": (143, -signal.SIGTERM),
    "SIGHUP": (129, -signal.SIGHUP),
    "SIGINT": (130,),
}
CUT_START = (
    r'Traceback \(most recent call last\):\n  File "<string>", line 1, in <module>\n'
    r"(?:  .*\n)*?  File .*spawn\.py.*\n(?:  .*\n)*EOFError: Ran out of input\n"
)
ENDS = {"finished", "killed", "SIGTERM", "SIGHUP", "SIGINT"}  # of sessions, in run files


def hear_hangups():
    """Undo the nohup under which the tests may run."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(tries(3, 280)))
def test_a_command_killed_again_and_again_ends_with_the_same_bits(
    number, undisturbed, request, tmp_path, tried
):
    rng = random.Random(f"{SEED} {number}")
    name, where = list(COMMANDS)[number % len(COMMANDS)], WHERE[number % len(WHERE)]
    line = [f"experiments.{name}", *COMMANDS[name], "--out=out"]
    folder, seconds = undisturbed(*line, "--workers=1")
    expected = folder / "out"
    variables, cluster = {}, None
    if where == "cluster":
        cluster = request.getfixturevalue("cluster")
        line.append(f"--scheduler={cluster.scheduler_address}")
    else:
        line.append(f"--workers={where}")
    if number % COLD == COLD - 1:
        variables, seconds = {"XDG_CACHE_HOME": str(tmp_path / "cache")}, COLD_TIMES * seconds
    out = tmp_path / "out"
    saved = epochs(expected, out, cluster)
    hows = [how for how in STATUSES if how != "worker" or where != "1"]
    for number_of_kill in range(KILLS):
        how = hows[(2 * number + number_of_kill) % len(hows)]
        killer = Killer(rng, how, out, seconds, cluster)
        ended = commands.run(line, tmp_path, variables, killer, preexec_fn=hear_hangups)
        tried(killer.has_killed)
        if how == "SIGKILL":  # Python's, of a worker whose start it cut short
            ended = replace(ended, stderr=re.sub(CUT_START, "", ended.stderr))
        ended.check(0, *(STATUSES[how] if killer.has_killed else ()))
        if ended.status > 2:
            assert ended.stderr.splitlines()[-1].startswith(f"stopped by {how}"), ended
        before, saved = saved, epochs(expected, out, cluster)
        assert all(saved[run] >= before[run] for run in saved), f"{before}, now {saved}\n{ended}"
        if ended.status == 0:
            break
    else:
        commands.run(line, tmp_path, variables).check(0)
    for path in store.run_files(expected):
        assert bits(out / path.name) == bits(path)
        assert set(whys(out / path.name)) <= ENDS
    assert sorted(os.listdir(out)) == sorted(os.listdir(expected))


def epochs(expected, out, cluster):
    """How many epochs of each run are saved, which is an error if files are damaged."""
    saved = {}
    for path in store.run_files(expected):
        config, own = store.read_run(path).config, out / path.name
        # Workers of a cluster may need a moment to notice that a command is gone.
        with runs.lock(own, HANG_SECONDS) if cluster else contextlib.nullcontext():
            saved[path.name] = runs.epochs_done(own, config)
    return saved


class Killer:
    """Kills a command once, unless it ends before.

    how: a name of STATUSES. out: its folder. seconds: that it takes undisturbed.
    """

    def __init__(self, rng, how, out, seconds, cluster):
        self._how, self._out, self._cluster = how, out, cluster
        # To the workers too, as a terminal does; they must see by themselves that it was killed.
        self._to_all = rng.random() < 0.5 and how != "SIGKILL"
        is_aimed = rng.random() < AIMED_SHARE
        self._seconds = 0 if is_aimed else rng.uniform(0, 0.9) * seconds
        self._changes = rng.randint(1, MAX_CHANGES) if is_aimed else 0
        self._delay = rng.uniform(0, 0.02) * is_aimed
        self.has_killed = False

    def __call__(self, process):
        moment = time.monotonic() + self._seconds
        changes, last = 0, contents(self._out)
        while time.monotonic() < moment or changes < self._changes:
            if process.poll() is not None:
                return
            if self._changes:
                changes += (now := contents(self._out)) != last
                last = now
            time.sleep(POLL_SECONDS)
        time.sleep(self._delay)
        if self._how == "worker":
            self.has_killed = self._kill_worker(process)
        elif self._how != "SIGINT" or wait_until_it_catches(process):
            self.has_killed = process.poll() is None
            send = os.killpg if self._to_all else os.kill
            if self.has_killed:
                send(process.pid, signal.Signals[self._how])

    def _kill_worker(self, process):
        """Kill a worker, as soon as there is one. Returns whether there was."""
        while process.poll() is None:
            if self._cluster:
                found = [nanny.pid for nanny in self._cluster.workers.values() if nanny.pid]
            else:
                found = [pid for pid in commands.processes(process.pid) if is_worker(pid)]
            if found:
                os.kill(found[0], signal.SIGKILL)
                return True
            time.sleep(POLL_SECONDS)
        return False


def contents(folder):
    """Names and times of a folder's files."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return {(entry.name, entry.stat().st_mtime_ns) for entry in entries}
    return set()  # it is not there yet, or a file has gone meanwhile


def is_worker(pid):
    with contextlib.suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()


def wait_until_it_catches(process):
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
