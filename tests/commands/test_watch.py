"""`python -m experiments.watch`: its lines on run files, with and without a terminal."""

import os
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import factories
import pytest

from deepbig_runtime.errors import Interrupted, Problem
from experiments import watch
from experiments.training import store
from experiments.watch import Snapshot

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp()
WRITTEN = NOW - 7  # when the last epoch was saved


def utc(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def make_run(epochs=4, of=10, seconds=20.0, started=None, why="running", n_validation=None):
    """A run that was never trained. seconds: an epoch; started: of its last process, since 1970."""
    of_data = {"n_train": 6000, "n_validation": n_validation, "n_test": 200}
    metrics = {
        "validation_errors": [90, 30, 60, 45][:epochs] + [50] * (epochs - 4),
        "test_errors": [13, 7, 5, 9][:epochs] + [8] * (epochs - 4),
        "deform_seconds": [0.25 * seconds] * epochs,
        "train_seconds": [0.5 * seconds] * epochs,
        "evaluate_seconds": [0.25 * seconds] * epochs,
    }
    started = WRITTEN - seconds * epochs - 1 if started is None else started
    session = {"start": utc(started), "end": None if why == "running" else utc(NOW), "why": why}
    return factories.make_run(epochs, metrics, session, data=of_data, epochs=of)


def write(path, run):
    path.parent.mkdir(exist_ok=True)
    store.write_run(path, run)


def cells(run, now=NOW):
    """The cells of a run by their heads. Its name would garble the terminal."""
    found = watch.describe(Path("a\x1b[2Jb\n\udcffc.h5"), Snapshot((0, 0), WRITTEN, run), now)
    return dict(zip(watch.HEADINGS, found, strict=True))


def test_describe_a_run_in_training():
    run = make_run()
    for name in store.EPOCH_PARTS:
        getattr(run.metrics, name)[0] *= 10  # a standstill, which predicts nothing
    assert cells(run) == {
        "run": "a?[2Jb??c",
        "epoch": "4/10",
        "valid": "0.75",  # 45 of 6,000
        "test": "4.50",  # 9 of 200
        "TEfBV": "3.50",  # 7 of 200, where 30 were wrong in validation
        "rate": "600",  # 6,000 in 10 s
        "left": "0:01:53",  # 6 epochs of 20 s, less 7 s
        "state": "training",
    }
    assert cells(make_run(n_validation=500))["valid"] == "9.00"


@pytest.mark.parametrize(
    ("run", "age", "state", "left"),
    [
        (make_run(epochs=4, of=4, why="finished"), 9999, "finished", "-"),
        (make_run(why="the loss is gone"), 7, "stopped: the loss is gone", "-"),
        (make_run(seconds=40), 119, "training", "0:02:01"),
        (make_run(seconds=40), 121, "silent 0:02:01", "-"),  # three epochs
        (make_run(seconds=2), 59, "training", "0:00:00"),
        (make_run(seconds=2), 61, "silent 0:01:01", "-"),  # a minute
        (make_run(epochs=9), -5, "training", "0:00:20"),  # another machine's clock is ahead
    ],
)
def test_describe_shows_the_state_and_the_time_left(run, age, state, left):
    found = cells(run, WRITTEN + age)
    assert (found["state"], found["left"]) == (state, left)


def test_describe_all_sorts_newest_first_and_finished_last():
    snapshots = {
        "old": Snapshot((0, 0), WRITTEN, make_run(started=NOW - 500)),
        "done": Snapshot((0, 0), WRITTEN, make_run(epochs=10, started=NOW - 200)),
        "bad": Snapshot((0, 0), 0.0, None, "damaged"),
        "new": Snapshot((0, 0), WRITTEN, make_run(started=NOW - 100)),
        "done too": Snapshot((0, 0), WRITTEN, make_run(epochs=10, started=NOW - 190)),
        "also new": Snapshot((0, 0), WRITTEN, make_run(started=NOW - 100)),
    }
    snapshots = {Path(name): snapshot for name, snapshot in snapshots.items()}
    names = [row[0] for row in watch.describe_all(snapshots, NOW)]
    assert names == ["also new", "new", "old", "bad", "done too", "done"]


ROWS = [
    ["table1/net1-seed0", "4/2300", "0.75", "4.50", "3.50", "12345", "0:10:00", "training"],
    ["b/net2", "10/10", "10.00", "9.00", "3.00", "600", "-", "stopped: the loss is no number"],
    ["b/net3", "-", "-", "-", "-", "-", "-", "damaged, or no run file"],
]


def test_table_wide_is_whole():
    assert watch.table(ROWS, 120) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run                epoch valid test TEfBV  rate    left state",
        "table1/net1-seed0 4/2300  0.75 4.50  3.50 12345 0:10:00 training",
        "b/net2             10/10 10.00 9.00  3.00   600       - stopped: the loss is no number",
        "b/net3                 -     -    -     -     -       - damaged, or no run file",
    ]


