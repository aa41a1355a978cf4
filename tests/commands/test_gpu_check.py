"""`python -m experiments.gpu_check`, where there is no GPU: what it does with its checks."""

import json
import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import programs
import pytest
from waiting import HANG_SECONDS

from deepbig_runtime import gpu
from deepbig_runtime.errors import Interrupted, Problem
from deepbig_runtime.files import FileFault
from experiments import gpu_check
from experiments.benchmarks import gpu_checks
from experiments.benchmarks.gpu_checks import CheckResult
from experiments.training.gpu_trial import Trial
from mlp_gpu.network import NETS


def test_command_without_a_gpu_ends_with_status_2(tmp_path):
    command = "-m", "experiments.gpu_check", "--out", tmp_path / "out"
    done = programs.run(*command, NUMBA_ENABLE_CUDASIM="1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: there is no GPU to check: numba only simulates a GPU, ")
    assert not (tmp_path / "out").exists()


CLOCK = SimpleNamespace(monotonic=lambda: 0, perf_counter=time.perf_counter)
NAMES = ["GPU", "self-test", "net 1, window", "net 1, graph", "net 1, CPU"]
NAMES += [f"net {net}, {way}" for net in (2, 3, 4, 5) for way in ("window", "graph")]
NAMES += ["deformation, CPU and GPU", "net 1, CPU and GPU", "net 1 in windows, CPU and GPU"]
NAMES += ["net 3 of 2011, CPU and GPU", "net 1, deformed meanwhile"]
NAMES += ["841-800-10, several at once", "net 4, several at once"]
NAMES += ["tests on the GPU", "memcheck", "racecheck", "benchmarks"]
NAMES += ["net 1, 75 epochs", "net 4, the paper's schedule"]


CHECKS = "epochs", "deformation", "engines", "ahead", "at_once"
CHECKS += "bench", "tests", "sanitizer", "training"


@pytest.fixture
def fakes(monkeypatch):
    """A GPU and checks that pass; the calls of the checks are written down."""
    called = []

    def fake(name):
        def check(*arguments):
            called.append((name, *arguments))
            return CheckResult(True, f"{name} passed", {"made by": name})

        return check

    def alone(function, *given, seconds):
        assert 0 < seconds <= 300
        return function(*given)

    for name in CHECKS:
        monkeypatch.setattr(gpu_checks, f"check_{name}", fake(name))
    monkeypatch.setattr(gpu_check, "alone", alone)
    monkeypatch.setattr(gpu_check.gpu_trial, "try_gpu", lambda: Trial(None, {"weights": 1e-5}))
    monkeypatch.setattr(gpu_check, "missing_toolkit", lambda: None)
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU 9000")
    monkeypatch.setattr(gpu, "driver_version", lambda: "580.1, CUDA 13.0")
    return called


def run_main(folder):
    gpu_check.main(["--data", "digits", "--out", str(folder)])


def read(folder):
    return json.loads((folder / "gpu-check.json").read_text())


