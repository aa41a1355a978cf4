"""Save the figures of the notebooks, each as NAME.png and NAME.pdf.

Figures of your runs, or else of the pretrained nets: learning curves, confusions, the hardest
digits, committees, and kernels and maps of a convolutional net. Figures of the records in
results/: the newest benchmark, the ladder, studies and errors against hours. Figures of the
programs: how each kernel maps its threads to data (threads_KERNEL), which images of a block correct
which (block_of_images), and which neurons read a neuron (pulling). Only by name, since they need
MNIST: figures of a digit deformed as in Table 1 (2012, Figures 1 and 3): displacement fields
(field), each parameter alone (strips), and widths of 10 to 20 pixels (widths).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from cnn_gpu.layers import Maps, parse
from deepbig_runtime.errors import Problem
from deform_gpu import TABLE1
from experiments.datasets import data
from experiments.drawing import bench_plots, error_plots, examples, figures, run_plots
from experiments.results import cnn_tables, studies
from experiments.results.committee_report import tidy_rows
from experiments.results.committees import find_committees, longest_committees
from experiments.results.tables import best_of
from experiments.training import cli, configs
from experiments.training.store import Run, find_folder
from mlp_gpu.network import N_CLASSES

Drawings: TypeAlias = dict[str, Callable[[], Figure]]  # by the names of pictures
FIGURE2 = parse("20M5s1", Maps(1, 29, 29), N_CLASSES)[0]  # the layer of Figure 2 (2011)


def run_pictures(runs: Mapping[str, Run], images: np.ndarray) -> Drawings:
    """Figures of the runs, by name.

    runs: all on the same data. images: float32 (n_test, 29, 29), their test images.
    """
    best = runs[best_of(runs)]
    of_best, title = (best.outputs, best.labels), best.config.title
    config = best.config
    found: Drawings = {
        "misclassified": partial(error_plots.plot_wrong, *of_best, images, title, config),
        "confusion": partial(error_plots.plot_confusion, *of_best, title, config),
        "hardest": partial(error_plots.plot_hardest, runs, images),
        "learning_curves": partial(run_plots.plot_learning_curves, runs),
    }
    n: Counter[str] = Counter()  # of trainings of a committee
    for one in find_committees(runs):
        n[one.name] += 1
        name = f"{one.name}_{n[one.name]}" if n[one.name] > 1 else one.name
        of_committee = one.outputs, one.labels, images, one.title, config
        found[f"{name}_misclassified"] = partial(error_plots.plot_wrong, *of_committee)
        rows = tidy_rows(one)
        found[f"{name}_members"] = partial(run_plots.plot_members, rows, one.title)
        found[f"{name}_shared"] = partial(error_plots.plot_shared, rows, one.title)
    return found


def net_pictures(runs: Mapping[str, Run], folder: Path, images: np.ndarray) -> Drawings:
    """Figures of the best convolutional net among the runs that has its weights, by name.

    runs: those below the folder, all on the same data. images: as `run_pictures` takes them.
    """
    paths = {
        name: path
        for name, run in runs.items()
        if run.config.is_convolutional and (path := examples.net_path(name, folder))
    }
    if not paths:
        return {}
    from cnn_gpu.cpu import ConvCpuEngine  # imports numba
    from experiments.drawing import conv_plots

    best = best_of({name: runs[name] for name in paths})
    run, config = runs[best], runs[best].config

    def plot_kernels() -> Figure:
        return conv_plots.plot_kernels(examples.load_convolutional(paths[best]), config.title)

    def plot_maps() -> Figure:
        net, engine = examples.load_convolutional(paths[best]), ConvCpuEngine()
        engine.set_network(net)
        heading = f"{config.title}:\nits layers, from the first test {config.noun} to the output"
        states, label = engine.states(images[0]), int(run.labels[0])
        return conv_plots.plot_maps(net, states, label, heading, config)

    return {"convolution_kernels": plot_kernels, "convolution_maps": plot_maps}


def record_pictures() -> Drawings:
    """Figures of the records in results/, of benchmarks the newest, by name."""
    from experiments.drawing.ladder_plots import plot_ladder  # imports numba
    from experiments.results.records import read_results

    found: Drawings = {}
    results = read_results()
    if rows := next(iter(results.newest_benches.values()), None):
        found["times"] = partial(bench_plots.plot_times, rows)
        found["roofline"] = partial(bench_plots.plot_roofline, rows)
    if ladder := next(iter(results.ladders.values()), None):
        found["ladder"] = partial(plot_ladder, ladder)
    for name, nets in studies.joined(results.studies).items():
        found[name] = partial(run_plots.plot_study, nets)
    longest = cnn_tables.longest_runs(results.runs.values())
    if longest.keys() & run_plots.HOURS_COLOURS.keys():
        found["error_against_hours"] = partial(
            run_plots.plot_error_against_hours,
            longest.values(),
            longest_committees(results.committees.values()),
        )
    return found


def deformation_pictures(data_dir: Path | None) -> Drawings:
    """Figures of a digit deformed as in Table 1, by name. data_dir: as data.load takes it."""
    from experiments.drawing import deform_plots  # imports numba

    digit = cache(lambda: deform_plots.find_digit(data.load("auto", data_dir), 4, 0))

    def draw(name: str) -> Figure:
        return getattr(deform_plots, f"plot_{name}")(digit(), TABLE1, 0)

    return {name: partial(draw, name) for name in ("field", "strips", "widths")}


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("pictures", __doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="figures to save, such as learning_curves or experiment6_members (default: all but "
        "those of a deformed digit)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="folder with run files; if some are on MNIST, these alone are shown (default: "
        "$RUNS_DIR, or else runs)",
    )
    cli.add_data_dir_argument(parser)
    cli.add_out_argument(parser, "folder for the pictures", "runs/pictures")
    parser.add_argument("--png-only", action="store_true", help="write no PDF")
    arguments = parser.parse_args(argv)

    from experiments.drawing import conv_plots  # imports numba
    from experiments.drawing.thread_maps import DRAWINGS

    found = record_pictures() | DRAWINGS
    of_digit = deformation_pictures(arguments.data_dir)
    found |= {name: draw for name, draw in of_digit.items() if name in arguments.names}
    found["pulling"] = partial(conv_plots.plot_pulling, FIGURE2, (10, 14))
    if not arguments.names or set(arguments.names) - set(found):
        runs = examples.load_runs(arguments.runs, arguments.data_dir)
        config = next(iter(runs.values())).config
        images = configs.load(config, arguments.data_dir).test_images
        folder = find_folder(arguments.runs)
        found = run_pictures(runs, images) | net_pictures(runs, folder, images) | found
    unknown = [name for name in arguments.names if name not in found]
    if unknown:
        raise Problem(f"no picture {', '.join(unknown)}; these runs give {', '.join(found)}")
    formats = ("png",) if arguments.png_only else figures.FORMATS
    for name in arguments.names or found:
        for path in figures.save_figure(found[name](), arguments.out / name, formats):
            print(f"written to {path}")


if __name__ == "__main__":
    cli.run(main)
