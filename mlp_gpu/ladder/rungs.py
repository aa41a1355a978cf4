"""The rungs in order. Each module has its kernels' SIGNATURES and the functions below.

    TURNED          whether its weights have rows and columns exchanged
    launches(a)     the launches that make one step, in order
    train(a, s)     all steps of an epoch, on stream s, launched and not waited for

where a are the `arrays.Arrays` of a net and an epoch.
"""

from types import ModuleType

from mlp_gpu.ladder import coalesced, graph, naive, one_kernel, shared, streams, tiled

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
