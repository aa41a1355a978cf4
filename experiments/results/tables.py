"""Table 1 of the 2010 paper with our runs beside it, and how runs are put in rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar

from msgspec.structs import replace

from deepbig_runtime import files
from deepbig_runtime.errors import tell
from deform_gpu import TABLE1, Deformation
from experiments.datasets.dataset import KINDS, is_mnist, name_parts
from experiments.results.rows import BenchRow, ResultRow, Table1Row, rows_text
from experiments.training.configs import Config, settings
from experiments.training.formatting import duration, hundredths, markdown_table
from experiments.training.jobs import Outcome
from experiments.training.provenance import SourceColumns, commit_text
from experiments.training.store import Run
from mlp_gpu.network import HIDDEN, count_weights
from mlp_gpu.training import Schedule


@dataclass(frozen=True)
class PaperRow:
    """A row of Table 1 (2010), with the last column of Table 3 (2012). Errors in percent."""

    tefbv: float
    bte: float
    hours: float  # on a GTX 280
    undistorted: float


Name = TypeVar("Name")
PAPER_EPOCHS = Schedule().epochs
AND = " and "  # between several values in a cell
TIME_SUM = "time (sum)"  # a column

PAPER = {
    1: PaperRow(0.49, 0.44, 23.4, 1.78),
    2: PaperRow(0.46, 0.40, 44.2, 1.85),
    3: PaperRow(0.41, 0.39, 66.7, 1.73),
    4: PaperRow(0.35, 0.32, 114.5, 1.71),
    5: PaperRow(0.44, 0.43, 107.7, 1.81),
}


def interval(errors: int, n: int) -> tuple[float, float]:
    """95 % Clopper-Pearson interval, in percent, of an error rate seen as errors of n."""
    from scipy.special import betaincinv  # scipy.stats takes most of a second to import

    low = betaincinv(errors, n - errors + 1, 0.025) if errors else 0
    high = betaincinv(errors + 1, n - errors, 0.975) if errors < n else 1
    return 100 * float(low), 100 * float(high)


def net_number(run: Run) -> int:
    """The number in Table 1 of a run's net."""
    return {hidden: net for net, hidden in HIDDEN.items()}[run.config.sizes[1:-1]]


def is_papers(deformation: Deformation) -> bool:
    """Whether each parameter has the value, or is in the range, that 2010 gives (section 4)."""
    gammas = deformation.gamma_x, deformation.gamma_y
    return (
        5 <= deformation.sigma <= 6
        and 36 <= deformation.alpha <= 38
        and deformation.beta == TABLE1.beta
        and all(15 <= gamma <= 20 for gamma in gammas)
        and 0 < deformation.shear_probability < 1  # "either rotation or horizontal shearing"
        and (deformation.background, deformation.translation) == (TABLE1.background, 0)
    )


def is_table1(run: Run) -> bool:
    """Whether a run trained a net of Table 1, in no other way than the paper's words allow."""
    config = run.config
    if config.sizes[1:-1] not in HIDDEN.values() or config.data.width or config.data.n_validation:
        return False
    deformation = config.deformation
    return deformation is None or config.data.name not in KINDS or is_papers(deformation)


def on_data(runs: Mapping[Name, Run], data: str) -> dict[Name, Run]:
    """The runs on the data of that name."""
    return {name: run for name, run in runs.items() if run.config.data.name == data}


def table1_runs(runs: Mapping[Name, Run], data: str) -> dict[Name, Run]:
    """The runs of nets of Table 1 on the data of that name.

    Sorted by net; of each the deformed ones first, of these the longest trainings.
    """

    def order(item: tuple[Name, Run]) -> tuple:
        run = item[1]
        work = run.epochs * run.config.data.n_train
        return net_number(run), run.config.deformation is None, -work, run.config.seed

    own = [item for item in on_data(runs, data).items() if is_table1(item[1])]
    return dict(sorted(own, key=order))


def engine_name(run: Run) -> str:
    """The engine of a run and its launch mode on a GPU: 'cpu', 'cuda graph'."""
    mode = run.provenance[-1].schedule
    return f"{run.config.engine} {mode}" if mode else run.config.engine


def layers(sizes: Sequence[int]) -> str:
    """Neurons of each layer but the input, as Table 1 writes them: '9 x 1000, 10'."""
    groups = ((size, len(list(group))) for size, group in groupby(sizes[1:]))
    return ", ".join(f"{n} x {size}" if n > 1 else f"{size}" for size, n in groups)


