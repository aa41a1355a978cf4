"""Rungs of the ladder, unmodified, through numba-cuda on the fake driver."""

import fake_driver
import pytest

from cuda_on_cpu.driver import build

pytestmark = pytest.mark.skipif(build.missing() is not None, reason=str(build.missing()))

TRAIN = """
import numpy as np
from deepbig_runtime import gpu
from mlp_gpu.ladder import arrays, cpu, rung6_graph as graph, rung7_one_kernel as one_kernel
from mlp_gpu.ladder.net import Net
from mlp_gpu.ladder.rungs import RUNGS

graph.IMAGES_PER_GRAPH = one_kernel.CHUNK = 2  # two launches, and a step more
rng = np.random.default_rng(0)
images = (rng.random((4, 784)) < 0.2).astype(np.float32)
labels, order = np.arange(4, dtype=np.uint8), np.array([2, 0, 3, 3, 1])
start = Net.initial(10, 1)
trained = Net(*(W.copy() for W in start.arrays))
cpu.train(trained, images, labels, order)
moved = [np.linalg.norm(W - V) for W, V in zip(trained.arrays, start.arrays)]
for name in NAMES:
    rung, stream = RUNGS[name], gpu.new_stream()
    there = arrays.put(start, images, labels, order, rung.TRANSPOSED, stream)
    rung.train(there, stream)
    for W, V, n in zip(arrays.read(there, stream).arrays, trained.arrays, moved):
        assert np.linalg.norm(W - V) < 1e-5 * n, name
    assert gpu.read([there.step], stream)[0] == 5, name
    print(name)
"""


# By chance either missing wait shows, as late as CUDA allows only the second one.
@pytest.mark.parametrize(
    ("names", "chance"),
    [
        (["streams"], {"CUDA_ON_CPU_SEED": "1"}),
        pytest.param(["streams"], {}, marks=pytest.mark.slow),
        pytest.param(["naive", "graph", "one kernel"], {}, marks=pytest.mark.slow),
    ],
    ids=["streams by chance", "streams late", "others"],
)
def test_a_rung_trains_as_the_cpu_does(names, chance):
    done = fake_driver.run(TRAIN.replace("NAMES", repr(names)), CUDA_ON_CPU_GPUS="7.5", **chance)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == names
