"""Sentences that are written by hand: each measured number in them is what results/ gives."""

import re
from datetime import datetime
from statistics import mean

import pytest

from experiments.benchmarks import columns, race
from experiments.results import cnn_tables, committee_report, comparisons, tables
from experiments.results.records import read_results
from experiments.training.formatting import duration
from experiments.training.provenance import REPOSITORY
from mlp_gpu.network import NETS

CPU, GPU = "amd-epyc-2-cores", "nvidia-h100-80gb-hbm3"


def record(results, name):
    """The tidy row of the only run recorded under a name."""
    (run,) = (run for path, run in results.runs.items() if path.stem == name)
    return tables.table1_row(run) if tables.is_table1(run) else cnn_tables.row(run)


def committee(results, experiment, folder):
    (rows,) = (
        rows
        for path, rows in results.committees.items()
        if path.stem == f"{folder}-experiment{experiment}"
    )
    return rows


# --- README.md


def trained(results, name, paper):
    """Errors of a recorded run and of the paper's net, and the training of the run."""
    row = record(results, name)
    return row.tefbv_errors, row.tefbv, paper.tefbv, row.epochs, duration(row.seconds_by_median)


def net1(results):
    paper = tables.PAPER[1]
    return *trained(results, "paper-net1-seed0", paper), paper.hours


def net4(results):
    paper = tables.PAPER[4]
    return *trained(results, "gpu800-net4-seed0", paper), tables.PAPER_EPOCHS, paper.hours


def convolutional(results):
    name = "paper-20M5s1-60M5s1c50p-100M3c50p-150N-seed0"
    return trained(results, name, cnn_tables.PAPER[3])


def seeds_of_net4(results):
    paper = tables.PAPER[4]
    names = ("gpu200-net4-seed0", "epochs200-net4-seed1", "epochs200-net4-seed2")
    errors, _, _, epochs, _ = zip(*(trained(results, name, paper) for name in names), strict=True)
    assert set(epochs) == {200}
    return errors


def seven_seeds(results, experiment=3):
    *members, last = committee(results, experiment, "committee300-eta0.001")
    wrong = [row.errors for row in members]
    means = mean(row.percent for row in members), mean(row.paper for row in members)
    return last.errors, last.percent, last.paper, min(wrong), max(wrong), *means


def seven_widths(results):
    return seven_seeds(results, experiment=6)


def interval_of_the_paper(results):
    return tables.interval(35, 10_000)


def times_of_commands(results):
    (first,) = (
        row.seconds
        for path, rows in results.startups.items()
        if path.parent.name == CPU
        for row in rows
        if row.what.startswith("git clone ")
    )
    folders = "table1", "table1-avx2"
    nets = [row for e in range(1, 7) for row in committee(results, e, "committee")[:-1]]
    last = max(datetime.fromisoformat(row.source.date) for row in nets)
    start = min(datetime.fromisoformat(row.source.date).timestamp() - row.seconds for row in nets)
    return [
        *(duration(elapsed(results, name)) for name in folders),
        duration(last.timestamp() - start),
        first,
    ]


def elapsed(results, folder):
    """Seconds from the start of the first of five recorded runs to the end of the last."""
    names = [f"{folder}-net{net}-seed0" for net in NETS]
    runs = [run for path, run in results.runs.items() if path.stem in names]
    assert len(runs) == len(NETS)
    start = min(datetime.fromisoformat(run.provenance[0].start) for run in runs)
    end = max(datetime.fromisoformat(run.provenance[-1].end) for run in runs)
    return (end - start).total_seconds()


def gpu_checks(results):
    (found,) = (one for path, one in results.gpu_checks.items() if path.parent.name == GPU)
    assert all(row.passed for row in found.checks)
    names = [f"net {net}, window" for net in (1, 5)]
    times = [row.result.split()[0] for name in names for row in found.checks if row.check == name]
    (run,) = (run for path, run in results.runs.items() if path.stem == "gpu800-net4-seed0")
    images = run.epochs * run.config.data.n_train
    return len(found.checks), *times, 1e6 * sum(run.metrics.train_seconds) / images


def slower(results):
    """The baselines' times in those of the engine, the least and the greatest of the nets."""
    return [
        *ratios(results, CPU, "JAX scan, CPU"),
        *ratios(results, GPU, "JAX scan, GPU", "PyTorch graph, GPU"),
    ]


# --- docs/benchmarks.md


def rows_of(results, folder, group="net"):
    (rows,) = (rows for path, rows in results.benches.items() if path.parent.name == folder)
    return [row for row in rows if row.group == group]


