"""Table 1 of the 2010 paper: five deep MLPs, trained on-line on digits deformed every epoch.

Trains each net with each seed, from wherever its run file is, then prints our figures beside the
paper's and writes them as table1.md and table1.csv. Ctrl-C stops it; the same command goes on.
"""

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from deform_gpu import TABLE1
from deform_gpu import cuda as deform_cuda
from experiments import cli, data, provenance, tables
from experiments.progress import duration
from experiments.runs import epochs_done, estimate_seconds, make_config, train_run
from experiments.store import Run
from mlp_gpu import cuda, files
from mlp_gpu.engines import Engine, make_engine
from mlp_gpu.network import NETS
from mlp_gpu.training import Schedule


@dataclass(frozen=True)
class Plan:
    """How one net is trained: a schedule, and how many of the training images, None for all."""

    schedule: Schedule
    n_images: int | None = None


PAPER = dict.fromkeys(NETS, Plan(Schedule()))

# Minutes instead of days, on two cores. Few epochs need a learning rate that begins higher and
# falls faster: one epoch at a constant rate ends with more errors than two with half the images.
QUICK = {
    "MNIST": {
        1: Plan(Schedule(epochs=3, eta=2e-3, decay=0.4)),
        2: Plan(Schedule(epochs=2, eta=2e-3, decay=0.3), n_images=30_000),
        3: Plan(Schedule(epochs=2, eta=2e-3, decay=0.3), n_images=18_000),
        4: Plan(Schedule(epochs=2, eta=2e-3, decay=0.3), n_images=12_000),
        5: Plan(Schedule(epochs=3, eta=1.5e-3, decay=0.45), n_images=15_000),
    },
    "load_digits": {
        1: Plan(Schedule(epochs=30, eta=2e-3, decay=0.92)),
        2: Plan(Schedule(epochs=12, eta=2e-3, decay=0.8)),
        3: Plan(Schedule(epochs=6, eta=2e-3, decay=0.6)),
        4: Plan(Schedule(epochs=4, eta=2e-3, decay=0.5)),
        5: Plan(Schedule(epochs=5, eta=2e-3, decay=0.5)),
    },
}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with ranges checked."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.table1",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--nets",
        type=cli.integers(1, 5),
        default=[1, 2, 3, 4, 5],
        metavar="N,N",
        help="nets of Table 1 to train (default: 1,2,3,4,5)",
    )
    parser.add_argument(
        "--seeds",
        type=cli.integers(0, 2**64 - 1),
        default=[0],
        metavar="N,N",
        help="seeds; each net is trained once with each (default: 0)",
    )
    parser.add_argument(
        "--profile",
        choices=("quick", "paper"),
        help="quick: some minutes a net on a CPU; paper: its schedule to the letter, "
        "2,300 epochs of all images (default: paper on a GPU, else quick)",
    )
    parser.add_argument(
        "--epochs",
        type=cli.integer(1, 1_000_000),
        metavar="N",
        help="passes over the training images (default: the profile's); with it, all else is the "
        "paper's if not given",
    )
    parser.add_argument(
        "--limit",
        type=cli.integer(1),
        metavar="N",
        help="training images used, the first N (default: the profile's)",
    )
    parser.add_argument(
        "--eta",
        type=cli.number(1e-6, 10),
        metavar="X",
        help="learning rate of the first epoch, from 1e-6 to 10 (default: the profile's; the "
        "paper's is 0.001)",
    )
    parser.add_argument(
        "--eta-decay",
        type=cli.number(1e-6, 1),
        metavar="X",
        help="factor to the learning rate after each epoch, up to 1, until it is 1e-6 "
        "(default: the profile's; the paper's is 0.997)",
    )
    parser.add_argument(
        "--no-distortion",
        action="store_true",
        help="train on the images as they are (last column of Table 3, 2012)",
    )
    parser.add_argument(
        "--cpu-deformation",
        action="store_true",
        help="deform on the CPU, before each epoch, where the GPU would do it beside the training; "
        "the images differ by rounding",
    )
    cli.add_engine_arguments(parser)
    cli.add_data_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/table1"),
        metavar="DIR",
        help="folder for run files and tables (default: %(default)s)",
    )
    return parser.parse_args(argv)


def make_plan(arguments: argparse.Namespace, data_name: str, engine: str, net: int) -> Plan:
    """The profile's plan for a net, with what the command line says otherwise.

    Quick's learning rates and images fit its few epochs, so --epochs begins with the paper's plan.
    """
    profile = arguments.profile or ("paper" if engine == "cuda" else "quick")
    paper = profile == "paper" or arguments.epochs is not None
    plan = (PAPER if paper else QUICK[data_name])[net]
    schedule = replace(
        plan.schedule,
        epochs=arguments.epochs or plan.schedule.epochs,
        eta=arguments.eta or plan.schedule.eta,
        decay=arguments.eta_decay or plan.schedule.decay,
    )
    return Plan(schedule, arguments.limit or plan.n_images)


