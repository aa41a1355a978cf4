"""What two runs of one configuration must have in common, whoever trained them."""

from experiments.running import store
from mlp_gpu import network
from mlp_gpu.network import Network

TIMES = {"deform_seconds", "train_seconds", "evaluate_seconds"}


def bits(path):
    """All of a run that is not a time or a place."""
    run = store.read_run(path)
    networks, attributes = network.load(store.weights_path(path), Network)
    return (*run_bits(run), attributes["epoch"], network_bits(networks))


def run_bits(run):
    """As `bits`, without the weights."""
    return (
        run.config,
        {name: values for name, values in run.metrics.items() if name not in TIMES},
        run.outputs.tobytes(),
        run.labels.tobytes(),
    )


def network_bits(networks):
    return {name: [W.tobytes() for W in net.weights] for name, net in networks.items()}


def epochs_on_disk(path):
    return store.read_run(path).epochs if path.exists() else 0


def whys(path):
    """How each process that worked on a run ended, in order."""
    return [session["why"] for session in store.read_run(path).provenance]
