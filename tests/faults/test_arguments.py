"""Command lines of good, bad and absurd values, made from the commands' own parsers.

Each runs in a fork of this process, which gets Ctrl-C if it takes seconds.
"""

import argparse
import importlib
import os
import shutil
from functools import cache, partial
from pathlib import Path
from unittest import mock

import commands
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tries import fuzz

import cnn_gpu.cpu  # noqa: F401 - what most commands import, once
import deform_gpu.batches  # noqa: F401
import mlp_gpu.cpu  # noqa: F401
from experiments.training import cli, provenance

INTERRUPT_SECONDS = 4  # until Ctrl-C, at whatever a command then does
SECONDS = 600  # of a core in all, ten times what any command takes until it hears of Ctrl-C
MAX_SENTENCE = 1000  # letters
COMMANDS = sorted(path.stem for path in provenance.REPOSITORY.glob("experiments/[!_]*.py"))
# What trains does so for a moment; no download is tried, for nobody listens at that port.
SMALL = ["--data=digits", "--limit=30", "--epochs=1", "--out=out"]
TRAININGS = {"table1": ["--nets=1"], "cnn": ["--net=1M1-MP29"], "committee": ["--experiment=1"]}
PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")

NUMBERS = (
    *("1", "2", "0", "-1", "3", "007", " 1", "1 ", "+1", "1.0", "1e3", "0.5", "1e-3", "1e309"),
    *("-0", "nan", "inf", "-inf", "0x10", "1_0", "١", "²", "½", "1,2", "1,1", ",", "1,", "1;2"),
    *("9" * 5000, "1" * 25, "-" + "9" * 400, "1e-400", "0." + "0" * 5000 + "1", "true"),
)
TEXTS = (
    *("", " ", "--", "-", "-h", "*", "%(prog)s", "{}", "\n", "a\nb", "é", "\udcff", "\x1b[2J"),
    *("x" * 5000, "1M1", "20M5s1-MP2-10N", "0M0-0N", "1M1-MP29-" * 200, "tcp://127.0.0.1:9"),
)
PATHS = (
    *("missing", "missing/a/b", "folder", "empty.h5", "text.h5", "closed", "closed/x", ".", ".."),
    *("/proc/self/mem", "a" * 300, "a/" * 3000, "new\nline", "caf\udce9.h5", "é", "x.csv", "~"),
    *("empty.csv", "text.csv", "empty.h5/x", "out"),
)
ANY = (*NUMBERS, *TEXTS, *PATHS)


class Found(Exception):
    """Carries a command's parser."""


@cache
def options_of(command):
    """What a command's parser takes: option strings, none for positional arguments; values."""

    def give_away(parser, *_):
        raise Found(parser)

    module = importlib.import_module(f"experiments.{command}")
    patch = mock.patch.object(argparse.ArgumentParser, "parse_args", give_away)
    with patch, pytest.raises(Found) as found:
        module.main([])
    taken = []
    for action in found.value.args[0]._actions:
        if action.nargs == 0:
            values = (None,)
        elif action.choices:
            values = tuple(map(str, action.choices))
        else:
            values = PATHS if action.type is Path else NUMBERS if action.type else TEXTS
        taken.append((action.option_strings, values))
    return taken


@st.composite
def lines(draw):
    """A command and its arguments, of which some are as they should be."""
    command = draw(st.sampled_from([*COMMANDS, *TRAININGS]))
    line = [command]
    if command in TRAININGS and draw(st.integers(0, 4)):
        line += [*SMALL, *TRAININGS[command]]
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 2, 3, 5)))):
        names, values = draw(st.sampled_from(options_of(command)))
        value = draw(st.sampled_from(values))
        if not draw(st.integers(0, 6)):
            value = draw(st.sampled_from(ANY) | st.text().filter(lambda text: "\0" not in text))
        name = draw(st.sampled_from(names)) if names else None
        if name and not draw(st.integers(0, 9)):  # an abbreviation, or no option at all
            name = name[: draw(st.integers(2, 9))] + draw(st.sampled_from(("", "", "x")))
        if name and value is not None and draw(st.booleans()):
            line.append(f"{name}={value}")
        else:
            line += [word for word in (name, value) if word is not None]
    return line


@pytest.fixture
def work(tmp_path):
    """A function that makes a folder with what the command lines name."""

    def make():
        folder = tmp_path / "work"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("folder", "closed"):
            (folder / name).mkdir(parents=True)
        for name in ("empty.h5", "empty.csv"):
            (folder / name).touch()
        for name in ("text.h5", "text.csv"):
            (folder / name).write_text("no,run\n1\n")
        (folder / "closed").chmod(0)
        return folder

    return make


@pytest.mark.slow
@fuzz(25, 2000)
@given(line=lines())
def test_a_command_line_ends_in_results_or_in_one_short_sentence(line, work, tried):
    folder = work()
    module = importlib.import_module(f"experiments.{line[0]}")

    def main():
        os.environ |= PROXIES
        os.environ.pop("MNIST_DIR", None)
        provenance.REPOSITORY = folder  # records are written there
        if line[0] == "notebooks":
            vars(module)["FOLDER"] = folder
        cli.run(partial(module.main, line[1:]))

    ended = commands.fork(main, folder, SECONDS, INTERRUPT_SECONDS)
    tried()
    ended.check(0, 1, 2, *((130,) if ended.interrupted else ()))
    if ended.status == 2:
        assert max(map(len, ended.stderr.splitlines())) <= MAX_SENTENCE, ended
    if ended.status == 130:
        assert sum("stopped by SIGINT" in text for text in ended.stderr.splitlines()) == 1, ended
