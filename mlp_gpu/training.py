"""Training by epochs: deform all images, one on-line step for each, evaluate, choose.

Nothing here reads or writes files: `train` hands out one `Epoch` after another.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlp_gpu import random
from mlp_gpu.engine import Engine

if TYPE_CHECKING:
    from deepbig_runtime.gpu import DeviceArray

IMAGES_PER_PREDICT = 5000  # between two calls of Engine.predict a signal may end the training


class Diverged(ArithmeticError):
    """The loss or the outputs are not finite any more; one sentence says where."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate: eta, times decay after each epoch, down to eta_min.

    The defaults are the paper's (2010, section 3; the decay: 2012, section 6.1). They reach
    eta_min in 2,300 epochs.
    """

    epochs: int = 2300
    eta: float = 1e-3
    decay: float = 0.997
    eta_min: float = 1e-6

    def eta_of(self, epoch: int) -> float:
        """Learning rate of an epoch; the first epoch is 1."""
        return max(self.eta * self.decay ** (epoch - 1), self.eta_min)


@dataclass(frozen=True, eq=False)
class Epoch:
    """The results of one epoch. Errors are counts of misclassified images, times are in seconds."""

    epoch: int
    eta: float
    train_loss: float  # mean cross-entropy over the deformed images, in nats
    validation_errors: int
    test_errors: int
    deform_seconds: float  # the time that training waited for its images
    train_seconds: float
    evaluate_seconds: float
    outputs: np.ndarray  # class probabilities of the test images, float32 (n_test, classes)


def chosen_epoch(validation_errors: Sequence[int]) -> int:
    """The epoch, from 1, with the fewest validation errors (2010, section 5).

    Guess: of equal ones the earliest; the papers do not say.
    """
    return int(np.argmin(validation_errors)) + 1


def image_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which an epoch takes its n images, int64 (n,).

    Guess: a fresh permutation each epoch; the papers do not say.
    """
    return random.generator(seed, random.ORDER, epoch).permutation(n)


def count_errors(
    engine: Engine,
    images: "np.ndarray | DeviceArray",
    labels: np.ndarray,
    tick: Callable[[int], None],
) -> tuple[int, np.ndarray]:
    """The number of misclassified images, and the outputs, float32 (n, classes).

    images: as `train` has them, or as Engine.keep gives them. labels: uint8 (n,). tick: called with
    0 after each part. Raises Diverged if an output is not finite.
    """
    parts = []
    for start in range(0, len(images), IMAGES_PER_PREDICT):
        parts.append(engine.predict(images[start : start + IMAGES_PER_PREDICT]))
        tick(0)
    outputs = np.concatenate(parts)
    if not np.isfinite(outputs).all():
        raise Diverged("the outputs of the net are not finite numbers any more")
    return int(np.count_nonzero(outputs.argmax(axis=1) != labels)), outputs


def checked_tick(
    epoch: int, eta: float, n: int, tick: Callable[[int], None]
) -> Callable[[int, float], None]:
    """A tick for Engine.train, which raises Diverged if the loss is not finite.

    n: images of the epoch. tick: called with the number of images otherwise.
    """
    done = 0

    def check(n_images: int, loss: float) -> None:
        nonlocal done
        done += n_images
        if not np.isfinite(loss):
            raise Diverged(
                f"the loss is not a finite number any more, in epoch {epoch} within {done} of {n} "
                f"images, at a learning rate of {eta:.3g}"
            )
        tick(n_images)

    return check


def train(
    engine: Engine,
    training_set: tuple[np.ndarray, np.ndarray],
    validation_set: tuple[np.ndarray, np.ndarray],
    test_set: tuple[np.ndarray, np.ndarray],
    schedule: Schedule,
    seed: int,
    deform: "Callable[[int], np.ndarray | DeviceArray]",
    first_epoch: int = 1,
    tick: Callable[[int], None] = lambda n_images: None,
) -> Iterator[Epoch]:
    """Train the engine's network, yielding after each epoch from first_epoch to the last.

    training_set, validation_set, test_set: undeformed images, float32 (n, height, width) or (n,
        height, width, maps), and labels uint8 (n,). In the papers the training set is the
        validation set (2010, section 2). deform: gives an epoch's images, as Engine.train has them.
    tick: called with the number of images trained since its last call: after each chunk of them,
        and with 0 after the deformation and after each part of an evaluation.
    Raises Diverged when the loss or an output stops being a finite number.
    """
    for epoch in range(first_epoch, schedule.epochs + 1):
        eta = schedule.eta_of(epoch)
        started = time.perf_counter()
        images, labels = deform(epoch), training_set[1]
        tick(0)
        deformed = time.perf_counter()
        order = image_order(len(labels), seed, epoch)
        loss = engine.train(images, labels, order, eta, checked_tick(epoch, eta, len(order), tick))
        trained = time.perf_counter()
        if epoch == first_epoch:  # training has taken the memory that it needs
            validation_images, test_images = (
                engine.keep(images) for images, _ in (validation_set, test_set)
            )
        validation_errors, _ = count_errors(engine, validation_images, validation_set[1], tick)
        test_errors, outputs = count_errors(engine, test_images, test_set[1], tick)
        yield Epoch(
            epoch=epoch,
            eta=eta,
            train_loss=loss,
            validation_errors=validation_errors,
            test_errors=test_errors,
            deform_seconds=deformed - started,
            train_seconds=trained - deformed,
            evaluate_seconds=time.perf_counter() - trained,
            outputs=outputs,
        )
