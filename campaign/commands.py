"""Commands of the project as processes of their own: started, watched, judged, cleared away."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.running.provenance import REPOSITORY

LIMIT_SECONDS = 600  # that any command of the campaign may take
MARK = "DEEPBIG_CAMPAIGN"  # an environment variable that every process of a command inherits

_end = float("inf")
_running: dict[str, subprocess.Popen] = {}
_lock = threading.Lock()
_stopped = threading.Event()


class Stopped(Exception):
    """The campaign is over before its time: no command is started any more."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended, by itself or killed. status: negative, the signal that killed it.

    seconds: from its start to its end. left_behind: processes that it started and that live on.
    """

    arguments: Sequence[str]
    status: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: int

    def complaint(self, statuses: Sequence[int]) -> str | None:
        """What is wrong with how it ended; None if nothing is.

        statuses: those that it may end with. A status of 2 needs one sentence on stderr. No
        traceback may be printed and no process be left behind.
        """
        errors = [line for line in self.stderr.splitlines() if "error: " in line]
        wrong = ""
        if "Traceback (most recent call last)" in self.stderr + self.stdout:
            wrong = "a traceback was printed"
        elif self.status not in statuses:
            wrong = f"the status is {self.status}, expected one of {list(statuses)}"
        elif self.status == 2 and len(errors) != 1:
            wrong = f"{len(errors)} sentences say what is wrong, expected one"
        elif self.left_behind:
            wrong = f"{self.left_behind} processes live on"
        return f"{wrong}\n{self}" if wrong else None

    def __str__(self) -> str:
        return (
            f"command: {' '.join(self.arguments)}\nstatus {self.status} after {self.seconds:.1f} s"
            f"\n--- stdout\n{self.stdout[-2000:]}\n--- stderr\n{self.stderr[-4000:]}"
        )


def run(
    module: str,
    arguments: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] = {},
    meanwhile: Callable[[subprocess.Popen, str], None] = lambda process, mark: None,
    limit_seconds: float = LIMIT_SECONDS,
    **options: object,
) -> Ended:
    """Run `python -m MODULE ARGUMENTS` to its end, or kill it after limit_seconds.

    folder: where stdout.txt and stderr.txt go. variables: changes to the environment. meanwhile:
    called while it runs, with the process and the mark that `processes` finds its children by.
    options: of subprocess.Popen. Raises Stopped if the campaign is over.
    """
    mark = uuid.uuid4().hex
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), MARK: mark} | dict(variables)
    command = [sys.executable, "-m", module, *arguments]
    out, err = folder / "stdout.txt", folder / "stderr.txt"
    started = time.monotonic()
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        settings = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr} | options
        with _lock:
            if _stopped.is_set():
                raise Stopped
            process = subprocess.Popen(command, env=environment, start_new_session=True, **settings)  # type: ignore[call-overload]
            _running[mark] = process
        try:
            meanwhile(process, mark)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit_seconds)
            too_long = process.poll() is None
            if too_long:
                process.kill()
                process.wait()
            seconds = time.monotonic() - started
            left = clear_away(partial(processes, mark), patience=0 if too_long else 10)
        finally:
            clear_away(partial(processes, mark), patience=0)
            with _lock:
                del _running[mark]
    if _stopped.is_set():
        raise Stopped
    return Ended(
        command[1:],
        process.returncode,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        seconds,
        left,
    )


def until(end: float) -> None:
    """Say at which time.monotonic() the trials that follow should be over."""
    global _end
    _end = end


def time_is_up() -> bool:
    """Whether a trial that can end early should do so now."""
    return time.monotonic() > _end


def processes(mark: str) -> list[int]:
    """The living processes of a command: its own, and all that inherited its environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def clear_away(find: Callable[[], list[int]], patience: float) -> int:
    """Kill those of the processes found that live after so many seconds; returns how many did."""
    end = time.monotonic() + patience
    while (left := find()) and time.monotonic() < end:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(left)


def stop() -> None:
    """Kill all commands that run, and start none any more."""
    _stopped.set()
    with _lock:
        marks = list(_running)
    for mark in marks:
        clear_away(partial(processes, mark), patience=0)
