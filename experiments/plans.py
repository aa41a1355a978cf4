"""How long a net is trained, and how fast it learns: profiles, and what a command line changes."""

import argparse
from dataclasses import dataclass, replace

from experiments import cli
from mlp_gpu.training import Schedule


@dataclass(frozen=True)
class Plan:
    """How one net is trained: a schedule, and how many of the training images, None for all."""

    schedule: Schedule
    n_images: int | None = None


# Guess for section 5 of 2012: its nets learn as those of Table 1 do; it does not say.
PAPER = Plan(Schedule())


def add_arguments(parser: argparse.ArgumentParser, quick: str) -> None:
    """The options that choose a plan. quick: what that profile comes to, in a few words."""
    parser.add_argument(
        "--profile",
        choices=("quick", "paper"),
        help=f"quick: {quick}; paper: its schedule to the letter, 2,300 epochs of all images "
        "(default: paper on a GPU, else quick)",
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


def choose(arguments: argparse.Namespace, engine: str, quick: Plan) -> Plan:
    """The profile's plan, with what the command line says otherwise.

    Quick's learning rates and images fit its few epochs, so --epochs begins with the paper's plan.
    """
    profile = arguments.profile or ("paper" if engine == "cuda" else "quick")
    plan = PAPER if profile == "paper" or arguments.epochs is not None else quick
    schedule = replace(
        plan.schedule,
        epochs=arguments.epochs or plan.schedule.epochs,
        eta=arguments.eta or plan.schedule.eta,
        decay=arguments.eta_decay or plan.schedule.decay,
    )
    return Plan(schedule, arguments.limit or plan.n_images)
