"""Tables 1, 2 and 3 of the 2011 paper, convolutional nets, with our runs beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cnn_gpu.layers import Maps, parse
from deform_gpu import TRANSLATION
from experiments.datasets.dataset import CIFAR10_JPEG, COLOURS, DIGIT, Kind, is_mnist
from experiments.results import tables
from experiments.results.rows import CnnRow
from experiments.training import plans
from experiments.training.configs import Config
from experiments.training.store import Run
from mlp_gpu.network import NETS, count_weights

EARLY = (1, 3, 17)  # epochs after which the paper gives the error
PAPER_EPOCHS = plans.PAPER_CNN.schedule.epochs  # of Table 1


@dataclass(frozen=True)
class PaperNet:
    """A row of Table 1 (2011). Errors in percent; early: after EARLY epochs, where they are given.

    layers: ours. The paper prints no kernel sizes and no skipping factors, and says that its
    connection tables are random: guesses, chosen so that every map is divided without a remainder.
    """

    name: str
    layers: str
    bte: float
    tefbv: float
    early: tuple[float, ...] = ()


PAPER = {
    1: PaperNet("20M-60M", "20M5s1-60M5s1c50%", 0.95, 1.02),
    2: PaperNet("20M-60M-150N", "20M5s1-60M5s1c50%-150N", 0.50, 0.55),
    3: PaperNet(
        "20M-60M-100M-150N", "20M5s1-60M5s1c50%-100M3c50%-150N", 0.33, 0.38, (4.71, 1.58, 0.68)
    ),
    4: PaperNet(
        "20M-40M-60M-80M-100M-120M-150N",
        "20M3s1-40M3c50%-60M3c50%-80M3c50%-100M3c50%-120M3c50%-150N",
        0.27,
        0.35,
        (2.42, 0.97, 0.48),
    ),
}


@dataclass(frozen=True)
class PaperRow:
    """A row of Table 2 or 3 (2011): TEfBV of several runs, in percent, mean and standard deviation.

    translation: at most, percent of the side. layers: as the paper has them, with the image
    processing, IP, before them.
    """

    translation: int
    layers: str
    tefbv: float
    deviation: float
    n_runs: int


NORB_NET = "300M6s1-MP2-500M4-MP4-500N"


def cifar10_net(n: int) -> str:
    """The net of Table 3 with n maps in each convolution."""
    return f"{n}M3-MP3-{n}M3-MP2-{n}M3-MP2-300N-100N"


# Table 2, NORB, and Table 3, CIFAR10, by the names of their data.
PAPER_ROWS = {
    "NORB": (
        PaperRow(0, NORB_NET, 7.86, 0.55, 50),
        PaperRow(5, NORB_NET, 4.71, 0.57, 50),
        PaperRow(0, f"IP(hat21)-{NORB_NET}", 3.94, 0.48, 50),
        PaperRow(5, f"IP(hat21)-{NORB_NET}", 2.53, 0.40, 100),
    ),
    "CIFAR10": (
        PaperRow(0, cifar10_net(100), 28.87, 0.37, 11),
        PaperRow(0, f"IP(sobel+scharr)-{cifar10_net(100)}", 29.11, 0.36, 15),
        PaperRow(5, cifar10_net(100), 20.26, 0.21, 11),
        PaperRow(5, f"IP(sobel+scharr)-{cifar10_net(100)}", 21.87, 0.57, 5),
        PaperRow(5, f"IP(hat13)-{cifar10_net(100)}", 21.44, 0.44, 4),
        PaperRow(5, cifar10_net(200), 19.90, 0.16, 5),
        PaperRow(5, cifar10_net(300), 19.51, 0.18, 5),
        PaperRow(5, cifar10_net(400), 19.54, 0.16, 5),
    ),
}


PAPER_ROWS[CIFAR10_JPEG] = PAPER_ROWS["CIFAR10"]

# The net with 100 maps, which we train on the JPEG copy of CIFAR-10, by what our tables call it.
JPEG_NETS = {
    "3 x 100M-300N-100N, CIFAR-10 as JPEG"
    + (f", translated {row.translation} %" if row.translation else ""): row
    for row in PAPER_ROWS[CIFAR10_JPEG]
    if row.layers == cifar10_net(100)
}


@dataclass(frozen=True)
class Table:
    """A table of the paper. data: name of its data set. nets: those that we train, by number."""

    number: int
    data: str
    nets: Mapping[int, str]
    note: str


_TABLE1 = Table(
    1,
    "MNIST",
    {net: paper.layers for net, paper in PAPER.items()},
    f"The paper trained for {PAPER_EPOCHS} epochs of 60,000 images, with kernels that it does not "
    "print: ours are guesses.",
)
SEVERAL_RUNS = "The paper's figures are means and standard deviations of several runs."
# By what --data says.
TABLES = {
    "auto": _TABLE1,
    "mnist": _TABLE1,
    "digits": _TABLE1,
    "norb": Table(2, "NORB", {1: NORB_NET, 2: f"IP(hat21)-{NORB_NET}"}, SEVERAL_RUNS),
    "cifar10": Table(
        3,
        "CIFAR10",
        {
            **{net: cifar10_net(100 * net) for net in range(1, 5)},
            5: f"IP(sobel+scharr)-{cifar10_net(100)}",
            6: f"IP(hat13)-{cifar10_net(100)}",
        },
        SEVERAL_RUNS,
    ),
}


def table_for(kind: Kind) -> Table:
    """The paper's table whose nets fit images of a kind; of your own the one of like images."""
    return TABLES.get(kind.choice) or TABLES["cifar10" if kind.source.n > 1 else "mnist"]


