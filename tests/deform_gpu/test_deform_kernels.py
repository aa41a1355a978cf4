"""Every kernel of the deformation against float64."""
# ruff: noqa: F401, F811 - fixtures are imported

import dataclasses

import numpy as np
import pytest
import reference_deform as reference
from deform_cases import (
    EPS,
    EXTREMES,
    IDENTITY,
    MIXED,
    SEED,
    affine_part,
    deform_tolerance,
    displacement_tolerance,
    make_images,
)
from executed import HAS_GPU, device
from gpu_arrays import arrays, count_bytes, uniform
from scipy import signal

from deepbig_runtime import gpu
from deform_gpu import TABLE1, cuda, deform, paper
from deform_gpu.cuda import DeformedAhead, GpuSet
from deform_gpu.field import gaussian_weights
from deform_gpu.kernels import listing1, matrices, stages, tiles
from deform_gpu.paper import PaperSet
from experiments.datasets import data
from experiments.training import configs
from mlp_gpu import training

KEY = (*map(np.uint32, reference.key_of(SEED)), np.uint32(3))  # epoch 3

# Side, images, first. Images of 31 pixels are made of four tiles; places 298 to 300 are in two
# batches.
SMALL = [(2, 3, 298), (29, 2, 99), (31, 1, 257)]
LARGE = [(29, 350, 57), (64, 120, 90), (1, 101, 0), (100, 3, 12345)]
SETS = [pytest.param(*sizes, marks=pytest.mark.small) for sizes in SMALL]
SETS += [
    pytest.param(*sizes, id="large-{}-{}-{}".format(*sizes), marks=pytest.mark.slow)
    for sizes in LARGE
]


def tile_launches(arrays, out, images, labels, deformation, first=0):
    """What `tiles` needs on the GPU, and its launches: matrices first, then the images."""
    beta = arrays.put(deformation.beta_of(labels, len(images)))
    found, weights = arrays.nans(len(images), 2, 3), arrays.put(gaussian_weights(deformation.sigma))
    return [
        *matrices.draw(found, beta, deformation, KEY, first, images.shape[1]),
        *tiles.deform(out, arrays.put(images), found, weights, deformation, KEY, first),
    ]