def ratios(results, folder, *names):
    engine = {CPU: "engine cpu", GPU: "engine cuda window"}[folder]
    us = {(row.name, row.net): row.us for row in rows_of(results, folder)}
    found = []
    for name in names:
        times = [t / us[engine, net] for (what, net), t in us.items() if what == name]
        found += [min(times), max(times)]
        assert folder == CPU or len(times) == 5  # without net 5
    return found


def small_and_large(results, folder, engine):
    rows = {row.net: row for row in rows_of(results, folder) if row.name == engine}
    ends = rows["841-800-10"], rows["4"]
    return [row.us for row in ends] + [row.updates_a_second / 1e9 for row in ends]


def cpu_engine(results):
    papers, _ = columns.PAPER["2012, GTX 480"]
    return *small_and_large(results, CPU, "engine cpu"), papers / 1e9


def cpu_baselines(results):
    return ratios(results, CPU, "NumPy loop, CPU", "JAX scan, CPU")


def cpu_conditions(results):
    return ratios(results, CPU, "engine cpu, 1 thread")


def rest_of_an_epoch(results):
    evaluation = {row.net: row for row in rows_of(results, CPU, "evaluation")}
    training = {row.net: row.us for row in rows_of(results, CPU) if row.name == "engine cpu"}
    found = {row.name: row.us for row in rows_of(results, CPU, "deformation")}
    us = found["CPU, 2 threads"]
    shares = []
    for net in ("1", "841-800-10"):
        rest = 60_000 * us + 70_000 * evaluation[net].us
        shares.append(100 * rest / (rest + 60_000 * training[net]))
    peaks = [row.percent_of_peak for row in evaluation.values()]
    deformation = 0.06 * us, found["scipy recipe"] / us
    paper = columns.PAPER_DEFORM_SECONDS["2010, on a CPU"]
    return *deformation, paper, min(peaks), max(peaks), *shares


def window(results):
    others = "PyTorch graph, GPU", "PyTorch window, GPU", "JAX scan, GPU"
    return *small_and_large(results, GPU, "engine cuda window"), *ratios(results, GPU, *others)


def convolutional_engine(results):
    rows = [row for row in rows_of(results, CPU, "cnn") if row.net == "3"]
    us = {row.name.partition(" (")[0]: row.us for row in rows}
    own = us["engine cpu"]
    others = "PyTorch eager at its best, CPU", "loops over connections, CPU"
    return own, *(us[name] / own for name in others)


def race_of(results):
    (points,) = (points for path, points in results.races.items() if path.parent.name == CPU)
    return points


def raced(results):
    points = race_of(results)
    (wrong,) = (name for name in race.table(points)[0] if f"{race.SECONDS:.0f} s" in name)
    return [line[wrong] for line in race.table(points)]


def rates_of_races(results):
    """The numbers of the sentence: none, if the rates taken are as it says."""
    points = race_of(results)

    def tried(way, taken):
        found = {point.setting.rpartition(" ")[::2] for point in points if point.way == way}
        return sorted(float(rate) for batch, rate in found if batch == taken)

    smallest = []
    for way, seeds in race.curves(points).items():
        batch, _, rate = seeds[0][0].setting.rpartition(" ")
        if float(rate) == min(tried(way, batch)):
            smallest.append(way)
    assert smallest == ["mini-batches, NumPy", "mini-batches, PyTorch"]
    return ()


# --- results/README.md


def claims(results):
    """Of committee100, and of the one claim that 300 epochs can be held to."""
    rows = [row for e in range(1, 7) for row in committee(results, e, "committee100")]
    lines = committee_report.order_table(rows)
    shown = [line for line in lines if line["shows"] == "yes"]
    assert [line["claim"] for line in lines if line not in shown] == ["widths beat seeds, deformed"]
    p = {line["claim"]: line[committee_report.P_VALUE] for line in lines}
    errors = [
        committee(results, which, folder)[-1].errors
        for folder in ("committee300", "committee300-eta0.001")
        for which in (6, 3)
    ]
    return len(shown), len(lines), p["widths beat seeds, undeformed"], *errors


def net4_beside_the_paper(results):
    row = record(results, "gpu800-net4-seed0")
    paper = tables.PAPER[4]
    return row.tefbv_errors, 35, comparisons.fisher(row.tefbv_errors, 35, row.n_test), paper.tefbv


# --- docs/what-matters.md


