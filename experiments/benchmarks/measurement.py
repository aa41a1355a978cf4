"""A measurement of one thing: its times, and what turns them into rates."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Ceiling:
    """What took turns with a measurement and shows how fast memory or arithmetic can be.

    us: microseconds of each repeat, float64 (repeats,). work: bytes that a copy or a read moved, or
    floating-point operations of multiply-adds, in one such time.
    """

    us: np.ndarray
    work: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """The times of an engine, a baseline, a kernel, a deformation or a copy.

    us: microseconds of each repeat, float64 (repeats,). n_images, n_bytes, flops: that were
    trained, deformed or evaluated, that had to be moved, and floating-point operations, each in one
    such time. copy, read, peak: its ceilings. cpu_engine_us: `us` of the CPU engine on the same
    net. paper_gb_per_second: the paper's figure for the same kernel. Other fields: see `BenchRow`,
    which also says for each group what `us` is the time of. None where a field does not apply.
    """

    group: str
    name: str
    us: np.ndarray
    ran_on: str | None = None
    net: int | str | None = None
    n_weights: int | None = None
    layer: int | None = None
    n_in: int | None = None
    n_out: int | None = None
    state: str | None = None
    settings: str | None = None
    n_images: int | None = None
    n_bytes: float | None = None
    flops: float | None = None
    copy: Ceiling | None = None
    read: Ceiling | None = None
    peak: Ceiling | None = None
    cpu_engine_us: np.ndarray | None = None
    paper_gb_per_second: float | None = None
