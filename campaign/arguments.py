"""Command lines of good, bad and absurd values, made from the commands' own parsers."""

import argparse
import importlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from unittest import mock

from campaign import commands, forks
from campaign.commands import Ended
from campaign.trial import Outcome

NAME, UNIT, GOAL = "arguments", "command lines", 2000
CLAIM = "status 0, 1 or 2, 130 after Ctrl-C, and one short sentence where it is not 0"

LINES = 15  # of a trial; one more is a process of its own
INTERRUPT_SECONDS, MORE_SECONDS = 4, 60  # until Ctrl-C, and for what a line may take after it
MAX_SENTENCE = 1000  # letters
# No download is tried: nobody listens there. No file is found unless it is named.
VARIABLES = {f"{name}_PROXY": "http://127.0.0.1:9" for name in ("HTTP", "HTTPS", "ALL")} | {
    f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "all")
}
WRITERS = ("bench", "blocks", "gpu_check", "ladder", "notebooks", "readme", "record")
OTHERS = (
    *("cnn", "committee", "deformations", "draw", "export", "figure1", "kernels", "pictures"),
    *("recognise", "redrawn", "report", "table1", "watch"),
)
TRAINING = ("table1", "cnn", "committee")
SMALL = ["--data=digits", "--limit=30", "--epochs=1", "--out=out"]
WHICH = {"table1": ["--nets=1"], "cnn": ["--net=1M1-MP29"], "committee": ["--experiment=1"]}

NUMBERS = (
    *("1", "2", "0", "-1", "3", "007", " 1", "1 ", "+1", "1.0", "1e3", "0.5", "1e-3", "1e309"),
    *("-0", "nan", "inf", "-inf", "0x10", "1_0", "١", "²", "½", "1,2", "1,1", ",", "1,", "1;2"),
    *("9" * 5000, "1" * 25, "-" + "9" * 400, "1e-400", "0." + "0" * 5000 + "1", "true", "None"),
)
TEXTS = (
    *(
        "",
        " ",
        "--",
        "-",
        "-h",
        "*",
        "%s",
        "%(prog)s",
        "{}",
        "\n",
        "a\nb",
        "é",
        "\udcff",
        "\x1b[2J",
    ),
    *("x" * 5000, "1M1", "20M5s1-MP2-10N", "0M0-0N", "1M1-MP29-" * 200, "x:y"),
    *("%(prog)s", "tcp://127.0.0.1:9"),
)
PATHS = (
    *("missing", "missing/a/b", "folder", "empty.h5", "text.h5", "closed", "closed/x", ".", ".."),
    *("/proc/self/mem", "a" * 300, "a/" * 3000, "new\nline", "caf\udce9.h5", "é", "x.csv"),
    *("empty.csv", "text.csv", "~", "-", "empty.h5/x", "out"),
)


class _Found(Exception):
    """Carries a command's parser."""


@cache
def options_of(command: str) -> list[tuple[list[str], str, tuple[str, ...]]]:
    """What a command's parser takes: option strings, none for positional arguments; kinds, values.

    A kind is flag, choice, number, path or text.
    """

    def give_away(parser: argparse.ArgumentParser, *_: object) -> None:
        raise _Found(parser)

    module = importlib.import_module(module_of(command))
    with mock.patch.object(argparse.ArgumentParser, "parse_args", give_away):
        try:
            module.main([])
        except _Found as found:
            parser = found.args[0]
    taken = []
    for action in parser._actions:
        values: tuple[str, ...] = tuple(map(str, action.choices or ()))
        if action.nargs == 0:
            kind = "flag"
        elif values:
            kind = "choice"
        elif action.type is Path:
            kind, values = "path", PATHS
        elif action.type is not None:
            kind, values = "number", NUMBERS
        else:
            kind, values = "text", TEXTS
        taken.append((list(action.option_strings), kind, values))
    return taken


def module_of(command: str) -> str:
    return "campaign.__main__" if command == "campaign" else f"experiments.{command}"


