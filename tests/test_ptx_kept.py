"""Tests of experiments/ptx/kept.py: what the next process need not compile again."""

from types import SimpleNamespace

import numpy as np
from llvmlite.binding import FeatureMap
from ptx_kernels import text_of

from experiments.ptx import checks, device, kept, machine_code
from experiments.ptx.device import Executor
from experiments.ptx.run import Allocation, Program, View
from mlp_gpu.gpu import cuda
from mlp_gpu.kernels import update

TABLE = ".const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};"
READ_TABLE = """
.reg .b64 %d; .reg .b64 %x;
mov.u64 %d, table; ld.const.b64 %x, [%d]; st.global.b64 [%a0], %x;
"""


def read_table(program):
    """What the kernel of READ_TABLE writes."""
    found = np.zeros(1, np.uint64)
    there = Allocation.at(found.ctypes.data, found.nbytes, found.itemsize)
    address = np.uint64(found.ctypes.data).tobytes()
    program.launch("k", (1,), (1,), [address], [View(there, 0, found.nbytes, "found")])
    return found.tobytes()


def test_machine_code_is_kept_for_the_same_kernel_and_processor(tmp_path, monkeypatch):
    translated = []

    def translate(*arguments):
        translated.append(arguments)
        return machine_code_translates(*arguments)

    machine_code_translates = machine_code.translate
    monkeypatch.setattr(machine_code, "translate", translate)
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    ptx = text_of(READ_TABLE, 1, before=TABLE)
    # All at once, so that each has its table at another address.
    programs = [Program(ptx, keep=keep) for keep in (False, True, True)]
    assert [read_table(program) for program in programs] == [bytes(range(1, 9))] * 3
    assert len(translated) == 2
    other = Program(text_of(READ_TABLE, 1, before=TABLE.replace("8}", "9}")), keep=True)
    assert read_table(other) == bytes([*range(1, 8), 9])
    monkeypatch.setattr(machine_code.llvm, "get_host_cpu_features", FeatureMap)
    assert read_table(Program(ptx, keep=True)) == bytes(range(1, 9))
    assert len(translated) == 4


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
    monkeypatch.setattr(device, "Program", lambda ptx, keep: (ptx, keep))
    ours, theirs = update.update_weights, cuda.jit(lambda out: None)
    signatures = {ours: device.SIGNATURES[ours], theirs: "void(float32[::1])"}
    found = []
    for _ in range(2):
        for cc in ((7, 5), (10, 0)):
            executor = Executor(cc, signatures=signatures)
            found += [executor.program(kernel)[0] for kernel in signatures]
    assert [keep for _, keep in found] == [True, False] * 4
    assert found[:4] == found[4:]
    assert len(set(found)) == 4
    names = [name for name, _ in compiled]
    assert (names.count("update_weights"), names.count("<lambda>")) == (2, 4)
    other = Executor((7, 5), signatures={ours: "void(float32[::1])"})
    other.program(ours)
    assert len(compiled) == 7
