"""Compiled kernels, executed on a CPU with checks that no GPU makes.

Numba compiles a kernel to PTX, the assembly language of NVIDIA's GPUs. `parse` reads it,
`translate` (with `opcodes`) makes LLVM IR of it and `machine_code` code of the CPU, `run` executes
that for every thread of every block, `checks` looks at each access to memory, `report` counts, and
`device` has arrays. No GPU and no driver are needed. What ptxas makes of PTX, the hardware's
approximate functions, and time are not shown.
"""