def best_of(runs: Mapping[Name, Run]) -> Name:
    """Which of the runs has the lowest TEfBV, of equal ones the first; MNIST before other data."""

    def rank(name: Name) -> tuple[bool, float]:
        run = runs[name]
        return not is_mnist(run.config.data.name), run.chosen_errors / len(run.labels)

    return min(runs, key=rank)


def table1_row(run: Run) -> Table1Row:
    """A finished or unfinished run of a net of Table 1 as a row."""
    deformation = run.config.deformation
    return Table1Row(
        net=net_number(run) if is_table1(run) else None,
        layers=run.config.net_name,
        weights=count_weights(run.config.sizes),
        deformation=" ".join(map("=".join, settings(deformation))) if deformation else "",
        n_validation=run.config.data.n_validation,
        validation_part=run.config.data.validation_part or None,
        **result_fields(run),
    )


def result_row(run: Run) -> ResultRow:
    """The training, errors and provenance of any run."""
    return ResultRow(**result_fields(run))


def result_fields(run: Run) -> dict[str, Any]:
    """The fields of `result_row`."""
    config, n_test = run.config, run.config.data.n_test
    low, high = interval(run.chosen_errors, n_test)
    return {
        "data": config.data.name,
        "distortion": config.deformation is not None,
        "seed": config.seed,
        "epochs": run.epochs,
        "planned_epochs": config.epochs,
        "images_an_epoch": config.data.n_train,
        "eta": config.eta,
        "eta_decay": config.decay,
        "n_test": n_test,
        "tefbv_errors": run.chosen_errors,
        "tefbv": 100 * run.chosen_errors / n_test,
        "tefbv_low": low,
        "tefbv_high": high,
        "chosen_epoch": run.chosen,
        "bte_errors": run.best_errors,
        "bte": 100 * run.best_errors / n_test,
        "seconds": run.seconds,
        "seconds_by_median": run.seconds_by_median,
        "engine": engine_name(run),
        "source": run.provenance[-1].columns(),
    }


