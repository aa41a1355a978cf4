"""What tests of compiled kernels and of their memory accesses share."""

import pytest

from cuda_on_cpu import missing_toolkit

needs_toolkit = pytest.mark.skipif(missing_toolkit() is not None, reason=str(missing_toolkit()))

# Of kernels whose blocks are as large as a map, a kernel or a layer, the most that a launch has.
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
    "gather_images": 256,
    "forward_products": 128,
    "forward_states": 256,
    "output_deltas": 32,
    "backward_products": 128,
    "backward_deltas": 256,
    "slide_window": 256,
    "update_weights_of_block": 256,
    "next_block": 1,
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
    "forward_naive": 512,
    "deltas_naive": 512,
    "update_outputs_naive": 256,
    "update_hidden_naive": 256,
    "forward_tiled": 512,
    "forward_coalesced": 512,
    "deltas_coalesced": 512,
    "update_outputs_coalesced": 256,
    "update_hidden_coalesced": 256,
    "forward_shared": 512,
    "deltas_shared": 512,
    "update_outputs_shared": 256,
    "update_hidden_shared": 256,
    "train_chunk": 512,
}
