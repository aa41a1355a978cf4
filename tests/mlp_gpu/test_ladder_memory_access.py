"""Which words of memory the warps of the ladder's kernels access together, as executed."""

import numpy as np
import pytest
import touches
from compiled_cases import needs_toolkit

from cuda_on_cpu import access_stats
from experiments.drawing import launches
from mlp_gpu.ladder.net import N_INPUTS

pytestmark = needs_toolkit
HIDDEN = 64  # two warps
PIECE = 8  # words that are moved together


@pytest.fixture(scope="module")
def wanted():
    """The words that the first block wants: {kernel: what warp_words gives}."""
    found = launches.ladder(HIDDEN)
    return {name: touches.warp_words(launch, (0, 0)) for name, launch in found.items()}


@pytest.mark.parametrize(
    ("name", "array", "kind", "n_pieces"),
    [
        ("forward_naive", "W1", "read", 32),
        ("forward_tiled", "W1", "read", 4),
        ("forward_coalesced", "W1", "read", 4),
        ("forward_shared", "W1", "read", 4),
        ("train_chunk", "W1", "read", 4),
        ("train_chunk", "V1", "write", 4),
        ("deltas_naive", "W2", "read", 4),
        ("deltas_coalesced", "W2", "read", 32),  # 40 bytes apart
        ("deltas_shared", "W2", "read", 32),
        ("update_hidden_naive", "W1", "read", 32),
        ("update_hidden_naive", "V1", "write", 32),
        ("update_hidden_coalesced", "W1", "read", 4),
        ("update_hidden_coalesced", "V1", "write", 4),
        ("update_outputs_coalesced", "W2", "write", 4),
        ("update_hidden_shared", "W1", "write", 4),
        ("update_outputs_shared", "W2", "write", 4),
    ],
)
def test_a_warp_moves_as_many_pieces_as_are_drawn(name, array, kind, n_pieces, wanted):
    steps = wanted[name][array, kind]
    for words in steps:
        assert len(words) == 32
        assert len(np.unique(words)) == 32
        assert len(np.unique(words // PIECE)) == n_pieces


@pytest.mark.parametrize(
    ("name", "array", "apart"),
    [
        ("forward_naive", "W1", N_INPUTS),
        ("forward_coalesced", "W1", 1),
        ("deltas_naive", "W2", 1),
        ("deltas_coalesced", "W2", 10),
        ("update_hidden_naive", "W1", N_INPUTS),
        ("update_hidden_coalesced", "W1", 1),
    ],
)
def test_how_far_apart_neighbours_read(name, array, apart, wanted):
    for words in wanted[name][array, "read"]:
        assert (np.diff(words) == apart).all()


@pytest.mark.parametrize("name", ["forward_naive", "forward_tiled", "forward_coalesced"])
def test_no_tile_spares_a_read(name, wanted):
    """For one image each weight is read once, by whatever way."""
    words = np.concatenate(wanted[name]["W1", "read"])
    assert sorted(words.tolist()) == list(range(HIDDEN * N_INPUTS))


def test_pixels_are_read_by_all_threads_of_a_warp_or_once(wanted):
    for words in wanted["forward_coalesced"]["images", "read"]:
        assert (words == words[0]).all()
    brought = np.concatenate(wanted["forward_shared"]["images", "read"])
    assert sorted(brought.tolist()) == list(range(N_INPUTS))


def test_reads_of_a_tile_meet_no_bank_conflict(wanted):
    """Its rows are 9 words apart; writing them, four rows of 8 words, two threads may meet."""
    found = wanted["forward_tiled"]
    reads = found["shared 0", "read"] + found["shared 1", "read"]
    assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in reads)
    writes = [access_stats.words_per_bank(words.tolist()) for words in found["shared 0", "write"]]
    assert max(writes) == 2


@pytest.mark.parametrize("name", ["forward_shared", "deltas_shared", "train_chunk"])
def test_other_accesses_to_shared_memory_meet_no_bank_conflict(name, wanted):
    shared = {key: steps for key, steps in wanted[name].items() if key[0].startswith("shared")}
    assert shared
    for key, steps in shared.items():
        assert all(access_stats.words_per_bank(words.tolist()) == 1 for words in steps), key
