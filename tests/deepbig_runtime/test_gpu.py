"""What is said where no GPU can be used, and which engine is taken then."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from programs import run
from waiting import HANG_SECONDS

from deepbig_runtime import driver, gpu
from deepbig_runtime.faults import GpuFault
from experiments import table1
from experiments.datasets.dataset import Dataset
from experiments.training import gpu_trial, nets, plans
from mlp_gpu import cuda, engines
from mlp_gpu.cpu import CpuEngine
from mlp_gpu.cuda import device_bytes
from mlp_gpu.network import NETS
from mlp_gpu.window import engine as window_engine

pytestmark = pytest.mark.skipif(gpu.SIMULATED, reason="the simulator needs no driver")


class CUDAError(Exception):
    """Like that of cuda.core, which is no error of numba's."""


NO_DRIVER = "Error at driver init: \n\nCUDA driver library cannot be found.\nEnsure that ...\n:"


@pytest.fixture
def machine(monkeypatch):
    """A function that makes the machine look as if its driver and GPU were so."""

    def make(version=(13, 0), free=80e9, cc=(9, 0), init=None, context=None):
        def get_version():
            if init:
                raise gpu.cuda.CudaSupportError(init)
            return version

        def current_context():
            if context:
                raise CUDAError(context)
            return SimpleNamespace(get_memory_info=lambda: SimpleNamespace(free=free))

        monkeypatch.setattr(driver, "is_missing", lambda: init == NO_DRIVER)
        monkeypatch.setattr(gpu_trial, "try_gpu", lambda: gpu_trial.Trial(gpu.missing()))
        monkeypatch.setattr(gpu.cuda.cudadrv.driver, "get_version", get_version)
        monkeypatch.setattr(gpu.cuda, "current_context", current_context)
        monkeypatch.setattr(
            gpu.cuda, "get_current_device", lambda: SimpleNamespace(compute_capability=cc)
        )
        monkeypatch.setattr(gpu.cuda.cudadrv.nvrtc, "get_lowest_supported_cc", lambda: (7, 5))
        monkeypatch.setattr(gpu.metadata, "version", lambda name: "12.9.1")

    return make


def choose(choice, n_bytes=0, tell=pytest.fail):
    """The engine's name, where nothing should be told unless the test takes it."""
    return engines.choose_engine(choice, lambda: gpu.missing(n_bytes), tell)


@pytest.mark.parametrize(
    ("state", "start"),
    [
        ({"init": NO_DRIVER}, "there is no NVIDIA driver on this machine; install one"),
        (
            {"init": "Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)"},
            "the NVIDIA driver finds no GPU (CUDA_ERROR_NO_DEVICE); see",
        ),
        (
            {"version": (11, 8)},
            "the NVIDIA driver is too old: it knows CUDA 11.8 and the installed packages need "
            "CUDA 12; update",
        ),
        ({"cc": (6, 1)}, "the GPU is too old: its compute capability is 6.1 and the installed"),
        (
            {"free": 1_250_000_000},
            "the GPU has too little free memory: 2,000 MB are needed and 1,250 MB are free; end",
        ),
        (
            {"context": "Call to cuDevicePrimaryCtxRetain\nresults in CUDA_ERROR_UNKNOWN"},
            "no GPU can be used: Call to cuDevicePrimaryCtxRetain results in CUDA_ERROR_UNKNOWN; s",
        ),
        ({"context": "CUDA_ERROR_OUT_OF_MEMORY: The API call"}, "the GPU has no memory free; end"),
    ],
    ids=["driver", "device", "old", "capability", "memory", "other", "full"],
)
def test_what_is_missing_is_told(machine, state, start):
    machine(**state)
    sentence = gpu.missing(2_000_000_000)
    assert sentence.startswith(start)
    told = []
    assert choose("auto", 2_000_000_000, told.append) == "cpu"
    assert told == [f"no GPU is used: {sentence}"] * (sentence != driver.MISSING)
    with pytest.raises(GpuFault) as fault:
        choose("cuda", 2_000_000_000)
    assert str(fault.value) == f"{sentence}; engine cpu needs no GPU"
    assert choose("cpu", 2_000_000_000) == "cpu"


def test_a_usable_gpu_is_taken(machine, monkeypatch):
    machine(version=(12, 2), free=5_000_000, cc=(7, 5))
    assert gpu.missing(5_000_000) is None
    made = []
    monkeypatch.setattr(cuda, "CudaEngine", lambda schedule: made.append(schedule) or made)
    assert choose("auto") == choose("cuda") == "cuda"
    assert choose("cpu") == "cpu"
    assert engines.make_engine("cuda") is made
    assert engines.make_engine("cuda", "launch") is made
    assert made == ["graph", "launch"]
    assert isinstance(engines.make_engine("cpu"), CpuEngine)


