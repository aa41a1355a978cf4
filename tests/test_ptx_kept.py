"""Tests of what experiments/ptx keeps, so that the next process need not compile it again."""

from types import SimpleNamespace

import numpy as np
from llvmlite.binding import FeatureMap

from deepbig_runtime.gpu import cuda
from experiments.ptx import checks, device, kept, machine_code
from experiments.ptx.device import Executor
from experiments.ptx.run import Allocation, Program, View
from mlp_gpu.kernels import update

BEGINNING = ".version 7.0\n.target sm_75\n.address_size 64\n"
TABLE = ".const .align 4 .b8 table[8] = {7, 0, 0, 0, 0, 0, 0, 0};\n"
FROM_TABLE = "mov.u64 %x, table; ld.const.b64 %x, [%x];"


def kernel(name, body):
    """A kernel that writes what the body leaves in %x."""
    return (
        f".visible .entry {name}(.param .u64 p) {{ .reg .b64 %a; .reg .b64 %x; {body} "
        "ld.param.u64 %a, [p]; st.global.b64 [%a], %x; ret; }\n"
    )


def written(program, name):
    """The number that a kernel writes."""
    found = np.zeros(1, np.uint64)
    there = Allocation.at(found.ctypes.data, found.nbytes, found.itemsize)
    address = np.uint64(found.ctypes.data).tobytes()
    program.launch(name, (1,), (1,), [address], [View(there, 0, found.nbytes, "found")])
    return found[0]


def test_machine_code_is_kept_for_the_same_kernel_and_processor(tmp_path, monkeypatch):
    translate, translated = machine_code.translate, []

    def count(kernel, module):
        translated.append(kernel.name)
        return translate(kernel, module)

    checks.compiled_access()  # else it is compiled for the new folder
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(machine_code, "translate", count)
    ptx = BEGINNING + TABLE + kernel("first", FROM_TABLE) + kernel("second", "mov.u64 %x, 8;")
    # All at once, so that each has its table at another address.
    programs = [Program(ptx) for _ in range(3)]
    for name, number in (("first", 7), ("second", 8)):
        assert [written(program, name) for program in programs] == [number] * 3
    assert translated == ["first", "second"]
    assert written(Program(ptx.replace("{7", "{9").replace("8;", "6;")), "second") == 6
    assert len(translated) == 3
    for changed, value in ("get_host_cpu_features", FeatureMap()), ("get_host_cpu_name", "generic"):
        monkeypatch.setattr(machine_code.llvm, changed, lambda value=value: value)
        assert written(Program(ptx), "first") == 7
    assert len(translated) == 5


def test_compiled_checks_are_kept_and_damage_is_compiled_anew(tmp_path, monkeypatch):
    compiled = []

    def cfunc(signature):
        made = SimpleNamespace(native_name="name", inspect_llvm=lambda: "some\ncode")
        return lambda function: compiled.append(function) or made

    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(checks, "numba", SimpleNamespace(cfunc=cfunc))
    compile_access = checks.compiled_access.__wrapped__
    for _ in range(2):
        assert compile_access() == ("name", "some\ncode")
    assert compiled == [checks.access]
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for content in (b"", b"a\nb", whole[:-1], whole.replace(b"name", b"nave"), b"\xff"):
        path.write_bytes(content)
        assert compile_access() == ("name", "some\ncode")
        assert path.read_bytes() == whole
    assert len(compiled) == 6
    monkeypatch.setattr(checks, "get_process_triple", lambda: "another processor")
    assert compile_access() == ("name", "some\ncode")
    assert len(compiled) == 7
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "gone")
    assert compile_access() == ("name", "some\ncode")
    monkeypatch.setattr(kept, "FOLDER", None)
    assert compile_access() == ("name", "some\ncode")
    assert len(compiled) == 9


def test_the_ptx_of_our_kernels_is_kept_for_each_compute_capability(tmp_path, monkeypatch):
    """But never that of others, of which the folder's name knows nothing."""
    compiled = []

    def compile_ptx(function, signature, cc, lineinfo):
        compiled.append((function.__name__, cc))
        return "\n".join(map(str, compiled[-1])), None

    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(cuda, "compile_ptx", compile_ptx)
    monkeypatch.setattr(device, "Program", lambda ptx: ptx)
    ours, theirs = update.update_weights, cuda.jit(lambda out: None)
    signatures = {ours: device.SIGNATURES[ours], theirs: "void(float32[::1])"}
    found = []
    for _ in range(2):
        for cc in ((7, 5), (10, 0)):
            executor = Executor(cc, signatures=signatures)
            found += [executor.program(kernel)[0] for kernel in signatures]
    assert found[:4] == found[4:]
    assert len(set(found)) == 4
    names = [name for name, _ in compiled]
    assert (names.count("update_weights"), names.count("<lambda>")) == (2, 4)
    other = Executor((7, 5), signatures={ours: "void(float32[::1])"})
    other.program(ours)
    assert len(compiled) == 7
