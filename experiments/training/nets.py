"""The nets of runs and their engines, made from configurations."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from cnn_gpu import engines as conv_engines
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from experiments.datasets.dataset import Dataset
from experiments.training.configs import Config
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


def kind(config: Config) -> type[Network] | type[ConvNetwork]:
    """The class of a run's net."""
    return ConvNetwork if config.is_convolutional else Network


def attributes(config: Config) -> dict[str, Any]:
    """The attributes that a run's net is stored with, which describe its layers."""
    names = ("layers", "source", "n_classes") if config.is_convolutional else ("sizes",)
    return {name: getattr(config, name) for name in names}


def make_engine(config: Config, schedule: str) -> Engine:
    """The engine of a run. schedule: of the GPU's engine, one of SCHEDULES.

    A run of the GPU that names images_per_block is one of the schedule `window`.
    """
    if config.study and config.study.endswith("squared error"):
        from mlp_gpu.squared_error import SquaredErrorEngine  # imports numba

        return SquaredErrorEngine(is_tanh=config.study.startswith("tanh"))
    if not config.is_convolutional:
        if config.images_per_block:
            return engines.make_engine(config.engine, WINDOW, config.images_per_block)
        return engines.make_engine(config.engine, schedule)
    return conv_engines.make_engine(config.engine, schedule)


def needed_bytes(nets: Sequence[tuple[int, ...] | str], pixels: Callable[[], Dataset]) -> int:
    """An upper bound of the GPU memory that training the largest of some nets needs, in bytes.

    nets: as configs.make_config takes them. pixels: returns the data. The GPU deforms images of one
    map, too.
    """
    from cnn_gpu import cuda as cnn_cuda  # imports numba
    from deform_gpu import cuda as deform_cuda
    from mlp_gpu.window import engine as window

    kind, n = pixels().kind, len(pixels().train_labels)
    needed = max(
        cnn_cuda.device_bytes(ConvNetwork.initial(net, kind.source, kind.n_classes, 0), n)
        if isinstance(net, str)
        else window.device_bytes((kind.source.n_neurons, *net[1:-1], kind.n_classes), n)
        for net in nets
    )
    return needed + deform_cuda.device_bytes(n, kind.source.width) * (kind.source.n == 1)


def predictor(config: Config, network: AnyNetwork) -> Engine:
    """The CPU's engine with a run's net, to predict with."""
    engine = make_engine(replace(config, engine="cpu"), SCHEDULES[0])
    engine.set_network(network)
    return engine