def test_table_narrow_cuts_names_then_states():
    assert watch.table(ROWS, 60) == [
        "1 of 3 runs training; errors in %, rate in images/s",
        "run       epoch valid test TEfBV  rate    left state",
        "~1-seed0 4/2300  0.75 4.50  3.50 12345 0:10:00 training",
        "b/net2    10/10 10.00 9.00  3.00   600       - stopped: the~",
        "b/net3        -     -    -     -     -       - damaged, or ~",
    ]
    for width in range(1, 140):
        assert max(map(len, watch.table(ROWS, width))) <= width


def test_table_low_says_how_many_runs_are_hidden():
    whole = watch.table(ROWS, 120)
    assert watch.table(ROWS, 120, 5) == whole
    assert watch.table(ROWS, 120, 4) == [*whole[:3], "and 2 more"]
    assert watch.table(ROWS, 120, 2) == [whole[0], "and 3 more"]
    assert watch.table(ROWS, 120, 1) == ["and 3 more"]


def test_a_drawing_replaces_the_one_before(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "5")
    head, columns, row, more = watch.table(ROWS, 60, 4)
    assert watch.draw(ROWS) == (
        f"\x1b[H\x1b[K{head}\n\x1b[K{columns}\n\x1b[K{row}\n\x1b[K{more}\n\x1b[J"
    )


def test_scan_reads_new_and_changed_files_alone(tmp_path, monkeypatch):
    read, reads = store.read_run, []
    monkeypatch.setattr(store, "read_run", lambda path: reads.append(path.name) or read(path))
    a, b, bad = (tmp_path / name for name in ("a.h5", "sub/b.h5", "bad.h5"))
    write(a, make_run())
    bad.write_text("not HDF5")
    (tmp_path / "a.weights.h5").touch()
    first = watch.scan([tmp_path], {})
    assert watch.scan([tmp_path], first) == first
    assert sorted(reads) == ["a.h5", "bad.h5"]
    write(b, make_run())
    found = watch.scan([tmp_path], first)
    assert set(found) == {a, bad, b}
    # The same size, but another time.
    bad.write_bytes(b"not  HDF")
    os.utime(bad, ns=(0, 0))
    watch.scan([tmp_path], found)
    assert reads[2:] == ["b.h5", "bad.h5"]


def test_files_that_cannot_be_read_are_named(tmp_path):
    gone, bad, folder = (tmp_path / name for name in ("gone.h5", "bad.h5", "folder.h5"))
    write(gone, make_run())
    bad.write_bytes(gone.read_bytes()[:-1])
    folder.mkdir()
    first = watch.scan([tmp_path], {})
    gone.unlink()
    found = watch.scan([tmp_path], first)
    assert found[bad].fault.startswith("is damaged, or none of this project's")
    assert found[folder].fault == "cannot read it: Is a directory"
    assert found[gone].fault == "cannot read it: No such file or directory"
    write(gone, make_run())
    write(bad, make_run())
    found = watch.scan([tmp_path], found)
    assert [row[1] for row in watch.describe_all(found, NOW)] == ["4/10", "4/10", "-"]


def test_without_a_terminal_it_prints_once_and_cuts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-name-that-is-far-too-long-for-a-terminal-of-eighty-columns-but-not-for-a-file"
    write(tmp_path / "runs" / f"{name}.h5", make_run(why="SIGINT"))
    monkeypatch.chdir(tmp_path)
    watch.main([])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == "0 of 1 run training; errors in %, rate in images/s"
    path = f"runs/{name}"
    assert row.split() == [path, "4/10", "0.75", "4.50", "3.50", "600", "-", "stopped:", "SIGINT"]
    monkeypatch.setenv("COLUMNS", "60")
    watch.main([str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()[2]) <= 60


def test_nothing_there(tmp_path):
    with pytest.raises(Problem, match=f"there is no run in {tmp_path}: train one with"):
        watch.main([str(tmp_path)])
    with pytest.raises(Problem, match=f"there is no {tmp_path}/no.h5: name run files or"):
        watch.main([str(tmp_path), str(tmp_path / "no.h5")])


def test_on_a_terminal_it_redraws_until_ctrl_c(tmp_path, monkeypatch, capsys):
    drawn = []

    def sleep(seconds):
        drawn.append(capsys.readouterr().out)
        write(tmp_path / "a.h5", make_run(epochs=5))
        if len(drawn) > 1:
            raise Interrupted(signum)

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(watch.time, "sleep", sleep)
    write(tmp_path / "a.h5", make_run())
    signum = signal.SIGINT
    watch.main([str(tmp_path)])
    assert [watch.HOME in text for text in drawn] == [True, True]
    assert [re.findall(r"\d/10", text) for text in drawn] == [["4/10"], ["5/10"]]
    assert capsys.readouterr().out == "\n"  # behind the table, which stays
    signum = signal.SIGTERM
    with pytest.raises(Interrupted):
        watch.main([str(tmp_path)])


def test_on_a_terminal_once_prints_all_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("LINES", "6")
    for i in range(9):
        write(tmp_path / f"net{i}.h5", make_run())
    watch.main(["--once", str(tmp_path)])
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 11
    assert "\x1b" not in text
