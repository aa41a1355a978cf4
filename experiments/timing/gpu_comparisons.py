"""Checks of the GPU that compare: with the CPU, with peers, and images deformed while training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cnn_gpu.cpu import ConvCpuEngine
from cnn_gpu.cuda import ConvCudaEngine
from cnn_gpu.layers import Maps
from cnn_gpu.network import ConvNetwork
from deepbig_runtime import gpu
from deform_gpu import COMMITTEE, TABLE1, deform
from deform_gpu.cuda import DeformedAhead
from experiments.running import configs, data
from experiments.running.messages import tell
from experiments.running.nets import AnyNetwork
from experiments.scoring.cnn_tables import PAPER
from experiments.timing import connections, peers
from experiments.timing.check_result import CheckResult
from experiments.timing.deform import N_IMAGES
from mlp_gpu import training
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.engine import Engine
from mlp_gpu.engines import make_engine
from mlp_gpu.network import N_CLASSES, NETS, Network
from mlp_gpu.window.engine import WindowCudaEngine

MAX_IMAGES, EPOCHS, ETA, SEED = 5000, 3, 1e-3, 0  # of the trainings on CPU and GPU

# The limits, which were fixed before anything was measured. Sums in another order have other bits,
# and training drives them apart: the weights of the GPU engine may differ from the CPU engine's
# by at most this factor times a CPU baseline's difference: of a NumPy loop, or for convolutional
# nets of loops over connections.
MAX_DRIFT_VS_PEER = 3
MAX_ERROR_GAP = 0.002  # between the numbers of wrong digits, relative to the test images
MAX_PIXEL_DIFFERENCE = 1e-5  # between deformed images in [-1, 1], by rounding
MAX_WAIT_FRACTION = 0.01  # of the training of an epoch, for the images of the next one
MAX_EXPOSED_FRACTION = 0.5  # of the deformation of an epoch, which training may wait for


Epochs = dict[int, np.ndarray]  # the images of each epoch, from 1 on, float32 (n, 29, 29)
Trained = tuple[AnyNetwork, list[training.Epoch]]  # a trained net, and the results of its epochs


def train(
    engine: Engine,
    network: AnyNetwork,
    dataset: data.Dataset,
    images: Callable[[int], object],
    epochs: int = EPOCHS,
) -> Trained:
    """Train a copy of the network. images: those of an epoch, by its number."""
    tell(f"  training on {engine.name}, schedule {engine.schedule}")
    engine.set_network(network)
    training_set = dataset.train_images, dataset.train_labels
    test_set = dataset.test_images, dataset.test_labels
    schedule = training.Schedule(epochs=epochs, eta=ETA, decay=1.0)
    rows = list(
        training.train(engine, training_set, training_set, test_set, schedule, SEED, images)
    )
    return engine.get_network(), rows


def train_peer(
    make: Callable[..., peers.Peer], network: AnyNetwork, labels: np.ndarray, epochs: Epochs
) -> list[np.ndarray]:
    """Weights of each layer after the same steps by a peer on the CPU. make: makes it."""
    tell("  training by a peer on the CPU")
    orders = {epoch: training.image_order(len(labels), SEED, epoch) for epoch in epochs}
    images = np.concatenate([epochs[epoch][order] for epoch, order in orders.items()])
    labels = np.concatenate([labels[order] for order in orders.values()])
    peer = make(network, images.reshape(len(images), -1), labels, ETA)
    peer.train()
    return peer.weights()


def matrices(network: AnyNetwork) -> list[np.ndarray]:
    """Weights of each layer that has any, without padding."""
    if isinstance(network, ConvNetwork):
        return [W for W in network.weights if W is not None]
    return network.unpadded()


def weight_distance(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The Euclidean distance between two nets' weights, all layers together."""
    pairs = zip(some, others, strict=True)
    return float(np.linalg.norm([np.linalg.norm(W.astype(np.float64) - V) for W, V in pairs]))


