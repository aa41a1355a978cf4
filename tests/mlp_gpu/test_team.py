"""Threads that wait for one another in compiled code."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from waiting import HANG_SECONDS

from mlp_gpu import team


@pytest.fixture
def executor():
    with ThreadPoolExecutor(8) as threads:
        yield threads


@numba.njit(nogil=True)
def passed_on(thread, barrier, n_threads, numbers, rounds):
    """Each thread adds the number that its neighbour wrote before. Returns its last number."""
    times = 0
    for step in range(rounds):
        numbers[(step + 1) % 2, thread] = numbers[step % 2, (thread + 1) % n_threads] + thread
        times = team.wait(barrier, n_threads, times)
    return numbers[rounds % 2, thread]


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_nobody_goes_on_before_all_have_come(executor, n_threads):
    rounds = 2000
    numbers, expected = np.zeros((2, n_threads), np.int64), np.zeros(n_threads, np.int64)
    for _ in range(rounds):
        expected = np.roll(expected, -1) + np.arange(n_threads)
    found = team.run(
        executor, n_threads, lambda thread, at: passed_on(thread, at, n_threads, numbers, rounds)
    )
    assert found == list(expected)


@pytest.mark.skipif(team.IS_WINDOWS, reason="there waiting threads never sleep")
def test_who_waits_for_long_leaves_its_core_to_others(executor):
    """By the processor's time, which other programs do not make longer."""
    numbers, seconds = np.zeros((2, 2), np.int64), 0.3

    def work(thread, barrier):
        if thread == 1:
            time.sleep(seconds)
        before = time.thread_time()
        passed_on(thread, barrier, 2, numbers, 1)
        return time.thread_time() - before

    passed_on(0, team.new_barrier(), 1, numbers, 1)  # compiles
    assert team.run(executor, 2, work)[0] < seconds / 2


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_whoever_fails_breaks_the_team_up(culprit):
    """Without that, the others would wait for ever."""
    numbers = np.zeros((2, 3), np.int64)

    def work(thread, barrier):
        if thread == culprit:
            raise SystemExit
        return passed_on(thread, barrier, 3, numbers, 1000)

    before = threading.active_count()
    with pytest.raises(SystemExit), ThreadPoolExecutor(2) as threads:
        team.run(threads, 3, work)
    assert threading.active_count() == before


def test_a_thread_that_cannot_be_started_breaks_the_team_up(executor, monkeypatch):
    numbers, submit = np.zeros((2, 3), np.int64), executor.submit

    def submit_one(work, thread):
        if thread == 2:
            raise RuntimeError("can't start new thread")
        return submit(work, thread)

    monkeypatch.setattr(executor, "submit", submit_one)
    with pytest.raises(RuntimeError, match="start new thread"):
        team.run(executor, 3, lambda thread, at: passed_on(thread, at, 3, numbers, 10))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parts_are_shared_by_as_many_threads(threads):
    meeting = threading.Barrier(threads, timeout=HANG_SECONDS)

    def work(part):
        if part < threads:  # each thread has one of these
            meeting.wait()
        return part, threading.get_ident()

    found = team.share(work, range(40), threads)
    assert [part for part, _ in found] == list(range(40))
    threads_seen = {ident for _, ident in found}
    assert len(threads_seen) == threads
    assert (threads_seen == {threading.get_ident()}) == (threads == 1)


def test_what_a_part_raises_is_raised():
    for threads in (1, 3):
        with pytest.raises(ZeroDivisionError):
            team.share(lambda part: 1 / part, range(3), threads)


def chosen_threads(monkeypatch, *phases):
    """Threads of each chunk of 100 images, of up to 4.

    phases: number of chunks, images a second by the number of threads, part of its time that a
    thread has a core.
    """
    now = [0.0]  # seconds, which pass only when something is simulated
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time)
    monkeypatch.setattr(team, "time", clock)
    pace, chosen = team.Pace(4), []
    for n_chunks, rates, busy in phases:
        for _ in range(n_chunks):
            chosen.append(pace.threads)
            with pace.measured(100):
                now[0] += 100 / rates[pace.threads]
                pace._busy = busy
    return chosen


def test_pace_keeps_all_threads_that_have_their_cores(monkeypatch):
    assert chosen_threads(monkeypatch, (30, {4: 100}, 0.95)) == 30 * [4]


def test_pace_goes_back_where_fewer_threads_are_slower(monkeypatch):
    """It tries again from time to time."""
    assert chosen_threads(monkeypatch, (8, {4: 100, 2: 60}, 0.5)) == [4, 2, 4, 4, 4, 4, 4, 2]


def test_pace_takes_fewer_threads_where_they_are_faster_until_others_have_ended(monkeypatch):
    beside_others = 60, {4: 10, 2: 30, 1: 70}, 0.5
    chosen = chosen_threads(monkeypatch, beside_others, (90, {1: 100, 2: 180, 4: 300}, 1.0))
    assert chosen[:4] == [4, 2, 2, 1]
    assert set(chosen[4:60]) == {1}
    assert chosen[-1] == 4
