"""Save the figures of the notebooks, each as NAME.png and NAME.pdf.

They are of the runs there are: learning curves, confusions, the hardest digits, committees; of the
newest benchmark; and of how each kernel maps its threads to data (threads_KERNEL). A figure of runs
needs some: where there are none, small ones are made. The figures of deformations are saved by
'make deformations'.
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing import bench_plots, error_plots, figures, run_plots
from experiments.running import cli, examples, jobs
from experiments.running.configs import title
from experiments.running.errors import Problem
from experiments.running.store import Run
from experiments.scoring.committees import find_committees
from experiments.scoring.tables import best_of


def run_pictures(runs: Mapping[str, Run], images: np.ndarray) -> dict[str, Callable[[], Figure]]:
    """What can be drawn of the runs, by name.

    runs: all on the same data. images: float32 (n_test, 29, 29), what they were tested on.
    """
    best = runs[best_of(runs)]
    found: dict[str, Callable[[], Figure]] = {
        "misclassified": partial(
            error_plots.draw_wrong, best.outputs, best.labels, images, title(best.config)
        ),
        "confusion": partial(
            error_plots.draw_confusion, best.outputs, best.labels, title(best.config)
        ),
        "second_guesses": partial(error_plots.draw_ranks, runs),
        "hardest": partial(error_plots.draw_hardest, runs, images),
        "learning_curves": partial(run_plots.draw_learning_curves, runs),
        "learning_curves_hours": partial(run_plots.draw_learning_curves, runs, against="hours"),
        "learning_rates": partial(run_plots.draw_learning_rates, runs),
        "parameters": partial(run_plots.draw_parameters, runs),
    }
    for one in find_committees(runs):
        found |= {
            f"{one.name}_misclassified": partial(
                error_plots.draw_wrong, one.outputs, one.labels, images, one.title
            ),
            f"{one.name}_members": partial(run_plots.draw_members, one),
            f"{one.name}_shared": partial(error_plots.draw_shared, one),
        }
    return found


def benchmark_pictures() -> dict[str, Callable[[], Figure]]:
    """What can be drawn of the newest benchmark in results/, by name; nothing if there is none."""
    rows = next(iter(bench_plots.read_newest().values()), None)
    if rows is None:
        return {}
    return {
        "times": partial(bench_plots.draw_times, rows),
        "roofline": partial(bench_plots.draw_roofline, rows),
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="figures to save, such as learning_curves or experiment6_members (default: all)",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="folder with run files, of MNIST if there are any (default: $RUNS_DIR, or else runs)",
    )
    cli.add_data_dir_argument(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/pictures"),
        metavar="DIR",
        help="folder for the pictures (default: %(default)s)",
    )
    parser.add_argument("--png-only", action="store_true", help="write no PDF")
    arguments = parser.parse_args(argv)

    from experiments.drawing.thread_maps import DRAWINGS  # imports numba

    found = benchmark_pictures() | DRAWINGS
    if not arguments.names or set(arguments.names) - set(found):
        runs = examples.load_runs(arguments.runs)
        config = next(iter(runs.values())).config
        images = jobs.load_known(config, arguments.data_dir).test_images
        found = run_pictures(runs, images) | found
    unknown = [name for name in arguments.names if name not in found]
    if unknown:
        raise Problem(f"no picture {', '.join(unknown)}; these runs give {', '.join(found)}")
    formats = ("png",) if arguments.png_only else figures.FORMATS
    for name in arguments.names or found:
        for path in figures.save_figure(found[name](), arguments.out / name, formats):
            print(f"written to {path}")


if __name__ == "__main__":
    cli.run(main)
