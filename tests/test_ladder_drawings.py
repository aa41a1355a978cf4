"""The drawings of the ladder: threads on matrices, and launches in time."""

from itertools import pairwise

import numpy as np
import pytest
from drawn import boxes, cells_drawn, cells_of

from deepbig_runtime import gpu
from experiments.drawing import thread_maps_ladder as maps
from experiments.drawing.thread_cells_ladder import STEPS, make_mappings, on_the_host
from mlp_gpu.ladder import graph, shared, streams


def pieces_drawn(axes):
    """The cells of the pieces that are moved together."""
    found = [patch.get_bbox().bounds for patch in axes.patches if patch.get_label() == "piece"]
    return [{(top, left + i) for i in range(int(width))} for left, top, width, _ in found]


def panel_axes(figure, kernel):
    (axes,) = [axes for axes in figure.axes if axes.get_title().startswith(f"{kernel}, ")]
    return axes


@pytest.mark.parametrize(
    ("rung", "own", "step", "n_pieces"),
    [
        # Thread 5 has hidden neuron 5; at step 11 all threads read the weight of input 11.
        ("naive", [(5, i) for i in range(32)], [(j, 11) for j in range(32)], 32),
        ("coalesced", [(i, 5) for i in range(32)], [(11, j) for j in range(32)], 4),
        ("shared", [(i, 5) for i in range(32)], [(11, j) for j in range(32)], 4),
    ],
)
def test_a_warp_of_the_forward_kernel_reads_rows_apart_or_side_by_side(rung, own, step, n_pieces):
    draw = maps.DRAWINGS[f"threads_ladder_{rung}"]
    axes = panel_axes(draw(), f"forward_{rung}")
    assert cells_drawn(axes, "own") == own
    assert cells_drawn(axes, "step") == step
    moved = pieces_drawn(axes)
    assert len(moved) == n_pieces
    assert all(len(piece) == 8 for piece in moved)  # 32 bytes
    assert set().union(*moved) >= set(step)
    assert axes.get_title().endswith(f"32 threads read 32 numbers of W1\nin {n_pieces} pieces")


