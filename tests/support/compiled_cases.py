"""What tests of compiled kernels and of their memory accesses share."""

from functools import cache

import numpy as np

from cnn_gpu.layers import Maps, parse
from experiments.drawing import launches


@cache
def threads_per_block():
    """Of each kernel, by its name, the threads of the largest block that a launch of it has."""
    # Maps of 32x32 neurons and a kernel of 31x32 weights have the largest blocks there are.
    largest, each = Maps(1, 32, 32), np.array([[True]])
    convolutions = [parse(text, largest, 1)[0] for text in ("1M1", "1M31x32")]
    others = [parse(text, largest, 1)[0] for text in ("MP1", "IP(sobel)")]
    every, one = (launches.convolutional(layer, each, *others) for layer in convolutions)
    found = launches.make_launches() | every | {"adjust_weights": one["adjust_weights"]}
    return {name: launch.threads for name, launch in (found | launches.ladder(512)).items()}
