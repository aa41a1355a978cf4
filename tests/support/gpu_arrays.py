"""What tests of kernels share: arrays on the GPU that betray reads and writes past their ends."""

import numpy as np
import pytest

from deepbig_runtime import gpu
from mlp_gpu import cuda
from mlp_gpu.network import pad32

GUARD = 32  # NaNs on either side of an array


class Arrays:
    """Arrays on the GPU, and a stream to launch on."""

    def __init__(self):
        self.stream = gpu.new_stream()
        self._guarded = []

    def put(self, array):
        """A copy of a host array, with NaN before and after it if it is of floats."""
        array = np.ascontiguousarray(array)
        whole, part = array.ravel(), slice(None)
        if array.dtype == np.float32:
            whole = np.full(array.size + 2 * GUARD, np.nan, np.float32)
            part = slice(GUARD, GUARD + array.size)
            whole[part] = array.ravel()
        there = gpu.device_array(whole.shape, whole.dtype)
        there.copy_to_device(whole, stream=self.stream)
        gpu.synchronize(self.stream)  # only then may the host's array go
        if array.dtype == np.float32:
            self._guarded.append((there, array.size))
        return there[part].reshape(*array.shape)

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
        for array, size in self._guarded:
            assert np.isnan(self.get(array[:GUARD])).all()
            assert np.isnan(self.get(array[GUARD + size :])).all()

    def get(self, array):
        found = array.copy_to_host(stream=self.stream)
        gpu.synchronize(self.stream)
        return found


@pytest.fixture
def arrays():
    return Arrays()


def uniform(rng, *shape):
    """Random float32 numbers in [-1, 1]."""
    return rng.uniform(-1, 1, shape).astype(np.float32)


def count_bytes(monkeypatch):
    """A list that gets the size in bytes of every array that is made on the GPU from now on."""
    taken = []
    allocate = gpu.device_array

    def count(shape, dtype):
        taken.append(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return allocate(shape, dtype)

    monkeypatch.setattr(gpu, "device_array", count)
    return taken


def capture_small_graphs(monkeypatch):
    """Let the GPU engine capture graphs of three images."""
    monkeypatch.setattr(cuda, "IMAGES_PER_GRAPH", 3)
