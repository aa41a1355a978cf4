"""What tests of kernels share: arrays on the GPU that betray reads and writes past their ends."""

import numpy as np
import pytest

from mlp_gpu import gpu
from mlp_gpu.network import pad32

needs_gpu = pytest.mark.skipif(
    gpu.missing() is not None,
    reason=f"{gpu.missing()}; NUMBA_ENABLE_CUDASIM=1 runs this in the simulator",
)
GUARD = 32  # NaNs on either side of an array


class Arrays:
    """Arrays on the GPU, and a stream to launch on."""

    def __init__(self):
        self.stream = gpu.new_stream()
        self._guarded = []

    def put(self, array):
        """A copy of a host array, with NaN around it if it is of floats and has one dimension."""
        array = np.ascontiguousarray(array)
        whole, part = array, slice(None)
        if array.ndim == 1 and array.dtype == np.float32:
            whole = np.full(len(array) + 2 * GUARD, np.nan, np.float32)
            part = slice(GUARD, GUARD + len(array))
            whole[part] = array
        there = gpu.device_array(whole.shape, whole.dtype)
        there.copy_to_device(whole, stream=self.stream)
        if whole is not array:
            self._guarded.append(there)
        return there[part]

    def nans(self, *shape):
        """An array that nobody has written yet."""
        return self.put(np.full(shape, np.nan, np.float32))

    def padded(self, W):
        """The weights (n_in + 1, n_out) as kernels want them."""
        found = np.zeros((pad32(W.shape[0]), pad32(W.shape[1])), np.float32)
        found[: W.shape[0], : W.shape[1]] = W
        return self.put(found)

    def run(self, launches):
        """Launch, and see that nothing was written past the end of an array."""
        for launch in launches:
            launch(self.stream)
        gpu.synchronize(self.stream)
        for array in self._guarded:
            found = self.get(array)
            assert np.isnan(found[:GUARD]).all()
            assert np.isnan(found[-GUARD:]).all()

    def get(self, array):
        found = array.copy_to_host(stream=self.stream)
        gpu.synchronize(self.stream)
        return found


def uniform(rng, *shape):
    """Random float32 numbers in [-1, 1]."""
    return rng.uniform(-1, 1, shape).astype(np.float32)