def finalist(results, factor):
    """The rows of a finalist, one for each seed."""
    (rows,) = (rows for path, rows in results.studies.items() if path.stem == "study-part2")
    return [row for row in rows if (row.factor, row.epochs) == (factor, 300)]


def held_out_errors(rows):
    return sum(row.held_out_errors for row in rows)


def finalists(results):
    earlier, today = (finalist(results, factor) for factor in ("length", "rate-long"))
    assert len(earlier) == len(today) == 3
    return today[0].n_validation, held_out_errors(earlier), today[0].epochs, held_out_errors(today)


def third_finalist(results):
    third, today = (finalist(results, factor) for factor in ("together", "rate-long"))
    pairs = zip(third, today, strict=True)
    assert all(a.held_out_errors < b.held_out_errors for a, b in pairs)
    return [held_out_errors(third)]


def larger_net(results, *factors):
    """Errors of the larger net after 300 epochs, by the settings of some factors."""
    (rows,) = (rows for path, rows in results.studies.items() if path.stem == "study-1000-500")
    rows = [row for row in rows if row.epochs == 300]
    return [row.held_out_errors for name in factors for row in rows if row.factor == name]


def larger_net_by_rate(results):
    return larger_net(results, "length", "rate-long")


def larger_net_together(results):
    return larger_net(results, "together", "rate-long")


def maybe_worse(results):
    """Errors of four settings that have more wrong than any of today's nets, and of these."""
    settings = "alpha x 0", "field an epoch", "fixed sizes", "softmax, squared error"
    rows = {
        (row.setting, row.seed): row.held_out_errors
        for path, rows in results.studies.items()
        for row in rows
        if path.stem == "study" and row.epochs == 100
    }
    worse = [rows[setting, 0] for setting in settings]
    today = [n for (setting, _), n in rows.items() if setting == "as now"]
    assert len(today) == 3
    return min(worse), max(worse), min(today), max(today)


def trained_anew(results):
    folders = "committee300-eta0.001", "committee300"
    anew, before = (committee(results, 3, folder)[:-1] for folder in folders)
    averages = [mean(row.percent for row in rows) for rows in (anew, before)]
    return *averages, mean(row.paper for row in anew)


