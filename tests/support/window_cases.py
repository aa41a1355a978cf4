"""What tests of the window's kernels share: a launch of each, on a layer of 95 inputs."""

import numpy as np

from mlp_gpu.network import pad32
from mlp_gpu.window import blocks, products, progress, sums

N_IN, N_OUT, N_BLOCK = 95, 128, 64
FIRST, END = 16, 48  # of the window


def launches():
    """A launch of each kernel on arrays of the host."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.uniform(-1, 1, shape).astype(np.float32)

    W, eta = numbers(pad32(N_IN + 1), pad32(N_OUT)), numbers(1)
    H, D = numbers(N_BLOCK, W.shape[0]), numbers(N_BLOCK, W.shape[1])
    H_next = numbers(N_BLOCK, pad32(N_OUT + 1))
    now, done, begun = (progress.at_start(N_BLOCK, 200) for _ in range(3))
    now[[progress.FIRST, progress.END, progress.SWEPT]] = FIRST, END, END
    done[[progress.FIRST, progress.SWEPT]] = N_BLOCK
    ring = progress.MAX_WINDOW
    A = numbers(*products.partial_shape(*W.shape, N_BLOCK, ring))
    E = numbers(*products.partial_shape(*W.shape[::-1], N_BLOCK, ring))
    epoch = {"losses": numbers(200), "labels": np.zeros(9, np.uint8)}
    order = epoch["order"] = rng.integers(0, 9, 200)
    changes = numbers(*sums.changes_shape((N_IN, N_OUT)))
    found = [
        *blocks.gather(H, begun, numbers(9, N_IN), order),
        *products.forward(A, now, H, W),
        *sums.forward(H_next, A, now, D, eta, N_OUT, True),
        *sums.outputs(D, changes, now, H_next, epoch, N_OUT),
        *products.backward(E, now, D, W),
        *sums.backward(numbers(N_BLOCK, 96), changes, E, now, H, eta, 0, N_IN),
        *progress.slide(now, changes),
        *blocks.update(W, done, H, D, eta, N_IN, N_OUT),
        *progress.end_block(done, N_BLOCK, 200),
    ]
    return {launch.kernel.py_func.__name__: launch for launch in found}
