"""The cells that are drawn: that the file says what the kernels do now."""

from programs import needs_toolkit

from experiments import kernels
from experiments.benchmarks.executor import SIGNATURES
from experiments.drawing import launches, traces
from experiments.drawing.thread_maps import VIEWS


def test_every_kernel_has_a_launch_and_a_drawing():
    expected = {kernel.py_func.__name__ for kernel in SIGNATURES}
    assert set(launches.make_launches()) == expected
    assert {view.name.split()[0] for view in VIEWS} == expected


@needs_toolkit
def test_traces_file_is_what_executed_kernels_touch(tmp_path, monkeypatch, capsys):
    kept, new = traces.PATH, tmp_path / "traces.json"
    monkeypatch.setattr(traces, "PATH", new)
    kernels.main(["--trace"])
    assert new.read_bytes() == kept.read_bytes()
    assert capsys.readouterr().out == f"written to {new}\n"