# Sentences of pages, with {} for each number, by the functions of the records that give these.
SAID = {
    "README.md": {
        net1: "- **Net 1** gets {} of 10,000 test digits wrong, {:.2f} % (paper: {:.2f}), after "
        "{:,} epochs in {} on two CPU cores (paper: {} hours).",
        net4: "- **Net 4**, the paper's best, gets {} wrong, {:.2f} % (paper: {:.2f}), after {} "
        "epochs in {} on an H100 (paper: {:,} epochs, {} hours).",
        seeds_of_net4: "- **Net 4 after 200 epochs**, three seeds: {} (on an H100), {} and {} "
        "wrong.",
        convolutional: "- **A convolutional net**, 20M-60M-100M-150N, gets {} wrong, {:.2f} % "
        "(paper: {:.2f}), after {} epochs in {} on two CPU cores.",
        seven_seeds: "- **Seven seeds** of 841-800-10 as a committee get {} wrong, {:.2f} % "
        "(paper: {:.2f}); each alone {} to {}, on average {:.2f} % (paper: {:.2f}).",
        seven_widths: "- **Seven widths** of digits, a net for each, get {} wrong, {:.2f} % "
        "(paper: {:.2f}); each alone {} to {}, on average {:.2f} % (paper: {:.2f}).",
        interval_of_the_paper: "35 wrong digits of 10,000 have a 95 % interval of {:.2f}-{:.2f} %",
        times_of_commands: "`make table1` takes {} on two cores of an Intel Xeon with AVX-512, {} "
        "limited to AVX2; on two of an AMD EPYC `make committee` takes {}, the first net after "
        "`git clone` {:.0f} s.",
        gpu_checks: "On an H100 all {} checks that ran passed; one image took {} us (net 1) to {} "
        "us (net 5) in an epoch at learning rate 0.001, and {:.1f} us in the 800 epochs of net 4, "
        "on average.",
        slower: "JAX takes {:.1f} to {:.1f} times as long for the same steps on a CPU, and {:.1f} "
        "to {:.1f} times as long on an H100 (net 5 was not measured), where a CUDA graph of "
        "PyTorch takes {:.1f} to {:.1f}",
    },
    "docs/benchmarks.md": {
        cpu_engine: "- **Our engine on a CPU**, an AMD EPYC with 2 cores, takes {:.0f} us an "
        "image for 841-800-10 and {:,.0f} us for net 4: {:.1f} and {:.1f} billion weight updates "
        "per second. The GTX 480 of 2012 made up to {}.",
        cpu_baselines: "- **Others on that CPU**, each with its fastest settings: a NumPy loop "
        "takes {:.1f} to {:.1f} times as long, JAX {:.1f} to {:.1f}.",
        cpu_conditions: "- **In one thread** our engine takes {:.1f} to {:.1f} times as long.",
        rest_of_an_epoch: "- **The rest of an epoch**: deforming 60,000 images takes {:.2g} s, a "
        "SciPy recipe {:.0f} times as long, the paper's CPU {} s. Evaluation multiplies and adds "
        "{:.0f} to {:.0f} % as fast as the processor can. Both together are {:.0f} % of an epoch "
        "of net 1 and {:.0f} % of one of 841-800-10.",
        window: "- **Our engine on an H100**, in windows, takes {:.0f} us an image for 841-800-10 "
        "and {:.0f} us for net 4: {:.1f} and {:.1f} billion weight updates per second. A CUDA "
        "graph of PyTorch takes {:.1f} to {:.1f} times as long, the window in PyTorch {:.1f} to "
        "{:.1f}, JAX {:.1f} to {:.1f}; with net 5 they were not measured.",
        convolutional_engine: "- **A convolutional net**, net 3 of 2011, takes {:.0f} us an image "
        "on that CPU; PyTorch at its best takes {:.1f} times as long, loops over connections "
        "{:.1f} times.",
        raced: "- **Wrong digits after a minute**, of 10,000, median of three seeds "
        "(fewest-most): on-line {}, mini-batches in NumPy {}, in PyTorch {}.",
        rates_of_races: "NumPy and PyTorch took the smallest learning rate that was tried with "
        "their batch size, so that a smaller one may be better.",
    },
    "docs/what-matters.md": {
        finalists: "Three seeds together, each on {:,} images held out, get {} wrong after {} "
        "epochs begun at 0.003, and {} after as many begun at 0.001",
        larger_net_by_rate: "The larger net, one seed, gets {} and {} wrong.",
        larger_net_together: "The larger net gains nothing by the settings of `together`: {}, {} "
        "and {} are wrong, against {}.",
        maybe_worse: "- **Four settings may be worse**, with {} to {} wrong, where today's three "
        "nets have {} to {}",
        third_finalist: "With shear instead of rotation and three quarters of the field, {} are "
        "wrong: fewer with each seed",
        trained_anew: "Experiment 3 then has {:.2f} % of the test digits wrong on average (before: "
        "{:.2f} %; paper: {:.2f} %).",
    },
    "results/README.md": {
        claims: "After 100 epochs {} of the paper's {} claims show in the counts of wrong digits; "
        "one of them, that widths beat seeds on undeformed digits, has p = {} with Holm's "
        "correction. After 300 epochs begun at 0.003, experiments 6 and 3 alone, seven widths get "
        "{} digits wrong and seven seeds {}; begun at 0.001, {} and {}.",
        net4_beside_the_paper: "Net 4 gets {} digits wrong after 800 epochs, the paper's {} after "
        "2,300: p = {:.3f} (Fisher's exact test), and less if the two share wrong digits, which "
        "the paper does not list. The paper's {:.2f} % is that of the best of its five nets.",
    },
}


@pytest.fixture(scope="module")
def results():
    return read_results()


def text_of(page):
    """The text of a page, each run of white space one blank."""
    return " ".join((REPOSITORY / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("page", "numbers", "sentence"),
    [(page, *said) for page, of_page in SAID.items() for said in of_page.items()],
)
def test_a_sentence_has_the_numbers_of_the_records(page, numbers, sentence, results):
    expected = sentence.format(*numbers(results))
    assert expected in text_of(page), f"{page} should say:\n{expected}"


@pytest.mark.parametrize(
    ("page", "heading"), [("README.md", "Results"), ("docs/benchmarks.md", "How fast it is")]
)
def test_every_line_of_results_is_compared(page, heading):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    section = re.search(rf"^## {heading}\n(.*?)^## ", text, re.M | re.S)
    found = re.findall(r"^- \*\*(.*?)\*\*", section[1], re.M)
    assert len(found) > 3
    assert found == re.findall(r"^- \*\*(.*?)\*\*", "\n".join(SAID[page].values()), re.M)


def test_the_front_page_has_short_claims():
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert max(len(line) for line in lines if line.startswith("- **")) <= 160
