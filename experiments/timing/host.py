"""Time work by the host's clock: every repeat runs each workload in turn."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

import numpy as np

from deform_gpu import TABLE1
from experiments.running import data
from experiments.running.errors import explained
from experiments.running.messages import tell
from experiments.timing.measurement import Ceiling, Measurement

MIN_REPEAT_SECONDS = 0.2
N_EXAMPLES = 6000


@dataclass(frozen=True)
class Workload:
    """Something to time.

    call: does it once; returns when it is done. n_images: that a call trains or deforms, None if it
    does neither. n_bytes: that must be moved for an image or, without images, in a call; flops:
    floating-point operations, likewise; None if that is not known. copy, read, peak: the names
    of the workloads that are its ceilings, see `Measurement`. settings: see there.
    background_load: keeps the machine busy meanwhile.
    """

    call: Callable[[], object]
    n_images: int | None = None
    n_bytes: float | None = None
    flops: int | None = None
    copy: str | None = None
    read: str | None = None
    peak: str | None = None
    settings: str = ""
    background_load: Callable[[], AbstractContextManager] = nullcontext


def random_examples(n: int, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images, float32 (n, n_inputs), and labels, uint8 (n,)."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (n, n_inputs)).astype(np.float32)
    return images, rng.integers(0, 10, n).astype(np.uint8)


@cache
def training_examples(n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """N_EXAMPLES images, float32 (n, n_inputs), and labels, uint8 (n,), for windows to train on.

    How often a window is swept depends on them. So they are deformed digits, of MNIST or else of
    load_digits; for nets of other sizes than those see they are random.
    """
    if n_inputs != data.SIDE**2:
        return random_examples(N_EXAMPLES, n_inputs)
    from deform_gpu import deform  # imports numba

    dataset = data.load("auto")
    images = np.resize(dataset.train_images, (N_EXAMPLES, data.SIDE, data.SIDE))
    labels = np.resize(dataset.train_labels, N_EXAMPLES)
    return deform(images, labels, TABLE1, 0, 1).reshape(N_EXAMPLES, -1), labels


def time_calls(
    call: Callable[[], object],
    n_calls: int = 1,
    background_load: Callable[[], AbstractContextManager] = nullcontext,
) -> float:
    """Seconds that a call takes, on average."""
    with background_load():
        started = time.perf_counter()
        for _ in range(n_calls):
            call()
        return (time.perf_counter() - started) / n_calls


def time_workloads(workloads: dict[str, Workload], repeats: int) -> dict[str, np.ndarray]:
    """Microseconds of each workload, by name, per image or else per call; float64 (repeats,).

    A repeat calls a workload as often as fills MIN_REPEAT_SECONDS, then the next one.
    """
    n_calls = {}
    for name, workload in workloads.items():
        workload.call()  # compiles, touches memory
        seconds = time_calls(workload.call, 1, workload.background_load)
        n_calls[name] = max(1, round(MIN_REPEAT_SECONDS / seconds))
    us = {name: np.empty(repeats) for name in workloads}
    for repeat in range(repeats):
        for name, workload in workloads.items():
            seconds = time_calls(workload.call, n_calls[name], workload.background_load)
            us[name][repeat] = 1e6 * seconds / (workload.n_images or 1)
    return us


def measure(group: str, workloads: dict[str, Workload], repeats: int) -> list[Measurement]:
    """Measurements of the workloads."""
    us = time_workloads(workloads, repeats)

    def ceiling(name: str | None, unit: str) -> Ceiling | None:
        work = getattr(workloads[name], unit) if name else None
        return Ceiling(us=us[name], work=work) if name and work else None

    return [
        Measurement(
            group=group,
            name=name,
            us=us[name],
            n_images=workload.n_images and 1,
            n_bytes=workload.n_bytes,
            copy=ceiling(workload.copy, "n_bytes"),
            read=ceiling(workload.read, "n_bytes"),
            flops=workload.flops,
            peak=ceiling(workload.peak, "flops"),
            settings=workload.settings or None,
        )
        for name, workload in workloads.items()
    ]


def attempts(makers: Iterable[Callable[[], Iterable[Measurement]]]) -> Iterator[Measurement]:
    """The measurements of each maker. One that fails is logged, and costs the others nothing."""
    for make in makers:
        try:
            yield from make()
        except Exception as error:
            reason = explained(error) or f"{type(error).__name__}: {error}"
            tell(f"some measurements are left out: {reason}")
