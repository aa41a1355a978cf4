"""The dot product of two vectors, with two mistakes that a GPU may let pass; see README.md."""

import numpy as np
from numba import cuda, float32

THREADS = 128


@cuda.jit("void(float32[::1], float32[::1], float32[::1])")
def dot(result, x, y):
    products = cuda.shared.array(THREADS, float32)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    products[thread] = x[i] * y[i]
    cuda.syncthreads()
    half = THREADS // 2
    while half:
        if thread < half:
            products[thread] += products[thread + half]
        half //= 2
    if thread == 0:
        cuda.atomic.add(result, 0, products[0])


x, y = np.full(20_000, 2, np.float32), np.full(20_000, 3, np.float32)
result = cuda.to_device(np.zeros(1, np.float32))
dot[-(-x.size // THREADS), THREADS](result, cuda.to_device(x), cuda.to_device(y))
print(result.copy_to_host()[0])
