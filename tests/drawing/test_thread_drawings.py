"""Drawings of kernels and of the ladder, beyond test_kept_figures.py."""

import re
from itertools import pairwise

import pytest

from deepbig_runtime import gpu
from experiments.benchmarks import compiled
from experiments.drawing import thread_maps
from experiments.drawing import thread_maps_nets as ladder
from experiments.drawing.launches import ladder_arrays
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder import rung5_streams as streams


def test_every_kernel_is_named_in_a_title():
    figures = [draw() for draw in thread_maps.DRAWINGS.values()]
    panels = [axes.get_title() for figure in figures for axes in figure.axes]
    titles = [*panels, *(figure.get_suptitle() for figure in figures)]
    named = set(re.findall("[a-z]+(?:_[a-z]+)+", " ".join(titles)))
    assert named == {kernel.py_func.__name__ for kernel in compiled.SIGNATURES}


@pytest.mark.parametrize(
    ("rung", "calls"), [(shared, ladder.ONE_STREAM), (streams, ladder.TWO_STREAMS)]
)
def test_timelines_are_of_what_the_host_calls(rung, calls, monkeypatch):
    names = {
        shared.forward_shared: ladder.FORWARD,
        shared.deltas_shared: ladder.DELTAS,
        shared.update_outputs_shared: ladder.OUTPUTS,
        shared.update_hidden_shared: ladder.HIDDENS,
    }
    called = []
    monkeypatch.setattr(gpu, "new_stream", lambda: 2)
    monkeypatch.setattr(gpu, "let_wait", lambda *pair: called.append((ladder.WAIT, *pair)))
    monkeypatch.setattr(
        gpu.Launch, "__call__", lambda launch, on: called.append((names[launch.kernel], on))
    )
    arrays = ladder_arrays(10, True)
    rung.train(arrays, 1)
    assert called == calls * arrays.steps


@pytest.mark.parametrize("captured", [False, True])  # in a graph no launch comes late
def test_timeline_has_one_task_a_stream_after_its_launch_and_its_waits(captured):
    found = ladder.timeline(ladder.TWO_STREAMS * 2, captured)
    for row in range(3):
        own = [box for box in found if box.row == row]
        assert all(one.end <= other.start for one, other in pairwise(own))
    of_host = [box for box in found if box.row == 0 and box.task != ladder.WAIT]
    of_gpu = [box for box in found if box.row]
    for launched, ran in zip(of_host * (8 if captured else 1), of_gpu, strict=True):
        assert launched.task == (ladder.GRAPH if captured else ran.task)
        assert launched.end < ran.start
    for deltas, outputs in zip(of_gpu[1::4], of_gpu[2::4], strict=True):
        assert (deltas.row, outputs.row) == (1, 2)
        assert deltas.end < outputs.start
    assert of_gpu[4].start > of_gpu[2].end  # the next image, after the update on stream 2
