"""docs/cuda-on-cpu.md prints what its example prints, and its table is right."""

import re

import faulty_kernels
import numpy as np
import pytest
from compiled_cases import needs_toolkit
from faulty_kernels import KERNELS, X
from numba import cuda
from programs import run

from cuda_on_cpu import Executor, KernelFault
from experiments.training.provenance import REPOSITORY

PAGE = (REPOSITORY / "docs" / "cuda-on-cpu.md").read_text(encoding="utf-8")
TABLE = {
    cells[0]: cells[1:]
    for line in PAGE.partition("<!-- table of faults")[2].partition("\n## ")[0].splitlines()[3:]
    if (cells := [cell.strip() for cell in line.strip("|").split("|")])[0]
}
pytestmark = needs_toolkit


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]+|%rd\d+", "ADDRESS", text)


def test_example_prints_the_output_of_the_page(tmp_path):
    path = tmp_path / "transpose.py"
    path.write_text("\n\n".join(blocks("python")))
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert without_addresses(done.stdout) == without_addresses("".join(blocks("text")))


@pytest.mark.parametrize("words", KERNELS)
def test_executor_finds_the_fault_of_the_table_in_any_order(words):
    kernel, expected = KERNELS[words]
    out, said, executor = np.zeros(32, np.float32), TABLE[words][0], Executor((9, 0))
    launch = cuda.jit(kernel), 1 + (kernel is faulty_kernels.two_blocks), 32, (out, X)
    for executor.order in ("forward", "reverse", "random"):
        if said.startswith("runs"):
            executor.launch(*launch)
            assert (out == expected).all()
        else:
            with pytest.raises(KernelFault, match=said):
                executor.launch(*launch)


def test_simulator_does_as_the_table_says():
    done = run(faulty_kernels.__file__, NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stderr
    assert dict(line.split(": ") for line in done.stdout.splitlines()) == {
        words: simulator for words, (_, simulator) in TABLE.items()
    }
