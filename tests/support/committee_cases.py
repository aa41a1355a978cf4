"""What tests of committees share: the paper's figures, made-up data and runs, tables read back."""

import csv
import re
from pathlib import Path

import factories
import numpy as np
from msgspec.structs import replace

from experiments import committee
from experiments.datasets import data
from experiments.results import committees
from experiments.results.rows import CommitteeRow
from experiments.training import configs
from experiments.training.provenance import SourceColumns
from mlp_gpu.training import Schedule

HERE = ["--engine", "cpu", "--workers", "1"]

# Tables 1 and 2 of 2012: the seven nets of each experiment, then its committee, percent.
ERRORS = {
    1: (1.79, 1.80, 1.77, 1.72, 1.91, 1.86, 1.75, 1.70),
    2: (1.62, 1.37, 1.48, 1.53, 1.56, 1.49, 1.79, 1.31),
    3: (0.72, 0.71, 0.72, 0.71, 0.62, 0.65, 0.69, 0.56),
    4: (0.68, 0.82, 0.73, 0.69, 0.71, 0.70, 0.75, 0.53),
    5: (0.69, 0.94, 0.55, 0.72, 0.60, 0.86, 0.79, 0.49),
    6: (0.64, 0.78, 0.70, 0.60, 0.59, 0.70, 0.71, 0.43),
}

AVERAGES = {1: "1.80", 2: "1.55", 3: "0.69", 4: "0.73", 5: "0.74", 6: "0.67"}
TABLE4_ERRORS = (0.52, 0.45, 0.44, 0.49, 0.36, 0.38, 0.35, 0.31)
WIDTHS = [10, 12, 14, 16, 18, 20, None]


def numbered(n=66, name="load_digits"):
    """A data set whose images are known by their values; labels 0 to 9 in turn."""
    images = np.repeat(np.arange(n, dtype=np.float32), 29 * 29).reshape(n, 29, 29)
    labels = np.arange(n, dtype=np.uint8) % 10
    return data.Dataset(name, images, labels, images[:4] + 0.5, labels[:4], "ab" * 32, "here")


def numbers(images):
    """The numbers of images of `numbered`."""
    assert (images == images[:, :1, :1]).all()
    return images[:, 0, 0].astype(int).tolist()


def make_jobs(experiment, *options, dataset=None, engine="cpu"):
    arguments = committee.parse_arguments([*options, "--out", "some"])
    return committee.make_jobs(arguments, experiment, dataset or numbered(), engine)


def make_config(dataset, **options):
    return configs.make_config(dataset, (841, 800, 10), Schedule(3), 5, None, "cpu", **options)


def make_run(config, outputs, labels, seconds=4.0, **session):
    """A finished run that was never trained, with the outputs given."""
    epochs = config.epochs
    metrics = {f"{part}_seconds": [0.0] * epochs for part in ("deform", "evaluate")}
    metrics["train_seconds"] = [seconds / epochs] * epochs
    # Of equal validation errors the earliest epoch is chosen: the second.
    metrics["validation_errors"] = [9] + [4] * (epochs - 1)
    session = {"versions": {"python": "3.11", "numpy": "2.4"}} | session
    return factories.make_run(None, metrics, session, outputs, labels, config)


def committee_row(device="box", date="2026-01-01T00:10:00+00:00", **fields):
    """A row of a committee's table: of a net, or without `net` of its committee."""
    source = SourceColumns(device=device, versions="a=1", date=date, commit="c" * 40)
    comparison = {"mean_percent": 2.0, "only_committee": 1, "only_best": 2, "mcnemar_p": 0.5}
    common = {"experiment": "experiment1", "data": "MNIST", "n_test": 10_000, "errors": 1}
    common |= {"percent": 1.0, "low": 1.0, "high": 2.0, "second_guesses": 3, "shared": [1]}
    common |= {"layers": "841-10", "epochs": "8", "images_an_epoch": "60000", "eta": "0.003"}
    common |= {"eta_decay": "0.9", "seconds": 60.0, "engine": "cpu", "finished": True}
    own = {"member": "init 1"} if fields.get("net") else comparison | {"member": "committee"}
    own |= {} if fields.get("net") else {"best_member": "init 1"}
    return CommitteeRow(source=source, **common | own | fields)


def of_committees(errors):
    """Rows of experiments on MNIST, each of one net and its committee, by the paths of records.

    errors: of net and committee, of 10,000, for each experiment.
    """
    found = {}
    for number, (of_net, of_all) in errors.items():
        name, paper = f"experiment{number}", committees.EXPERIMENTS[number].paper
        both = {"experiment": name, "data": "MNIST", "paper": paper}
        found[Path("results", "box", f"committee-{name}.csv")] = [
            committee_row(net=1, errors=of_net, percent=of_net / 100, **both),
            committee_row(errors=of_all, percent=of_all / 100, mean_percent=of_net / 100, **both),
        ]
    return found


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables_of(text):
    """Every Markdown table of a text, a list of dictionaries each."""
    found = []
    for part in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        header, rule, *lines = part.splitlines()
        assert set(rule) <= set("|- ")
        found.append([dict(zip(cells(header), cells(line), strict=True)) for line in lines])
    return found


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def committee_rows(commit="0" * 40, **changes):
    """Two experiments that share a net: the rows of each."""
    fields = {"device": "Some CPU, 2 cores", "seed": 0, "epochs": "9", "eta": "0.1", "errors": 2}
    fields |= {"n_test": 100, "chosen_epoch": 9, "date": "2026-01-01"}
    later = {"seconds": 90.0, "date": "2026-01-02"}
    one = committee_row(net=1, **fields | changes)
    two = committee_row(net=2, **fields | later | {"member": "init 2"} | changes)
    both = committee_row(**fields | later | {"seed": None} | changes)
    for row in (one, two, both):
        row.source.commit = commit
    second = [replace(row, experiment="experiment2") for row in (one, both)]
    return [replace(row, shared=[2, 1]) for row in (one, two, both)], second
