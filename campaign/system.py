"""Not written yet."""

import random
from pathlib import Path

from campaign.trial import Outcome

NAME, UNIT, GOAL = "system", "faults", 0
CLAIM = ""


def prepare(shared: Path) -> None:
    pass


def draw(rng: random.Random, number: int) -> dict | None:
    return None


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    return Outcome(0)
