"""Sentences that summarise the recorded timings."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from experiments.benchmarks import columns
from experiments.results import cnn_tables, committee_report, tables
from experiments.results.records import COMMAND_FOLDER, by_folder
from experiments.results.rows import BenchRow, CommitteeRow, StartupRow
from experiments.training.formatting import duration
from experiments.training.store import Run
from mlp_gpu.network import NETS

CNN_NET = 3  # of Table 1 of 2011, of which the sentences tell
EPOCH_NETS = ("1", "841-800-10")  # nets whose epochs have a sentence
GTX_480 = "2012, GTX 480"
EVALUATION = "engine cpu, evaluation"

# An engine has a sentence about the first of these that was timed in turn with it.
CEILINGS = {"percent_of_read": "read of memory", "percent_of_copy": "scaled copy"}

# Conditions under which an engine is measured once more, by the suffix of its name.
CONDITIONS = {
    ", 1 thread": "in one thread",
    ", a core busy": "beside a process that keeps a core busy",
    f", {columns.NARROW}": "limited to vectors of 8 floats (nets 1 and 4)",
}

CLONE = "git clone to the first net of make table1, packages in pip's cache"
# What startup.csv has, a row each.
STARTUP = (
    "make test",
    "make test-all",
    "first training step of make table1, code compiled before",
    "first training step of make table1 with one net, code compiled before",
    "first training step of make table1, nothing compiled",
    "start of a worker",
    CLONE,
)

AVX2_RUNS = "table1-avx2"  # folder of runs of 'make table1' on a processor without AVX-512


def of_make_table1(records: Mapping[Path, Run], name: str = "table1") -> list[list[Run]]:
    """The runs of 'make table1' on MNIST, on each device that has all five.

    records: by their paths. name: of the folder of runs below runs/.
    """
    made = []
    for folder in dict.fromkeys(path.parent for path in records):
        # Records are named after the folder of their runs.
        on_mnist = tables.on_data(records, "MNIST").items()
        own = [run for path, run in on_mnist if path.match(f"{folder}/{name}-net*")]
        if [tables.net_number(run) for run in own] == list(NETS):
            made.append(own)
    return made


def command_sentences(
    records: Mapping[Path, Run], found: Mapping[Path, Sequence[CommitteeRow]]
) -> list[str]:
    """How long the commands took whose trainings are all recorded.

    records: runs, and found: the rows of each committee, by the paths of their records.
    """
    times = []
    for own in of_make_table1(records) + of_make_table1(records, AVX2_RUNS):
        spans = [(run.provenance[0].start, run.provenance[-1].end or "") for run in own]
        source = own[0].provenance[-1]
        width = f", with vectors of {source.vectors} floats" if source.vectors else ""
        times.append(f"{_elapsed(spans)} on {source.device}{width}")
    sentences = [f"`make table1`: {'; '.join(times)}."] if times else []
    for folder, rows in by_folder(found, "MNIST").items():
        if folder.name == COMMAND_FOLDER and committee_report.has_order(rows):
            nets = [row for row in rows if row.is_member]
            spans = [(_before(row.source.date, row.seconds), row.source.date) for row in nets]
            sentences.append(f"`make committee`: {_elapsed(spans)} on {nets[0].source.device}.")
    return sentences


def _before(time: str, seconds: float) -> str:
    """The time that is `seconds` before another, both ISO 8601."""
    return (datetime.fromisoformat(time) - timedelta(seconds=seconds)).isoformat()


def _elapsed(spans: Sequence[tuple[str, str]]) -> str:
    """From the first start to the last end of spans, ISO 8601, as a duration."""
    starts = [datetime.fromisoformat(start) for start, _ in spans]
    ends = [datetime.fromisoformat(end) for _, end in spans]
    return duration((max(ends) - min(starts)).total_seconds())


def startup_sentence(device: str, rows: Sequence[StartupRow]) -> str:
    """How long tests and starts take on a device. No rows: not measured."""
    found = {row.what: row.seconds for row in rows}
    names = {what: re.sub(r"make [\w-]+", r"`\g<0>`", what) for what in STARTUP}
    measured = [f"{names[what]}: {_time(found[what])}" for what in STARTUP if what in found]
    missing = [names[what] for what in STARTUP if what not in found]
    sentences = [f"On {device}: {'; '.join(measured)}."] if measured else []
    sentences += [f"Not measured yet: {'; '.join(missing)}."] if missing else []
    return " ".join(sentences)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def bench_sentences(rows: Sequence[BenchRow]) -> list[str]:
    """One paragraph per engine, which compares it with the baselines."""
    nets = [row for row in rows if row.group == "net" and row.images]
    us = {(row.name, row.net): row.us for row in nets}
    narrow = [row for row in rows if row.group == columns.NARROW]
    us |= {(f"{row.name}, {columns.NARROW}", row.net): row.us for row in narrow}
    names = dict.fromkeys(row.name for row in nets)
    others = [name for name in names if not name.startswith("engine")]
    found = []
    for name in (name for name in names if name.startswith("engine") and "," not in name):

        def ratios(other: str, name: str = name) -> list[float]:
            """Of another's time to that of this engine, a net each."""
            return [t / us[name, net] for (who, net), t in us.items() if who == other]

        own = sorted((row for row in nets if row.name == name), key=lambda row: row.weights or 0)
        sentences = [_rates(own)]
        slower = [
            f"{_range(times)} times as long {how}"
            for suffix, how in CONDITIONS.items()
            if (times := ratios(name + suffix))
        ]
        if slower:
            sentences.append(f"It takes {' and '.join(slower)}.")
        for column, what in CEILINGS.items():
            if shares := [share for row in own if (share := getattr(row, column))]:
                sentences.append(
                    f"It moves {min(shares):.0f} to {max(shares):.0f} % of the bytes per second "
                    f"that a {what} moves."
                )
                break
        if others:
            at_best = any(row.settings for row in nets)
            speedups = "; ".join(f"{_range(ratios(name))} over {name}" for name in others)
            note = ", each with its fastest settings" if at_best else ""
            sentences.append(f"Its speedup is {speedups}{note}.")
        found.append(" ".join(sentences))
    return found


