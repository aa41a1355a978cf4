"""Files that are damaged, or that hold what they should not, given to what reads them."""

import random
import shutil
from pathlib import Path

from campaign import commands, forks
from campaign.trial import Outcome

NAME, UNIT, GOAL = "damage", "inputs", 10_000
CLAIM = (
    "one sentence and status 2, or the right content; no traceback, hang or crash, within "
    f"{forks.GIGABYTES} GB, nothing written"
)

INPUTS = 60  # of a trial; one more is for a command in a process of its own

# Kinds of damage, and how many of all trials try them.
KINDS = {
    **{"idx bytes": 2, "norb bytes": 2, "norb content": 2, "cifar bytes": 2, "cifar content": 2},
    **{"gzip": 1, "tar": 1, "run bytes": 2, "weights bytes": 2},
    **{"run structure": 8, "weights structure": 8, "net bytes": 2, "json": 4, "csv": 4},
}


def prepare(shared: Path) -> None:
    ended = commands.run("campaign.samples", [str(shared)], shared)
    if ended.status != 0:
        raise RuntimeError(f"no samples\n{ended}")


def draw(rng: random.Random, number: int) -> dict:
    kinds = [kind for kind, n in KINDS.items() for _ in range(n)]
    kind = rng.choice(kinds) if number >= len(KINDS) else list(KINDS)[number]
    inputs = INPUTS // 3 if kind in ("json", "csv") else INPUTS  # whole pages are made of these
    return {"kind": kind, "seed": rng.randrange(2**32), "first": 0, "inputs": inputs}


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    outcome = forks.run_batch("campaign.damaged", trial, shared, folder)
    work = folder / "own" / "whole"
    if outcome.failure or not work.exists():
        return outcome
    module, *arguments = (work / "command.txt").read_text().splitlines()
    before = listing(work)
    ended = commands.run(module, arguments, folder, limit_seconds=60, cwd=work)
    wrong = ended.complaint((0, 2))
    if not wrong and ended.status == 2 and listing(work) != before:
        wrong = f"something was written though the status is 2\n{ended}"
    shutil.rmtree(work)
    return Outcome(outcome.tries + 1, wrong)


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What is in a folder: sizes, times and numbers of all files, but for locks."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix != ".lock" and not path.is_dir():
            info = path.lstat()
            found[str(path.relative_to(folder))] = (info.st_size, info.st_mtime_ns, info.st_ino)
    return found
