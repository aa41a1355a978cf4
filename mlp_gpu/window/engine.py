"""The GPU engine's schedule `window`: on-line steps in blocks, many images at once, exactly.

The position of the window is in the GPU's memory, so the host can launch blocks ahead, each with
more sweeps than the last blocks needed. A block is three CUDA graphs: its begin; a sweep, launched
as often as needed; its end. The host reads the progress once per chunk of blocks, while the GPU
runs the next chunk. Launches with nothing left to do return at once, so the number of launches does
not change a bit of the result.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain

import numpy as np

from deepbig_runtime import gpu
from deepbig_runtime.faults import GpuFault
from deepbig_runtime.gpu import play
from mlp_gpu import cuda
from mlp_gpu.cuda import CudaEngine
from mlp_gpu.engine import WINDOW, WINDOW_IMAGES_PER_BLOCK
from mlp_gpu.network import Network
from mlp_gpu.window import progress
from mlp_gpu.window.sums import MAX_BLOCK
from mlp_gpu.window.workspace import Workspace

# Blocks of a chunk. h5py holds the host for up to 30 ms at a time while it saves a run, and the GPU
# must not wait meanwhile: net 4 takes 1 to 2 ms a block.
CHUNK = 16
MAX_GRAPHS = 6  # cached graphs: three for each of two arrays of images
FIRST_SWEEPS = 8  # launched for a block, before it is known how many blocks take
SPARE_SWEEPS = 1  # launched for a block beyond what a block of the last chunk took on average


def device_bytes(sizes: tuple[int, ...], n_images: int) -> int:
    """Memory on the GPU, in bytes, that training and evaluating a net needs."""
    workspace = Workspace.device_bytes(sizes, WINDOW_IMAGES_PER_BLOCK)
    return cuda.device_bytes(sizes, n_images) + workspace + 2 * 4 * progress.FIELDS


class WindowCudaEngine(CudaEngine):
    """As CudaEngine, with weights that are updated once a block of images.

    Raises ValueError for more images_per_block than sums.MAX_BLOCK, or fewer than one.
    """

    @gpu.faults()
    def __init__(self, images_per_block: int = WINDOW_IMAGES_PER_BLOCK):
        if not 1 <= images_per_block <= MAX_BLOCK:
            raise ValueError(f"expected 1 to {MAX_BLOCK} images per block, got {images_per_block}")
        super().__init__()
        self.schedule, self._n_block = WINDOW, images_per_block
        self._n_sweeps = FIRST_SWEEPS  # that are launched for a block
        # On it the host looks how far the blocks came. It is the host that waits for them, since a
        # stream that waits may hold back another net's on the same connection to the GPU.
        self._reader = gpu.new_stream()
        self._ended = gpu.cuda.event(timing=False)  # of the last chunk launched

    @gpu.faults()
    def set_network(self, network: Network) -> None:
        self.forget("_workspace", "_seen")
        super().set_network(network)
        cc = gpu.compute_capability()
        self._workspace = Workspace(network.sizes, self._net.weights, self._n_block, cc)
        gpu.fill(self._workspace.blank(), self.stream)
        # The progress as a chunk left it: that of one chunk is read while the next one runs.
        self._seen = [gpu.device_array((progress.FIELDS,), np.int32) for _ in range(2)]

    @property
    def images_per_tick(self) -> int:
        return CHUNK * self._n_block

    @gpu.faults()
    def count_sweeps(self) -> tuple[int, int]:
        """Sweeps of the last training, and its passes of an image forward and backward."""
        (state,) = gpu.read([self._workspace.progress], self.stream)
        return int(state[progress.SWEEPS]), int(state[progress.ALL_TIMES])

    def _train_epoch(self, n_images: int, tick: Callable[[int, float], None]) -> None:
        gpu.fill(self._workspace.at_start(n_images), self.stream)
        done, ahead, sweeps = 0, 0, 0  # ahead: blocks that the host has not looked at
        while done < n_images:
            blocks = min(CHUNK, -(-(n_images - done) // self._n_block) - ahead)
            if blocks > 0:
                self._launch_blocks(blocks, n_images)
            if ahead > 0:
                self._ended.synchronize()
                (state,) = gpu.read(self._seen[:1], self._reader)
                n = int(state[progress.START]) - done
                needed = int(state[progress.SWEEPS]) - sweeps
                if needed == 0:
                    raise GpuFault(
                        f"the GPU came to a standstill after {done:,} of {n_images:,} images; see "
                        "what nvidia-smi says, and start again"
                    )
                if n > 0:
                    self._tell_losses(done, n, tick, self._reader)
                done, sweeps = done + n, sweeps + needed
                ended = -(-n // self._n_block)  # blocks; the last of an epoch may be short
                on_average = -(-needed // ended) if ended else 2 * self._n_sweeps
                self._n_sweeps = min(on_average + SPARE_SWEEPS, self._n_block)
            self._ended.record(self.stream)
            self._seen.reverse()
            ahead = blocks

    def _launch_blocks(self, blocks: int, n_images: int) -> None:
        """Launch this number of blocks, and a copy of their progress to _seen[1].

        Each is a whole block if _n_sweeps are enough; otherwise a part of one.
        """
        place, workspace, stream = gpu.array_key(self.images), self._workspace, self.stream
        begin, sweep, end = keys = [(*place, part) for part in ("begin", "sweep", "end")]
        if begin not in self._graphs:
            parts = [
                workspace.begin_block(self.images, self.epoch["order"]),
                workspace.sweep(self.epoch, self.eta),
                workspace.end_block(self.eta, n_images),
            ]
            # Before a kernel is captured it was launched, see CudaEngine._train_epoch.
            play(list(chain(*parts)), stream)
            blocks -= 1
            if len(self._graphs) + len(parts) > MAX_GRAPHS:
                self._drop_graphs()
            for key, launches in zip(keys, parts, strict=True):
                self._graphs[key] = gpu.capture(partial(play, launches))
        for _ in range(blocks):
            for key in (begin, *[sweep] * self._n_sweeps, end):
                self._graphs[key].launch(stream)
        self._seen[1].copy_to_device(workspace.progress, stream=stream)
