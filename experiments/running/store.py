"""Run files: what a training was asked for, what came of it, and where it happened.

`<run>.h5` has the configuration, the provenance, one metrics row per epoch and the outputs of the
chosen epoch. `<run>.weights.h5` has what a resume needs: the latest weights and those of the
chosen epoch. Both are replaced whole after each epoch, the run file first. So after a crash
between the two the run file is one epoch ahead, and that epoch is done again, to the same bits.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import h5py
import numpy as np

from experiments.running import checks, nets
from experiments.running.configs import net_name
from experiments.running.errors import Problem
from mlp_gpu import files, hdf5, network
from mlp_gpu.training import Epoch, chosen_epoch

SCHEMA, SCHEMA_VERSION = "deepbig run", 1
WEIGHTS_SUFFIX = ".weights.h5"

# name: (dtype, units, long name). The names are fields of Epoch.
METRICS = {
    "epoch": ("int64", "1", "epoch, from 1"),
    "eta": ("float64", "1", "learning rate of the epoch"),
    "train_loss": ("float64", "nat", "mean cross-entropy over the deformed training images"),
    "validation_errors": ("int64", "images", "wrong among the undeformed validation images"),
    "test_errors": ("int64", "images", "wrong among the test images"),
    "deform_seconds": ("float64", "s", "time that training waited for its deformed images"),
    "train_seconds": ("float64", "s", "time for the on-line steps"),
    "evaluate_seconds": ("float64", "s", "time for validation and test"),
}
EPOCH_PARTS = "deform_seconds", "train_seconds", "evaluate_seconds"
assert set(METRICS) == {field.name for field in fields(Epoch)} - {"outputs"}


@dataclass
class Run:
    """A run as its file holds it.

    config: everything that defines the run. provenance: a dict for each process that worked on
    it, in order. metrics: a list for each name in METRICS, one entry per epoch. outputs: class
    probabilities of the test images at the chosen epoch, float32 (n_test, 10). labels: of the test
    images, uint8 (n_test,).
    """

    config: dict
    provenance: list[dict]
    metrics: dict[str, list]
    outputs: np.ndarray
    labels: np.ndarray

    @classmethod
    def new(cls, config: dict, labels: np.ndarray) -> "Run":
        """A run without any epoch."""
        metrics: dict[str, list] = {name: [] for name in METRICS}
        return cls(config, [], metrics, np.empty((len(labels), 0), np.float32), labels)

    @property
    def epochs(self) -> int:
        """Epochs done."""
        return len(self.metrics["epoch"])

    @property
    def finished(self) -> bool:
        """Whether all epochs that the configuration asks for are done."""
        return self.epochs == self.config["epochs"]

    @property
    def chosen(self) -> int:
        """The epoch with the fewest validation errors."""
        return chosen_epoch(self.metrics["validation_errors"])

    @property
    def chosen_errors(self) -> int:
        """Test errors at the chosen epoch: TEfBV as a count."""
        return self.metrics["test_errors"][self.chosen - 1]

    @property
    def best_errors(self) -> int:
        """The fewest test errors of any epoch: BTE as a count."""
        return min(self.metrics["test_errors"])

    @property
    def epoch_seconds(self) -> list[float]:
        """Time that each epoch took: to wait for its images, to train, and to evaluate."""
        return [
            sum(epoch) for epoch in zip(*(self.metrics[part] for part in EPOCH_PARTS), strict=True)
        ]

    @property
    def seconds(self) -> float:
        """Time that all epochs took."""
        # In this order of additions, because records in results/ hold the last digit.
        return sum(sum(self.metrics[part]) for part in EPOCH_PARTS)


def weights_path(path: Path) -> Path:
    """The weights file that belongs to a run file."""
    return path.with_suffix(WEIGHTS_SUFFIX)


def run_files(folder: Path) -> list[Path]:
    """All files below a folder that are named like run files, sorted."""
    return sorted(path for path in folder.rglob("*.h5") if not path.name.endswith(WEIGHTS_SUFFIX))


def find_folder(folder: Path | None = None) -> Path:
    """Where runs are: that folder, or else $RUNS_DIR or runs/."""
    return folder or Path(os.environ.get("RUNS_DIR") or "runs")


def table1_path(folder: Path, net: int, seed: int, data_name: str, distortion: bool) -> Path:
    """The run file of a net of Table 1, and of a seed."""
    parts = [f"net{net}", f"seed{seed}"]
    parts += [] if distortion else ["no-distortion"]
    parts += [] if data_name == "MNIST" else [data_name]
    return folder / ("-".join(parts) + ".h5")


def without_weights(paths: list[Path]) -> list[Path]:
    """The paths without those of weights files, which a shell's *.h5 finds beside run files."""
    return [path for path in paths if not path.name.endswith(WEIGHTS_SUFFIX)] or paths


