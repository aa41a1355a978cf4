"""Compile every kernel for GPUs of several generations, and print the resources that it takes.

CUDA's compilers generate the machine code: no GPU and no driver are needed. For each kernel and
compute capability (7.5 Turing, 8.0 Ampere, 9.0 Hopper, 10.0 Blackwell) the table has the registers
per thread, the shared memory per block, and the bytes of stack and of spilled registers per thread.
The last two should be 0, because both are in slow memory. (draw_matrices has a stack for the sines
of huge angles, which never occur.) The table goes to stdout, progress to stderr.
"""

from collections.abc import Collection

from cuda_on_cpu import CompiledKernel, compile_kernel, missing_toolkit
from deepbig_runtime.compiled_cache import FOLDER
from deepbig_runtime.errors import Problem, tell
from experiments.benchmarks.executor import SIGNATURES
from experiments.drawing import traces, tracing
from experiments.training import cli
from experiments.training.formatting import markdown_table
from mlp_gpu import tensor_cores

COMPUTE_CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))


def compile_all() -> list[CompiledKernel]:
    """Compile every kernel for every compute capability that can run it."""
    found = []
    for kernel, signature in SIGNATURES.items():
        tell(f"compiling {kernel.py_func.__name__} ...")
        lowest = tensor_cores.LOWEST_CC if kernel in tensor_cores.SIGNATURES else (0, 0)
        capabilities = [cc for cc in COMPUTE_CAPABILITIES if cc >= lowest]
        found += [compile_kernel(kernel, signature, cc, FOLDER) for cc in capabilities]
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
    print(markdown_table(table(compile_all())))


if __name__ == "__main__":
    cli.run(main)