def table1_table(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Our runs, all on the same data, as lines of Table 1; on MNIST beside the paper's figures."""
    lines, beside_paper = [], any(map(is_table1, runs))
    for run in runs:
        row = table1_row(run)
        paper = PAPER.get(row.net or 0)
        name = net_number(run) if run.config.sizes[1:-1] in HIDDEN.values() else "own"
        line = {
            "net": ", ".join(
                [
                    str(name),
                    *["no distortion"] * (not row.distortion),
                    *([] if paper else run.config.unusual),
                ]
            ),
            "layers": layers(run.config.sizes),
            "weights": f"{row.weights:,}",
        }
        if is_mnist(row.data) and beside_paper:
            figures = ["-"] * 3
            if paper and row.distortion:
                figures = [f"{paper.tefbv:.2f}", f"{paper.bte:.2f}", f"{paper.hours}"]
            elif paper:
                figures[0] = f"{paper.undistorted:.2f}"
            line |= dict(zip(("paper TEfBV %", "paper BTE %", "paper hours"), figures, strict=True))
        lines.append(line | result_cells(row))
    return lines


def result_cells(row: ResultRow) -> dict[str, str]:
    """The result columns of a tidy row as they are printed."""
    return {
        "TEfBV %": f"{row.tefbv:.2f}",
        "95 % interval": f"{row.tefbv_low:.2f}-{row.tefbv_high:.2f}",
        "wrong": f"{row.tefbv_errors} of {row.n_test:,}",
        "BTE %": f"{row.bte:.2f}",
        "wrong (BTE)": str(row.bte_errors),
        "time": duration(row.seconds_by_median),
        TIME_SUM: duration(row.seconds),
        "epochs x images": f"{row.epochs_done} x {row.images_an_epoch:,}",
        "eta, decay": f"{row.eta:g}, {row.eta_decay:g}",
        "seed": str(row.seed),
    }


def most_trained(runs: Sequence[Run]) -> Run:
    """The run that was trained with the most images; of several such runs the lowest seed.

    No run is chosen by its test errors.
    """
    return min(runs, key=lambda run: (-run.epochs * run.config.data.n_train, run.config.seed))


def is_on_deformed_mnist(run: Run) -> bool:
    return is_mnist(run.config.data.name) and run.config.deformation is not None


def means(runs: Sequence[Run]) -> list[str]:
    """A sentence for each training that was done with several seeds."""
    groups: dict[tuple[int, Config], dict[int, Run]] = {}
    for run in runs:  # of a training on two machines the first counts
        training = run.epochs, replace(run.config, seed=0)
        groups.setdefault(training, {}).setdefault(run.config.seed, run)
    sentences = []
    for first, *others in (own.values() for own in groups.values()):
        if others:
            cells = result_cells(result_row(first))
            net = _net(first) + ("" if first.config.deformation else ", no distortion")
            sentences.append(
                f"{net[0].upper()}{net[1:]}, {cells['epochs x images']} images, eta and decay "
                f"{cells['eta, decay']}; {spread([first, *others])}."
            )
    return sentences


def spread(runs: Sequence[Run]) -> str:
    """How trainings that differ in their seeds came out, in words."""
    errors = [100 * run.chosen_errors / run.config.data.n_test for run in runs]
    return (
        f"{len(errors)} seeds: test error {hundredths(mean(errors))} % on average, "
        + f"standard deviation {stdev(errors):.2f}, " * (len(errors) > 2)
        + f"from {min(errors):.2f} to {max(errors):.2f} %"
    )


def write(
    folder: Path,
    name: str,
    outcomes: Sequence[Outcome],
    report: Callable[[list[Run]], str],
    row: Callable[[Run], ResultRow],
) -> int:
    """Print the table of the runs that did not fail; write it as NAME.md and NAME.csv.

    name: completed by the data, as the names of run files are. report: makes the Markdown. row:
    makes a row of the CSV file. Returns the exit status of the command. Raises files.FileFault if a
    file cannot be written.
    """
    if runs := [outcome.run for outcome in outcomes if outcome.run is not None]:
        text = report(runs)
        name = "-".join([name, *name_parts(runs[0].config.data.name)])
        files.replace(folder / f"{name}.md", text.encode())
        files.replace(folder / f"{name}.csv", rows_text([row(run) for run in runs]).encode())
        print(text)
        tell(f"written to {folder}: {name}.md, {name}.csv")
    return max(outcome.status for outcome in outcomes)


TIME_EXPLAINED = (
    "Time: the number of epochs times the median time of one, so that standstills add nothing. "
    "Time (sum): all epochs. Both count waiting for deformed images, training and evaluating, but "
    "not starting, compiling and saving."
)
COLUMNS_EXPLAINED = (
    "TEfBV: test error at the epoch with the lowest validation error, which is on the undeformed "
    "training images.",
    "BTE: lowest test error of any epoch. Interval: 95 %, Clopper-Pearson, of TEfBV.",
    TIME_EXPLAINED,
)


def report(title: str, note: str, table: Sequence[Mapping[str, str]], runs: list[Run]) -> str:
    """A table with what its reader must know, as Markdown."""
    lines = [f"# {title}", "", note, "", markdown_table(table), "", *means(runs)]
    lines += [*COLUMNS_EXPLAINED]
    if any(run.config.data.n_validation for run in runs):
        lines += ["Where images are held out, they are the validation set."]
    lines += [""]
    lines += [f"- {provenance_line(run)}" for run in runs]
    return "\n".join(lines) + "\n"


def _net(run: Run) -> str:
    """What a run trained: 'net 1', or layers."""
    return f"net {net_number(run)}" if is_table1(run) else run.config.net_name


def provenance_line(run: Run) -> str:
    """What was trained, where and when, in one line."""
    last, engine = run.provenance[-1], engine_name(run)
    engine += f", vectors of {last.vectors} floats" if last.vectors else ""
    engine += f", {last.peak_memory_bytes / 1e6:,.0f} MB at most" if last.peak_memory_bytes else ""
    return f"{_net(run)}, seed {run.config.seed}: {source_line(run_source(run), engine, True)}"


def run_source(run: Run) -> SourceColumns:
    """The provenance of a run as columns: of its last process, with the commits of all."""
    source = run.provenance[-1].columns()
    source.commit = AND.join(dict.fromkeys(one.columns().commit for one in run.provenance))
    return source


def source_line(
    source: SourceColumns, engine: str = "", exact: bool = False, last_day: str = ""
) -> str:
    """Where and when something was done, in one line.

    exact: with the time, not only the day. last_day: of several.
    """
    where = f"{source.device}{f', driver {source.driver}' * bool(source.driver)}"
    where += f", engine {engine}" * bool(engine)
    commits = commit_text(*source.commit.split(AND))
    date = source.date if exact else source.date[:10]
    date += f" to {last_day}" * (last_day > date)
    return f"{where}; {source.versions.replace('=', ' ')}; {date}; {commits}"


def bench_source(rows: Sequence[BenchRow]) -> str:
    """Where, when and how often rows were measured, in one line."""
    texts = [
        f"{source_line(row.source, exact=True)}; medians of {row.repeats} repeats" for row in rows
    ]
    return "; and ".join(dict.fromkeys(texts))
