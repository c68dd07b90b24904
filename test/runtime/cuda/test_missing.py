"""Claims about the words for what CUDA lacks here, and about when they are said."""

import subprocess
import sys

import pytest
from meta.tree import ROOT
from runtime.cuda.fake_driver import FakeDriver, Result

from tinytensor.config import config
from tinytensor.errors import CompileError, DeviceError
from tinytensor.runtime.cuda import device as cuda_device
from tinytensor.runtime.cuda import driver as cuda_driver
from tinytensor.runtime.cuda import nvrtc
from tinytensor.runtime.device import DEVICE_MODULES, AbsentDevice, DeviceRegistry


@pytest.fixture
def fake(monkeypatch):
    api = FakeDriver()
    monkeypatch.setattr(cuda_driver, "require_library", lambda: None)
    monkeypatch.setattr(cuda_driver, "lazy_import", lambda module, extra, who: api)
    monkeypatch.setattr(cuda_device, "find_library", lambda: "nvrtc")
    return api


@pytest.fixture
def no_library(monkeypatch):
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libno-such.so.1")


@pytest.fixture
def no_nvrtc(monkeypatch):
    monkeypatch.setattr(nvrtc, "LIBRARY", "libno-such.so.13")
    nvrtc._load.cache_clear()
    yield
    nvrtc._load.cache_clear()


def reason_of(expected):
    with pytest.raises(expected) as caught:
        cuda_device.open_device()
    return str(caught.value)


def test_no_driver(no_library):
    assert reason_of(AbsentDevice) == "no NVIDIA driver: libno-such.so.1 cannot be loaded"


def test_no_gpu(fake):
    fake.failures["cuInit"] = Result.CUDA_ERROR_NO_DEVICE

    assert reason_of(AbsentDevice) == "no NVIDIA GPU is visible to this process"


def test_a_driver_that_does_not_start(fake):
    fake.failures["cuInit"] = Result.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH

    assert reason_of(DeviceError) == (
        "cuda: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (in words); "
        "the driver must accept the call, nvidia-smi shows its state."
    )


def test_an_old_gpu(fake):
    fake.capability = (7, 5)

    assert reason_of(DeviceError) == (
        "the NVIDIA H200 has compute capability 7.5, it must have 8.0 or later"
    )


def test_an_old_driver(fake):
    fake.version = 12040

    assert reason_of(DeviceError) == (
        "the NVIDIA driver is for CUDA 12.4, it must be for 13.0 or later"
    )


def test_no_nvrtc(fake, monkeypatch, no_nvrtc):
    monkeypatch.setattr(cuda_device, "find_library", nvrtc.find_library)

    assert reason_of(DeviceError) == (
        "no NVRTC found, looked for libno-such.so.13: pip install tinytensor[cuda]"
    )


def test_compiling_without_nvrtc(no_nvrtc):
    with pytest.raises(DeviceError) as caught:
        nvrtc.compile_cubin("", "sm_80")

    assert str(caught.value) == (
        "no NVRTC found, looked for libno-such.so.13: pip install tinytensor[cuda]"
    )


def test_a_kernel_that_fails_shows_when_waited_for(fake):
    device = cuda_device.open_device()
    fake.failures["cuStreamSynchronize"] = Result.CUDA_ERROR_ILLEGAL_ADDRESS

    with pytest.raises(DeviceError) as caught:
        device.synchronize()

    assert str(caught.value) == (
        "cuda: cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (in words); "
        "the process must be started again, its GPU state is lost."
    )


def test_a_gpu_without_memory(fake):
    device = cuda_device.open_device()
    fake.memory_bytes = 1 << 20

    with pytest.raises(DeviceError) as caught:
        device.allocate(5 << 20)

    assert str(caught.value) == (
        "cuda: out of memory: 5242880 bytes asked for, 0 held by live tensors; "
        "the sum must fit the device."
    )


def default_of_all():
    with config(device=""):
        return DeviceRegistry(DEVICE_MODULES).default().name


def test_an_absent_gpu_is_passed_over_in_silence(no_library, capsys):
    assert default_of_all() == "CPU"
    assert capsys.readouterr().err == ""


def test_a_gpu_that_cannot_be_used_leaves_one_line(fake, capsys):
    fake.capability = (7, 5)

    assert default_of_all() == "CPU"
    assert capsys.readouterr().err == (
        "tinytensor: CUDA is passed over: the NVIDIA H200 has compute capability 7.5, "
        "it must have 8.0 or later.\n"
    )


def test_looking_for_a_driver_imports_no_bindings():
    script = (
        "import sys\n"
        "from tinytensor.runtime.cuda import driver\n"
        "driver.LIBRARY = 'libno-such.so.1'\n"
        "from tinytensor.runtime.device import default_device\n"
        "default_device()\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'cuda'])\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_log_without_line_numbers_is_shown_as_it_is():
    log = "ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes)\n"

    message = nvrtc.explain_log("k", "source", "sm_90a", log)

    assert message == (
        "cuda: kernel 'k' does not compile for sm_90a: NVRTC complains as below; "
        "the emitted source must be valid.\n"
        "ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes)"
    )


def test_a_program_that_does_not_compile_leaves_the_others(fake, monkeypatch, tmp_path):
    def compile_or_refuse(source, architecture, name):
        if name == "bad":
            raise CompileError("refused")
        return source.encode()

    monkeypatch.setattr(cuda_device, "compile_cubin", compile_or_refuse)
    monkeypatch.setattr(cuda_device, "identity", lambda: "nvrtc 1")
    good = cuda_device.Program("good", "good", 0, 0)
    bad = cuda_device.Program("bad", "bad", 0, 0)
    device = cuda_device.open_device()

    with config(cache_dir=str(tmp_path)):
        with pytest.raises(CompileError, match="^refused$"):
            device.compile([bad, good])

        assert device.compile([good])[0].name == "good"
        assert fake.modules == [b"good"]
