"""How long a net is trained and at which learning rate: profiles, and options that change them."""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from experiments.datasets.dataset import Dataset
from experiments.training import cli
from experiments.training.configs import MOST_LAYERS, MOST_NEURONS
from mlp_gpu.engine import PERCEPTRON_SCHEDULES
from mlp_gpu.network import N_CLASSES, N_INPUTS, NETS, count_weights
from mlp_gpu.training import Schedule

FEW_IMAGES = 10_000  # of data of your own; with fewer they are trained as load_digits are
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """How one net is trained: a schedule, and how many of the training images, None for all."""

    schedule: Schedule
    n_images: int | None = None


# Guess for section 5 of 2012, which does not say: its nets are trained as those of Table 1.
PAPER = Plan(Schedule())

# A GPU's first minutes: whole epochs, with a decay that ends where the net hardly changes any more.
# Guess: the epochs, which by our estimate take the five nets of Table 1 a quarter of an hour on an
# H100.
SHORT = Plan(Schedule(epochs=75, eta=1e-3, decay=0.96))

# Minutes instead of days, on two cores. Few epochs need a learning rate that begins higher and
# falls faster. On MNIST they are near the best of two to four rates each, by one training of each
# on 50,000 training images and its errors on the other 10,000.
QUICK_TABLE1 = {
    "MNIST": {
        1: Plan(Schedule(epochs=15, eta=3e-3, decay=0.79)),
        2: Plan(Schedule(epochs=5, eta=3e-3, decay=0.5)),
        3: Plan(Schedule(epochs=3, eta=3e-3, decay=0.35), 50_000),
        4: Plan(Schedule(epochs=2, eta=2e-3, decay=0.15), 40_000),
        5: Plan(Schedule(epochs=2, eta=1e-3, decay=0.3), 40_000),
    },
    "load_digits": {
        1: Plan(Schedule(epochs=30, eta=2e-3, decay=0.92)),
        2: Plan(Schedule(epochs=12, eta=2e-3, decay=0.8)),
        3: Plan(Schedule(epochs=6, eta=2e-3, decay=0.6)),
        4: Plan(Schedule(epochs=4, eta=2e-3, decay=0.5)),
        5: Plan(Schedule(epochs=5, eta=2e-3, decay=0.5)),
    },
}

# The nets of experiments 1 to 6: all six within 40 minutes on two cores, on load_digits within 8.
QUICK_COMMITTEE = {
    "MNIST": Plan(Schedule(epochs=16, eta=5e-3, decay=0.79)),
    "load_digits": Plan(Schedule(epochs=60, eta=5e-3, decay=0.94)),
}


def nearest(hidden: tuple[int, ...]) -> int:
    """The net of Table 1 whose number of weights is nearest to that of a net for MNIST."""
    n = count_weights((N_INPUTS, *hidden, N_CLASSES))
    return min(NETS, key=lambda net: abs(math.log(count_weights(NETS[net]) / n)))


def quick(table: Mapping[str, T], dataset: Dataset) -> T:
    """The entry of a table for a data set; data of your own have that of a like set."""
    few = len(dataset.train_labels) < FEW_IMAGES
    like = ["load_digits"] if few else ["MNIST"]
    if dataset.kind.source.n > 1:  # perceptrons train on colours as on digits
        like = ["CIFAR10-like" if few else "CIFAR10", *like]
    return next(table[name] for name in (dataset.name, *like) if name in table)


# The convolutional nets: the paper's 500 epochs from 1e-3 to 3e-5 (2011, section 4), and minutes.
PAPER_CNN = Plan(Schedule(epochs=500, eta=1e-3, decay=0.99301))
# Its learning rates on other data. Guess: the epochs. It says that after 3 to 6 (in the abstract
# five) no training pair of NORB is wrong; on CIFAR10 500 end at the same learning rate as on MNIST.
PAPER_NATURAL = {
    "norb": Plan(Schedule(epochs=6, eta=1e-3, decay=0.95)),
    "cifar10": Plan(Schedule(epochs=500, eta=1e-3, decay=0.993)),
}
QUICK_CNN = {
    "MNIST": {
        **dict.fromkeys((1, 2, 3), Plan(Schedule(epochs=8, eta=4e-3, decay=0.7))),
        4: Plan(Schedule(epochs=5, eta=4e-3, decay=0.6)),
    },
    "load_digits": dict.fromkeys((1, 2, 3, 4), Plan(Schedule(epochs=30, eta=4e-3, decay=0.92))),
    # Guess: these were never run, for the data were never there. The nets are large: net 1 of NORB
    # needs a billion multiply-adds to see a pair.
    "NORB": dict.fromkeys((1, 2), Plan(Schedule(epochs=2, eta=1e-3, decay=0.5), n_images=4_860)),
    "CIFAR10": {
        **dict.fromkeys((1, 5, 6), Plan(Schedule(epochs=4, eta=1e-3, decay=0.7))),
        2: Plan(Schedule(epochs=2, eta=1e-3, decay=0.5), n_images=20_000),
        3: Plan(Schedule(epochs=2, eta=1e-3, decay=0.5), n_images=10_000),
        4: Plan(Schedule(epochs=2, eta=1e-3, decay=0.5), n_images=5_000),
    },
    # Files of one's own, few images.
    "NORB-like": dict.fromkeys((1, 2), Plan(Schedule(epochs=10, eta=1e-3, decay=0.9))),
    "CIFAR10-like": dict.fromkeys(range(1, 7), Plan(Schedule(epochs=10, eta=1e-3, decay=0.9))),
}