def write_run(path: Path, run: Run) -> None:
    """Replace the run file. Raises files.FileFault if that fails; the old file then stays."""

    def fill(file: h5py.File) -> None:
        file.attrs.update(
            schema=SCHEMA,
            schema_version=SCHEMA_VERSION,
            config=json.dumps(run.config),
            provenance=json.dumps(run.provenance),
        )
        metrics = file.create_group("metrics")
        for name, (dtype, units, long_name) in METRICS.items():
            values = np.asarray(run.metrics[name], dtype)
            dataset = metrics.create_dataset(name, data=values, track_times=False)
            dataset.attrs.update(units=units, long_name=long_name)
        predictions = file.create_group("predictions")
        predictions.attrs["epoch"] = run.chosen
        predictions.create_dataset("outputs", data=run.outputs, track_times=False)
        predictions.create_dataset("labels", data=run.labels, track_times=False)

    hdf5.write(path, fill)


def read_run(path: Path) -> Run:
    """Read a run file.

    Raises files.FileFault if it is missing, damaged or something else, or holds what no run can.
    """
    with hdf5.opened(path, SCHEMA, SCHEMA_VERSION) as file:
        attributes = {"schema": str, "schema_version": int, "config": str, "provenance": str}
        file.check({"metrics", "predictions"}, attributes)
        config = checks.parse_json("config", str(file.attrs["config"]))
        checks.check_config("config", config)
        sessions = checks.parse_json("provenance", str(file.attrs["provenance"]))
        checks.PROVENANCE("provenance", sessions)

        group = file.group("metrics")
        group.check(set(METRICS), {})
        metrics = {
            name: group.row(name, dtype, units=units).tolist()
            for name, (dtype, units, _) in METRICS.items()
        }
        checks.check_metrics(metrics, config)

        group = file.group("predictions")
        group.check({"outputs", "labels"}, {"epoch": int})
        n_test, n_classes = config["data"]["n_test"], nets.count_classes(config)
        outputs = group.array("outputs", "float32", (n_test, n_classes))
        labels = group.array("labels", "uint8", (n_test,))
        checks.check_predictions(outputs, labels, group.attrs["epoch"], metrics)
        return Run(config, sessions, metrics, outputs, labels)


def read_weights(path: Path, config: dict) -> tuple[dict[str, nets.AnyNetwork], dict, int]:
    """Read a weights file: its networks, latest and chosen; its run's configuration; its epoch.

    config: of the run. Raises files.FileFault as `read_run` does, and if the nets have other layers
    than the configuration in the file says.
    """
    networks, attributes = network.load(path, nets.kind(config))
    with files.checked(path):
        if networks.keys() != {"latest", "chosen"}:
            raise files.Malformed(f"it holds {sorted(networks)}, expected latest and chosen nets")
        text, epoch = attributes.get("config"), attributes.get("epoch")
        if not (isinstance(text, str) and isinstance(epoch, int)):
            raise files.Malformed("it lacks a configuration or an epoch")
        found = checks.parse_json("config", text)
        checks.check_config("config", found)
        if not 1 <= epoch <= found["epochs"]:
            raise files.Malformed(f"its epoch is {epoch}, expected 1 to {found['epochs']}")
        if not all(nets.is_of(net, found) for net in networks.values()):
            raise files.Malformed(f"its nets have other layers than {net_name(found)}")
    return networks, found, epoch


def check_config(path: Path, found: dict, expected: dict) -> None:
    """Raise Problem with the differences if the file's configuration is not the one asked for.

    The file may be of fewer epochs, which more would go on from: their learning rates are the same.
    """
    older = found.get("cpu_arithmetic"), expected.get("cpu_arithmetic")
    if found["engine"] == expected["engine"] and None in older and older != (None, None):
        raise Problem(
            f"{path} was trained by an older version of this program, which rounds otherwise: it "
            "can be shown, exported and used in committees, but not resumed; choose another folder "
            "with --out, or move that file away"
        )
    fewer = found["epochs"] < expected["epochs"]
    differences = list(_differences(found | {"epochs": 0}, expected | {"epochs": 0}))
    if fewer and differences and all(text.startswith(("decay", "eta")) for text in differences):
        raise Problem(
            f"{path} holds a run of {found['epochs']:,} epochs, whose learning rates are not the "
            f"first of {expected['epochs']:,} ({'; '.join(differences)}), so it is not extended; "
            "give those as --eta and --eta-decay, or choose another folder with --out"
        )
    if not fewer:
        differences = list(_differences(found, expected))
    if differences:
        raise Problem(
            f"{path} holds another run than the one asked for: {'; '.join(differences)}; choose "
            "another folder with --out, or move that file away"
        )


def _differences(found: dict, expected: dict, prefix: str = "") -> Iterator[str]:
    for name in sorted(found.keys() | expected.keys()):
        # Configurations of older runs lack some names. That means the same as None, or as 0.
        there, here = found.get(name), expected.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            yield from _differences(there, here, f"{prefix}{name}.")
        elif (there or None) != (here or None):
            yield f"{prefix}{name} is {there} there and {here} here"
