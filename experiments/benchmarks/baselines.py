"""The programs of others that the benchmarks time: one table of them, and their settings.

How many threads a library takes, and how memory is allocated, is settled when a process starts. So
a baseline that trains a perceptron on the CPU trains a few times in a process for each of the
settings, and is measured in the process where it is fastest.
"""

import importlib
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, BinaryIO

import numpy as np

from experiments.benchmarks import baseline_deformations as deformations
from experiments.benchmarks import baseline_nets as nets
from experiments.benchmarks import baseline_window as window
from experiments.benchmarks import connections, host
from experiments.benchmarks.baseline_nets import Trainer
from experiments.benchmarks.host import Workload
from experiments.training import provenance
from experiments.training.formatting import plural
from experiments.training.messages import tell
from experiments.training.workers import THREAD_VARIABLES

# Packages that need not be installed, and the names of their libraries.
PACKAGES = {
    "torch": "PyTorch",
    "jax": "JAX",
    "albumentations": "albumentations",
    "kornia": "kornia",
}
CPU, GPU = "cpu", "cuda"  # devices of baselines

# For glibc: arrays come from memory that the process keeps. Else each one of more than a few MB is
# mapped anew, with a page fault every 4 KiB. 32 MiB is the most that it takes as a threshold.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**30)}


def fastest(
    *arguments: Any, make: Callable[..., Trainer], choices: Callable[[], Sequence[Any]]
) -> Trainer:
    """A new trainer with the settings that it trains fastest with.

    make: makes a trainer; its last argument is one of the choices. Each trains three times, the
    first of which does not count.
    """
    tried = choices()
    seconds = []
    for settings in tried:
        train = make(*arguments, settings).train
        train()  # may compile
        seconds.append(min(host.time_calls(train) for _ in range(2)))
    return make(*arguments, tried[int(np.argmin(seconds))])


# --- the table


@dataclass(frozen=True)
class Baseline:
    """A program of others. group: of the rows of bench.csv; "ladder" of the ladder's net.

    package: in PACKAGES, "" if it needs none. device: CPU or GPU. make: returns a `Trainer`
    of a net; in the group `deformation` a function that deforms images; in `window` a trainer with
    given settings, timed as our engine is; in `product` a function that multiplies on a stream.
    """

    group: str
    name: str
    package: str
    device: str
    make: Callable[..., Any]


_BY_HAND = partial(fastest, make=nets.torch_by_hand, choices=nets.torch_settings)
_COMPILED = partial(fastest, make=nets.torch_compiled_step, choices=nets.compiled_settings)
_GRAPH = partial(nets.torch_trainer, device=GPU, graph=True)
_CNN = partial(nets.torch_trainer, build=nets.torch_convolutional)
_LADDER = partial(nets.torch_trainer, build=nets.torch_ladder, device=GPU)
_KORNIA_GPU = partial(deformations.kornia_batch, device=GPU)

BASELINES = (
    Baseline("net", "NumPy loop, CPU", "", CPU, nets.numpy_loop),
    Baseline("net", "PyTorch eager, CPU", "torch", CPU, nets.torch_trainer),
    Baseline("net", "JAX scan, CPU", "jax", CPU, nets.jax_perceptron),
    Baseline("net", "PyTorch eager, GPU", "torch", GPU, partial(nets.torch_trainer, device=GPU)),
    Baseline("net", "PyTorch graph, GPU", "torch", GPU, _GRAPH),
    Baseline("net", "JAX scan, GPU", "jax", GPU, nets.jax_perceptron),
    Baseline("cnn", "loops over connections, CPU", "", CPU, connections.loops),
    Baseline("cnn", "PyTorch eager, CPU", "torch", CPU, _CNN),
    Baseline("cnn", "PyTorch eager at its best, CPU", "torch", CPU, _BY_HAND),
    Baseline("cnn", "PyTorch compiled, CPU", "torch", CPU, _COMPILED),
    Baseline("cnn", "PyTorch eager, GPU", "torch", GPU, partial(_CNN, device=GPU)),
    Baseline("cnn", "PyTorch graph, GPU", "torch", GPU, partial(_CNN, device=GPU, graph=True)),
    Baseline("ladder", "NumPy", "", CPU, nets.numpy_ladder),
    Baseline("ladder", "plain Python", "", CPU, nets.python_ladder),
    Baseline("ladder", "PyTorch eager, GPU", "torch", GPU, _LADDER),
    Baseline("ladder", "PyTorch graph, GPU", "torch", GPU, partial(_LADDER, graph=True)),
    Baseline("ladder", "JAX scan, GPU", "jax", GPU, nets.jax_ladder),
    Baseline("window", "PyTorch window, GPU", "torch", GPU, window.TorchWindow),
    Baseline("product", "cuBLAS float32", "torch", GPU, partial(window.cublas, "highest")),
    Baseline("product", "cuBLAS TF32", "torch", GPU, partial(window.cublas, "high")),
    Baseline("deformation", "scipy recipe", "", CPU, deformations.scipy_recipe),
    Baseline("deformation", "albumentations, CPU", "albumentations", CPU, deformations.compose),
    Baseline("deformation", "kornia, CPU", "kornia", CPU, deformations.kornia_batch),
    Baseline("deformation", "kornia, GPU", "kornia", GPU, _KORNIA_GPU),
)


