"""The rungs in order. Each module has its kernels' SIGNATURES and the functions below.

    TRANSPOSED      whether its weights have rows and columns exchanged
    launches(a)     the launches that make one step, in order
    train(a, s)     all steps of an epoch, on stream s, launched and not waited for

where a are the `arrays.Arrays` of a net and an epoch.
"""

from types import ModuleType

from mlp_gpu.ladder import rung1_naive as naive
from mlp_gpu.ladder import rung2_tiled as tiled
from mlp_gpu.ladder import rung3_coalesced as coalesced
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder import rung5_streams as streams
from mlp_gpu.ladder import rung6_graph as graph
from mlp_gpu.ladder import rung7_one_kernel as one_kernel

RUNGS: dict[str, ModuleType] = {
    "naive": naive,
    "tiled": tiled,
    "coalesced": coalesced,
    "shared": shared,
    "streams": streams,
    "graph": graph,
    "one kernel": one_kernel,
}

# Each kernel once, with the types of its arguments.
SIGNATURES = {kernel: types for rung in RUNGS.values() for kernel, types in rung.SIGNATURES.items()}