@pytest.mark.parametrize(
    ("height", "width"),
    [
        pytest.param(20, 3, marks=pytest.mark.small),
        pytest.param(290, 290, id="large", marks=pytest.mark.slow),
    ],
)
def test_listing1(arrays, height, width):
    rng = np.random.default_rng(height)
    field = np.full((height + 20, -(-(width + 20) // 32) * 32), np.nan, np.float32)
    field[:, : width + 20] = uniform(rng, height + 20, width + 20)
    kernel = np.full((21, 32), np.nan, np.float32)
    kernel[:, :21] = uniform(rng, 21, 21)
    out = arrays.nans(height, -(-width // 32) * 32)
    arrays.run(listing1.convolve(out, arrays.put(field), arrays.put(kernel), 36.7, width))
    found, alpha = arrays.get(out), float(np.float32(36.7))
    cells, weights = field[:, : width + 20].astype(float), alpha * kernel[:, :21].astype(float)
    expected = signal.correlate2d(cells, weights, mode="valid")
    terms = signal.correlate2d(abs(cells), abs(weights), mode="valid")
    assert (abs(found[:, :width] - expected) <= 4 * 21 * EPS * terms).all()
    assert np.isnan(found[:, width:]).all()


@pytest.mark.small
@pytest.mark.parametrize("shear_probability", [0, 0.5, 1])
@pytest.mark.parametrize("first", [98, 2**32 - 9])
def test_matrices_small(arrays, shear_probability, first):
    deformation = dataclasses.replace(MIXED, shear_probability=shear_probability)
    n, side = 3000, 96
    first = min(first, 2**32 - n)
    labels = np.arange(n) % 10
    found = arrays.nans(n, 2, 3)
    beta = arrays.put(deformation.beta_of(labels, n))
    arrays.run(matrices.draw(found, beta, deformation, KEY, first, side))
    found = arrays.get(found)
    for i in range(n):
        u = reference.affine_numbers(SEED, 3, first + i)
        t = reference.translation(SEED, 3, first + i, deformation.translation, side)
        strengths = (deformation.beta[labels[i]], deformation.gamma_x, deformation.gamma_y)
        expected, bound = affine_part(u, t, *strengths, shear_probability)
        assert (abs(found[i] - expected) <= bound).all()


@pytest.mark.parametrize(("side", "n", "first"), [SETS[0], *SETS[len(SMALL) :]])
def test_stages(arrays, side, n, first):  # of whole batches, which are large where images are
    images, labels = make_images(n, side)
    batches = range(first // 100, (first + n - 1) // 100 + 1)
    shapes = stages.scratch_shapes(len(batches), side)
    scratch = [arrays.nans(*shape) for shape in shapes]
    beta, found = arrays.put(MIXED.beta_of(labels, n)), arrays.nans(n, 2, 3)
    weights, out = arrays.put(gaussian_weights(MIXED.sigma)), arrays.nans(n, side, side)
    arrays.run(matrices.draw(found, beta, MIXED, KEY, first, side))
    arrays.run(stages.displace(scratch, weights, MIXED, KEY, first // 100))
    arrays.run(stages.warp(out, arrays.put(images), found, scratch[2], MIXED, first))
    field, _, displacement = map(arrays.get, scratch)
    for i, batch in enumerate(batches):
        assert (field[i] == reference.random_field(SEED, 3, batch, side)).all()
        parameters = (3, batch, MIXED.sigma, MIXED.alpha)
        expected = reference.displacement(SEED, *parameters, side)
        bound = displacement_tolerance(*parameters, side)
        assert (abs(displacement[i] - expected) <= bound).all()
    expected = reference.deform(images, labels, MIXED, SEED, 3, first)
    bound = deform_tolerance(labels, MIXED, 3, first, side)
    assert (abs(arrays.get(out) - expected) <= bound).all()


@pytest.mark.parametrize(("side", "n", "first"), SETS)
def test_tiles(arrays, side, n, first):
    images, labels = make_images(n, side)
    out = arrays.nans(n, side, side)
    arrays.run(tile_launches(arrays, out, images, labels, MIXED, first))
    expected = reference.deform(images, labels, MIXED, SEED, 3, first)
    bound = deform_tolerance(labels, MIXED, 3, first, side)
    assert (abs(arrays.get(out) - expected) <= bound).all()


@pytest.mark.parametrize("name", EXTREMES)
def test_tiles_at_extremes(arrays, name):
    deformation, n, first = EXTREMES[name], 9, 95  # of two batches
    images, labels = make_images(n)
    out = arrays.nans(n, 29, 29)
    arrays.run(tile_launches(arrays, out, images, labels, deformation, first))
    found = arrays.get(out)
    expected = reference.deform(images, labels, deformation, SEED, 3, first)
    assert (abs(found - expected) <= deform_tolerance(labels, deformation, 3, first)).all()
    assert not np.isclose(found, images, atol=0.1).all()


@pytest.mark.parametrize("side", [7, 29, 100])
def test_deforming_by_nothing_gives_the_image_back_bit_for_bit(arrays, side):
    images, labels = make_images(3, side)
    out = arrays.nans(3, side, side)
    arrays.run(tile_launches(arrays, out, images, labels, IDENTITY))
    assert arrays.get(out).tobytes() == images.tobytes()


def test_gpu_and_cpu_agree():
    images, labels = make_images(60_000 if HAS_GPU else 100)
    on_cpu = deform(images, labels, seed=SEED, epoch=3, first=98)
    on_gpu = deform(images, labels, seed=SEED, epoch=3, first=98, device="cuda")
    assert abs(on_cpu - on_gpu).max() < 1e-5
    pixels = ((images + 1) * 127.5).astype(np.uint8)
    found = deform(pixels, labels, seed=SEED, epoch=3, first=98, device="cuda")
    assert deform(images[:0], labels[:0], device="cuda").shape == (0, 29, 29)
    assert found.dtype == np.uint8
    difference = found - deform(pixels, labels, seed=SEED, epoch=3, first=98).astype(int)
    assert (difference == 0).mean() > 0.99
    assert abs(difference).max() <= 1


def test_epochs_come_one_ahead(monkeypatch):
    images, labels = make_images(2, 5)
    expected = {
        epoch: cuda.deform_set(images, labels, MIXED, SEED, epoch).reshape(2, 25)
        for epoch in (3, 4, 5, 7)
    }
    ahead = DeformedAhead(images, labels, MIXED, SEED, last_epoch=7)
    started = []
    launches = GpuSet.launches
    monkeypatch.setattr(
        GpuSet, "launches", lambda *args: started.append(args[2]) or launches(*args)
    )
    for epoch, begun in ((3, [3, 4]), (4, [5]), (5, [6]), (7, [7])):  # the last is out of turn
        started.clear()
        found = ahead(epoch)
        assert started == begun
        # Ready at once, and what it does ahead must not touch it.
        assert found.copy_to_host().tobytes() == expected[epoch].tobytes()
        gpu.synchronize(ahead._stream)
        assert found.copy_to_host().tobytes() == expected[epoch].tobytes()


def test_runs_that_are_deformed_on_gpu_and_cpu_agree():
    images, labels = make_images(2)
    dataset = data.Dataset("load_digits", images, labels, images, labels, "", "")
    schedule = training.Schedule(3)
    seen = {}
    for name in ("cpu", "cuda"):
        config = configs.make_config(dataset, (841, 10), schedule, 5, TABLE1, name)
        assert config.deformed_on == name
        deformer = configs.deformer(config, dataset)
        seen[name] = []
        for epoch in range(2, 4):
            found = deformer(epoch)
            on_host = found.copy_to_host() if gpu.on_gpu(found) else found
            seen[name].append(on_host.reshape(2, 841).copy())
    assert abs(np.subtract(*seen.values())).max() < 1e-5
    assert abs(np.subtract(*seen["cpu"])).max() > 0.1


def test_an_epoch_is_waited_for_and_only_then_the_next_begun(monkeypatch):
    images, labels = make_images(2, 1)
    ahead = DeformedAhead(images, labels, MIXED, SEED, last_epoch=5)
    seen, synchronize = [], gpu.synchronize

    class Event:
        def __init__(self, name):
            self.name = name

        def record(self, stream):
            assert stream is ahead._stream
            seen.append(self.name)

    monkeypatch.setattr(
        GpuSet, "launches", lambda self, out, epoch: [lambda stream: seen.append(epoch)]
    )
    monkeypatch.setattr(gpu, "synchronize", lambda s: seen.append("wait") or synchronize(s))
    ahead.events = Event("begin"), Event("end")
    ahead(4)
    assert seen == ["begin", 4, "end", "wait", "begin", 5, "end"]
    ahead(5)
    assert seen[7:] == ["wait"]


def test_what_is_copied_is_waited_for(monkeypatch):
    images, labels = make_images(2, 1)
    stream, waited, synchronize = gpu.new_stream(), [], gpu.synchronize
    monkeypatch.setattr(gpu, "synchronize", lambda s: waited.append(s) or synchronize(s))
    GpuSet(images, labels, MIXED, SEED, 0, stream)  # before the host's arrays go
    assert waited == [stream]
    cuda.deform_set(images, labels, MIXED, SEED, 3)  # that of GpuSet, and before it returns
    assert len(waited) == 3
    there = PaperSet(images, labels, MIXED, SEED)
    assert len(waited) == 4
    monkeypatch.setattr(paper, "convolve", lambda *_: [])
    there.deform(np.empty_like(images), 3)
    assert len(waited) == 6  # for each axis


def test_memory_is_what_device_bytes_says(monkeypatch):
    taken = count_bytes(monkeypatch)
    images, labels = make_images(3, 5)
    ahead = DeformedAhead(images, labels, MIXED, SEED, last_epoch=2)
    ahead(1)
    ahead(2)
    assert sum(taken) == cuda.device_bytes(3, 5)


@pytest.mark.parametrize(("side", "n"), [(1, 120), (5, 7)])
def test_the_papers_way_equals_the_cpu(side, n):
    deformation = dataclasses.replace(MIXED, background=0.25)
    images, labels = make_images(n, side)
    out = np.full_like(images, np.nan)
    PaperSet(images, labels, deformation, SEED).deform(out, 3)
    expected = deform(images, labels, deformation, SEED, 3)
    assert (abs(out - expected) <= deform_tolerance(labels, deformation, 3, side=side)).all()
