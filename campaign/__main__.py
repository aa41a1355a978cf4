"""Try to break the commands at random, again and again, and count what held.

Every trial is drawn from the seed and made in processes and a folder of its own, at low priority.
What went wrong is written to a file in the folder failures; --again makes that trial again. Prints
a table, and writes it with its numbers as campaign.json, in which parts that are not made again
stay. Without --minutes it takes hours: until every part has reached its goal. A part that was
stopped before, without any failure, goes on from there; any other begins anew.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain, count
from pathlib import Path

from tqdm import tqdm

from campaign import arguments, commands, damage, endurance, kills, power, report, system
from campaign.trial import Outcome, Part, draw
from deepbig_runtime import files
from experiments.running import cli, provenance
from experiments.running.errors import Problem
from experiments.running.messages import tell
from experiments.scoring import campaign_table
from experiments.scoring.records import CampaignPart

PARTS: Sequence[Part] = (kills, power, damage, system, arguments, endurance)


def new_row(part: Part, seed: int, minutes: float | None) -> CampaignPart:
    """A part of the record of which no case was made."""
    return CampaignPart(
        part=part.NAME,
        claim=part.CLAIM,
        unit=part.UNIT,
        goal=part.GOAL,
        seed=seed,
        minutes=minutes,
        provenance=provenance.collect(),
    )


def goes_on(row: CampaignPart | None, part: Part, seed: int) -> bool:
    """Whether the row is of a part that stopped before its goal, and without any failure."""
    if row is None or row.failures or row.tries > row.drawn == 0:  # none, or an older record
        return False
    return (row.seed, row.goal) == (seed, part.GOAL) and row.tries < part.GOAL


def trials(part: Part, row: CampaignPart) -> Iterator[tuple[int, dict]]:
    """The trials that were not made yet, with their numbers. Modifies row."""
    for number in chain(tuple(row.left), count(row.drawn)):
        if (trial := draw(part, row.seed, number)) is None:
            return
        if number >= row.drawn:
            row.drawn = number + 1
            row.left.append(number)
        yield number, trial


def attempt(part: Part, trial: dict, shared: Path) -> Outcome:
    """Make a trial in a folder of its own. Any exception of it is a failure."""
    with tempfile.TemporaryDirectory(prefix="deepbig-") as folder:
        try:
            return part.attempt(trial, shared, Path(folder))
        except commands.Stopped:
            return Outcome(0)
        except Exception as error:  # the campaign must go on
            return Outcome(1, f"{type(error).__name__}: {error}")


def run_part(
    part: Part, row: CampaignPart, end: float, folder: Path, save: Callable[[], None]
) -> None:
    """Make trials until the part's goal is reached or time.monotonic() is `end`.

    row: of the record, modified. save: called after each trial. Writes what failed to
    folder/failures.
    """
    started = time.monotonic() - row.seconds
    running: dict[Future, tuple[int, dict]] = {}
    coming = trials(part, row)
    commands.until(end)
    with (
        tempfile.TemporaryDirectory(prefix="deepbig-") as shared,
        ThreadPoolExecutor(provenance.cores()) as executor,
        tqdm(
            total=part.GOAL,
            initial=row.tries,
            unit=f" {part.UNIT}",
            desc=part.NAME,
            disable=None,
        ) as bar,
    ):
        try:
            part.prepare(Path(shared))
            while True:
                while len(running) < provenance.cores() and time.monotonic() < end:
                    # What runs will add to the count: else the last tries were made in vain.
                    if row.tries + len(running) >= part.GOAL:
                        break
                    if not (found := next(coming, None)):
                        break
                    running[executor.submit(attempt, part, found[1], Path(shared))] = found
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, trial = running.pop(future)
                    outcome = future.result()
                    row.tries += outcome.tries
                    bar.update(outcome.tries)
                    if outcome.tries:  # else it was stopped
                        row.left.remove(number)
                    if outcome.failure:
                        row.failures += 1
                        path = folder / "failures" / f"{part.NAME}-{row.seed}-{number}.json"
                        write_failure(path, part, trial, outcome.failure)
                        tell(f"{part.NAME}, trial {number}: {outcome.failure.splitlines()[0]}")
                    row.seconds = round(time.monotonic() - started)
                    save()
        except BaseException:
            commands.stop()
            raise


def write_failure(path: Path, part: Part, trial: dict, failure: str) -> None:
    """A file that --again takes. Raises files.FileFault if it cannot be written."""
    files.make_folder(path.parent)
    content = {"part": part.NAME, "trial": trial, "failure": failure} | provenance.commit()
    files.replace(path, (json.dumps(content, indent=1) + "\n").encode())


def again(path: Path) -> int:
    """Make the trial of a failure's file once more. Returns an exit status."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        part = {part.NAME: part for part in PARTS}[content["part"]]
        trial = content["trial"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"cannot take {path} as a failure of the campaign: {error}; name a file of the folder "
            "failures that the campaign wrote"
        ) from None
    with tempfile.TemporaryDirectory(prefix="deepbig-") as shared:
        part.prepare(Path(shared))
        outcome = attempt(part, trial, Path(shared))
    print(outcome.failure or f"it holds: {outcome.tries} {part.UNIT}")
    return 1 if outcome.failure else 0