def test_record_and_table(fakes, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "results" / "some-gpu-9000"
    monkeypatch.setattr(gpu_check.provenance, "REPOSITORY", tmp_path)
    monkeypatch.setattr(gpu_check, "time", CLOCK)
    gpu_check.main(["--data", "digits", "--data-dir", str(tmp_path), "--limit", "60"])
    found, said = read(folder), capsys.readouterr()
    rows = {row["check"]: row for row in found["checks"]}
    assert found["passed"] is True
    assert list(rows) == NAMES
    assert rows["GPU"]["result"] == "Some GPU 9000, driver 580.1, CUDA 13.0"
    assert rows["self-test"]["result"] == "differences up to 1e-05"
    assert all(row["passed"] is True for row in rows.values())
    assert rows["tests on the GPU"]["details"] == {"made by": "tests"}
    source = found["provenance"]
    commit = source["commit"] + "-dirty" * source["dirty"]
    assert {row["commit"] for row in rows.values()} == {commit}
    assert all(source["start"] <= row["date"] <= source["end"] for row in rows.values())
    assert (source["device"], source["driver"]) == ("Some GPU 9000", "580.1, CUDA 13.0")

    by_name = {name: [call[1:] for call in fakes if call[0] == name] for name in CHECKS}
    found = [" ".join(map(str, how)) for _, *how in by_name["epochs"]]
    expected = ["1 cuda window 2", "1 cuda graph 2", "1 cpu graph 2"]
    assert found == expected + [f"{n} cuda {way} 1" for n in "2345" for way in ("window", "graph")]
    assert [how[0] for how in by_name["sanitizer"]] == ["memcheck", "racecheck"]
    assert [how[1:] for how in by_name["engines"]] == [("graph",), ("window",), ("cnn",)]
    assert [how[1:] for how in by_name["at_once"]] == [((841, 800, 10),), (NETS[4],)]
    compared = [how for name in CHECKS[1:5] for how in by_name[name]]
    assert [dataset.name for dataset, *_ in compared] == ["load_digits"] * 7
    assert by_name["bench"] == [(folder, "Some GPU 9000", gpu_check.SECONDS["kernels"])]
    common = f"--engine cuda --data digits --data-dir {tmp_path} --limit 60"
    assert [(str(path), " ".join(options), s) for path, options, s in by_name["training"]] == [
        (
            f"runs/gpu-check/{profile}/net{net}-seed0-load_digits.h5",
            f"--nets {net} --profile {profile} {common}",
            seconds,
        )
        for net, profile, seconds in ((1, "short", 600), (4, "paper", 60 * 8))
    ]
    assert [f"{name} ..." in said.err for name in NAMES] == [True] * len(NAMES)


def test_minutes_leave_out_items_and_shorten_those_that_can_be_stopped(
    fakes, tmp_path, monkeypatch, capsys
):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        gpu_check, "time", SimpleNamespace(monotonic=lambda: clock.now, perf_counter=lambda: 0)
    )
    passed = gpu_checks.check_sanitizer

    def takes_a_minute(*arguments):
        clock.now += 60
        return passed(*arguments)

    monkeypatch.setattr(gpu_checks, "check_sanitizer", takes_a_minute)
    options = ["--data", "digits", "--out", str(tmp_path), "--minutes"]
    gpu_check.main([*options, "3"])
    assert "comparisons is left out: it takes some 200 s, and 180 s are left" in (
        capsys.readouterr().err
    )
    assert [row["check"] for row in read(tmp_path)["checks"]] == [*NAMES[:13], *NAMES[20:]]
    seconds = {call[0]: [other[-1] for other in fakes if other[0] == call[0]] for call in fakes}
    assert seconds["tests"] == [180]
    assert seconds["sanitizer"] == [180, 120]
    assert seconds["bench"] == [30]
    assert seconds["training"] == [30, 60]
    clock.now = 0
    run_main(tmp_path)
    assert read(tmp_path)["passed"] is True
    monkeypatch.setattr(gpu_check.compiled_cache, "NOT_KEPT", "others may enter the folder")
    gpu_check.main([*options, "3"])  # items that are left out keep their results
    assert "each check compiles anew: others may enter the folder" in capsys.readouterr().err
    assert [row["check"] for row in read(tmp_path)["checks"]] == NAMES
    del fakes[:]
    gpu_check.main([*options, "3", "--only", "gpu,kernels"])  # no training follows
    assert [call[-1] for call in fakes if call[0] == "bench"] == [180]
    with pytest.raises(Problem, match=r"none of the items fits into 0\.2 minutes"):
        gpu_check.main([*options, "0.2"])


