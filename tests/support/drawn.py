"""What the tests of figures share: runs to draw, and what can be read in a figure that is drawn."""

from itertools import combinations

import factories
import numpy as np
from matplotlib.text import Text

from deform_gpu import TRANSLATION, Deformation
from experiments.datasets.dataset import CIFAR10_JPEG
from experiments.results import cnn_tables
from experiments.results.committee_report import Committee

N_TEST, N_TRAIN = 157, 613
DEFORMATION = Deformation(sigma=6.0, alpha=36.0, beta=(7.5, 12.5) * 5, gamma_x=15.0, gamma_y=13.0)
ON_JPEGS = {  # the net of the paper's that is trained on CIFAR-10 as JPEG
    "data": {"name": CIFAR10_JPEG, "classes": tuple("abcdefghij")},
    "layers": cnn_tables.cifar10_net(100),
    "deformation": TRANSLATION,
}
LABELS = np.random.default_rng(0).integers(0, 10, N_TEST).astype(np.uint8)
IMAGES = np.random.default_rng(1).uniform(-1, 1, (N_TEST, 29, 29)).astype(np.float32)


def make_run(
    seed, epochs=7, right=0.8, seconds=1.0, deformation=DEFORMATION, n_validation=None, width=None
):
    """A run of random figures, its probabilities those of a net that is often right."""
    rng = np.random.default_rng(seed)
    outputs = rng.random((N_TEST, 10))
    outputs[np.arange(N_TEST), LABELS] += rng.random(N_TEST) < right
    outputs /= outputs.sum(axis=1, keepdims=True)
    wrong = int(np.count_nonzero(outputs.argmax(axis=1) != LABELS))
    metrics = {
        "eta": [1e-3 * 0.7**epoch for epoch in range(epochs)],
        "train_loss": rng.uniform(0.05, 2, epochs).tolist(),
        "validation_errors": rng.integers(3, 200, epochs).tolist(),
        "test_errors": rng.integers(3, 60, epochs).tolist(),
        "deform_seconds": (seconds * rng.uniform(0.1, 0.3, epochs)).tolist(),
        "train_seconds": (seconds * rng.uniform(1, 2, epochs)).tolist(),
        "evaluate_seconds": (seconds * rng.uniform(0.1, 0.5, epochs)).tolist(),
    }
    metrics["test_errors"][int(np.argmin(metrics["validation_errors"]))] = wrong
    of_data = {"n_train": N_TRAIN, "n_validation": n_validation, "width": width, "n_test": N_TEST}
    config = {"data": of_data, "deformation": deformation, "epochs": epochs}
    outputs = outputs.astype(np.float32)
    return factories.make_run(metrics=metrics, outputs=outputs, labels=LABELS, **config)


def make_runs(n, **what):
    return {f"net {seed}": make_run(seed, **what) for seed in range(n)}


def make_varied_runs(n):
    """Runs whose parameters all differ; some are undeformed, some have one epoch, long names."""
    runs = {}
    for k in range(n):
        values = {"sigma": 4 + k % 3, "alpha": 36 + k, "gamma_x": 15 + k % 5, "gamma_y": 2 * k}
        deformation = Deformation(beta=(7.5 + k % 2,) * 10, **values) if k % 4 else None
        name = f"committee/original-sigma4.5-alpha36-{'long-' * (k % 7)}seed{k}"
        width = 10 if k % 5 == 3 else None
        what = {"epochs": 1 + 9 * k, "deformation": deformation, "width": width}
        runs[name] = make_run(k, seconds=20, **what)
    return runs


def make_committee(n):
    runs = make_runs(n)
    return Committee("experiment1", "Seven nets", tuple(runs), tuple(runs.values()), paper=None)


def make_varied_committee(n):
    """A committee of varied runs with a long title, and the paper's figures."""
    runs = make_varied_runs(n)
    title = "Experiment 4 of 2012: deformed, seven training and validation sets, on MNIST"
    paper = tuple(1.5 + 0.01 * k for k in range(n + 1))
    return Committee("experiment4", title, tuple(runs), tuple(runs.values()), paper)


def draw(figure):
    figure.draw_without_rendering()
    return figure


def tick_labels(axis):
    """The labels that are drawn."""
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1.get_text()
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible() and low <= tick.get_loc() <= high
    ]


def visible_texts(figure):
    """Every text that is drawn, with its place in pixels."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not (axes.axison and low <= tick.get_loc() <= high):
                    hidden |= {tick.label1, tick.label2}
    return {
        text: text.get_window_extent()
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    }


def overlap(one, other):
    (left, low, right, high), (x0, y0, x1, y1) = one.extents, other.extents
    return min(right, x1) - max(left, x0) > 0.5 < min(high, y1) - max(low, y0)  # pixels


def assert_readable(figure):
    """No text is smaller than 7 points, cut off, or across another."""
    draw(figure)
    texts = visible_texts(figure)
    assert len(texts) > 1
    for text, place in texts.items():
        assert text.get_fontsize() >= 7, text.get_text()
        assert figure.bbox.x0 <= place.x0 < place.x1 <= figure.bbox.x1, text.get_text()
        assert figure.bbox.y0 <= place.y0 < place.y1 <= figure.bbox.y1, text.get_text()
    for (one, here), (other, there) in combinations(texts.items(), 2):
        assert not overlap(here, there), f"{one.get_text()!r} and {other.get_text()!r}"
    for legend in figure.legends:
        assert not any(overlap(legend.get_window_extent(), each.bbox) for each in figure.axes)