def all_bits(trained: Trained) -> list:
    """Weights with their padding, outputs and losses; equal lists are equal in every bit."""
    network, rows = trained
    weights = [W for W in network.weights if W is not None]
    arrays = [*weights, *(row.outputs for row in rows)]
    return [array.tobytes() for array in arrays] + [row.train_loss for row in rows]


def compare_engines(
    dataset: data.Dataset,
    network: AnyNetwork,
    cpu: Engine,
    on_gpu: Engine,
    again_on_gpu: Engine,
    make_peer: Callable[..., peers.Peer],
) -> dict:
    """Train a net on the same images in four ways, and measure how far apart they end.

    on_gpu, again_on_gpu: two that should give the same bits. make_peer: of `train_peer`. Distances
    of weights from those of the CPU engine are relative to how far the CPU engine moved them.
    """
    labels = dataset.train_labels
    images = dataset.train_images
    epochs = {n: deform(images, labels, TABLE1, SEED, n) for n in range(1, EPOCHS + 1)}
    on_cpu = train(cpu, network, dataset, epochs.get)
    one = train(on_gpu, network, dataset, epochs.get)
    again = train(again_on_gpu, network, dataset, epochs.get)
    by_peer = train_peer(make_peer, network, labels, epochs)
    reference = matrices(on_cpu[0])
    moved = weight_distance(reference, matrices(network))
    return {
        "data": dataset.name,
        "n_train": len(labels),
        "n_test": len(dataset.test_labels),
        "gpu_bit_equal": all_bits(one) == all_bits(again),
        "gpu_distance": weight_distance(matrices(one[0]), reference) / moved,
        "peer_distance": weight_distance(by_peer, reference) / moved,
        "output_difference": float(abs(one[1][-1].outputs - on_cpu[1][-1].outputs).max()),
        "gpu_errors": [row.test_errors for row in one[1]],
        "cpu_errors": [row.test_errors for row in on_cpu[1]],
        "gpu_seconds": [row.train_seconds for row in one[1]],
        "cpu_seconds": [row.train_seconds for row in on_cpu[1]],
    }


def judge_engines(found: dict) -> CheckResult:
    """Whether what `compare_engines` measured is within its limits."""
    wrong, expected = found["gpu_errors"][-1], found["cpu_errors"][-1]
    passed = (
        found["gpu_bit_equal"]
        and found["gpu_distance"] <= MAX_DRIFT_VS_PEER * found["peer_distance"]
        and abs(wrong - expected) <= MAX_ERROR_GAP * found["n_test"]
    )
    text = f"{found['data']}: weights {found['gpu_distance']:.2g} apart, another CPU program's "
    text += f"{found['peer_distance']:.2g}; {wrong} and {expected} of {found['n_test']:,} wrong; "
    text += f"two runs on the GPU {'' if found['gpu_bit_equal'] else 'NOT '}bit-equal"
    return CheckResult(passed, text, found)


def check_epochs(
    dataset: data.Dataset, net: int, engine: str, schedule: str, epochs: int
) -> CheckResult:
    """Whole epochs of a net of Table 1, deformed as in a training: time and wrong digits."""
    rates = training.Schedule(epochs, ETA, 1.0)
    config = configs.make_config(dataset, NETS[net], rates, SEED, TABLE1, engine)
    images = configs.deformer(config, dataset)
    network = Network.initial(NETS[net], SEED)
    _, rows = train(make_engine(engine, schedule), network, dataset, images, epochs)
    n, n_test = len(dataset.train_labels), len(dataset.test_labels)
    us, errors = [1e6 * row.train_seconds / n for row in rows], [row.test_errors for row in rows]
    text = f"{us[-1]:.1f} us an image; {errors[-1]} of {n_test:,} wrong "
    text += f"after {epochs} x {n:,} images"
    return CheckResult(True, text, {"us": us, "test_errors": errors})


