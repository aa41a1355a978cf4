"""The same digits deformed by other libraries: SciPy, albumentations and kornia.

Each is written as its regular users would write the deformations of 2010 section 4: rotation or
shear and scaling about the centre, and Simard's elastic displacement. Unlike ours, a baseline's
random field ends at the edge of an image, so pixels there move by less, or by more where
albumentations repeats the edge. albumentations and kornia need not be installed: they are imported
only where they deform.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deform_gpu import Deformation
from deform_gpu.field import KERNEL
from deform_gpu.parameters import SIDE
from experiments.benchmarks.baseline_nets import Tensor

# Set before anything imports albumentations, which otherwise asks the network for a newer version.
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

CENTRE = (SIDE - 1) / 2


def scipy_recipe(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation
) -> Callable[[], np.ndarray]:
    """The widely copied SciPy recipe for Simard's deformation, one image at a time.

    One interpolation, as in ours. Arguments of all baselines: images, float32 (n, 29, 29); labels,
    uint8 (n,), which choose beta; deformation. The function that is returned deforms all images
    anew at each call and returns them, float32 (n, 29, 29).
    """
    from scipy import ndimage  # takes a third of a second to import

    rng = np.random.default_rng(0)
    target = np.indices((SIDE, SIDE)).reshape(2, -1) - CENTRE  # y and x, from the centre
    blur = partial(
        ndimage.gaussian_filter, sigma=deformation.sigma, mode="constant", radius=KERNEL // 2
    )

    def deform() -> np.ndarray:
        out = np.empty_like(images)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            angle = np.deg2rad(deformation.beta[label]) * rng.uniform(-1, 1)
            scale_y = 1 + deformation.gamma_y / 100 * rng.uniform(-1, 1)
            scale_x = 1 + deformation.gamma_x / 100 * rng.uniform(-1, 1)
            if rng.random() < deformation.shear_probability:
                turn = np.array([[1, 0], [np.tan(angle), 1]])
            else:
                turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            source = np.linalg.inv(turn @ np.diag([scale_y, scale_x])) @ target + CENTRE
            field = rng.uniform(-1, 1, (2, SIDE, SIDE))
            shift = np.array([blur(axis) for axis in field])
            ndimage.map_coordinates(
                image,
                source.reshape(2, SIDE, SIDE) + deformation.alpha * shift,
                order=1,
                mode="grid-constant",  # "constant" does not interpolate beyond the edge
                cval=deformation.background,
                output=out[i],
            )
        return out

    return deform


def compose(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation
) -> Callable[[], np.ndarray]:
    """albumentations: Affine, then ElasticTransform, one image per call, as it is used.

    Two interpolations. Its Gaussian kernel is not 21x21 but reaches four sigma to each side, and so
    moves pixels in the middle of an image some 10 % less; the 17x17 of `approximate` would differ
    more, by some 13 % in the other direction. It takes no sigma below 1.
    """
    import albumentations

    def composed(beta: float) -> Any:
        gamma_x, gamma_y = deformation.gamma_x / 100, deformation.gamma_y / 100
        affine = partial(
            albumentations.Affine,
            scale={"x": (1 - gamma_x, 1 + gamma_x), "y": (1 - gamma_y, 1 + gamma_y)},
            fill=deformation.background,
        )
        shear = {"x": (-beta, beta), "y": (0, 0)}
        probability = deformation.shear_probability
        elastic = albumentations.ElasticTransform(
            deformation.alpha,
            deformation.sigma,
            noise_distribution="uniform",
            fill=deformation.background,
            p=1,
        )
        turn = albumentations.OneOf(
            [affine(rotate=(-beta, beta), p=1 - probability), affine(shear=shear, p=probability)],
            p=1,
        )
        return albumentations.Compose([turn, elastic], seed=0)

    by_beta = {beta: composed(beta) for beta in set(deformation.beta)}
    transforms = [by_beta[beta] for beta in deformation.beta]

    def deform() -> np.ndarray:
        out = np.empty_like(images)
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            out[i] = transforms[label](image=image)["image"]
        return out

    return deform


def kornia_batch(
    images: np.ndarray, labels: np.ndarray, deformation: Deformation, device: str = "cpu"
) -> Callable[[], np.ndarray | Tensor]:
    """kornia: RandomAffine, then RandomElasticTransform, on all images at once.

    Two interpolations; shear comes before scaling, not after it. device: 'cpu' or 'cuda'. On 'cuda'
    the images stay on the GPU, as does the result, a tensor, which is complete on return.
    """
    import torch
    from kornia.augmentation import RandomAffine, RandomElasticTransform

    gamma_x, gamma_y = deformation.gamma_x / 100, deformation.gamma_y / 100
    affine = RandomAffine(
        degrees=1.0,
        shear=1.0,
        scale=(1 - gamma_x, 1 + gamma_x, 1 - gamma_y, 1 + gamma_y),
        align_corners=True,
        p=1,
    )  # draws its few numbers on the CPU, even for images on a GPU
    # Its displacements are in halves of the image's width, from corner pixel to corner pixel.
    alpha = deformation.alpha / CENTRE
    elastic = RandomElasticTransform(
        kernel_size=(KERNEL, KERNEL),
        sigma=(deformation.sigma, deformation.sigma),
        alpha=(alpha, alpha),
        align_corners=True,
        p=1,
    ).to(device)  # where it draws its fields
    # Both fill with 0 outside the image, so they get the difference from the background.
    source = torch.from_numpy(images - np.float32(deformation.background))[:, None].to(device)
    beta = torch.tensor(deformation.beta)[torch.from_numpy(labels.astype(np.int64))]

    def deform() -> np.ndarray | Tensor:
        parameters = affine.forward_parameters(source.shape)
        # Drawn for every image, both in [-1, 1] degrees. An image gets one, times its own beta.
        sheared = torch.rand(len(beta)) < deformation.shear_probability
        parameters["angle"] = parameters["angle"] * beta * ~sheared
        parameters["shear_x"] = parameters["shear_x"] * beta * sheared
        result = elastic(affine(source, params=parameters))[:, 0] + deformation.background
        if device == "cpu":
            return result.numpy()
        torch.cuda.synchronize()
        return result

    return deform
