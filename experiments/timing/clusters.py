"""How long several workers take, measured; and how long clusters of them would, estimated."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.running import jobs
from experiments.running.formatting import duration
from experiments.scoring.records import of_make_committee
from experiments.scoring.rows import CommitteeRow, ScalingRow

CLUSTER_SIZES = (1, 2, 7, 13, 39)  # workers; the experiments have 39 different runs


def scaling_table(rows: Sequence[ScalingRow]) -> list[dict[str, str]]:
    """Several workers against one, as lines of a table."""
    return [
        {
            "workers": str(row.workers),
            "trainings": str(row.runs),
            "seconds (p20-p80)": f"{row.seconds:.1f} ({row.seconds_p20:.1f}-{row.seconds_p80:.1f})",
            "speedup over one worker": f"{row.speedup:.2f}",
            "start-up, s": f"{row.start_seconds:.1f}",
        }
        for row in rows
    ]


def cluster_table(run_seconds: float, start_seconds: float, n_runs: int) -> list[dict[str, str]]:
    """How long n_runs equal runs would take on clusters of several sizes: lines of a table."""
    lines = []
    for workers in CLUSTER_SIZES:
        rounds = math.ceil(n_runs / workers)
        seconds = start_seconds + rounds * run_seconds
        alone = start_seconds + n_runs * run_seconds
        lines.append(
            {
                "workers": str(workers),
                "runs per worker": str(rounds),
                "time": duration(seconds),
                "speedup over one worker": f"{alone / seconds:.1f}",
            }
        )
    return lines


def estimate_clusters(
    rows: Sequence[ScalingRow], found: Mapping[Path, Sequence[CommitteeRow]]
) -> tuple[str, list[dict[str, str]]]:
    """How long clusters of such workers would take for `make committee`, from our records.

    found: the rows of each committee, by the paths of their records.
    Returns a sentence and the lines of a table; no lines if `make committee` is not recorded on
    such a device.
    """
    # The same run may be in several committees.
    seconds = {
        (row.source.date, row.seconds): row.seconds
        for own in of_make_committee(found).values()
        for row in own
        if row.is_member and row.source.device == rows[-1].source.device
    }
    if not seconds:
        return "Clusters: the cost of a run is not measured yet.", []
    mean = sum(seconds.values()) / len(seconds)
    start, n_bytes = rows[-1].start_seconds, rows[-1].bytes_an_epoch
    return (
        f"Estimated, not measured: the {len(seconds)} recorded runs of `make committee`, "
        f"{mean:.0f} s each on average, on G workers like these: {start:.0f} s to start, then "
        f"ceil({len(seconds)} / G) runs one after another. Workers share only the scheduler, with "
        f"which each exchanges some 100 bytes every {jobs.MESSAGE_SECONDS} s, and the run folder, "
        f"into which a run of these nets writes {n_bytes / 1e6:.1f} MB per epoch:",
        cluster_table(mean, start, len(seconds)),
    )
