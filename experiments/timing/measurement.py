"""What was measured of one thing: its times, and what is needed to turn them into rates."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyTimes:
    """A copy or a read that took turns with a measurement: the ceiling of what memory allows.

    us: microseconds of each repeat, float64 (repeats,). n_bytes: that it read and wrote.
    """

    us: np.ndarray
    n_bytes: float


@dataclass(frozen=True, kw_only=True, eq=False)
class PeakTimes:
    """Multiply-adds that took turns with a measurement: the ceiling of the arithmetic.

    us: microseconds of each repeat, float64 (repeats,). flops: of a call.
    """

    us: np.ndarray
    flops: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """The times of one engine, kernel, deformation or copy; None where a field does not apply.

    group: `net`, `deformation`, `kernel` or `evaluation`, which says what `us` is the time of: an
    image in the first two, a launch, a batch; of a CPU's evaluation an image. `cnn` and `cnn
    kernel` are as `net` and `kernel`, of convolutional nets. Copies, reads, multiply-adds and the
    kernel in `net` and `cnn` have the time of a call.
    us: microseconds of each repeat, float64 (repeats,). ran_on: the device. net: of Table 1, or its
    sizes, with n_weights weights. layer: from 1, with n_in inputs and n_out neurons. state: of the
    GPU's L2 cache before the launch, warm or cold. settings: of a peer that has a choice. n_images,
    n_bytes, flops: that were trained, deformed or evaluated, that had to be moved, and
    floating-point operations, each in one such time. copy, read, peak: its ceilings.
    cpu_engine_us: `us` of the CPU engine on the same net. paper_gb_per_second: what the paper
    reports for the same kernel.
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
    copy: CopyTimes | None = None
    read: CopyTimes | None = None
    peak: PeakTimes | None = None
    cpu_engine_us: np.ndarray | None = None
    paper_gb_per_second: float | None = None
