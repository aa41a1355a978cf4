"""The nets of runs and their engines, made from configurations."""

from typing import Any, TypeAlias

from msgspec.structs import replace

from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.running.configs import Config
from mlp_gpu import engines
from mlp_gpu.engine import SCHEDULES, WINDOW, Engine
from mlp_gpu.network import Network

AnyNetwork: TypeAlias = Network | ConvNetwork


def initial(config: Config) -> AnyNetwork:
    """The net of a run before its first step."""
    if config.is_convolutional:
        source = Maps(*config.source)
        return ConvNetwork.initial(config.layers, source, config.n_classes, config.seed)
    return Network.initial(config.sizes, config.seed)


def blank(config: Config) -> AnyNetwork:
    """A net of the run's size, for computations that do not depend on its weights."""
    if config.is_convolutional:
        return initial(config)
    return Network.blank(config.sizes)  # zeros need not be sampled


def kind(config: Config) -> type[Network] | type[ConvNetwork]:
    """The class of a run's net."""
    return ConvNetwork if config.is_convolutional else Network


def attributes(config: Config) -> dict[str, Any]:
    """The attributes that a run's net is stored with, which describe its layers."""
    names = ("layers", "source", "n_classes") if config.is_convolutional else ("sizes",)
    return {name: getattr(config, name) for name in names}


def is_of(net: AnyNetwork, config: Config) -> bool:
    """Whether a net has the layers of a run's."""
    return net.stored().attrs == attributes(config)


def make_engine(config: Config, schedule: str) -> Engine:
    """The engine of a run. schedule: of the GPU's engine, one of SCHEDULES.

    A run of the GPU that names images_per_block is one of the schedule `window`.
    """
    if not config.is_convolutional:
        if config.images_per_block:
            return engines.make_engine(config.engine, WINDOW, config.images_per_block)
        return engines.make_engine(config.engine, schedule)
    if config.engine == "cuda":
        from cnn_gpu.cuda import ConvCudaEngine  # imports numba

        return ConvCudaEngine(schedule)
    from cnn_gpu.cpu import ConvCpuEngine

    return ConvCpuEngine()


def predictor(config: Config, network: AnyNetwork) -> Engine:
    """The CPU's engine with a run's net, to predict with."""
    engine = make_engine(replace(config, engine="cpu"), SCHEDULES[0])
    engine.set_network(network)
    return engine