def check_engines(dataset: data.Dataset) -> CheckResult:
    """Net 1, trained on the CPU and on the GPU."""
    some = data.limit(dataset, min(MAX_IMAGES, len(dataset.train_labels)))
    network = Network.initial(NETS[1], SEED)
    engines = CpuEngine(), CudaEngine("graph"), CudaEngine("launch")
    return judge_engines(compare_engines(some, network, *engines, peers.numpy_loop))


def check_windows(dataset: data.Dataset) -> CheckResult:
    """Net 1, trained on the CPU and by windows on the GPU, there twice."""
    some = data.limit(dataset, min(MAX_IMAGES, len(dataset.train_labels)))
    network = Network.initial(NETS[1], SEED)
    engines = CpuEngine(), WindowCudaEngine(), WindowCudaEngine()
    return judge_engines(compare_engines(some, network, *engines, peers.numpy_loop))


def check_cnn_engines(dataset: data.Dataset) -> CheckResult:
    """Net 3 of Table 1 of 2011, trained on the CPU and on the GPU: the paper's own proof."""
    some = data.limit(dataset, min(MAX_IMAGES, len(dataset.train_labels)))
    source = Maps(1, data.SIDE, data.SIDE)
    network = ConvNetwork.initial(PAPER[3].layers, source, N_CLASSES, SEED)
    engines = ConvCpuEngine(), ConvCudaEngine("graph"), ConvCudaEngine("launch")
    return judge_engines(compare_engines(some, network, *engines, connections.loops))


def check_deformation(dataset: data.Dataset) -> CheckResult:
    """All images, deformed on the CPU and twice on the GPU."""
    images, labels = dataset.train_images, dataset.train_labels
    differences, equal = [], True
    for deformation in (TABLE1, COMMITTEE):
        on_cpu = deform(images, labels, deformation, SEED, epoch=1)
        on_gpu = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        again = deform(images, labels, deformation, SEED, epoch=1, device="cuda")
        differences.append(float(abs(on_cpu - on_gpu).max()))
        equal = equal and on_gpu.tobytes() == again.tobytes()
    return judge_deformation(len(images), max(differences), equal)


def judge_deformation(n: int, difference: float, equal: bool) -> CheckResult:
    """Whether n images deformed on CPU and GPU differ little enough, and the GPU repeats itself."""
    text = (
        f"{n:,} images: {difference:.2g} apart at most; repeats {'' if equal else 'NOT '}bit-equal"
    )
    passed = difference <= MAX_PIXEL_DIFFERENCE and equal
    return CheckResult(passed, text, {"difference": difference, "repeats_bit_equal": equal})


def train_ahead(
    dataset: data.Dataset, network: Network, engine: CudaEngine, ahead: DeformedAhead
) -> tuple[Trained, list[dict[str, float]]]:
    """Train a copy of the network on images that the GPU deforms meanwhile.

    ahead: deforms for EPOCHS epochs. Returns what `train` does, and a timeline of each epoch but
    the last: when its training ended, and when the deformation of the next epoch began and ended,
    in milliseconds since its training began. Modifies the engine.
    """
    origin, begun, ended = (gpu.cuda.event() for _ in range(3))
    origin.record(engine.stream)
    timelines: list[dict[str, float]] = []
    real_train = engine.train

    def timed_train(*arguments: Any, **options: Any) -> float:
        begun.record(engine.stream)
        loss = real_train(*arguments, **options)
        ended.record(engine.stream)
        events = {"trained": ended}
        events["deformation_begun"], events["deformation_ended"] = ahead.events
        for event in events.values():
            event.synchronize()
        start = origin.elapsed_time(begun)
        timelines.append({name: origin.elapsed_time(at) - start for name, at in events.items()})
        return loss

    engine.train = timed_train  # type: ignore[method-assign]  # of this one engine
    return train(engine, network, dataset, ahead), timelines[:-1]


