"""What a part of the campaign is: attempts to break something, drawn from a seed, repeatable."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    tries: how often it tried to break something: kills, cuts, files, command lines.
    failure: what went wrong, in a sentence or several lines; None if all held.
    """

    tries: int
    failure: str | None = None


class Part(Protocol):
    """A way to break things. Each part is a module with these names."""

    NAME: str  # one word
    CLAIM: str  # what must hold after each try, a sentence
    UNIT: str  # what is counted, in the plural
    GOAL: int  # tries

    def prepare(self, shared: Path) -> None:
        """Make what all trials compare with, in an empty folder. Called once before them."""

    def draw(self, rng: random.Random, number: int) -> dict | None:
        """Trial `number`, from 0, as JSON can hold it; None if there are no more."""

    def attempt(self, trial: dict, shared: Path, folder: Path) -> Outcome:
        """Make a trial in an empty folder. Called in several threads at once."""


def draw(part: Part, seed: int, number: int) -> dict | None:
    """The trial of that number, which depends on nothing but the seed and the part."""
    return part.draw(random.Random(f"{seed} {part.NAME} {number}"), number)
