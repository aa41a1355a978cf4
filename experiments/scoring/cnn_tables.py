"""Table 1 of the 2011 paper, the convolutional nets on MNIST, with our runs beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from cnn_gpu.layers import Maps, parse
from experiments.running.store import Run
from experiments.scoring import tables
from mlp_gpu.network import N_CLASSES

EARLY = (1, 3, 17)  # epochs after which the paper gives the error


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


def order(run: Run) -> tuple:
    """What to sort rows by: the paper's nets, then others; of each the longest training first."""
    described = [paper.layers for paper in PAPER.values()]
    layers = run.config["layers"]
    place = described.index(layers) if layers in described else len(described)
    return place, layers, -run.epochs * run.config["data"]["n_train"], run.config["seed"]


def row(run: Run) -> dict:
    """A run as a tidy row, its provenance included. Errors in percent, None where not measured."""
    config, errors = run.config, run.metrics["test_errors"]
    n_test = config["data"]["n_test"]
    layers = parse(config["layers"], Maps(*config["source"]), N_CLASSES)
    early = {
        f"error_after_{epoch}": 100 * errors[epoch - 1] / n_test if epoch <= len(errors) else None
        for epoch in EARLY
    }
    return {
        "layers": config["layers"],
        "weights": sum(layer.n_weights for layer in layers),
        **early,
        **tables.result_columns(run),
    }


def table(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Our runs, all on the same data, as lines of Table 1; on MNIST beside the paper's figures."""
    paper_nets = {paper.layers: paper for paper in PAPER.values()}
    lines = []
    for run in runs:
        found = row(run)
        paper = paper_nets.get(found["layers"])
        line = {
            "net": paper.name if paper else "ours",
            "layers": found["layers"],
            "weights": f"{found['weights']:,}",
        }
        names = ("paper TEfBV %", "paper BTE %", "paper after 1, 3, 17 epochs")
        if found["data"] == "MNIST":
            of_paper = ("-", "-", "-")
            if paper:
                early = ", ".join(f"{error:.2f}" for error in paper.early) or "-"
                of_paper = (f"{paper.tefbv:.2f}", f"{paper.bte:.2f}", early)
            line |= dict(zip(names, of_paper, strict=True))
        ours = [found[f"error_after_{epoch}"] for epoch in EARLY]
        line["after 1, 3, 17 epochs"] = ", ".join(f"{e:.2f}" for e in ours if e is not None)
        lines.append(line | tables.result_cells(found))
    return lines