def convolutional_runs(runs: Mapping[tables.Name, Run], data: str) -> dict[tables.Name, Run]:
    """The runs of convolutional nets on the data of that name.

    The paper's nets come before others; of each the longest trainings come first.
    """
    described = [paper.layers for paper in PAPER.values()]

    def order(item: tuple[tables.Name, Run]) -> tuple:
        config = item[1].config
        known = config.layers in described
        place = described.index(config.layers) if known else len(described)
        return place, config.layers, -item[1].epochs * config.data.n_train, config.seed

    own = [item for item in tables.on_data(runs, data).items() if item[1].config.is_convolutional]
    return dict(sorted(own, key=order))


def row(run: Run) -> CnnRow:
    """A finished or unfinished run of a convolutional net as a row."""
    config, errors = run.config, run.metrics.test_errors
    early: dict[str, Any] = {
        f"error_after_{n}": 100 * errors[n - 1] / config.data.n_test if n <= len(errors) else None
        for n in EARLY
    }
    return CnnRow(
        layers=config.layers,
        translation=config.deformation.translation if config.deformation else 0,
        weights=_count_weights(config.layers, Maps(*config.source), config.n_classes),
        **early,
        **tables.result_fields(run),
    )


def _count_weights(layers: str, source: Maps, n_classes: int) -> int:
    return sum(layer.n_weights for layer in parse(layers, source, n_classes))


def longest_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """The longest run of each net of the papers on deformed MNIST, and of JPEG_NETS, by its name.

    runs: of any nets, on any data. Nets without a run are left out.
    """
    named: dict[str, list[Run]] = {}
    for run in runs:
        if name := _paper_name(run):
            named.setdefault(name, []).append(run)
    return {name: tables.most_trained(own) for name, own in named.items()}


def _paper_name(run: Run) -> str | None:
    """The name in `longest_runs` of the net that a run trained; None if it is not the papers'."""
    config = run.config
    if config.data.name == CIFAR10_JPEG:
        row = paper_row(config)
        return next((name for name, known in JPEG_NETS.items() if known == row), None)
    if not tables.is_on_deformed_mnist(run):
        return None
    if tables.is_table1(run):
        return f"net {tables.net_number(run)}"
    paper = paper_net(config.layers)
    return paper.name if paper else None


