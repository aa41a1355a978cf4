"""The machine code of the CPU's kernel, compiled for processors that this one need not be."""

import re
from functools import partial

import pytest
from llvmlite import binding, ir

from mlp_gpu.vector_kernel import DOTS_TILES, LINE, TILES, Registers, define

SSE, AVX2, AVX512, NEON = Registers(4, 16), Registers(8, 16), Registers(16, 32), Registers(4, 32)
# Patterns of a vector, of the stack, and of a multiply-add in lines of assembly, after the target.
X86 = "x86_64-linux-gnu", r"%[xyz]mm\d", r"\(%rsp", r"vfmadd"
ARM = "aarch64-linux-gnu", r"\b[qvsd]\d", r"\[sp\b", r"fmla"
PROCESSORS = [
    ("haswell", X86, AVX2),
    ("znver3", X86, AVX2),
    ("skylake-avx512", X86, AVX512),
    ("znver4", X86, AVX512),
    ("neoverse-n1", ARM, NEON),
]
PRODUCTS = [pytest.param(TILES, id="AB"), pytest.param(DOTS_TILES, id="ABT")]


def assembly(tiles, shape, processor, triple, registers):
    """The lines of one tile's machine code, optimised as Numba does."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    generate = partial(tiles.generate, registers, [shape])
    define(module, "tile", tiles.n_arguments, generate).linkage = "external"
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    compiled = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(compiled, passes)
    return [line.strip() for line in machine.emit_assembly(compiled).splitlines()]


def loops(lines):
    """The instructions of each loop: from a label to a conditional jump back to it."""
    labels, found = {}, []
    for i, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = i
        jump = re.match(r"(?:j(?!mp)\w+|b\.\w+|[ct]bn?z)\s.*?(\.LBB\w+)$", line)
        if jump and jump[1] in labels:
            found.append([text for text in lines[labels[jump[1]] + 1 : i + 1] if text])
    return found


@pytest.mark.parametrize("tiles", PRODUCTS)
@pytest.mark.parametrize(("processor", "target", "registers"), PROCESSORS)
def test_tiles_keep_their_vectors_in_registers(processor, target, registers, tiles):
    """In the main tile half of the vector instructions multiply; operands in memory are loads."""
    (triple, vector, stack, multiply_add), shapes = target, tiles.shapes(registers)
    assert max(shapes) == shapes[-1]
    for shape in shapes:
        multiplies = 0
        for body in loops(assembly(tiles, shape, processor, triple, registers)):
            vectors = [line for line in body if re.search(vector, line)]
            sums = [line for line in vectors if re.match(multiply_add, line)]
            assert not [line for line in vectors if re.search(stack, line)]
            operands = sum("(" in line for line in sums)
            assert shape != shapes[-1] or 2 * len(sums) >= len(vectors) + operands
            multiplies += len(sums)
        of_line = LINE // registers.lanes if tiles is DOTS_TILES else 1
        assert multiplies == shape[0] * shape[1] * of_line


@pytest.mark.parametrize("tiles", PRODUCTS)
def test_tiles_without_fused_multiply_add_round_once(tiles):
    """Each multiply-add is a call of fmaf of the C library, so that the bits are the same.

    A call may change every vector register, so all that a tile holds goes to the stack around it:
    of a plain x86-64 no more can be asked.
    """
    rows, columns = shape = tiles.shapes(SSE)[-1]
    lines = assembly(tiles, shape, "x86-64", X86[0], SSE)
    of_sum = LINE if tiles is DOTS_TILES else SSE.lanes
    assert any("fmaf" in line for line in lines)
    assert sum(line.startswith("call") for line in lines) == rows * columns * of_sum
    assert not [line for line in lines if line.startswith("mul") and "xmm" in line]
