"""Processes with other settings than this one, in which baselines and engines are timed.

How many threads a library takes, and how memory is allocated, is settled when a process starts. So
a baseline that trains a perceptron on the CPU trains a few times in a process for each of the
settings, and is measured in the process where it is fastest.
"""

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from experiments.benchmarks import host
from experiments.benchmarks.baselines import Trainer
from experiments.training import provenance
from experiments.training.formatting import plural
from experiments.training.workers import THREAD_VARIABLES, Channel, LocalProcesses

# For glibc: arrays come from memory that the process keeps. Else each one of more than a few MB is
# mapped anew, with a page fault every 4 KiB. 32 MiB is the most that it takes as a threshold.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of a process at its start. keeps_memory: whether KEEP_MEMORY is set."""

    threads: int = 1
    keeps_memory: bool = False

    def __str__(self) -> str:
        return plural(self.threads, "thread") + ", memory kept" * self.keeps_memory

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with the settings, which JAX reads in NPROC.

        It lacks OPENBLAS_CORETYPE, which limits NumPy's BLAS to the instructions of one processor.
        """
        found = os.environ | dict.fromkeys((*THREAD_VARIABLES, "NPROC"), str(self.threads))
        found.pop("OPENBLAS_CORETYPE", None)
        return found | (KEEP_MEMORY if self.keeps_memory else {})


def process_settings() -> list[ProcessSettings]:
    """All settings that are tried here; the last one: all threads, and memory kept."""
    cores = provenance.cores()
    threads = sorted({cores, *(1 << k for k in range(cores.bit_length()))})
    kept = (False, True) if platform.libc_ver()[0] == "glibc" else (False,)
    return [ProcessSettings(*choice) for choice in product(threads, kept)]


class ConfiguredProcess(LocalProcesses):
    """A process with a given environment, which calls functions."""

    def __init__(self, environment: Mapping[str, str]):
        super().__init__(1, environment=environment)

    def call(self, function: Callable, *arguments: Any) -> Any:
        """The result of function(*arguments). Raises what it raises, WorkerDied if it ends."""
        (future,) = self.as_completed([self.submit(_call, function, *arguments)])
        return future.result()


def _call(_channel: Channel, function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


_trainers: dict[str, Trainer] = {}  # in such a process, those that were made last


def _make(name: str, make: Callable[..., Trainer], *arguments: Any) -> None:
    _trainers[name] = make(*arguments)


def _ask(name: str, method: str) -> Any:
    return getattr(_trainers[name], method)()


@contextmanager
def in_processes(
    makers: Mapping[str, Callable[..., Trainer]],
) -> Iterator[dict[str, Callable[..., Trainer]]]:
    """Inside, the same makers by name; each trains in the process where it is fastest."""
    with ExitStack() as stack:
        processes = {
            settings: stack.enter_context(closing(ConfiguredProcess(settings.environment)))
            for settings in process_settings()
        }

        def fastest(name: str, make: Callable[..., Trainer], *arguments: Any) -> Trainer:
            seconds = {}
            for settings, process in processes.items():
                process.call(_make, name, make, *arguments)
                train = partial(process.call, _ask, name, "train")
                train()  # may compile
                seconds[settings] = min(host.time_calls(train) for _ in range(2))
            settings = min(processes, key=lambda one: seconds[one])
            processes[settings].call(_make, name, make, *arguments)
            ask = partial(processes[settings].call, _ask, name)
            return Trainer(partial(ask, "train"), partial(ask, "weights"), str(settings))

        yield {name: partial(fastest, name, make) for name, make in makers.items()}