def _rates(own: Sequence[BenchRow]) -> str:
    """The times of an engine for its smallest and its largest net, and which beat the paper's."""
    small, large = own[0], own[-1]
    papers, _ = columns.PAPER[GTX_480]
    updates = [row.updates_a_second or 0 for row in own]
    faster = [columns.net_title(row.net) for row, n in zip(own, updates, strict=True) if n > papers]
    if len(faster) == len(own):
        faster = ["every net"]
    ends = {row.net: row for row in (small, large)}.values()  # one if it is the only net
    times = " and ".join(f"{row.us:,.0f} for {columns.net_title(row.net)}" for row in ends)
    rates = " and ".join(f"{(row.updates_a_second or 0) / 1e9:.1f}" for row in ends)
    more = f", fewer than this engine makes for {', '.join(faster)}" * bool(faster)
    return (
        f"On {small.ran_on}, `{small.name}` takes, in microseconds per image, {times}, "
        f"which is {rates} billion weight updates per second; the GTX 480 of 2012 made up to "
        f"{papers / 1e9:g}{more}."
    )


def _range(found: Sequence[float]) -> str:
    return " to ".join(f"{x:.1f}" if x >= 0.95 else f"{x:.2g}" for x in (min(found), max(found)))


def epoch_sentences(rows: Sequence[BenchRow]) -> list[str]:
    """Sentences about the parts of an epoch other than training, on the CPU."""
    evaluations = {
        row.net: row for row in rows if row.group == "evaluation" and row.name == EVALUATION
    }
    shares = [row.percent_of_peak for row in evaluations.values() if row.percent_of_peak]
    training = {row.net: row for row in rows if (row.group, row.name) == ("net", "engine cpu")}
    deforming = [
        row.us for row in rows if row.group == "deformation" and row.name.startswith("CPU, ")
    ]
    sentences = []
    if shares:
        sentences.append(
            f"Evaluation on the CPU multiplies and adds {min(shares):.0f} to {max(shares):.0f} % "
            "as fast as the processor can."
        )
    parts = []
    for net in EPOCH_NETS:
        if deforming and net in evaluations and net in training:
            rest = 60_000 * min(deforming) + 70_000 * evaluations[net].us
            share = rest / (rest + 60_000 * training[net].us)
            parts.append(f"{100 * share:.0f} % for {columns.net_title(net)}")
    if parts:
        sentences.append(
            "Of an epoch, 60,000 images deformed and trained on and 70,000 evaluated, deformation "
            f"and evaluation take {' and '.join(parts)}."
        )
    return sentences


def cnn_sentences(rows: Sequence[BenchRow]) -> list[str]:
    """Sentences about our CPU engine on net 3 of 2011."""
    own = {row.name: row for row in rows if (row.group, row.net) == ("cnn", str(CNN_NET))}
    if not (engine := own.get("engine cpu")):
        return []
    us, loops = engine.us, own.get("loops over connections, CPU")
    torch_us = columns.fastest_torch(rows, str(CNN_NET), engine.ran_on)
    peak = engine.percent_of_peak
    sentences = [
        f"On {engine.ran_on}, `engine cpu` takes {us:,.0f} microseconds per image for "
        f"{cnn_tables.PAPER[CNN_NET].name}, in one thread. It multiplies and adds "
        f"{(engine.tflop_a_second or 0) / 2e-3:.1f} billion times per second, absent "
        "connections not counted" + (f", {peak:.0f} % of what the processor can." if peak else ".")
    ]
    others = {"PyTorch eager at its best": torch_us, "loops over connections": loops and loops.us}
    measured = [f"{them / us:.1f} over {name}" for name, them in others.items() if them]
    if measured:
        sentences.append(f"Its speedup is {' and '.join(measured)}.")
    return [" ".join(sentences)]


def deform_sentence(rows: Sequence[BenchRow]) -> str | None:
    """The speedup of our fastest deformation over the SciPy recipe; None if not measured."""
    found = {row.name: row.us for row in rows if row.group == "deformation"}
    own = [name for name in found if re.match("CPU|GPU", name)]
    if not own or "scipy recipe" not in found:
        return None
    best = min(own, key=found.__getitem__)
    speedup = found["scipy recipe"] / found[best]
    paper = columns.PAPER_DEFORM_SECONDS["2010, on a CPU"]
    return (
        f"Deforming 60,000 images takes {0.06 * found[best]:.2g} s ({best}), a speedup of "
        f"{speedup:.0f} over the SciPy recipe; the paper's CPU took {paper} s."
    )