def longest_table(runs: Iterable[Run]) -> list[dict[str, str]]:
    """A line for each net of the papers: our run of `longest_runs` beside the paper's.

    runs: of any nets, on any data.
    """
    longest = longest_runs(runs)
    nets = [  # the first four columns, and the name in `longest_runs`
        (
            f"{net}",
            tables.layers(sizes),
            count_weights(sizes),
            tables.PAPER[net].tefbv,
            f"net {net}",
        )
        for net, sizes in NETS.items()
    ]
    for paper in PAPER.values():
        n_weights = _count_weights(paper.layers, DIGIT, 10)
        nets.append(("2011", paper.name, n_weights, paper.tefbv, paper.name))
    for name, row in JPEG_NETS.items():
        nets.append(("2011", name, _count_weights(row.layers, COLOURS, 10), row.tefbv, name))
    return [_longest_line(*net[:-1], longest.get(net[-1])) for net in nets]


def _longest_line(
    net: str, layers: str, n_weights: int, tefbv: float, run: Run | None
) -> dict[str, str]:
    """A line of `longest_table`. tefbv: the paper's, in percent. run: ours."""
    cells = {"95 % interval": "", "epochs x images": "", "time": ""}
    error = "not measured yet"
    if run:
        cells = tables.result_cells(tables.result_row(run))
        error = f"{cells['TEfBV %']} ({cells['95 % interval']})"
        cells["time"] += " (GPU)" if run.config.engine == "cuda" else ""
    line = {"net": net, "layers": layers, "weights": f"{n_weights:,}"}
    line |= {"paper: error %": f"{tefbv:.2f}", "test error % (95 % interval)": error}
    return line | {name: cells[name] for name in ("epochs x images", "time")}


def paper_net(layers: str) -> PaperNet | None:
    """The row of Table 1 that a net belongs to."""
    return next((net for net in PAPER.values() if net.layers == layers), None)


def paper_row(config: Config) -> PaperRow | None:
    """The row of Table 2 or 3 that a training belongs to."""
    for row in PAPER_ROWS.get(config.data.name, ()):
        moved = replace(TRANSLATION, translation=row.translation) if row.translation else None
        if (row.layers, moved) == (config.layers, config.deformation):
            return row
    return None


def table(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Our runs, all on the same data, as lines of a table of the paper, its figures beside ours.

    Without the paper's figures if the data are none of the paper's.
    """
    rows, lines = [row(run) for run in runs], []
    are_digits = runs[0].config.kind.source.n == 1
    for run, found in zip(runs, rows, strict=True):
        paper = paper_net(found.layers)
        line = {"net": paper.name if paper else "ours"} if are_digits else {}
        line |= {"layers": found.layers, "weights": f"{found.weights:,}"}
        if not are_digits or any(row.translation for row in rows):
            line["translation %"] = f"{found.translation:g}"
        if is_mnist(found.data):
            names = ("paper TEfBV %", "paper BTE %", "paper after 1, 3, 17 epochs")
            of_paper = ("-", "-", "-")
            if paper:
                early = ", ".join(f"{error:.2f}" for error in paper.early) or "-"
                of_paper = (f"{paper.tefbv:.2f}", f"{paper.bte:.2f}", early)
            line |= dict(zip(names, of_paper, strict=True))
        elif found.data in PAPER_ROWS:
            beside = paper_row(run.config)
            line["paper TEfBV %"] = (
                f"{beside.tefbv:.2f} ± {beside.deviation:.2f}" if beside else "-"
            )
            line["paper runs"] = f"{beside.n_runs}" if beside else "-"
        ours = found.error_after_1, found.error_after_3, found.error_after_17
        line["after 1, 3, 17 epochs"] = ", ".join(f"{e:.2f}" for e in ours if e is not None)
        lines.append(line | tables.result_cells(found))
    return lines
