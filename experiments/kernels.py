"""Compile every kernel for GPUs of several generations, and print the resources that it takes.

CUDA's compilers generate the machine code: no GPU and no driver are needed. For each kernel and
compute capability (7.5 Turing, 8.0 Ampere, 9.0 Hopper, 10.0 Blackwell) the table has the registers
per thread, the shared memory per block, and the bytes of stack and of spilled registers per thread.
The last two should be 0, because both are in slow memory. (draw_matrices has a stack for the sines
of huge angles, which never occur.) Below the table are the bank conflicts of delta_partial. Results
go to stdout, progress to stderr.
"""

from cuda_on_cpu import missing_toolkit
from deepbig_runtime.errors import Problem
from experiments.benchmarks import compiled
from experiments.drawing import traces, tracing
from experiments.training import cli
from experiments.training.formatting import markdown_table


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
    print(
        f"{markdown_table(compiled.table(compiled.compile_all()))}\n\n{compiled.conflict_sentence()}"
    )


if __name__ == "__main__":
    cli.run(main)
