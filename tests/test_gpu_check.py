"""`python -m experiments.gpu_check`, where there is no GPU: what it does with its checks."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments import gpu_check
from experiments.running.errors import Interrupted, Problem
from experiments.running.provenance import REPOSITORY
from experiments.timing import compiled, gpu_comparisons, gpu_programs
from experiments.timing.check_result import CheckResult
from mlp_gpu import gpu


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "error: there is no GPU to check: "),
        (
            {"NUMBA_ENABLE_CUDASIM": "1"},
            "error: there is no GPU to check: numba only simulates a GPU, ",
        ),
    ],
)
def test_without_a_gpu_one_sentence_and_status_2(variables, sentence, tmp_path):
    given = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"} | variables
    result = subprocess.run(
        [sys.executable, "-m", "experiments.gpu_check", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=given,
        check=False,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(sentence)
    assert not (tmp_path / "out").exists()


NAMES = ["GPU", "tests on the GPU", "memcheck", "racecheck", "deformation, CPU and GPU"]
NAMES += ["net 1, CPU and GPU", "net 1 in windows, CPU and GPU", "net 3 of 2011, CPU and GPU"]
NAMES += ["net 1, deformed meanwhile"]
NAMES += ["benchmarks"]


@pytest.fixture
def fakes(monkeypatch):
    """A GPU and checks that pass; the calls of the checks are written down."""
    called = []

    def fake(module, name, text):
        def check(*arguments):
            called.append((name, *arguments))
            return CheckResult(True, text, {"made by": name})

        monkeypatch.setattr(module, name, check)

    monkeypatch.setattr(gpu_check, "alone", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(gpu, "SIMULATED", False)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(compiled, "missing_toolkit", lambda: None)
    monkeypatch.setattr(gpu, "name", lambda: "Some GPU 9000")
    monkeypatch.setattr(gpu, "driver_version", lambda: "580.1, CUDA 13.0")
    fake(gpu_programs, "check_tests", "9 passed")
    fake(gpu_programs, "check_sanitizer", "clean")
    fake(gpu_comparisons, "check_deformation", "equal")
    fake(gpu_comparisons, "check_engines", "alike")
    fake(gpu_comparisons, "check_windows", "alike in windows")
    fake(gpu_comparisons, "check_cnn_engines", "alike too")
    fake(gpu_comparisons, "check_ahead", "hidden")
    fake(gpu_programs, "check_bench", "bench.csv")
    return called


def run_main(folder):
    gpu_check.main(["--data", "digits", "--out", str(folder)])


def read(folder):
    return json.loads((folder / "gpu-check.json").read_text())


def test_record_and_table(fakes, tmp_path, capsys):
    run_main(tmp_path / "new" / "folder")
    found = read(tmp_path / "new" / "folder")
    assert found["passed"] is True
    assert [row["check"] for row in found["checks"]] == NAMES
    assert [row["result"] for row in found["checks"]] == [
        "Some GPU 9000, driver 580.1, CUDA 13.0",
        "9 passed",
        "clean",
        "clean",
        "equal",
        "alike",
        "alike in windows",
        "alike too",
        "hidden",
        "bench.csv",
    ]
    assert all(row["passed"] is True and 0 <= row["seconds"] < 60 for row in found["checks"])
    assert found["checks"][1]["details"] == {"made by": "check_tests"}
    source = found["provenance"]
    assert (source["device"], source["driver"]) == ("Some GPU 9000", "580.1, CUDA 13.0")
    assert {"commit", "dirty", "versions", "start", "end"} <= set(source)
    assert "cuda-bindings" in source["versions"]

    assert [call[0] for call in fakes] == [
        "check_tests",
        "check_sanitizer",
        "check_sanitizer",
        "check_deformation",
        "check_engines",
        "check_windows",
        "check_cnn_engines",
        "check_ahead",
        "check_bench",
    ]
    assert [call[1] for call in fakes[1:3]] == ["memcheck", "racecheck"]
    assert [fakes[i][1].name for i in (3, 4, 5, 6, 7)] == ["load_digits"] * 5
    assert fakes[8][1] == tmp_path / "new" / "folder"

    said = capsys.readouterr()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.out.splitlines()]
    assert lines[0] == ["check", "result", "seconds"]
    assert [line[0] for line in lines[2:]] == NAMES
    assert lines[3] == ["tests on the GPU", "9 passed", "0"]
    assert "FAILED" not in said.out
    assert [f"{name} ..." in said.err for name in NAMES] == [True] * 10


def test_the_folder_is_named_after_the_gpu(fakes, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check.provenance, "REPOSITORY", tmp_path)
    gpu_check.main(["--data", "digits"])
    assert read(tmp_path / "results" / "some-gpu-9000")["passed"]


def test_a_failed_check_gives_status_1(fakes, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        gpu_programs, "check_sanitizer", lambda tool: CheckResult(tool[0] == "m", "so so")
    )
    monkeypatch.setattr(gpu_programs, "check_bench", lambda *_: CheckResult(False, "status 2"))
    with pytest.raises(SystemExit) as left:
        run_main(tmp_path)
    assert left.value.code == "failed: racecheck, benchmarks"  # which Python prints, for status 1
    assert read(tmp_path)["passed"] is False
    table = capsys.readouterr().out.splitlines()
    assert [("FAILED: " in line) for line in table] == [False] * 5 + [True] + [False] * 5 + [True]
    assert "| FAILED: so so" in table[5]


def test_a_check_that_breaks_off_does_not_stop_the_next(fakes, tmp_path, monkeypatch, capsys):
    def break_off(dataset):
        raise ValueError("no\n good " * 100)

    monkeypatch.setattr(gpu_comparisons, "check_engines", break_off)
    with pytest.raises(SystemExit, match="failed: net 1, CPU and GPU"):
        run_main(tmp_path)
    assert fakes[-1][0] == "check_bench"
    row = read(tmp_path)["checks"][5]
    assert row["passed"] is False
    assert row["result"].startswith("ValueError: no\n good")
    assert "in break_off" in row["details"]["traceback"]
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 12
    assert "| FAILED: ValueError: no good no" in table[7]
    assert max(map(len, table)) < 160


def test_a_signal_keeps_what_is_measured(fakes, tmp_path, monkeypatch):
    def interrupt(dataset):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(gpu_comparisons, "check_engines", interrupt)
    with pytest.raises(Interrupted):
        run_main(tmp_path)
    found = read(tmp_path)
    assert found["passed"] is False
    assert [row["check"] for row in found["checks"]] == NAMES[:5]


def test_bad_input_is_told_before_any_check(fakes, tmp_path):
    with pytest.raises(Problem, match="no such folder"):
        gpu_check.main(["--data-dir", str(tmp_path / "nowhere"), "--out", str(tmp_path)])
    assert fakes == []


def end_badly(status):
    os._exit(status)


def test_a_check_has_a_process_of_its_own():
    """So it gives the GPU back, and leaves nothing to the next if it fails."""
    assert gpu_check.alone(os.getpid) not in (os.getpid(), gpu_check.alone(os.getpid))
    with pytest.raises(ZeroDivisionError):
        gpu_check.alone(divmod, 1, 0)
    with pytest.raises(Problem, match="its process died;"):
        gpu_check.alone(end_badly, 9)


def test_a_check_that_hangs_is_ended_and_says_where_it_was(monkeypatch, capfd):
    monkeypatch.setattr(gpu_check, "LIMIT_SECONDS", 0.5)
    with pytest.raises(Problem, match=r"its process took more than 0\.5 seconds;"):
        gpu_check.alone(time.sleep, 600)
    said = capfd.readouterr().err
    assert "Timeout (0:00:00.5" in said
    assert " in _call\n" in said


def test_a_gpu_for_which_nothing_can_be_compiled_is_told(fakes, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "missing_toolkit", lambda: "no compiler")
    with pytest.raises(Problem, match="there is no GPU to check: no compiler"):
        run_main(tmp_path)
    assert fakes == []


def test_no_gpu_is_told(monkeypatch):
    monkeypatch.setattr(gpu_check, "alone", lambda function: ("none", {}))
    with pytest.raises(Problem, match="there is no GPU to check: none"):
        gpu_check.main(["--data", "digits"])