def one_line(rng: random.Random, command: str) -> list[str]:
    """The arguments of a command, of which some are as they should be."""
    line: list[str] = []
    if command in TRAINING and rng.random() < 0.8:
        line += [*SMALL, *WHICH[command]]
    found = options_of(command)
    for strings, kind, values in rng.choices(found, k=rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        value = rng.choice(values) if values else ""
        if rng.random() < 0.15:
            value = rng.choice((*TEXTS, *NUMBERS, *PATHS, value.upper(), value[:-1], value * 2))
        if "\0" in value:
            continue
        name = rng.choice(strings) if strings else ""
        if name.startswith("--") and rng.random() < 0.1:  # an abbreviation, or no option at all
            name = name[: rng.randint(2, len(name))] + rng.choice(("", "", "", "x"))
        if not name:
            line += [value]
        elif (kind == "flag" and rng.random() < 0.9) or rng.random() < 0.05:
            line += [name]
        else:
            line += [f"{name}={value}"] if rng.random() < 0.5 else [name, value]
    if command == "campaign":  # never a campaign of its own
        line += ["--again=missing"]
    return line


def prepare(shared: Path) -> None:
    pass


def draw(rng: random.Random, number: int) -> dict:
    # Most of the writers measure or train for long: a line of theirs takes all its time.
    weights = [3] * len(OTHERS) + [1] * len(WRITERS) + [3]
    chosen = rng.choices((*OTHERS, *WRITERS, "campaign"), weights, k=LINES)
    whole = rng.choice(OTHERS)
    return {
        "lines": [[command, *one_line(rng, command)] for command in chosen],
        "whole": [whole, *one_line(rng, whole)],
    }


def attempt(trial: dict, shared: Path, folder: Path) -> Outcome:
    forked = forks.run_batch("campaign.arguments", trial, shared, folder, VARIABLES)
    place = folder / "whole"
    fill(place)
    command, *arguments = trial["whole"]

    def interrupt(process: subprocess.Popen, mark: str) -> None:
        try:
            process.wait(2 * INTERRUPT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)

    ended = commands.run(module_of(command), arguments, folder, VARIABLES, interrupt, cwd=place)
    wrong = judge(ended, 2 * INTERRUPT_SECONDS)
    return Outcome(forked.tries + 1, forked.failure or wrong)


def judge(ended: Ended, interrupted_after: float) -> str | None:
    """What is wrong with how a command line ended; None if nothing is."""
    was_interrupted = ended.seconds >= interrupted_after
    # A signal while the interpreter ends, when all is done, kills it.
    stopped = (130, -signal.SIGINT) if was_interrupted else ()
    wrong = ended.complaint((0, 1, 2, *stopped))
    if wrong:
        return wrong
    lines = ended.stderr.splitlines()
    if ended.status == 2 and (length := max(map(len, lines))) > MAX_SENTENCE:
        return f"the sentence has {length} letters\n{ended}"
    if ended.status == 130 and sum("stopped by SIGINT" in line for line in lines) != 1:
        return f"Ctrl-C is not told of\n{ended}"
    return None


def fill(folder: Path) -> None:
    """Make a folder, and in it what the command lines name."""
    for name in ("folder", "closed"):
        (folder / name).mkdir(parents=True)
    for name in ("empty.h5", "empty.csv"):
        (folder / name).touch()
    for name in ("text.h5", "text.csv"):
        (folder / name).write_text("no,run\n1\n")
    (folder / "closed").chmod(0)


def _tries(trial: dict, own: Path) -> Iterator[tuple[str, Callable[[], str | None]]]:
    for number, (command, *arguments) in enumerate(trial["lines"]):
        yield (
            json.dumps([command, *arguments])[:300],
            partial(_attempt, command, arguments, own / str(number)),
        )


def _attempt(command: str, arguments: list[str], own: Path) -> str | None:
    from experiments.running import cli, provenance

    fill(own / "work")
    module = importlib.import_module(module_of(command))

    def main() -> None:
        provenance.REPOSITORY = own / "work"  # records are written there
        if command == "notebooks":
            vars(module)["FOLDER"] = own / "work"
        cli.run(module.main)

    ended = forks.fork(main, [command, *arguments], own / "work", MORE_SECONDS, INTERRUPT_SECONDS)
    return judge(ended, INTERRUPT_SECONDS)


def main(trial: str, shared: str, own: str) -> None:
    """Try the command lines of a trial, a fork each."""
    import cnn_gpu.cpu  # noqa: F401 - what most of them import, once
    import deform_gpu.batches  # noqa: F401
    import mlp_gpu.cpu  # noqa: F401

    os.environ.pop("MNIST_DIR", None)  # load_digits are enough
    forks.answer(_tries(json.loads(Path(trial).read_text()), Path(own)))


if __name__ == "__main__":
    main(*sys.argv[1:])
