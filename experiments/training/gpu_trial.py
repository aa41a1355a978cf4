"""Self-test of a GPU before its use: it must compute the same as the CPU.

A small net of odd sizes is trained and evaluated by each schedule, and its images are deformed, on
the GPU and on the CPU. It runs in a separate process, which can be killed if it hangs.
"""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import numpy as np

from deepbig_runtime import driver
from deepbig_runtime.errors import signals, tell
from deform_gpu import TABLE1
from mlp_gpu.engine import PERCEPTRON_SCHEDULES, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.engines import make_engine
from mlp_gpu.network import Network

SIZES = (841, 35, 21, 10)
N_IMAGES = 3 * WINDOW_IMAGES_PER_BLOCK  # so that weights are updated, and read again
ETA, SEED = 0.01, 0
# Largest differences: of pixels in [-1, 1]; of probabilities; of weights, relative to their change.
LIMITS = {"pixels": 1e-4, "outputs": 1e-3, "weights": 1e-3}
SECONDS = 180  # until a GPU is given up; kernels are compiled once, which takes most of it


@dataclass(frozen=True)
class Trial:
    """Result of a self-test of the GPU.

    reason: why the GPU cannot be used, in a sentence; None if it can. differences: from the CPU, by
    what was compared.
    """

    reason: str | None
    differences: dict[str, float] = field(default_factory=dict)


_passed: list[Trial] = []  # by now this process may have exclusive use of the GPU


def try_gpu() -> Trial:
    """Run the self-test of this machine's GPU in a separate process, until it has passed once."""
    if _passed:
        return _passed[0]
    trial = _try_gpu()
    if trial.reason is None:
        _passed.append(trial)
    return trial


def _try_gpu() -> Trial:
    if driver.is_missing():
        return Trial(driver.MISSING)
    tell("trying the GPU: some seconds, or a minute if its kernels must be compiled")
    command = [sys.executable, "-m", "experiments.training.gpu_trial"]
    child = None
    try:
        with signals.held():
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        answer, complaint = child.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Trial(
            f"the GPU did not answer within {SECONDS} seconds, when it was tried before use; see "
            "what nvidia-smi says, or start again: what was compiled until then is kept"
        )
    finally:
        if child:
            child.kill()  # and not waited for: a driver may hold it for ever
    with suppress(TypeError, ValueError):
        return Trial(**json.loads(answer.strip().rpartition("\n")[2]))
    last = complaint.strip().rpartition("\n")[2] or f"exit status {child.returncode}"
    return Trial(f"the GPU failed when it was tried before use: {last}")


def compare() -> dict[str, float]:
    """The largest differences between GPU and CPU, by what was computed and how."""
    from deform_gpu import deform  # imports numba

    rng = np.random.default_rng(SEED)
    images = rng.uniform(-1, 1, (N_IMAGES, 29, 29)).astype(np.float32)
    labels = rng.integers(0, SIZES[-1], N_IMAGES).astype(np.uint8)
    order = rng.permutation(N_IMAGES)
    start = Network.initial(SIZES, SEED)

    def train(engine: str, schedule: str = "graph") -> tuple[list[np.ndarray], np.ndarray]:
        trainer = make_engine(engine, schedule)
        trainer.set_network(start)
        trainer.train(images, labels, order, ETA)
        return trainer.get_network().unpadded(), trainer.predict(images)

    deformed = [deform(images, labels, TABLE1, SEED, 1, device=name) for name in ("cpu", "cuda")]
    found = {"pixels, deformed": float(abs(deformed[0] - deformed[1]).max())}
    weights, outputs = train("cpu")
    way = _distance(weights, start.unpadded())
    for schedule in PERCEPTRON_SCHEDULES:
        there, answers = train("cuda", schedule)
        found[f"weights, trained by {schedule}"] = _distance(there, weights) / way
        found[f"outputs, trained by {schedule}"] = float(abs(answers - outputs).max())
    return found


def judge(differences: dict[str, float]) -> str | None:
    """Why a GPU with these differences from the CPU cannot be trusted; None if it can."""
    for what, difference in differences.items():
        limit = LIMITS[what.split(",")[0]]
        if not difference <= limit:  # NaN is too far apart
            return (
                f"the GPU computes something else than the CPU ({what}: {difference:.2g} apart, "
                f"expected at most {limit:.2g}); make gpu-check says more"
            )
    return None


def _distance(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    pairs = zip(one, other, strict=True)
    return float(np.sqrt(sum(np.square(W - V, dtype=np.float64).sum() for W, V in pairs)))


def main() -> None:
    """Try the GPU in this process, and print the result as a line of JSON."""
    from deepbig_runtime import gpu  # imports numba
    from deepbig_runtime.faults import GpuFault

    differences: dict[str, float] = {}
    reason = gpu.missing()
    try:
        if not reason:
            differences = compare()
            reason = judge(differences)
    except GpuFault as fault:
        reason = str(fault)
    print(json.dumps(asdict(Trial(reason, differences))))


if __name__ == "__main__":
    main()
