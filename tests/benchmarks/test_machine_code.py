"""The hot loops of the window's kernels as machine code for sm_90, within limits."""

from importlib import metadata

import pytest
from programs import needs_toolkit

from cuda_on_cpu import compile_ptx, disassemble, disassembly, loops
from deepbig_runtime.compiled_cache import FOLDER
from mlp_gpu import tensor_cores
from mlp_gpu.kernels.tensor_evaluate import forward_tensor_batch
from mlp_gpu.window import products, sums, tensor_products, tensor_sums

pytestmark = [
    pytest.mark.slow,
    needs_toolkit,
    pytest.mark.skipif(disassembly.nvdisasm() is None, reason="nvidia-cuda-nvdisasm is missing"),
]
CC = (9, 0)


def with_instructions(kernel, signatures, name, n):
    """The loops of a kernel with n instructions of that name, none of which branches."""
    text = disassemble(compile_ptx(kernel, signatures[kernel], CC, cache=FOLDER), CC)
    found = [loop for loop in loops(text) if loop.counts[name] == n]
    assert all(loop.n_branches == 0 for loop in found)
    return found


@pytest.mark.parametrize("kernel", products.SIGNATURES, ids=lambda kernel: kernel.py_func.__name__)
def test_products_multiply_two_depths_in_80_instructions(kernel):
    (loop,) = with_instructions(kernel, products.SIGNATURES, "FFMA", 2 * products.EACH**2)
    assert len(loop.instructions) <= 80
    assert loop.counts["LDS"] == 4 * products.EACH


@pytest.mark.parametrize("kernel", [sums.forward_states, sums.backward_deltas])
def test_sums_have_several_loads_under_way(kernel):
    found = with_instructions(kernel, sums.SIGNATURES, "LDG", sums.LOADS)
    assert len(found) >= 3  # of products, of corrections, of activations
    for loop in found:
        assert len(loop.instructions) <= 200
        assert loop.most_under_way("LDG") >= 11  # 16 in all loops but one


PRODUCTS = tensor_products.forward_tensor_products, tensor_products.backward_tensor_products


@pytest.mark.parametrize(
    ("kernel", "n_ways", "n_copies", "n_instructions"),
    [
        *((kernel, 1, 8, 125) for kernel in (*PRODUCTS, tensor_products.update_tensor_products)),
        (forward_tensor_batch, 2, 8, 125),
        (forward_tensor_batch, 2, 20, 190),  # 16 of one number
    ],
)
def test_tensor_products_multiply_while_numbers_are_copied(
    kernel, n_ways, n_copies, n_instructions
):
    """48 products of 16 x 8 x 8 a warp, by 188 instructions; the next numbers are under way."""
    is_cuda_12 = metadata.version("cuda-bindings").startswith("12.")  # 13.5 makes one more
    found = with_instructions(kernel, tensor_cores.SIGNATURES, "HMMA", 48)
    ways = [loop for loop in found if not loop.counts["LDGSTS"]]
    assert len(ways) == n_ways
    for way in ways:
        assert way.is_innermost
        assert len(way.instructions) <= (188 if is_cuda_12 else 189)
        assert way.counts["LDS"] == 32
    found = with_instructions(kernel, tensor_cores.SIGNATURES, "LDGSTS", n_copies)
    (loop,) = [loop for loop in found if not loop.is_innermost]  # not that of scalar products
    assert len(loop.instructions) <= n_instructions
    assert_copies_are_under_way(loop)


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_warps_multiply_images_while_their_next_inputs_are_copied(kernel):
    """48 products a warp, which waits for no other warp."""
    found = with_instructions(kernel, tensor_cores.SIGNATURES, "HMMA", 48)
    (loop,) = [loop for loop in found if loop.counts["LDGSTS"]]
    assert loop.is_innermost
    assert len(loop.instructions) <= 280
    assert (loop.counts["LDGSTS"], loop.counts["DEPBAR"], loop.counts["BAR"]) == (8, 1, 0)
    order = [one.name for one in loop.instructions]
    assert order.index("DEPBAR") < min(order.index(name) for name in ("LDS", "LDGSTS"))
    assert order.index("LDGDEPBAR") < order.index("HMMA")


def assert_copies_are_under_way(loop):
    """It waits for the copies of the round before, then begins these; no other wait follows."""
    order = [one.name for one in loop.instructions]
    assert order.count("DEPBAR") == order.count("BAR") == order.count("LDGDEPBAR") == 1
    assert order.index("DEPBAR") < order.index("BAR") < order.index("LDGSTS")


@pytest.mark.parametrize(
    "kernel", [tensor_sums.forward_tensor_sums, tensor_sums.backward_tensor_sums]
)
def test_tensor_sums_have_loads_and_copies_under_way(kernel):
    found = with_instructions(kernel, tensor_cores.SIGNATURES, "HMMA", 24)  # four rounds of 6
    (products,) = found
    assert len(products.instructions) <= 225
    assert_copies_are_under_way(products)
    (parts,) = with_instructions(kernel, tensor_cores.SIGNATURES, "LDG", 16)  # two parts
    assert parts.most_under_way("LDG") == 16