@pytest.mark.parametrize("rung", maps.PANELS)
def test_panels_are_what_threads_touch(rung):
    figure = maps.DRAWINGS[f"threads_ladder_{rung.replace(' ', '_')}"]()
    for panel in maps.PANELS[rung]:
        axes, mapping = panel_axes(figure, panel.kernel), make_mappings()[panel.kernel]
        key = panel.array, panel.kind
        shown = set(np.ndindex(panel.shown))
        touched = mapping.touched((0, 0), (panel.thread, 0))[key]
        assert set(cells_drawn(axes, "own")) == set(touched) & shown
        warp = [mapping.touched((0, 0), (thread, 0))[key] for thread in range(32)]
        assert cells_drawn(axes, "step") == cells_of([one[panel.step] for one in warp])
        numbers = [np.ravel_multi_index(one[panel.step], panel.shape) for one in warp]
        n_pieces = len({number // 8 for number in numbers})
        assert axes.get_title().endswith(f"\nin {n_pieces} pieces")
        (blocks,) = mapping.launch.grid[:1]
        assert f"{blocks} block{'s' if blocks > 1 else ''} of {mapping.threads[0]} threads" in (
            axes.get_title()
        )
        borders = [lines for lines in axes.collections if lines.get_label() == "block"]
        assert len(borders) == (blocks > 1)
        for border in borders:  # closed, around the cells of a block
            corners = np.vstack([segment for segment in border.get_segments()])
            every = {cell for t in range(256) for cell in mapping.touched((0, 0), (t, 0))[key]}
            rows, columns = np.array(sorted(every)).T
            assert corners[:, 1].max() == rows.max() + 1
            assert corners[:, 0].max() == columns.max() + 1
            ends, times = np.unique(corners, axis=0, return_counts=True)
            assert (times % 2 == 0).all(), ends


def test_the_tile_is_drawn():
    whole, nine, eight = maps.draw_tiled().axes
    assert boxes(whole, "tile")[""] == (0, 0, 8, 32)
    assert cells_drawn(whole, "step") == [(row, column) for row in range(4) for column in range(8)]
    assert "in 4 pieces" in whole.get_title()
    for axes, stride, turns in ((nine, 9, "1 turn "), (eight, 8, "8 turns ")):
        banks = [int(text.get_text()) for text in axes.texts if text.get_text() != "bank"]
        ((_, step), *_) = cells_drawn(axes, "step")
        assert banks == [(stride * row + step) % 32 for row in range(32)]
        assert len(banks) // len(set(banks)) == int(turns[0])
        assert f"rows of {stride} words,\n{turns}a step" in axes.get_title()


def test_what_is_in_shared_memory_is_drawn():
    image, *_ = figure = maps.draw_shared().axes
    mapping = make_mappings()["forward_shared"]
    brought = mapping.touched((0, 0), (5, 0))["shared 0", "write"]
    assert cells_drawn(image, "own") == [divmod(place, 28) for _, place in brought]
    assert cells_drawn(image, "step") == [divmod(place, 28) for place in range(32)]
    assert "32 pixels in 4 pieces" in image.get_title()
    assert len(cells_drawn(figure[2], "delta2")) == 10
    assert boxes(figure[3], "eta")
    assert boxes(figure[3], "momentum")


def test_the_chunk_is_drawn():
    """How many threads work in each phase: from what they write, but for the last image."""
    weights, phases = maps.draw_chunk().axes
    assert boxes(weights, "kept")[""] == (0, 0, 32, 4 * 8)
    mapping = make_mappings()["train_chunk"]
    wrote = [mapping.touched((0, 0), (thread, 0)) for thread in range(mapping.threads[0])]

    def working(array, least=1):
        return sum(len(one[array, "write"]) >= least * STEPS for one in wrote)

    expected = [
        working("W1"),
        working("shared 1"),
        working("shared 0", 2),  # a sum of layer 1 and one of layer 2
        working("shared 3"),
        working("shared 2"),
        working("W2"),
    ]
    found = boxes(phases, "phase ")
    assert [found[f"{k}"][2] for k in range(6)] == expected == list(maps.PHASES.values())
    barriers = [line for line in phases.lines if line.get_label() == "barrier"]
    assert len(barriers) == 5


def calls_of(rung, monkeypatch):
    """What the host does when a rung trains, as maps.ONE_STREAM has it; and the steps."""
    names = {
        shared.forward_shared: maps.FORWARD,
        shared.deltas_shared: maps.DELTAS,
        shared.update_outputs_shared: maps.OUTPUTS,
        shared.update_hidden_shared: maps.HIDDENS,
    }
    first, second, called = object(), object(), []
    number = {first: 1, second: 2}
    monkeypatch.setattr(gpu, "new_stream", lambda: second)
    monkeypatch.setattr(
        gpu, "let_wait", lambda one, other: called.append((maps.WAIT, number[one], number[other]))
    )
    monkeypatch.setattr(
        gpu.Launch, "__call__", lambda launch, on: called.append((names[launch.kernel], number[on]))
    )
    there = on_the_host(10, True)
    rung.train(there, first)
    return called, there.steps


@pytest.mark.parametrize(
    ("rung", "calls"), [(shared, maps.ONE_STREAM), (streams, maps.TWO_STREAMS)]
)
def test_timelines_are_of_what_the_host_calls(rung, calls, monkeypatch):
    called, steps = calls_of(rung, monkeypatch)
    assert called == calls * steps


@pytest.mark.parametrize("captured", [False, True])  # in a graph no launch comes late
def test_a_stream_does_one_thing_at_a_time_after_its_launch_and_what_it_waits_for(captured):
    found = maps.timeline(maps.TWO_STREAMS * 2, captured)
    for row in range(3):
        own = [box for box in found if box.row == row]
        assert all(one.end <= other.start for one, other in pairwise(own))
    of_host = [box for box in found if box.row == 0 and box.what != maps.WAIT]
    of_gpu = [box for box in found if box.row]
    for launched, ran in zip(of_host * (8 if captured else 1), of_gpu, strict=True):
        assert launched.what == (maps.GRAPH if captured else ran.what)
        assert launched.end < ran.start
    for deltas, outputs in zip(of_gpu[1::4], of_gpu[2::4], strict=True):
        assert (deltas.row, outputs.row) == (1, 2)
        assert deltas.end < outputs.start
    assert of_gpu[4].start > of_gpu[2].end  # the next image, after the update on stream 2


def test_a_graph_is_launched_once():
    calls = maps.ONE_STREAM * graph.IMAGES_PER_GRAPH
    first, *others = maps.timeline(calls, captured=True)
    assert (first.what, first.row) == (maps.GRAPH, 0)
    assert [(box.what, box.row) for box in others] == calls
    _, below = maps.draw_graph().axes
    drawn = [patch.get_label() for patch in below.patches]
    assert drawn == [f"{box.row}: {box.what}" for box in (first, *others)]
    assert f"{graph.IMAGES_PER_GRAPH} images" in below.get_title()
    assert below.texts[-1].get_text() == f"{graph.IMAGES_PER_GRAPH}"
