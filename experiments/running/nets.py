"""The kinds of nets that runs train: what a configuration says of a net, made into one.

A configuration has either `sizes`, the neurons of each layer of a multi-layer perceptron, or
`layers`, the description of a convolutional net, and `source`, its input; and `n_classes`, if the
net has not ten, which older configurations do not say.
"""

from dataclasses import astuple
from typing import TypeAlias

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from mlp_gpu import engines
from mlp_gpu.engines import Engine
from mlp_gpu.network import N_CLASSES, Network

AnyNetwork: TypeAlias = Network | ConvNetwork


def is_convolutional(config: dict) -> bool:
    return "layers" in config


def count_classes(config: dict) -> int:
    """Neurons of a run's last layer."""
    return config.get("n_classes", N_CLASSES)


def initial(config: dict) -> AnyNetwork:
    """The net of a run before its first step."""
    if is_convolutional(config):
        source = Maps(*config["source"])
        return ConvNetwork.initial(config["layers"], source, count_classes(config), config["seed"])
    return Network.initial(tuple(config["sizes"]), config["seed"])


def blank(config: dict) -> AnyNetwork:
    """A net of the run's size, for what does not depend on its weights."""
    if is_convolutional(config):
        return initial(config)
    return Network.blank(tuple(config["sizes"]))  # zeros need not be drawn


def kind(config: dict) -> type[Network] | type[ConvNetwork]:
    """The class of a run's net."""
    return ConvNetwork if is_convolutional(config) else Network


def is_of(net: AnyNetwork, config: dict) -> bool:
    """Whether a net has the layers of a run's."""
    if isinstance(net, Network):
        return net.sizes == tuple(config.get("sizes", ()))
    described = config.get("layers"), config.get("source"), count_classes(config)
    return described == (net.description, list(astuple(net.source)), net.n_classes)


def make_engine(config: dict, schedule: str) -> Engine:
    """The engine of a run. schedule: of the GPU's engine, one of engines.SCHEDULES.

    A run of the GPU that names images_per_block is one of the schedule `window`.
    """
    if not is_convolutional(config):
        if images_per_block := config.get("images_per_block"):
            return engines.make_engine(config["engine"], engines.WINDOW, images_per_block)
        return engines.make_engine(config["engine"], schedule)
    if config["engine"] == "cuda":
        from cnn_gpu.cuda import ConvCudaEngine  # imports numba

        return ConvCudaEngine(schedule)
    from cnn_gpu.cpu import ConvCpuEngine

    return ConvCpuEngine()


def predictor(config: dict, network: AnyNetwork) -> Engine:
    """The CPU's engine with a run's net, to predict with."""
    engine = make_engine(config | {"engine": "cpu"}, engines.SCHEDULES[0])
    engine.set_network(network)
    return engine
