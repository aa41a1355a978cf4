"""What notebooks and pictures show: the runs that are there, or the pretrained nets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cnn_gpu.network import ConvNetwork
from deepbig import pretrained
from deepbig_runtime.errors import Problem
from experiments.datasets import data
from experiments.datasets.dataset import KINDS, MNIST, Dataset
from experiments.results import trained
from experiments.results.committee_report import tidy_rows
from experiments.results.committees import find_committees, recorded_committees
from experiments.results.rows import CommitteeRow
from experiments.training import configs, net_files, store
from experiments.training.formatting import printable
from experiments.training.store import Run


def load_runs(folder: Path | None = None, data_dir: Path | None = None) -> dict[str, Run]:
    """The runs below a folder by their names, all on the same data: on MNIST if any are.

    folder: None for $RUNS_DIR or runs/, which may be missing. data_dir: as data.load takes it;
    without it runs on data of your own are left out. The name of a run is its path in the folder,
    without .h5. If there is none, the recorded runs of the pretrained nets, by the names of
    the nets. Prints which runs these are. Files that cannot be read are named and left out.
    Raises Problem if a folder is given that does not exist, if no run can be read, or if there is
    none and MNIST can be neither found nor downloaded.
    """
    folder = store.find_folder(folder)
    if not store.run_files(folder):
        print("no runs of your own")
        return _pretrained_runs(data_dir)
    read = store.read_runs(folder, lambda fault: print(f"left out: {fault}"))
    found = {
        printable(str(path.relative_to(folder).with_suffix(""))): run for path, run in read.items()
    }
    if not found:
        raise Problem(f"no run below {folder} can be read; move them away, or train others")
    runs_on = Counter(map(_data_of, found.values()))
    known = [one for one in runs_on if data_dir or one[0] in KINDS]
    if not known:
        print(
            f"runs on data of your own below {folder}, left out: {len(found)}; 'make pictures' "
            "shows them by --data-dir"
        )
        return _pretrained_runs(None)
    shown = min(known, key=lambda one: (one[0] != MNIST, one[0], -runs_on[one]))
    name, _ = shown
    chosen = {key: run for key, run in found.items() if _data_of(run) == shown}
    left_out = len(found) - len(chosen)
    others = f"; on other data, left out: {left_out}" if left_out else ""
    print(f"runs on {name} below {folder}: {len(chosen)}{others}")
    return chosen


def _data_of(run: Run) -> tuple[str, str]:
    """The name and the SHA-256 of a run's data: of your own there may be several of one name."""
    return run.config.data.name, run.config.data.sha256


def _pretrained_runs(data_dir: Path | None) -> dict[str, Run]:
    """The recorded runs of the pretrained nets, with what the nets say of MNIST's digits."""
    from experiments.results.records import read_results  # imports numba

    records = read_results().runs.values()
    members = {net.name: net_files.read(net.path) for net in pretrained.PRETRAINED}
    # Scaling all training images would take longer than the nets.
    dataset = data.scale(data.limit(data.load_pixels("mnist", data_dir), 1))
    found = {}
    for name, member in members.items():
        if record := trained.record_of(member, records):
            prepared, outputs = trained.on_test_images(member, dataset)
            found[name] = replace(record, outputs=outputs, labels=prepared.test_labels)
    if not found:
        raise Problem("there is no run, and no record of the pretrained nets; 'make table1'")
    print(
        f"shown are the pretrained nets: {', '.join(found)}\n"
        "'make table1', 'make cnn' and 'make committee' train others"
    )
    return found


def load_data(runs: Mapping[str, Run]) -> Dataset:
    """The images that the runs of `load_runs` were trained and tested on, not normalised."""
    return configs.load(next(iter(runs.values())).config, None)


def load_committees(runs: Mapping[str, Run]) -> dict[str, Sequence[CommitteeRow]]:
    """The rows of the committees of 2012 by their titles: those that the runs form, or the records.

    Prints a sentence if the runs form none. There are records for runs on MNIST alone.
    """
    from experiments.results.records import read_results  # imports numba

    if formed := find_committees(runs):
        return {one.title: tidy_rows(one) for one in formed}
    on_mnist = next(iter(runs.values())).config.data.name == MNIST
    found = recorded_committees(read_results().committees.values()) if on_mnist else {}
    instead = "; shown are the recorded ones" if found else ""
    print(f"no committee of seven among these runs{instead}\n'make committee' trains them")
    return found


def net_path(name: str, folder: Path) -> Path | None:
    """The file with the net of a run of `load_runs(folder)`; None if its weights are not there."""
    path = folder / f"{name}.h5"
    known = {net.name: net.path for net in pretrained.PRETRAINED}
    return path if store.weights_path(path).exists() else known.get(name)


def load_convolutional(path: Path) -> ConvNetwork:
    """The net of a net file, or of a run file at its chosen epoch, from the weights file beside it.

    Raises files.FileFault if one of them is missing or damaged, Problem if they do not belong
    together.
    """
    net = trained.read(path).network
    assert isinstance(net, ConvNetwork)
    return net
