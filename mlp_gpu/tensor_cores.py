"""The kernels for tensor cores, and the plain kernels that they replace."""

from dataclasses import replace

from deepbig_runtime.gpu import Launch
from mlp_gpu.kernels import evaluate
from mlp_gpu.kernels.tensor_evaluate import forward_tensor_batch
from mlp_gpu.tensor_tiles import SIDE, THREADS, TILE
from mlp_gpu.window import blocks, products, sums, tensor_sums
from mlp_gpu.window.tensor_products import (
    backward_tensor_products,
    forward_tensor_products,
    update_tensor_products,
)
from mlp_gpu.window.tensor_sums import backward_tensor_sums, forward_tensor_sums

LOWEST_CC = 8, 0  # compute capability: TF32 on tensor cores, and asynchronous copies
KERNELS = {  # by the plain kernel that does the same
    products.forward_products: forward_tensor_products,
    products.backward_products: backward_tensor_products,
    sums.forward_states: forward_tensor_sums,
    sums.backward_deltas: backward_tensor_sums,
    blocks.update_weights_of_block: update_tensor_products,
    evaluate.forward_batch: forward_tensor_batch,
}
_PLAIN = products.SIGNATURES | sums.SIGNATURES | blocks.SIGNATURES | evaluate.SIGNATURES
assert blocks.TILE == evaluate.TILE == TILE  # their grids stay
SIGNATURES = {tensor: _PLAIN[plain] for plain, tensor in KERNELS.items()}


def fastest(launches: list[Launch], cc: tuple[int, int]) -> list[Launch]:
    """The launches for a GPU of a compute capability: from LOWEST_CC on, on tensor cores."""
    return [on_tensor_cores(launch) for launch in launches] if cc >= LOWEST_CC else launches


def on_tensor_cores(launch: Launch) -> Launch:
    """The launch that does the same on tensor cores; the launch itself where there is none."""
    plain, arguments = launch.kernel, launch.arguments
    if plain not in KERNELS:
        return launch
    grid, threads = launch.grid, THREADS
    if plain in products.SIGNATURES:
        partial, _, _, W, *_ = arguments
        columns = W.shape[1 if plain is products.forward_products else 0]
        scalar_products = (partial.shape[2] - columns) // SIDE * (TILE // SIDE)
        images = grid[2] * products.IMAGES
        wide = -(-columns // TILE) + -(-scalar_products // grid[1])
        grid = wide, grid[1], -(-images // TILE)
    elif plain in sums.SIGNATURES:
        M = arguments[3 if plain is sums.forward_states else 4]
        images = grid[1] * sums.IMAGES
        grid, threads = (-(-M.shape[1] // TILE), -(-images // SIDE)), tensor_sums.THREADS
    return replace(launch, kernel=KERNELS[plain], grid=grid, threads=threads)