def test_numba_cuda_is_missing(machine, monkeypatch):
    machine()
    monkeypatch.delattr(gpu.cuda, "implementation")
    assert "numba-cuda is not installed: pip install 'numba-cuda[cu12]'" in gpu.missing()
    machine(init=NO_DRIVER)
    assert gpu.missing() == driver.MISSING


def test_numpy_gets_the_function_that_numba_cuda_overloads():
    code = "vars(np).pop('row_stack', None); from deepbig_runtime import gpu; np.row_stack"
    assert run("-c", f"import numpy as np; {code}").returncode == 0


def test_table1_asks_for_the_memory_of_its_largest_net(machine, capsys, tmp_path):
    machine(free=100_000_000)
    argv = ["--data", "digits", "--engine", "cuda", "--out", str(tmp_path), "--nets"]
    net_4 = window_engine.device_bytes(NETS[4], 1437)  # of the schedule that takes the most
    assert device_bytes(NETS[4], 1437) < net_4 < 1.5 * device_bytes(NETS[4], 1437)
    deformation = 3 * 4 * 1437 * 841  # bytes of images: as they are, of this epoch and the next
    message = f"memory: {(net_4 + deformation) / 1e6:.0f} MB are needed and 100 MB are free"
    with pytest.raises(GpuFault, match=message):
        table1.main([*argv, "1,4,2"])
    assert list(tmp_path.iterdir()) == []


def test_images_of_your_own_need_the_memory_of_their_size():
    images = np.zeros((5, 64, 64, 3), np.uint8)
    dataset = Dataset("own", images, images, images, images, "", "", classes=("cup", "hat"))
    needed = window_engine.device_bytes((64 * 64 * 3, *NETS[4][1:-1], 2), 5)
    assert nets.needed_bytes([NETS[4]], lambda: dataset) == needed


def test_a_gpu_trains_whole_epochs_that_come_to_an_end_by_default():
    arguments, quick_plan = table1.parse_arguments([]), plans.QUICK_TABLE1["MNIST"][4]
    assert plans.choose(arguments, "cuda", 60_000, quick_plan) == plans.SHORT
    assert plans.SHORT.n_images is None
    assert plans.SHORT.schedule.eta_of(plans.SHORT.schedule.epochs) < 1e-4
    ended = plans.PAPER_NATURAL["norb"]  # the paper's own has fewer epochs
    assert plans.choose(arguments, "cuda", 60_000, quick_plan, ended) == ended
    assert plans.announce(arguments, "cuda") == "profile short; --profile paper is the paper's"
    quick = table1.parse_arguments(["--profile", "quick"])
    assert plans.choose(quick, "cuda", 60_000, quick_plan) == quick_plan
    few = table1.parse_arguments(["--epochs", "9"])
    assert plans.announce(few, "cuda") == "epochs: 9; --profile paper is the paper's"


class Library:
    """A driver's library that knows a version of CUDA, or answers with an error."""

    def __init__(self, version, status=0):
        self.version, self.status = version, status

    def cuDriverGetVersion(self, pointer):
        pointer._obj.value = self.version
        return self.status


@pytest.mark.parametrize(
    ("library", "extra"),
    [
        (None, ""),
        (Library(12090), "cu12"),
        (Library(13000), "cu13"),
        (Library(13000, status=999), ""),
    ],
)
def test_cuda_extra_fits_the_driver(monkeypatch, library, extra):
    monkeypatch.setattr(driver, "_load", lambda: library)
    assert driver.cuda_extra() == extra


def test_kernel_is_compiled_by_one_thread_and_then_launched_by_several_at_once(monkeypatch):
    calls, both = [], threading.Barrier(2, timeout=HANG_SECONDS)

    class Kernel:
        py_func = None

        def __getitem__(self, configuration):
            return self.call

        def call(self, *arguments):
            calls.append("begin")
            if is_compiled:
                both.wait()
            else:
                time.sleep(0.2)  # in which the other thread would begin, too
            calls.append("end")

    monkeypatch.setattr(gpu, "keep", lambda kernel, *_: calls.append("kept"))
    monkeypatch.setattr(gpu, "_kept_kernel", lambda: None)
    launch = gpu.Launch(Kernel(), (1, 1), 32, ())
    with ThreadPoolExecutor(2) as threads:
        is_compiled = False
        list(threads.map(launch, [None, None]))
        assert calls == ["kept", "begin", "end", "begin", "end"]
        is_compiled = True
        list(threads.map(launch, [None, None]))
