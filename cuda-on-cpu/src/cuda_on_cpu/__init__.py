"""Run Numba CUDA kernels without a GPU, with checks that no GPU makes.

    x = np.arange(1000, dtype=np.float32)
    launched = Executor(cc=(9, 0), traced=True).launch(kernel, 8, 128, (x,))
    print(accesses(launched))

Numba compiles a kernel to PTX, the assembly language of NVIDIA's GPUs, as it does for a GPU. Here
`parse` reads that PTX, `translate` (with `opcodes`) turns it into LLVM IR and `machine_code` into
code of this CPU. `run` executes every thread of every thread block, in an order that changes with
each launch; `memory_checks` checks each access to memory; `access_stats` counts accesses, sectors
and bank conflicts. `compile` gives registers, shared memory and spills, `disassembly` the loops of
the machine code. No GPU and no driver are needed. `python -m cuda_on_cpu PROGRAM.py` runs a whole
program on a fake driver, `pytest -p cuda_on_cpu` a project's tests.

Not executed: the machine code that ptxas makes of PTX. Not shown: the hardware's approximate
functions, and time.
"""

from cuda_on_cpu.access_stats import Accesses, accesses, float_operations, warp_steps
from cuda_on_cpu.compile import CompiledKernel, compile_kernel, compile_ptx, missing_toolkit
from cuda_on_cpu.disassembly import Loop, disassemble, loops
from cuda_on_cpu.executor import DeviceArray, Executor, device_array, to_device
from cuda_on_cpu.parse import UnknownPtx
from cuda_on_cpu.run import KernelFault, Launched, SameValueWarning

__all__ = [
    "Accesses",
    "CompiledKernel",
    "DeviceArray",
    "Executor",
    "KernelFault",
    "Launched",
    "Loop",
    "SameValueWarning",
    "UnknownPtx",
    "accesses",
    "compile_kernel",
    "compile_ptx",
    "device_array",
    "disassemble",
    "float_operations",
    "loops",
    "missing_toolkit",
    "to_device",
    "warp_steps",
]
pytest_plugins = ["cuda_on_cpu.pytest_plugin"]  # pytest reads it where this package is a plugin
