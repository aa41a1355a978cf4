"""The window of docs/online-in-blocks.md in PyTorch, and cuBLAS for the products of its kernels.

`TorchWindow` takes the steps of `experiments/benchmarks/window.py` with torch.mm. A sweep is a CUDA
graph, so its shapes never change: rows past the end of a block are images without deltas, and a
mask selects the images before each. PyTorch need not be installed.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from deepbig_runtime.gpu import Stream
from experiments.benchmarks.baseline_nets import Tensor, capture_step
from mlp_gpu.activation import SLOPE, A, B
from mlp_gpu.cuda import IMAGES_PER_TICK
from mlp_gpu.engine import WINDOW
from mlp_gpu.network import Network, pad32
from mlp_gpu.window_rule import GPU_ROUNDING, tolerance

LIKELY = 0.75  # part of the sweeps that the last block suggests, launched before reading progress


# Images of a window and of a block: large, because a sweep is many launches that do little each.
WINDOW_SETTINGS = ((32, 128), (64, 256), (128, 256))


class TorchWindow:
    """Trains a perceptron as `mlp_gpu.engine.Engine` describes, without losses.

    per_window, per_block: images. device: 'cpu' or 'cuda'. capture: runs a step some times and
    returns a function that repeats it.
    """

    name, schedule = "PyTorch", WINDOW

    def __init__(
        self,
        per_window: int,
        per_block: int,
        device: str = "cuda",
        capture: Callable[[Callable[[], None]], Callable[[], None]] = capture_step,
    ):
        import torch

        self._torch, self._device, self._capture = torch, device, capture
        self._n_window, self._n_block = per_window, per_block

    def set_network(self, network: Network) -> None:
        """Take a copy of the network. Matrices have padded rows, as inputs have padded columns."""
        pairs = zip(network.weights, network.sizes[1:], strict=True)
        self._weights = [self._put(W[:, :n_out].copy()) for W, n_out in pairs]
        self._sizes = network.sizes

    def weights(self) -> list[np.ndarray]:
        """The current weights, a matrix (n_in + 1, n_out) per layer."""
        pairs = zip(self._weights, self._sizes, strict=False)
        return [W[: n_in + 1].cpu().numpy() for W, n_in in pairs]

    def train(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
        eta: float,
        tick: Callable[[int, float], None] = lambda n_images, loss: None,
    ) -> None:
        """On-line steps on images[order]; arguments as of an engine. Modifies the weights."""
        n, window, block = len(order), self._n_window, self._n_block
        self._allocate(images, labels, order, eta)
        next_block, sweep = self._capture(self._next_block), self._capture(self._sweep)
        for array in (self._state, *self._deltas):  # the steps so far were for the graphs
            array.zero_()
        next_block()
        started = swept = ticked = 0
        done_by_sweep = float(window)
        while started < n:
            n_images, first, sweeps = min(block, n - started), 0, swept
            while first < n_images:
                left = n_images - first
                for _ in range(max(-(-left // window), int(LIKELY * left / done_by_sweep))):
                    sweep()
                *_, first, sweeps = self._state.tolist()  # waits for the GPU
            done_by_sweep, swept = n_images / (sweeps - swept), sweeps
            next_block()
            started += n_images
            if started == n or started - ticked >= IMAGES_PER_TICK:
                tick(started - ticked, math.nan)
                ticked = started
        self._state.tolist()

    def _put(self, array: np.ndarray) -> Tensor:
        return self._torch.from_numpy(array).to(self._device)

    def _zeros(self, *shape: int) -> Tensor:
        return self._torch.zeros(shape, device=self._device)

    def _allocate(
        self, images: np.ndarray, labels: np.ndarray, order: np.ndarray, eta: float
    ) -> None:
        """New arrays for a training, which graphs refer to."""
        n_block, n_rows, sizes = self._n_block, self._n_block + self._n_window, self._sizes
        picked = np.zeros((len(order), pad32(sizes[0] + 1)), np.float32)
        picked[:, 0], picked[:, 1 : sizes[0] + 1] = 1, images.reshape(len(images), -1)[order]
        self._images = self._put(picked)
        self._one_hot = self._put(np.eye(sizes[-1], dtype=np.float32)[labels[order]])
        # Of a block, with rows for a window that reaches past it.
        self._inputs = [self._zeros(n_rows, pad32(n + 1)) for n in sizes[:-1]]
        for inputs in self._inputs:
            inputs[:, 0] = 1
        self._deltas = [self._zeros(n_rows, n) for n in sizes[1:]]
        self._targets = self._zeros(n_rows, sizes[-1])
        self._product, self._gram = self._zeros(n_rows, sizes[1]), self._zeros(n_rows, n_block)
        # Images of earlier blocks, of this one, those of them that are done; sweeps of all blocks.
        self._state = self._put(np.zeros(4, np.int64))
        self._start, self._end, self._first, self._sweeps = self._state.split(1)
        self._of_window, self._of_block = map(self._put, map(np.arange, (self._n_window, n_block)))
        self._minus_eta = self._put(np.full(1, -eta, np.float32))
        starts, n = range(0, len(picked), n_block), np.array(sizes[:-1], np.float32) + 1
        squares = np.maximum.reduceat(np.square(picked).sum(axis=1), starts)
        # Of layer 1 in each block, and of each layer in the current one.
        self._first_tolerances, *later = (
            self._put(np.array([tolerance(np.float32(eta), m, s, GPU_ROUNDING) for s in of_layer]))
            for m, of_layer in zip(n, (squares, *n[1:, None]), strict=True)
        )
        self._tolerances = [self._zeros(1), *later]
        self._steepest = self._put(np.full(1, SLOPE * A * A, np.float32))

    def _next_block(self) -> None:
        """Update the weights by the block, if one was begun, and begin the next, if one is left."""
        torch, block = self._torch, slice(self._n_block)
        for W, h, delta in zip(self._weights, self._inputs, self._deltas, strict=True):
            W.addmm_(h[block].T, delta[block].mul_(self._minus_eta))
            delta.zero_()
        n = len(self._images)
        self._start.add_(self._end)
        self._end.copy_((n - self._start).clamp(max=self._n_block))
        self._first.zero_()
        number = (self._start // self._n_block).clamp(max=len(self._first_tolerances) - 1)
        torch.index_select(self._first_tolerances, 0, number, out=self._tolerances[0])
        index = (self._start + self._of_block).clamp(max=n - 1)
        h = torch.index_select(self._images, 0, index, out=self._inputs[0][block])
        torch.index_select(self._one_hot, 0, index, out=self._targets[block])
        torch.mm(h, self._weights[0], out=self._product[block])
        torch.mm(h, h.T, out=self._gram[block])

    def _sweep(self) -> None:
        """All images of the window once forward and backward; then it slides."""
        torch, block = self._torch, slice(self._n_block)
        rows = self._first + self._of_window
        is_image = rows < self._end
        earlier = (self._of_block < rows[:, None]) * self._minus_eta  # (window, block)
        a, gram = self._product.index_select(0, rows), self._gram.index_select(0, rows)
        states: list[Tensor] = []
        for layer, delta in enumerate(self._deltas):
            if layer:
                states.append(float(A) * torch.tanh(float(B) * a))
                n, inputs = a.shape[1], self._inputs[layer]
                inputs[:, 1 : n + 1].index_copy_(0, rows, states[-1])
                h = inputs.index_select(0, rows)
                a, gram = torch.mm(h, self._weights[layer]), torch.mm(h, inputs[block].T)
            a = torch.addmm(a, gram * earlier, delta[block])
        new = (torch.softmax(a, 1) - self._targets.index_select(0, rows)) * is_image[:, None]
        same = is_image
        for layer in reversed(range(len(self._deltas))):
            delta, norm = self._deltas[layer], torch.linalg.vector_norm
            change = norm(new - delta.index_select(0, rows), math.inf, dim=1)
            same = same & (change <= self._tolerances[layer] * norm(new, math.inf))
            delta.index_copy_(0, rows, new)
            if layer:
                y, inputs = states[layer - 1], self._inputs[layer]
                gram = torch.mm(new, delta[block].T)
                e = torch.mm(new, self._weights[layer].T)
                e = torch.addmm(e, gram * earlier, inputs[block])[:, 1 : y.shape[1] + 1]
                new = e * torch.addcmul(self._steepest, y, y, value=-float(SLOPE))
        # An image is done if all before it in the window kept their deltas.
        is_before = torch.cat((is_image[:1], same[:-1]))
        done = (is_before & is_image).cumprod(0).sum()
        self._first.add_(done)
        self._sweeps.add_(is_image[:1])


# --- cuBLAS


def products(
    n_in: int, n_out: int, n: int, end: int, n_block: int, *, device: str = "cuda"
) -> dict[str, Callable[[], object]]:
    """Products of the window's kernels, of random matrices padded as theirs, by the kernels' names.

    Of a layer and n images, the last of which is image end - 1 of its block of n_block images.
    """
    import torch

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device) - 0.5

    W = random(pad32(n_in + 1), pad32(n_out))
    H, D = random(n_block, W.shape[0]), random(n_block, W.shape[1])
    h, d, earlier = H[end - n : end], D[end - n : end], slice(end)
    return {
        "forward": lambda: (torch.mm(h, W), torch.mm(h, H[earlier].T)),
        "backward": lambda: (torch.mm(d, W.T), torch.mm(d, D[earlier].T)),
        "update": lambda: torch.addmm(W, H.T, D, alpha=-1e-3, out=W),
    }


def cublas(precision: str, product: str, *shape: int) -> Callable[[Stream], None]:
    """A function that puts one of `products` into a stream. shape: the arguments of `products`.

    precision: 'highest' for float32, 'high' for TF32.
    """
    made = cache(lambda: products(*shape)[product])  # when it is first called

    def enqueue(stream: Stream) -> None:
        import torch

        torch.set_float32_matmul_precision(precision)
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
                made()()
        finally:
            torch.set_float32_matmul_precision("highest")  # as it is by default

    return enqueue
