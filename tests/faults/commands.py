"""Commands as processes of their own: started, disturbed, judged, cleared away.

A command starts a session, which the processes that it starts stay in.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import HANG_SECONDS

if not sys.platform.startswith("linux"):
    pytest.skip("needs the /proc of Linux", allow_module_level=True)

import resource  # which Windows has not

GIGABYTES = 2  # of memory that a fork may take beyond the memory of this process
END_SECONDS = 100  # that what a command has started may take to end after it


@dataclass(frozen=True)
class Ended:
    """A command that has ended. status: negative, the signal that killed it.

    left_behind: number of processes that it started and that live on. interrupted: whether it got
    SIGINT, since it took long.
    """

    status: int
    stdout: str
    stderr: str
    left_behind: int
    interrupted: bool = False

    def check(self, *statuses, n_sentences=(1,)):
        """Fail unless it ended with one of these statuses, as a command may end.

        n_sentences: numbers of sentences on stderr that a status of 2 may come with.
        """
        __tracebackhide__ = True
        assert "Traceback (most recent call last)" not in self.stderr + self.stdout, self
        assert self.status in statuses, self
        found = sum("error: " in line for line in self.stderr.splitlines())
        assert self.status != 2 or found in n_sentences, self
        assert not self.left_behind, self

    def __str__(self):
        ended = f"status {self.status}, {self.left_behind} processes left behind"
        return f"{ended}\n{self.stdout[-2000:]}\n{self.stderr[-4000:]}"


def run(line, folder, variables=None, meanwhile=lambda process: None, **options):
    """Run `python -m LINE` in a folder to its end, or kill it after HANG_SECONDS.

    meanwhile: called with the process while it runs. options: of subprocess.Popen.
    """
    environment = os.environ | (variables or {})
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        settings = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr} | options
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, line)],
            env=environment,
            cwd=folder,
            start_new_session=True,
            **settings,
        )
        try:
            meanwhile(process)
            process.wait(HANG_SECONDS)
            left_behind = clear_away(process.pid, END_SECONDS)
        except BaseException:
            clear_away(process.pid, patience=0)
            process.wait()
            raise
        return Ended(process.returncode, _content(stdout), _content(stderr), left_behind)


def fork(main, folder, seconds, interrupt_after=None):
    """Call `main` in a fork of this process, which has imported everything, as a program.

    It may take so many seconds of a core and GIGABYTES of memory; then it is killed, or has a
    MemoryError. After interrupt_after seconds it gets SIGINT, as by Ctrl-C.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = multiprocessing.get_context("fork").Process(
            target=_as_program, args=(main, folder, stdout, stderr, seconds)
        )
        process.start()
        process.join(interrupt_after or HANG_SECONDS)
        if interrupted := bool(interrupt_after) and process.is_alive():
            os.killpg(process.pid, signal.SIGINT)
            process.join(HANG_SECONDS)
        hangs = process.is_alive()
        left_behind = clear_away(process.pid, 0 if hangs else END_SECONDS)
        process.kill()  # if it hangs before it has a session of its own
        process.join()
        printed = _content(stdout), _content(stderr)
        return Ended(process.exitcode, *printed, left_behind, interrupted)


def _as_program(main, folder, stdout, stderr, seconds):
    os.setsid()
    os.chdir(folder)
    for descriptor, file in ((1, stdout), (2, stderr)):
        os.dup2(file.fileno(), descriptor)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    used = int(sum(os.times()[:2]) + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (used, used + 1))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GIGABYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    main()


def _content(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def processes(session):
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, own, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(own) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def clear_away(session, patience):
    """Kill the processes of a session that live after so many seconds; returns how many did."""
    end = time.monotonic() + patience
    while (left := processes(session)) and time.monotonic() < end:
        time.sleep(0.02)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(left)
