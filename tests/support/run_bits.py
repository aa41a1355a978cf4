"""What two runs of one configuration must have in common, whoever trained them."""

from pathlib import Path

from msgspec.structs import asdict

from experiments.training import nets, store
from experiments.training.nets import AnyNetwork
from experiments.training.store import Run
from mlp_gpu import network

TIMES = {"deform_seconds", "train_seconds", "evaluate_seconds"}


def bits(path: Path) -> tuple:
    """All of a run that is not a time or a place."""
    run = store.read_run(path)
    networks, attributes = network.load(store.weights_path(path), nets.kind(run.config))
    return (*run_bits(run), attributes["epoch"], network_bits(networks))


def run_bits(run: Run) -> tuple:
    """As `bits`, without the weights."""
    return (
        run.config,
        {name: values for name, values in asdict(run.metrics).items() if name not in TIMES},
        run.outputs.tobytes(),
        run.labels.tobytes(),
    )


def network_bits(networks: dict[str, AnyNetwork]) -> dict[str, list[bytes]]:
    return {
        name: [b"" if W is None else W.tobytes() for W in net.weights]
        for name, net in networks.items()
    }


def epochs_on_disk(path: Path) -> int:
    return store.read_run(path).epochs if path.exists() else 0


def whys(path: Path) -> list[str]:
    """How each process that worked on a run ended, in order."""
    return [session.why for session in store.read_run(path).provenance]
