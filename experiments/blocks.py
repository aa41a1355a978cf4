"""How near training in blocks ends to exact on-line back-propagation, on real, deformed digits.

Takes each net as it is at the start, and after training by the CPU engine. From there it makes the
same on-line steps several times: image after image in float64, which counts as exact, and in
float32; by the CPU engine, whose windows grow and shrink; and in NumPy by windows of one size.
Prints, for each, the distance of the weights from those of float64, relative to how far these
moved, and for windows of one size the sweeps per image. All of it goes into blocks.json. Takes some
minutes.
"""

import argparse

import numpy as np
from threadpoolctl import threadpool_limits

from deepbig_runtime import files
from deepbig_runtime.errors import tell
from deform_gpu import TABLE1
from experiments.benchmarks import window
from experiments.datasets import data
from experiments.results import record_tables
from experiments.results.records import BLOCKS, ENGINE, PLAIN, WINDOWS, BlockRecord, BlockRow
from experiments.training import cli, provenance
from experiments.training.validation import to_json
from mlp_gpu.network import N_CLASSES, N_INPUTS, NETS, Network
from mlp_gpu.training import image_order

SEED = 0
# Each net with its steps, and the images that it is trained on before it counts as trained.
CASES = (
    ((N_INPUTS, 800, N_CLASSES), 256, 20_000),
    (NETS[1], 256, 20_000),
    (NETS[4], 128, 6_000),
)
ETA = 1e-3  # of training, as the paper's at its beginning
START_ETAS, TRAINED_ETAS = (ETA,), (ETA, 1e-4)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = cli.Parser("blocks", __doc__)
    cli.add_data_arguments(parser)
    cli.add_out_argument(parser, "folder for blocks.json", "runs/blocks")
    return parser.parse_args(argv)


def after_training(network: Network, images: np.ndarray, labels: np.ndarray, eta: float) -> Network:
    """The network after a step of the CPU engine for each image, in their order."""
    from mlp_gpu.cpu import CpuEngine  # imports numba

    engine = CpuEngine()
    engine.set_network(network)
    engine.train(images, labels, np.arange(len(labels)), eta)
    return engine.get_network()


def compare(
    network: Network, images: np.ndarray, labels: np.ndarray, eta: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Distances after a step for each image, and sweeps per image, as BlockRow has them."""
    start = network.unpadded()
    exact = [W.astype(np.float64) for W in start]
    window.train_plainly(exact, images, labels, eta)
    way = window.weight_distance(exact, start)

    plain = [W.copy() for W in start]
    window.train_plainly(plain, images, labels, eta)
    distances = {PLAIN: window.weight_distance(plain, exact) / way}
    trained = after_training(network, images, labels, eta).unpadded()
    distances[ENGINE] = window.weight_distance(trained, exact) / way
    passes = {}
    for name, sizes in WINDOWS.items():
        weights = [W.copy() for W in start]
        sweeps = window.train_in_windows(weights, images, labels, eta, *sizes)
        distances[name] = window.weight_distance(weights, exact) / way
        passes[name] = sum(end - first for first, end in sweeps) / len(images)
    return distances, passes


def measure(dataset: data.Dataset) -> list[BlockRow]:
    """A row for each net, stage and learning rate."""
    from deform_gpu import deform  # imports numba

    rows = []
    n = max(steps + n_trained for _, steps, n_trained in CASES)
    order = image_order(len(dataset.train_labels), SEED, epoch=1)[:n]
    labels = dataset.train_labels[order]
    images = deform(dataset.train_images[order], labels, TABLE1, SEED, epoch=1)
    images = images.reshape(len(images), -1)
    for sizes, steps, n_trained in CASES:
        network, name = Network.initial(sizes, SEED), record_tables.net_name(sizes)
        before = slice(steps, steps + n_trained)
        for stage, etas in (("start", START_ETAS), ("trained", TRAINED_ETAS)):
            trained_on = len(labels[before]) if stage == "trained" else 0
            if trained_on:
                tell(f"{name}: training on {trained_on:,} images ...")
                network = after_training(network, images[before], labels[before], ETA)
            for eta in etas:
                tell(f"{name}, {stage}, eta {eta:g}: {steps} steps, every way ...")
                found = compare(network, images[:steps], labels[:steps], eta)
                rows.append(BlockRow(sizes, trained_on, eta, steps, *found))
    return rows


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    dataset = data.load(arguments.data, arguments.data_dir)
    source = provenance.collect()
    files.make_folder(arguments.out)
    with threadpool_limits(1, user_api="blas"):  # how BLAS rounds depends on its threads
        rows = measure(dataset)
    record = BlockRecord(data=dataset.name, seed=SEED, rows=rows, provenance=source.ended())
    files.replace(arguments.out / BLOCKS, to_json(record))
    print(record_tables.block_table(record))
    tell(f"written to {arguments.out}: {BLOCKS}")


if __name__ == "__main__":
    cli.run(main)
