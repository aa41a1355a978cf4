"""How long several workers take, measured; and clusters of them, on paper."""

import math
from collections.abc import Mapping, Sequence

from experiments.running import jobs
from experiments.running.formatting import duration

CLUSTERS = (1, 2, 7, 13, 39)  # numbers of workers to estimate, up to one a run


def scaling_table(rows: Sequence[Mapping]) -> list[dict[str, str]]:
    """Several workers against one, as lines of a table.

    rows: as experiments.scaling measures them, or as CSV gives them back.
    """
    return [
        {
            "workers": str(row["workers"]),
            "trainings": str(row["runs"]),
            "seconds (20-80 %)": f"{float(row['seconds']):.1f} "
            f"({float(row['seconds_p20']):.1f}-{float(row['seconds_p80']):.1f})",
            "times as fast as one": f"{float(row['speedup']):.2f}",
            "start of the workers, s": f"{float(row['start_seconds']):.1f}",
        }
        for row in rows
    ]


def cluster_table(run_seconds: float, start_seconds: float, n_runs: int) -> list[dict[str, str]]:
    """How long n_runs equal runs take on clusters of several sizes, on paper."""
    lines = []
    for workers in CLUSTERS:
        rounds = math.ceil(n_runs / workers)
        seconds = start_seconds + rounds * run_seconds
        alone = start_seconds + n_runs * run_seconds
        lines.append(
            {
                "workers": str(workers),
                "runs one after another": str(rounds),
                "time": duration(seconds),
                "times as fast as one": f"{alone / seconds:.1f}",
            }
        )
    return lines


def estimate_clusters(
    rows: Sequence[Mapping], found: Sequence[Sequence[Mapping]]
) -> tuple[str, list[dict[str, str]]]:
    """What clusters of such workers would take for the six experiments, by our records.

    rows: as for `scaling_table`. found: the records of committees. Returns a sentence and the lines
    of a table, which are none if no committee was trained on such a device.
    """
    device = rows[-1]["device"]
    # The same run may be in several committees.
    seconds = {
        (row["date"], row["seconds"]): float(row["seconds"])
        for own in found
        for row in own
        if row["net"] and (row["data"], row["device"]) == ("MNIST", device)
        if row["experiment"].startswith("experiment")
    }
    if not seconds:
        return "Clusters: the cost of a run is not measured yet.", []
    mean = sum(seconds.values()) / len(seconds)
    start, n_bytes = float(rows[-1]["start_seconds"]), float(rows[-1]["bytes_an_epoch"])
    return (
        f"On paper, the {len(seconds)} runs of experiments 1 to 6 as recorded above, {mean:.0f} s "
        f"each on average, on G workers like these: {start:.0f} s to start, then "
        f"ceil({len(seconds)} / G) runs one after another. Workers share nothing but the "
        f"scheduler, which each tells and asks something every {jobs.MESSAGE_SECONDS} s, in some "
        "100 bytes, and the run folder, into which a run of these nets writes "
        f"{n_bytes / 1e6:.1f} MB an epoch:",
        cluster_table(mean, start, len(seconds)),
    )
