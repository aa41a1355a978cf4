"""The images that each epoch of a training sees, deformed anew."""

from collections.abc import Callable

import numpy as np

from deform_gpu.parameters import Deformation


def deformer(
    images: np.ndarray,
    labels: np.ndarray | None,
    deformation: Deformation | None,
    seed: int,
    epochs: int,
    device: str,
) -> Callable[[int], object]:
    """A function from an epoch, 1 to `epochs`, to the images that the epoch trains on.

    images: float32 (n, side, side), or (n, side, side, maps), whose maps move together. labels: as
    `Deformation.beta_of` takes them; of any classes if all beta are equal. deformation: None for
    the images as they are. device: "cpu", or "cuda" for images of one map, which a GPU deforms
    while the epoch before trains.

    The returned images are float32, of the shape of images on the host, or (n, side * side) on
    the GPU. The next call overwrites them, unless they are `images`.
    """
    if deformation is None:
        return lambda epoch: images
    if len(set(deformation.beta)) == 1:
        labels = None  # which may be of more classes than there are digits
    if device == "cuda":
        from deform_gpu.cuda import DeformedAhead  # imports numba

        return DeformedAhead(images, labels, deformation, seed, epochs)
    from deform_gpu.batches import BATCH, deform_set  # imports numba

    buffer = np.empty_like(images)

    def deform(epoch: int) -> np.ndarray:
        if images.ndim == 3:
            deform_set(buffer, images, labels, deformation, seed, epoch)
            return buffer
        for start in range(0, len(images), BATCH):  # so that copies of maps stay small
            some = slice(start, start + BATCH)
            of_some = None if labels is None else labels[some]
            for m in range(images.shape[3]):
                one = np.ascontiguousarray(images[some, :, :, m])
                out = np.empty_like(one)
                deform_set(out, one, of_some, deformation, seed, epoch, first=start)
                buffer[some, :, :, m] = out
        return buffer

    return deform
