"""README.md prints what its examples print, and its table is right."""

import re
from pathlib import Path

import faulty_kernels
import numpy as np
import pytest
from faulty_kernels import KERNELS, X
from numba import cuda
from programs import needs_driver, needs_toolkit, run, run_on_driver

from cuda_on_cpu import Executor, KernelFault, SameValueWarning

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "README.md").read_text(encoding="utf-8")
FINDINGS = (PROJECT / "docs" / "findings.md").read_text(encoding="utf-8")
TABLE = {
    cells[0]: cells[1:]
    for line in PAGE.partition("<!-- table of faults")[2].partition("\n## ")[0].splitlines()[3:]
    if (cells := [cell.strip() for cell in line.strip("|").split("|")])[0]
}
pytestmark = needs_toolkit


def blocks(language, page=PAGE):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]+|%\w+", "ADDRESS", text)


def test_example_prints_the_output_of_the_page(tmp_path):
    path = tmp_path / "transpose.py"
    path.write_text("\n\n".join(blocks("python")))
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert without_addresses(done.stdout) == without_addresses("".join(blocks("text")[:2]))


@needs_driver
def test_example_prints_each_fault_of_the_page_until_it_is_mended(tmp_path):
    path, program = tmp_path / "dot.py", (PROJECT / "examples" / "dot.py").read_text()
    barrier = "half //= 2", "half //= 2\n        cuda.syncthreads()"
    bounds = "= x[i] * y[i]", "= x[i] * y[i] if i < x.size else 0"
    for fault, mending in zip(blocks("text")[2:], (barrier, bounds), strict=True):
        path.write_text(program)
        said = run_on_driver(path).stderr
        assert without_addresses(fault) in without_addresses(said)
        program = program.replace(*mending)
    path.write_text(program)
    assert run_on_driver(path).stdout == "120000.0\n"


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


START, *FAULTY = blocks("python", FINDINGS)


@pytest.mark.filterwarnings("error::cuda_on_cpu.SameValueWarning")
@pytest.mark.parametrize(
    ("code", "sentence"), list(zip(FAULTY, blocks("text", FINDINGS), strict=True))
)
def test_kernel_of_the_page_of_findings_has_its_sentence(code, sentence, tmp_path):
    path, names = tmp_path / f"{re.search(r'def (.*?)[(]', code)[1]}.py", {}
    path.write_text(code)  # Numba looks for the source
    exec(START, names)
    with pytest.raises((KernelFault, SameValueWarning)) as fault:
        exec(compile(code, path, "exec"), names)
    assert without_addresses(f"{fault.value}\n") == without_addresses(sentence)
