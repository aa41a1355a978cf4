"""What tests of compiled kernels and of their memory accesses share."""

import pytest

from experiments.timing import compiled as compiled_kernels

needs_toolkit = pytest.mark.skipif(
    compiled_kernels.missing_toolkit() is not None, reason=str(compiled_kernels.missing_toolkit())
)

# Of kernels whose blocks are as large as a map or a kernel, the most that a launch can have.
THREADS_PER_BLOCK = {
    "pick_image": 256,
    "forward_partial": 256,
    "forward_reduce": 32,
    "output_delta": 32,
    "delta_partial": 32,
    "delta_reduce": 32,
    "update_weights": 256,
    "forward_batch": 256,
    "softmax_rows": 128,
    "convolve_field": (21, 10),
    "draw_matrices": 128,
    "deform_tiles": 256,
    "fill_field": (32, 8),
    "convolve_columns": (32, 8),
    "convolve_rows": (32, 8),
    "warp_images": (32, 8),
    "rows_to_maps": (32, 32),
    "maps_to_rows": (32, 32),
    "process_maps": (32, 32),
    "convolve_maps": (32, 32),
    "pool_maps": (32, 32),
    "unpool_deltas": (32, 32),
    "pull_deltas": (32, 32),
    "adjust_weights": (32, 32),
}
