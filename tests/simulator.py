"""numba's simulator of a GPU with greenlets in the place of its threads, for it to be quicker.

Numba starts a thread of the operating system for each CUDA thread and polls them, which takes a
millisecond each. Here each runs to its next barrier, and then the next one does, so that every run
is like every other. A thread that nothing stops reads what its neighbours have not written yet.
"""

import sys
import threading

import greenlet
import numpy as np
from numba.cuda.simulator import kernel, kernelapi

os_thread = threading.current_thread


class CudaThread(greenlet.greenlet):
    """A CUDA thread, as numba's `cuda.threadIdx` and `cuda.syncthreads` ask for it."""

    def __init__(self, run, block, thread):
        super().__init__(run)
        self.blockIdx, self.threadIdx = kernel.Dim3(*block), kernel.Dim3(*thread)

    def syncthreads(self):
        self.parent.switch()


def current_thread():
    running = greenlet.getcurrent()
    return running if isinstance(running, CudaThread) else os_thread()


def run_block(manager, block, *arguments):
    """In the place of kernel.BlockManager.run: run the threads of one block."""
    threads = [
        CudaThread(lambda: manager._f(*arguments), block, thread)
        for thread in np.ndindex(*manager._block_dim)
    ]
    while threads:
        for thread in threads:
            thread.switch()
        waiting = [thread for thread in threads if not thread.dead]
        # On a GPU it is undefined what happens then.
        assert waiting in ([], threads), "some threads wait at a barrier, and others have returned"
        threads = waiting


def shared_array(shared, shape, dtype):
    """In the place of FakeCUDAShared.array: what the threads of a block share, known by its line.

    Nobody has written it yet, which NaN shows where numba would leave what was there before.
    """
    line = sys._getframe(1).f_lineno
    if line not in shared._allocations:
        shared._allocations[line] = np.full(shape, np.nan, dtype)
    return shared._allocations[line]


def install():
    """From now on, for all of the process."""
    threading.current_thread = current_thread
    kernel.BlockManager.run = run_block
    kernelapi.FakeCUDAShared.array = shared_array