def import_error(package: str) -> str | None:
    """Why a package cannot be used, in a line; None if it can."""
    try:
        if package == "jax":
            nets.import_jax().default_backend()
        else:
            importlib.import_module(package)
    except Exception as error:  # an incomplete installation raises others than ImportError
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def sees_gpu(package: str) -> bool:
    """Whether an installed package can use a GPU."""
    if package == "jax":
        return nets.import_jax().default_backend() != "cpu"
    import torch

    return torch.cuda.is_available()


def available(group: str, device: str) -> dict[str, Callable[..., Any]]:
    """The makers of the baselines of a group that can run on a device here, by name."""

    def runs(package: str) -> bool:
        if not package or import_error(package):
            return not package
        if package == "jax":  # which computes on its default device
            return sees_gpu("jax") == (device == GPU)
        return device == CPU or sees_gpu(package)

    return {
        baseline.name: baseline.make
        for baseline in BASELINES
        if (baseline.group, baseline.device) == (group, device) and runs(baseline.package)
    }


def missing(gpu: bool) -> list[str]:
    """A sentence for each library that cannot be measured. gpu: whether a GPU is measured."""
    reasons = {package: import_error(package) for package in PACKAGES}
    sentences = [
        f"{PACKAGES[package]} is not measured ({reason}); pip install -e '.[baselines]' brings it"
        for package, reason in reasons.items()
        if reason
    ]
    if gpu and not reasons["torch"] and not sees_gpu("torch"):
        users = " and ".join(PACKAGES[name] for name in ("torch", "kornia") if not reasons[name])
        sentences.append(
            f"the installed PyTorch sees no GPU, so {users} can be measured on the CPU alone; "
            "https://pytorch.org/get-started says how to install one that does"
        )
    if gpu and not reasons["jax"] and not sees_gpu("jax"):
        sentences.append(
            "the installed JAX sees no GPU, so it is measured on the CPU; 'pip install "
            '"jax[cuda12]"\' brings what it needs'
        )
    return sentences


def workloads(
    makers: Mapping[str, Callable[..., Any]],
    arguments: Sequence[Any],
    n_images: int,
    check: Callable[[Trainer], None] = lambda trainer: None,
) -> dict[str, Workload]:
    """A workload on n_images images for each baseline; without those that fail, which is logged.

    arguments: of the makers. check: raises an exception if a trainer has not made the right steps.
    """
    found = {}
    for name, make in makers.items():
        tell(f"  preparing {name}")
        try:
            made = make(*arguments)
            trainer = made if isinstance(made, Trainer) else Trainer(made, list)
            trainer.train()
            check(trainer)
        except Exception as error:  # must not cost the measurements of everything else
            tell(f"{name} fails, so it is not measured: {type(error).__name__}: {error}")
        else:
            found[name] = Workload(trainer.train, n_images, settings=trainer.settings)
    return found


# --- processes with other settings


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of a process at its start. keeps_memory: whether KEEP_MEMORY is set."""

    threads: int = 1
    keeps_memory: bool = False

    def __str__(self) -> str:
        return plural(self.threads, "thread") + ", memory kept" * self.keeps_memory

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with the settings, and without what slows NumPy's BLAS.

        JAX reads NPROC.
        """
        found = os.environ | dict.fromkeys((*THREAD_VARIABLES, "NPROC"), str(self.threads))
        found.pop("OPENBLAS_CORETYPE", None)
        return found | (KEEP_MEMORY if self.keeps_memory else {})


def process_settings() -> list[ProcessSettings]:
    """All settings that are tried here; the last one: all threads, and memory kept."""
    threads = sorted({1, provenance.cores()})
    kept = (False, True) if platform.libc_ver()[0] == "glibc" else (False,)
    return [ProcessSettings(*choice) for choice in product(threads, kept)]


class BaselineProcess:
    """A process that makes trainers and lets them train."""

    def __init__(self, environment: Mapping[str, str]):
        # In a session of its own, Ctrl-C does not reach it. It ends when its input ends.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.benchmarks.baselines"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def ask(self, make: Callable[..., Any], method: str, *arguments: Any) -> Any:
        """The result of a request, see `answer`. Raises RuntimeError if it or the process fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((make, method, arguments), self._process.stdin)
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
    """Answer requests (make, method, arguments) until their end, each by (failure, result).

    make: the function that makes an object. method: "make" the object, with these arguments, or a
    method of the object that was made last. failure: a line, empty if there is none.
    """
    made: dict[Callable[..., Any], Any] = {}
    while True:
        try:
            make, method, arguments = pickle.load(requests)
        except EOFError:
            return
        failure, result = "", None
        try:
            if method == "make":
                made[make] = make(*arguments)
            else:
                result = getattr(made[make], method)()
        except Exception as error:  # a library may raise any
            failure = f"{type(error).__name__}: {error}"
        pickle.dump((failure, result), answers)
        answers.flush()


@contextmanager
def in_processes(
    makers: Mapping[str, Callable[..., Trainer]],
) -> Iterator[dict[str, Callable[..., Trainer]]]:
    """Inside, the same makers by name; each trains in the process where it is fastest."""
    with ExitStack() as stack:
        processes = {one: BaselineProcess(one.environment) for one in process_settings()}
        for process in processes.values():
            stack.callback(process.close)

        def in_process(make: Callable[..., Trainer], *arguments: Any) -> Trainer:
            *given, settings = arguments
            ask = partial(processes[settings].ask, make)
            ask("make", *given)
            return Trainer(partial(ask, "train"), partial(ask, "weights"), str(settings))

        yield {
            name: partial(fastest, make=partial(in_process, make), choices=lambda: list(processes))
            for name, make in makers.items()
        }


def main() -> None:
    """Answer the process that started this one. Output of libraries goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