def run_path(folder: Path, net: int, seed: int, data_name: str, distortion: bool) -> Path:
    """The run file of a net and seed."""
    parts = [f"net{net}", f"seed{seed}"]
    parts += [] if distortion else ["no-distortion"]
    parts += [] if data_name == "MNIST" else [data_name]
    return folder / ("-".join(parts) + ".h5")


def needed_bytes(arguments: argparse.Namespace, dataset: data.Dataset) -> int:
    """Memory that a GPU must have for the largest of the nets, in bytes, at most."""
    n, side = dataset.train_images.shape[:2]
    needed = max(cuda.device_bytes(NETS[net], n) for net in arguments.nets)
    if not (arguments.no_distortion or arguments.cpu_deformation):
        needed += deform_cuda.device_bytes(n, side)
    return needed


def main(argv: list[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    files.make_folder(arguments.out)
    dataset = data.load(arguments.data, arguments.data_dir)
    n_bytes = needed_bytes(arguments, dataset)
    engine = make_engine(arguments.engine, arguments.schedule or "graph", n_bytes, cli.tell)
    if arguments.schedule and not engine.schedule:
        cli.tell("--schedule is for a GPU and changes nothing here")
    cli.tell(
        f"{dataset.name}: {len(dataset.train_labels):,} training and "
        f"{len(dataset.test_labels):,} test images, from {dataset.source}"
    )
    schedule = f", schedule {engine.schedule}" if engine.schedule else ""
    cli.tell(f"engine {engine.name}{schedule}: {provenance.device(engine.name)}")

    jobs = []
    for net in arguments.nets:
        for seed in arguments.seeds:
            plan = make_plan(arguments, dataset.name, engine.name, net)
            images = data.limit(dataset, plan.n_images)
            deformation = None if arguments.no_distortion else TABLE1
            config = make_config(
                images,
                NETS[net],
                plan.schedule,
                seed,
                deformation,
                engine,
                arguments.cpu_deformation,
            )
            path = run_path(arguments.out, net, seed, dataset.name, not arguments.no_distortion)
            jobs.append((path, f"net {net}, seed {seed}", config, images))

    print_estimate(jobs, engine)
    runs = [train_run(*job, engine) for job in jobs]

    text = report(runs)
    files.replace(arguments.out / "table1.md", text.encode())
    rows = [tables.table1_row(run) for run in runs]
    files.replace(arguments.out / "table1.csv", tables.csv_text(rows).encode())
    print(text)
    print(f"written to {arguments.out}: table1.md, table1.csv", file=sys.stderr)


def print_estimate(jobs: list, engine: Engine) -> None:
    """Say how long what is still to be done will take, on stderr."""
    total = 0.0
    for path, label, config, images in jobs:
        done = epochs_done(path, config)
        if done == config["epochs"]:
            print(f"{label}: finished, in {path}", file=sys.stderr)
            continue
        seconds = estimate_seconds(engine, config, images) * (config["epochs"] - done)
        total += seconds
        print(
            f"{label}: epochs x images {config['epochs']} x {config['data']['n_train']:,}"
            + (f", {done} epochs done" if done else "")
            + f", about {duration(seconds)}",
            file=sys.stderr,
        )
    cli.tell(f"about {duration(total)} in all")


def report(runs: list[Run]) -> str:
    """The table with what one must know to read it, as Markdown."""
    name = runs[0].config["data"]["name"]
    distortion = runs[0].config["deformation"] is not None
    if name == "MNIST":
        title = "# Table 1 on MNIST, the paper beside ours"
        note = "The paper trained for 2,300 epochs of 60,000 images; what we did is in the table."
        if not distortion:
            note += " Its figures without distortion are those of Table 3 (2012)."
    else:
        title = f"# The nets of Table 1 on {name}, which is NOT MNIST"
        note = "These figures must not be compared with the paper's."
    if not distortion:
        note += " Trained without distortion."
    lines = [title, "", note, "", tables.table1_markdown(runs), ""]
    lines += tables.table1_means(runs)
    lines += [
        "TEfBV: test error at the epoch with the lowest validation error, which is on the "
        "undeformed training images.",
        "BTE: lowest test error of any epoch. Interval: 95 %, Clopper-Pearson, of TEfBV.",
        "",
        *(f"- {tables.provenance_line(run)}" for run in runs),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    cli.run(main)