def add_trainer_arguments(
    parser: argparse.ArgumentParser,
    out: str,
    quick: str,
    paper: Plan = PAPER,
    of: str = "",
    schedules: Sequence[str] = PERCEPTRON_SCHEDULES,
    cores: int = 1,
    others: Mapping[str, str] = {},
    written: str = "run files and tables",
) -> None:
    """Add the options that all commands have that train nets.

    out: default folder of the files that are `written`. quick: duration of that profile, in a few
    words. of: nets or data of the paper's plan, if it has several, to be appended to its figures.
    schedules: launch modes of the nets on a GPU, the usual one first. cores, others: as in
    cli.add_worker_arguments and cli.add_data_arguments.
    """
    parser.add_argument(
        "--profile",
        choices=("quick", "short", "paper"),
        help=f"quick: {quick}; short: {SHORT.schedule.epochs} epochs of all images; paper: its "
        f"schedule to the letter, {paper.schedule.epochs:,} epochs of all images{of} (default: "
        "short on a GPU, else quick)",
    )
    parser.add_argument(
        "--epochs",
        type=cli.integer(1, 1_000_000),
        metavar="N",
        help="passes over the training images (default: the profile's); the learning rate then "
        "falls from the first to the last of the shortest profile with as many epochs or more; "
        "with --profile paper it is the paper's",
    )
    parser.add_argument(
        "--limit",
        type=cli.integer(1),
        metavar="N",
        help="training images used: the first N, or N random ones where the images lie class by "
        "class (default: the profile's)",
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
        f"(default: the profile's; the paper's is {paper.schedule.decay:g}{of})",
    )
    cli.add_engine_arguments(parser, schedules)
    cli.add_worker_arguments(parser, cores)
    cli.add_data_arguments(parser, others, own=True)
    cli.add_out_argument(
        parser,
        f"folder for {written} (default: {out}; options that change the trainings are appended, as "
        f"in {out}-epochs10)",
    )
    parser.set_defaults(usual_out=Path(out))


def choose_out(arguments: argparse.Namespace) -> None:
    """Choose the folder --out, if the command line does not; modifies arguments.

    Trainings of other lengths, numbers of images, learning rates or launch modes than usual have a
    separate folder. One that can be extended by more epochs keeps it.
    """
    if arguments.out is not None:
        return
    extended = arguments.eta_decay or arguments.profile == "paper"
    settings = {
        "epochs": None if extended else arguments.epochs,
        "limit": arguments.limit,
        "eta": arguments.eta,
        "decay": arguments.eta_decay,
        "": arguments.schedule,
    }
    parts = [arguments.usual_out.name, *filter(None, [arguments.profile])]
    parts += [f"{name}{value}" for name, value in settings.items() if value]
    arguments.out = arguments.usual_out.with_name("-".join(parts))


def add_hidden_argument(
    parser: argparse.ArgumentParser, default: Sequence[int] | None = None, usual: str = ""
) -> None:
    """Add --hidden. usual: what there is without it, as --help shows it."""
    parser.add_argument(
        "--hidden",
        type=cli.several(cli.integer(1, MOST_NEURONS), range(1, MOST_LAYERS - 1)),
        default=default,
        metavar="N,N",
        help=f"neurons of each hidden layer of a perceptron of your own (default: {usual})",
    )


def add_validation_arguments(
    parser: argparse.ArgumentParser, default: int | None, usual: str
) -> None:
    """Add --validation and --validation-part. usual: what the first means without it."""
    parser.add_argument(
        "--validation",
        type=cli.integer(1),
        default=default,
        metavar="N",
        help="training images held out to choose the epoch, of each class its share, always the "
        f"same (default: {usual})",
    )
    parser.add_argument(
        "--validation-part",
        type=cli.integer(1, 2),
        default=1,
        metavar="N",
        help="2: hold out N others than those of part 1 (default: %(default)s)",
    )


def profile(arguments: argparse.Namespace, engine: str) -> str:
    """The name of the profile that the command line asks for, or the engine's default."""
    return arguments.profile or ("short" if engine == "cuda" else "quick")


def announce(arguments: argparse.Namespace, engine: str) -> str:
    """The profile, in a sentence."""
    name = profile(arguments, engine)
    if name == "paper":
        return "profile paper"
    taken = f"profile {name}" if arguments.epochs is None else f"epochs: {arguments.epochs:,}"
    return f"{taken}; --profile paper is the paper's"


def choose(
    arguments: argparse.Namespace, engine: str, n_train: int, quick: Plan, paper: Plan = PAPER
) -> Plan:
    """The profile's plan, with the values that the command line gives.

    n_train: how many training images there are; a profile takes no more.

    Without --profile, --epochs selects the first profile, from the default on, with at least as
    many. With fewer epochs than the profile has, the learning rate still falls to the profile's
    last, so that training comes to an end; not with --profile paper, whose runs can be extended.
    """
    short = min(SHORT, paper, key=lambda plan: plan.schedule.epochs)
    found = {"quick": quick, "short": short, "paper": paper}
    name = profile(arguments, engine)
    if arguments.epochs and not arguments.profile:
        names = list(found)[list(found).index(name) :]
        name = next((n for n in names if found[n].schedule.epochs >= arguments.epochs), "paper")
    plan = found[name]
    own, epochs = plan.schedule, arguments.epochs or plan.schedule.epochs
    decay = arguments.eta_decay or own.decay
    if not arguments.eta_decay and 1 < epochs < own.epochs and arguments.profile != "paper":
        fallen = own.eta_of(own.epochs) / own.eta
        decay = float(f"{fallen ** (1 / (epochs - 1)):.4g}")
    schedule = replace(own, epochs=epochs, eta=arguments.eta or own.eta, decay=decay)
    n_images = None if arguments.epochs else plan.n_images
    return Plan(schedule, arguments.limit or (n_images and min(n_images, n_train)))