def save(rows: Mapping[str, CampaignPart], row: CampaignPart, folder: Path) -> None:
    """Write the record. row: the one that changed. Raises files.FileFault if that fails."""
    row.provenance = row.provenance.ended()
    report.write(folder, [rows[part.NAME] for part in PARTS if part.NAME in rows])


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = cli.Parser("", __doc__)
    parser.prog = "python -m campaign"
    parser.add_argument(
        "--minutes",
        type=cli.number(0.1, 10_000),
        help="stop after so many minutes, shared by all parts (default: when all goals are met)",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=[part.NAME for part in PARTS],
        default=[part.NAME for part in PARTS],
        metavar="PART",
        help=f"which: {', '.join(part.NAME for part in PARTS)} (default: all)",
    )
    parser.add_argument(
        "--seed", type=cli.integer(0, 2**64 - 1), default=0, help="of all trials (default: 0)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/campaign"),
        metavar="DIR",
        help="folder for campaign.json, campaign.md and failures (default: %(default)s)",
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="make the trial of a failure's file once more"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    if not sys.platform.startswith("linux"):
        raise Problem(f"the campaign needs Linux, where processes are in /proc: not {sys.platform}")
    os.nice(19)
    if options.again:
        return again(options.again)
    files.make_folder(options.out)
    rows = report.read(options.out)
    started, failures = time.monotonic(), 0
    parts = [part for part in PARTS if part.NAME in options.parts]
    for place, part in enumerate(parts):
        row, new = rows.get(part.NAME), new_row(part, options.seed, options.minutes)
        if row and goes_on(row, part, options.seed):
            row.earlier = row.sources
            row.minutes, row.provenance = new.minutes, new.provenance
            tell(f"{part.NAME}: goes on after {row.tries:,} {part.UNIT}")
        else:
            row = new
            for path in options.out.glob(f"failures/{part.NAME}-*.json"):
                path.unlink()
        end = float("inf")
        if options.minutes:  # what a part leaves over, those after it share
            now = time.monotonic()
            left = started + 60 * options.minutes - now
            end = now + left / (len(parts) - place)
        rows[part.NAME] = row
        run_part(part, row, end, options.out, partial(save, rows, row, options.out))
        save(rows, row, options.out)
        failures += row.failures
        tell(report.sentence(row))
    print(campaign_table.table([rows[part.NAME] for part in parts]))
    tell(f"written to {options.out}: campaign.json, campaign.md")
    return 1 if failures else 0


if __name__ == "__main__":
    cli.run(main)
