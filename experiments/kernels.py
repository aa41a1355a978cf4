"""Compile every kernel for GPUs of several generations, and print the resources that it takes.

CUDA's compilers generate the machine code: no GPU and no driver are needed. For each kernel and
compute capability (7.5 Turing, 8.0 Ampere, 9.0 Hopper, 10.0 Blackwell) the table has the registers
per thread, the shared memory per block, and the bytes of stack and of spilled registers per thread.
The last two should be 0, because both are in slow memory. (draw_matrices has a stack for the sines
of huge angles, which never occur.) Below the table are the bank conflicts of delta_partial. Results
go to stdout, progress to stderr.
"""

from collections.abc import Collection

import numpy as np

from cuda_on_cpu import CompiledKernel, accesses, compile_kernel, missing_toolkit
from cuda_on_cpu.access_stats import words_per_bank
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.errors import Problem, tell
from experiments.benchmarks.executor import SIGNATURES, execute, new_executor
from experiments.drawing import traces, tracing
from experiments.training import cli
from experiments.training.formatting import markdown_table
from mlp_gpu import tensor_cores
from mlp_gpu.kernels import backward

COMPUTE_CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))


def compile_all(ccs: Collection[tuple[int, int]] = COMPUTE_CAPABILITIES) -> list[CompiledKernel]:
    """Compile every kernel for every compute capability that can run it."""
    found = []
    for kernel, signature in SIGNATURES.items():
        tell(f"compiling {kernel.py_func.__name__} ...")
        lowest = tensor_cores.LOWEST_CC if kernel in tensor_cores.SIGNATURES else (0, 0)
        found += [compile_kernel(kernel, signature, cc, FOLDER) for cc in ccs if cc >= lowest]
    return found


def table(compiled: Collection[CompiledKernel]) -> list[dict[str, str]]:
    """The compiled kernels as lines of a table."""
    return [
        {
            "kernel": one.name,
            "compute capability": "{}.{}".format(*one.cc),
            "registers per thread": str(one.registers),
            "shared bytes per block": f"{one.shared_bytes:,}",
            "stack bytes": str(one.stack_bytes),
            "spill store bytes": str(one.spill_store_bytes),
            "spill load bytes": str(one.spill_load_bytes),
        }
        for one in compiled
    ]


def conflict_sentence() -> str:
    """How often warps of delta_partial go over shared memory, as executed on a small layer."""
    n_in, n_out = 2 * backward.PATCH - 1, 2 * backward.PATCH
    shapes = (
        (n_in,),
        backward.partial_shape((n_in + 1, n_out)),
        (n_in + 1, n_out),
        (n_out,),
        (n_in,),
    )
    launch, _ = backward.propagate_back(*(np.ones(shape, np.float32) for shape in shapes))
    found = accesses(execute(new_executor(COMPUTE_CAPABILITIES[0], traced=True), launch))
    write, read = found["shared", "write"], found["shared", "read"]
    tight = words_per_bank(range(0, backward.PATCH**2, backward.PATCH))
    return (
        "Bank conflicts of delta_partial, as executed: its warps write shared memory "
        f"{write.warps} times in {write.passes} passes and read it {read.warps} times in "
        f"{read.passes} passes, where as many passes as times mean no conflict; with rows of "
        f"{backward.PATCH} words instead of {backward.STRIDE} each read of a row of the patch "
        f"would take {tight} passes."
    )


def main(argv: list[str] | None = None) -> None:
    parser = cli.Parser("kernels", __doc__)
    parser.add_argument(
        "--trace",
        action="store_true",
        help="execute kernels on the CPU instead, and write which cells of arrays their threads "
        "touch to experiments/drawing/traces.json, for the drawings of docs/kernels.md",
    )
    arguments = parser.parse_args(argv)
    reason = missing_toolkit()
    if reason:
        raise Problem(reason)
    if arguments.trace:
        tracing.write_traces()
        print(f"written to {traces.PATH}")
        return
    print(f"{markdown_table(table(compile_all()))}\n\n{conflict_sentence()}")


if __name__ == "__main__":
    cli.run(main)
