"""The campaign's long training: that growth of any kind is found."""

from dataclasses import replace

import pytest

from campaign import commands, endurance
from campaign.endurance import MAX_GROWTH_BYTES, ROW_BYTES, Sample

EPOCHS = 1000


def samples(**growth):
    """Of a training that grows by these in every epoch."""
    steady = Sample(0, 1.0, 26_000, 10_000, 2**28, 4)
    made = []
    for epoch in range(EPOCHS):
        own = replace(steady, seconds=0.03 * epoch, run_bytes=26_000 + ROW_BYTES * epoch)
        grown = {name: getattr(own, name) + int(by * epoch) for name, by in growth.items()}
        made.append(replace(own, **grown))
    return made


def test_what_does_not_grow_holds():
    assert endurance.growth(samples(), EPOCHS) is None
    noise = [replace(s, open_files=4 + k % 2) for k, s in enumerate(samples())]
    noise[700] = replace(noise[700], memory_bytes=2**28 + MAX_GROWTH_BYTES)
    assert endurance.growth(noise, EPOCHS) is None
    early = [replace(s, memory_bytes=2**28 - 2**27 * (k < 150)) for k, s in enumerate(samples())]
    assert endurance.growth(early, EPOCHS) is None


@pytest.mark.parametrize(
    ("name", "by", "complaint"),
    [
        ("memory_bytes", 2**15, "memory grew by 25 MB"),
        ("open_files", 0.01, "more files are open"),
        ("run_bytes", 1, "the run file grew by"),
        ("weights_bytes", 1, "the weights file grew by 999 bytes"),
    ],
)
def test_growth_is_found(name, by, complaint):
    assert complaint in endurance.growth(samples(**{name: by}), EPOCHS)


def test_epochs_that_take_longer_are_found():
    made = [replace(s, seconds=1e-4 * k**2 / 2) for k, s in enumerate(samples())]
    assert "the last tenth of the epochs takes" in endurance.growth(made, EPOCHS)


def test_too_few_epochs_prove_nothing():
    assert "only 10 of 20 epochs were seen" in endurance.growth(samples()[:10], 20)


@pytest.mark.slow
def test_a_training_is_ended_when_the_time_is_up(tmp_path):
    commands.until(0)
    try:
        outcome = endurance.attempt(endurance.draw(None, 0), tmp_path, tmp_path)
    finally:
        commands.until(float("inf"))
    assert outcome.failure is None
    assert endurance.MIN_EPOCHS <= outcome.tries < endurance.GOAL
    assert endurance.draw(None, 1) is None
