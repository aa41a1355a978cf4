"""The drawings of the ladder: threads on matrices, and launches in time."""

from collections import defaultdict
from itertools import pairwise

import pytest
from drawn import boxes, cells_drawn
from matplotlib.figure import Figure

from deepbig_runtime import gpu
from experiments.drawing import thread_maps_ladder as maps
from experiments.drawing.launches import ladder_arrays
from experiments.drawing.traces import cells_of, read_traces
from mlp_gpu.ladder import rung4_shared as shared
from mlp_gpu.ladder import rung5_streams as streams
from mlp_gpu.ladder import rung6_graph as graph


def drawn_corner(name):
    """The axes of a trace of the ladder."""
    axes = Figure().subplots()
    maps.draw_corner(axes, name)
    return axes


def borders(axes):
    return [lines for lines in axes.collections if lines.get_label() == "block"]


@pytest.mark.parametrize(
    ("name", "n_pieces", "labels"),
    [
        ("forward_naive W1 read", 32, ("hidden neuron", "input")),
        ("deltas_naive W2 read", 4, ("output neuron", "hidden neuron")),
        ("update_hidden_naive W1 write", 32, ("hidden neuron", "input")),
        ("update_outputs_naive W2 write", 10, ("output neuron", "hidden neuron")),
        ("forward_tiled W1 read", 4, ("hidden neuron", "input")),
        ("forward_coalesced W1 read", 4, ("input", "hidden neuron")),
        ("deltas_coalesced W2 read", 32, ("hidden neuron", "output neuron")),
        ("update_outputs_coalesced W2 write", 4, ("hidden neuron", "output neuron")),
        ("train_chunk W1 read", 4, ("input", "hidden neuron")),
    ],
)
def test_corner_shows_thread_warp_and_the_pieces_that_it_moves(name, n_pieces, labels):
    trace, axes = read_traces()[name], drawn_corner(name)
    assert cells_drawn(axes, "own") == cells_of(trace.own)
    assert cells_drawn(axes, "step") == cells_of(trace.step)
    moved = [patch.get_bbox().bounds for patch in axes.patches if patch.get_label() == "piece"]
    columns = trace.shape[1]  # a piece goes on in the next row
    words = [int(y * columns + x) + i for x, y, width, _ in moved for i in range(int(width))]
    wanted = {y * columns + x for y, x in cells_of(trace.step)}
    assert len(words) == len(set(words)) == 8 * n_pieces  # 32 bytes each
    assert {word // 8 for word in words} == {word // 8 for word in wanted}
    kernel, array, kind = name.split()
    blocks = f"{trace.grid[0]} block{'s' * (trace.grid[0] > 1)} of {trace.threads[0]} threads"
    title = f"{kernel}, {blocks}:\n32 threads {kind} 32 numbers of {array}\nin {n_pieces} pieces"
    assert axes.get_title() == title
    assert (axes.get_ylabel(), axes.get_xlabel()) == labels


OUTPUTS = [(0, 0), (0, 10), (25, 6), (25, 10), (26, 0), (26, 6)]  # 256 cells, 10 a column


@pytest.mark.parametrize(
    ("name", "corners", "n_open"),
    [
        ("update_outputs_naive W2 write", OUTPUTS, 0),
        ("update_outputs_coalesced W2 write", sorted((y, x) for x, y in OUTPUTS), 0),
        # 2 columns and 2 rows of 128, of which 32 are shown.
        ("update_hidden_naive W1 write", [(0, 0), (0, 32), (2, 0), (2, 32)], 2),
        ("update_hidden_coalesced W1 write", [(0, 0), (0, 2), (32, 0), (32, 2)], 2),
    ],
)
def test_border_goes_around_the_cells_of_a_block_as_far_as_these_are_shown(name, corners, n_open):
    (border,) = borders(drawn_corner(name))
    upright = defaultdict(list)  # of the sides that meet at a point
    for start, end in border.get_segments():
        for x, y in (start, end):
            upright[int(x), int(y)].append(start[0] == end[0])
    ends = [point for point, sides in upright.items() if len(sides) == 1]
    turns = [point for point, sides in upright.items() if len(set(sides)) == 2]
    assert sorted(ends + turns) == corners
    assert len(ends) == n_open
    assert not borders(drawn_corner("forward_naive W1 read"))  # of one block


def test_rungs_show_their_four_kernels():
    for rung in ("naive", "coalesced"):
        titles = [axes.get_title().split(",")[0] for axes in maps.draw_rung(rung).axes]
        kernels = ("forward", "deltas", "update_hidden", "update_outputs")
        assert titles == [f"{kernel}_{rung}" for kernel in kernels]


def test_tile_has_bank_conflicts_only_without_padding():
    whole, nine, eight = maps.draw_tiled().axes
    assert boxes(whole, "tile")[""] == (0, 0, 8, 32)
    for axes, stride, turns in ((nine, 9, "1 turn "), (eight, 8, "8 turns ")):
        banks = [int(text.get_text()) for text in axes.texts if text.get_text() != "bank"]
        ((_, step), *_) = cells_drawn(axes, "step")
        assert banks == [(stride * row + step) % 32 for row in range(32)]
        assert len(banks) // len(set(banks)) == int(turns[0])
        assert f"rows of {stride} words,\n{turns}a step" in axes.get_title()


def test_shared_memory_holds_image_deltas_and_rates():
    image, forward, deltas, updates = maps.draw_shared().axes
    assert cells_drawn(image, "own") == [divmod(place, 28) for place in range(5, 784, 128)]
    assert cells_drawn(image, "step") == [divmod(place, 28) for place in range(32)]
    assert "32 pixels in 4 pieces" in image.get_title()
    assert forward.get_title().startswith("forward_shared, 1 block ")
    assert len(cells_drawn(deltas, "delta2")) == 10
    assert deltas.get_title().startswith("deltas_shared")
    assert boxes(updates, "eta")
    assert boxes(updates, "momentum")
    assert updates.get_title().startswith("update_hidden_shared")


def test_chunk_shows_weights_in_registers_and_threads_that_work():
    weights, phases = maps.draw_chunk().axes
    assert boxes(weights, "kept")[""] == (0, 0, 32, 4 * 8)
    found = boxes(phases, "phase ")
    assert [found[f"{k}"][2] for k in range(6)] == list(maps.PHASES.values())
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
    there = ladder_arrays(10, True)
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
    of_host = [box for box in found if box.row == 0 and box.task != maps.WAIT]
    of_gpu = [box for box in found if box.row]
    for launched, ran in zip(of_host * (8 if captured else 1), of_gpu, strict=True):
        assert launched.task == (maps.GRAPH if captured else ran.task)
        assert launched.end < ran.start
    for deltas, outputs in zip(of_gpu[1::4], of_gpu[2::4], strict=True):
        assert (deltas.row, outputs.row) == (1, 2)
        assert deltas.end < outputs.start
    assert of_gpu[4].start > of_gpu[2].end  # the next image, after the update on stream 2


def test_a_graph_is_launched_once():
    calls = maps.ONE_STREAM * graph.IMAGES_PER_GRAPH
    first, *others = maps.timeline(calls, captured=True)
    assert (first.task, first.row) == (maps.GRAPH, 0)
    assert [(box.task, box.row) for box in others] == calls
    _, below = maps.draw_graph().axes
    drawn = [patch.get_label() for patch in below.patches]
    assert drawn == [f"{box.row}: {box.task}" for box in (first, *others)]
    assert f"{graph.IMAGES_PER_GRAPH} images" in below.get_title()
    assert below.texts[-1].get_text() == f"{graph.IMAGES_PER_GRAPH}"
