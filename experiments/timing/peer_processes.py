"""Peers of the benchmark on the CPU, at their best: each in the process that it is fastest in.

How many threads a library takes, and how memory is allocated, is settled when a process starts. So
there is a process for each of the settings. In each a peer trains a few times, and the fastest is
measured.
"""

import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, BinaryIO

import numpy as np

from experiments.running import provenance
from experiments.running.formatting import plural
from experiments.running.workers import THREAD_VARIABLES
from experiments.timing import peers
from experiments.timing.peers import Peer
from mlp_gpu.network import Network

# For glibc: arrays come from memory that the process keeps. Else each one of more than a few MB is
# mapped anew, with a page fault every 4 KiB. 32 MiB is the most that it takes as a threshold.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


@dataclass(frozen=True)
class Settings:
    """What is settled when a process starts. keeps_memory: see KEEP_MEMORY."""

    threads: int = 1
    keeps_memory: bool = False

    def __str__(self) -> str:
        return plural(self.threads, "thread") + ", memory kept" * self.keeps_memory

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables; NPROC is what JAX looks at."""
        found = dict.fromkeys((*THREAD_VARIABLES, "NPROC"), str(self.threads))
        return found | (KEEP_MEMORY if self.keeps_memory else {})


def all_settings() -> list[Settings]:
    """The settings that a peer may choose among here; last all threads, with memory kept."""
    threads = sorted({1, provenance.cores()})
    kept = (False, True) if platform.libc_ver()[0] == "glibc" else (False,)
    return [Settings(*one) for one in product(threads, kept)]


def fast_environment() -> dict[str, str]:
    """This process's environment without OPENBLAS_CORETYPE, which slows NumPy's BLAS."""
    return {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}


class PeerProcess:
    """A process that makes peers and trains them."""

    def __init__(self, settings: Settings):
        # In a session of its own, Ctrl-C does not reach it. It ends when its input ends.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.timing.peer_processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=fast_environment() | settings.variables,
            start_new_session=True,
        )

    def ask(self, make: Callable[..., Any], what: str, *arguments: Any) -> Any:
        """What `answer` says. Raises RuntimeError if that fails or the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((make, what, arguments), self._process.stdin)
            self._process.stdin.flush()
            failure, result = pickle.load(self._process.stdout)
        except (EOFError, OSError):
            raise RuntimeError(f"its process ended, status {self._process.wait()}") from None
        if failure:
            raise RuntimeError(failure)
        return result

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def answer(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests to the end: (make, what, arguments), by (failure, result).

    make: the function that makes a peer. what: "make" the peer, with these arguments, or the name
    of a method of the peer that was made last. failure: a line, empty if there is none.
    """
    made: dict[Callable[..., Any], Any] = {}
    while True:
        try:
            make, what, arguments = pickle.load(requests)
        except EOFError:
            return
        failure, result = "", None
        try:
            if what == "make":
                made[make] = make(*arguments)
            else:
                result = getattr(made[make], what)()
        except Exception as error:  # whatever a library raises
            failure = f"{type(error).__name__}: {error}"
        pickle.dump((failure, result), answers)
        answers.flush()


@contextmanager
def started(
    makers: dict[str, Callable[..., Peer]],
) -> Iterator[dict[str, Callable[..., Peer]]]:
    """Inside there are processes, and makers of the same peers, each in its fastest process.

    The note of such a peer says with which settings it trains.
    """
    with ExitStack() as stack:
        processes = {settings: PeerProcess(settings) for settings in all_settings()}
        for process in processes.values():
            stack.callback(process.close)

        def in_process(
            network: Network,
            images: np.ndarray,
            labels: np.ndarray,
            eta: float,
            settings: Settings,
            make: Callable[..., Peer],
        ) -> Peer:
            process = processes[settings]
            process.ask(make, "make", network, images, labels, eta)
            train, weights = (partial(process.ask, make, what) for what in ("train", "weights"))
            return Peer(train, weights, str(settings))

        choices = list(processes)
        yield {
            name: partial(peers.fastest, make=partial(in_process, make=make), choices=choices)
            for name, make in makers.items()
        }


def main() -> None:
    """Answer the process that started this one. Whatever libraries print goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