def test_items_not_asked_for_keep_their_results(fakes, tmp_path):
    """And nothing of them is run; a record that is not whole has not passed."""
    gpu_check.main(["--data", "digits", "--out", str(tmp_path), "--only", "comparisons"])
    assert [row["check"] for row in read(tmp_path)["checks"]] == NAMES[13:20]
    assert read(tmp_path)["passed"] is False
    assert {call[0] for call in fakes} == {"deformation", "engines", "ahead", "at_once"}
    run = ["--data", "digits", "--out", str(tmp_path), "--only"]
    gpu_check.main([*run, "gpu,tests"])
    names = [row["check"] for row in read(tmp_path)["checks"]]
    assert names == [*NAMES[:2], *NAMES[13:20], "tests on the GPU"]


def test_checks_that_fail_or_raise_give_status_1_and_stop_no_other(
    fakes, tmp_path, monkeypatch, capsys
):
    def break_off(dataset, case):
        raise ValueError("no\n good " * 100)

    def judge(tool, seconds):
        return CheckResult(tool[0] == "m", "so so")

    monkeypatch.setattr(gpu_checks, "check_engines", break_off)
    monkeypatch.setattr(gpu_checks, "check_sanitizer", judge)
    with pytest.raises(SystemExit) as left:
        run_main(tmp_path)
    failed = [*NAMES[14:17], "racecheck"]
    assert left.value.code == f"failed: {', '.join(failed)}"  # which Python prints, for status 1
    assert fakes[-1][0] == "training"
    assert read(tmp_path)["passed"] is False
    row = read(tmp_path)["checks"][14]
    assert row["passed"] is False
    assert row["result"].startswith("ValueError: no\n good")
    assert "in break_off" in row["details"]["traceback"]
    lines = capsys.readouterr().out.splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert [line[0] for line in table if line[1] == "no"] == failed
    assert table[2 + 14][2].startswith("ValueError: no good no")
    assert max(map(len, lines)) < 300


def test_signal_keeps_earlier_results(fakes, tmp_path, monkeypatch):
    def interrupt(dataset, case):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(gpu_checks, "check_engines", interrupt)
    with pytest.raises(Interrupted):
        run_main(tmp_path)
    found = read(tmp_path)
    assert found["passed"] is False
    assert [row["check"] for row in found["checks"]] == NAMES[:14]


def test_damaged_record_is_refused_and_stays(fakes, tmp_path):
    (tmp_path / "gpu-check.json").write_text("<<<<<<<")
    with pytest.raises(FileFault, match=r"gpu-check\.json"):
        run_main(tmp_path)
    assert (tmp_path / "gpu-check.json").read_text() == "<<<<<<<"
    assert fakes == []


def test_bad_input_is_refused_before_any_check(fakes, tmp_path, monkeypatch):
    with pytest.raises(Problem, match="no such folder"):
        gpu_check.main(["--data-dir", str(tmp_path / "nowhere"), "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        gpu_check.main(["--only", "gpu,nonsense"])
    with monkeypatch.context() as patch:
        patch.setattr(gpu_check, "find_spec", lambda name: None)
        with pytest.raises(Problem, match="need pytest; install it, or leave 'tests' out of"):
            run_main(tmp_path)
    monkeypatch.setattr(gpu_check, "missing_toolkit", lambda: "no compiler")
    with pytest.raises(Problem, match="there is no GPU to check: no compiler"):
        run_main(tmp_path)
    assert fakes == []


def end_badly(status):
    os._exit(status)


def test_check_has_a_process_of_its_own():
    """So it gives the GPU back, and leaves nothing to the next if it fails."""
    alone = partial(gpu_check.alone, seconds=HANG_SECONDS)
    assert alone(os.getpid) != os.getpid()
    with pytest.raises(ZeroDivisionError):
        alone(divmod, 1, 0)
    with pytest.raises(Problem, match="its process died"):
        alone(end_badly, 9)


def test_check_that_hangs_is_ended_with_its_traceback(capfd):
    with pytest.raises(Problem, match=r"its process died or took more than 0\.5 seconds;"):
        gpu_check.alone(time.sleep, 9999, seconds=0.5)
    said = capfd.readouterr().err
    assert "Timeout (0:00:00.5" in said
    assert " in _call\n" in said
