"""Many short tries in one process, which imports once: each try is a fork that ends by itself.

A program of a batch is started by `run_batch` with three arguments: a file with the trial as JSON,
the folder that all trials share, and a folder of its own. For each try it prints a line of JSON
before it and one after it, so that whatever ends the batch itself is known too.
"""

import atexit
import contextlib
import faulthandler
import gc
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from campaign import commands
from campaign.commands import Ended
from campaign.trial import Outcome

GIGABYTES = 2  # of memory that a try may take beyond what the batch has
PATIENCE = 6
POLL_SECONDS = 0.005


def run_batch(
    module: str, trial: dict, shared: Path, folder: Path, variables: Mapping[str, str] = {}
) -> Outcome:
    """Run `python -m MODULE` for a trial; what came of all its tries. variables: as `run` has."""
    (folder / "trial.json").write_text(json.dumps(trial))
    own = folder / "own"
    own.mkdir()
    names = [str(path) for path in (folder / "trial.json", shared, own)]
    ended = commands.run(module, names, folder, {"OPENBLAS_NUM_THREADS": "1", **variables})
    said = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    failures = [line["failure"] for line in said if line.get("failure")]
    tries = sum("failure" in line for line in said)
    if ended.status != 0:
        failures.append(f"the batch itself ended\n{ended}")
    return Outcome(tries, "\n\n".join(failures[:3]) if failures else None)


def answer(tries: Iterable[tuple[str, Callable[[], str | None]]]) -> None:
    """Make tries, each a description and a function that returns what is wrong, and print them."""
    gc.freeze()  # else each fork copies what its collector looks at
    for what, make in tries:
        print(json.dumps({"try": what}), flush=True)
        wrong = make()
        said = wrong and f"{wrong.splitlines()[0]}: {what}\n{wrong}"
        print(json.dumps({"failure": said}), flush=True)


def fork(
    main: Callable[[], object],
    arguments: Sequence[str],
    folder: Path,
    seconds: float,
    interrupt_after: float | None = None,
) -> Ended:
    """Call `main` in a child of this process, in a folder, as a program with those arguments.

    It ends as a program does: what it returns says nothing, SystemExit is its status. It may take
    so many seconds of a core and GIGABYTES of memory; then it is killed, or has a MemoryError. It
    may take PATIENCE times as long by the clock, for others may have the cores. After
    interrupt_after seconds it and its processes get SIGINT, as by Ctrl-C.
    """
    out, err = folder.parent / "stdout.txt", folder.parent / "stderr.txt"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become(arguments, folder, out, err, seconds)
        _end(main)
    started, interrupted = time.monotonic(), False
    while True:
        found, code, usage = os.wait4(child, os.WNOHANG)
        if found:
            break
        taken = time.monotonic() - started
        if interrupt_after is not None and taken > interrupt_after and not interrupted:
            os.killpg(child, signal.SIGINT)
            interrupted = True
        if taken > PATIENCE * seconds + (interrupt_after or 0):
            os.killpg(child, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    seconds_taken = time.monotonic() - started
    left = commands.clear_away(
        partial(_members, child), patience=0 if code == signal.SIGKILL else 5
    )
    stderr = err.read_text(errors="replace")
    if usage.ru_maxrss > 1024 * 1024 * GIGABYTES:
        stderr += f"\nTraceback (most recent call last): none, but {usage.ru_maxrss} KiB of memory"
    status = os.waitstatus_to_exitcode(code)
    return Ended(arguments, status, out.read_text(errors="replace"), stderr, seconds_taken, left)


def _become(arguments: Sequence[str], folder: Path, out: Path, err: Path, seconds: float) -> None:
    """Make this fork look like a program that was just started."""
    os.setsid()
    os.chdir(folder)
    for descriptor, path in ((0, Path(os.devnull)), (1, out), (2, err)):
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if descriptor else 0)
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - never closed
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = list(arguments)
    faulthandler.enable(2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = sum(os.times()[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + seconds), int(used + seconds) + 1))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GIGABYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _end(main: Callable[[], object]) -> None:
    """Call `main` and end this process as Python does, but leave the memory to the system."""
    status: object = 1
    try:
        main()
        status = 0
    except SystemExit as ending:
        status = ending.code or 0
    except BaseException:
        traceback.print_exc()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as from here on Python has it
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 1)


def _members(session: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