def compare_ahead(
    dataset: data.Dataset,
    sizes: tuple[int, ...],
    engine: CudaEngine,
    other_engine: Engine,
    ahead: DeformedAhead,
) -> dict:
    """Train a net on images that the GPU deforms meanwhile, and on images deformed beforehand.

    other_engine: of the GPU too. ahead: deforms for EPOCHS epochs, with TABLE1 and SEED.
    """
    network, labels = Network.initial(sizes, SEED), dataset.train_labels
    (trained, rows), timelines = train_ahead(dataset, network, engine, ahead)
    beforehand = {}
    for device in ("cuda", "cpu"):
        tell(f"  deforming beforehand, on {device}")
        epochs = {
            n: deform(dataset.train_images, labels, TABLE1, SEED, n, device=device)
            for n in range(1, EPOCHS + 1)
        }
        beforehand[device] = train(other_engine, network, dataset, epochs.get)
    on_cpu, rows_on_cpu = beforehand["cpu"]
    moved = weight_distance(matrices(on_cpu), matrices(network))
    return {
        "timelines_ms": timelines,
        "waited_seconds": [row.deform_seconds for row in rows],
        "train_seconds": [row.train_seconds for row in rows],
        "bit_equal": all_bits((trained, rows)) == all_bits(beforehand["cuda"]),
        "cpu_distance": weight_distance(matrices(trained), matrices(on_cpu)) / moved,
        "errors": [row.test_errors for row in rows],
        "cpu_errors": [row.test_errors for row in rows_on_cpu],
        "n_test": len(dataset.test_labels),
    }


def judge_ahead(found: dict) -> CheckResult:
    """Whether what `compare_ahead` measured is within its limits."""
    waits = found["waited_seconds"][1:]  # training must wait for the first epoch
    hidden = all(
        one["deformation_ended"] < one["trained"]
        and 1e3 * wait
        < MAX_EXPOSED_FRACTION * (one["deformation_ended"] - one["deformation_begun"])
        for one, wait in zip(found["timelines_ms"], waits, strict=True)
    )
    wrong, expected = found["errors"][-1], found["cpu_errors"][-1]
    passed = (
        hidden
        and max(waits) <= MAX_WAIT_FRACTION * min(found["train_seconds"])
        and found["bit_equal"]
        and abs(wrong - expected) <= MAX_ERROR_GAP * found["n_test"]
    )
    last = found["timelines_ms"][-1]
    text = (
        f"deformed from {last['deformation_begun']:.2f} to {last['deformation_ended']:.2f} ms of "
    )
    text += f"{last['trained']:.0f} ms of training, which waited {1e3 * max(waits):.2f} ms; "
    text += f"{'' if found['bit_equal'] else 'NOT '}bit-equal to deforming before; {wrong} wrong, "
    text += f"deformed on the CPU {expected}"
    return CheckResult(passed, text, found)


def with_images(dataset: data.Dataset, n: int) -> data.Dataset:
    """The data with at least n training images: all of them, again and again in their order."""
    n = max(n, len(dataset.train_labels))
    images = np.resize(dataset.train_images, (n, *dataset.train_images.shape[1:]))
    return replace(dataset, train_images=images, train_labels=np.resize(dataset.train_labels, n))


def check_ahead(dataset: data.Dataset) -> CheckResult:
    """Net 1, trained on images that the GPU deforms meanwhile."""
    # Of few images the two launches of a deformation take as long as all the rest of it.
    dataset = with_images(dataset, N_IMAGES)
    images, labels = dataset.train_images, dataset.train_labels
    ahead = DeformedAhead(images, labels, TABLE1, SEED, last_epoch=EPOCHS)
    engines = WindowCudaEngine(), WindowCudaEngine()  # the schedule that leaves the least time
    return judge_ahead(compare_ahead(dataset, NETS[1], *engines, ahead))
