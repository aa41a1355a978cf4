"""Read the records in results/<device>/: finished runs, committees and benchmarks."""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.running import provenance
from experiments.running.store import Run

# Names of the committees that may be recorded; and the columns in which two committees of the same
# name must agree for one to replace the other.
COMMITTEES = r"(experiment[1-6]|table4)(-load_digits)?"
SETTINGS = "member", "seed", "epochs", "images_an_epoch", "eta", "eta_decay"

# In the same folder, of experiments.gpu_check, experiments.ladder and experiments.blocks.
GPU_CHECK = "gpu-check.json"
LADDER = "ladder.json"
BLOCKS = "blocks.json"
NOT_OF_RUNS = GPU_CHECK, LADDER, BLOCKS


def read_csv(path: Path) -> list[dict]:
    """The rows of a CSV file, all text."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_committees() -> list[list[dict]]:
    """The rows of all committees below results/, all text, in the order of their names."""
    paths = sorted((provenance.REPOSITORY / "results").glob("*/*.csv"))
    return [read_csv(path) for path in paths if re.fullmatch(COMMITTEES, path.stem)]


def by_device(
    found: Sequence[Sequence[Mapping]], data: str, kind: str = "experiment"
) -> list[list[Mapping]]:
    """The rows of all committees on the data of that name, a list for each device.

    found: as `read_committees` gives them. kind: experiment or table4.
    """
    devices: dict[str, list[Mapping]] = {}
    for rows in found:
        last = rows[-1]
        if last["data"] == data and last["experiment"].startswith(kind):
            devices.setdefault(last["device"], []).extend(rows)
    return list(devices.values())


def read_benchmarks() -> list[list[dict]]:
    """The rows of all devices' bench.csv below results/, all text, in the order of their names."""
    paths = sorted((provenance.REPOSITORY / "results").glob("*/bench.csv"))
    return [read_csv(path) for path in paths]


def record_paths() -> list[Path]:
    """The records of runs below results/, in the order of their names."""
    paths = sorted((provenance.REPOSITORY / "results").glob("*/*.json"))
    return [path for path in paths if path.name not in NOT_OF_RUNS]


def read_records() -> list[Run]:
    """All records of runs, without predictions, in the order of their names."""
    return [read_record(path) for path in record_paths()]


def read_record(path: Path) -> Run:
    """The record of a run, as a run without predictions."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return Run(**record, outputs=np.empty((0, 0), np.float32), labels=np.empty(0, np.uint8))
