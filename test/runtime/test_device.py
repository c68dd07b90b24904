"""Claims about devices by name, and about copies, events and memory of those in host memory."""

import time

import numpy as np
import pytest

from tinytensor.config import config
from tinytensor.errors import DeviceError
from tinytensor.runtime.device import (
    DEVICE_MODULES,
    Device,
    DeviceRegistry,
    default_device,
    missing_devices,
)
from tinytensor.target import PYTHON

NAMES = ["CPU", "PYTHON"]
HOST_MODULES = [each for each in DEVICE_MODULES if each.name in NAMES]


@pytest.fixture
def without_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    return DeviceRegistry(HOST_MODULES)


@pytest.mark.parametrize("name", NAMES)
def test_a_device_is_found_once_by_any_case(name):
    assert Device[name].name == name
    assert Device[name.lower()] is Device[name]


def test_the_target_names_the_way_to_run():
    assert Device["CPU"].target.kind == "c"
    assert Device["PYTHON"].target is PYTHON


def test_the_default_of_the_host_is_the_cpu():
    with config(device=""):
        assert DeviceRegistry(HOST_MODULES).default().name == "CPU"


def test_a_gpu_goes_before_the_host():
    assert [each.name for each in DEVICE_MODULES] == ["CUDA", "CPU", "PYTHON"]


@pytest.mark.parametrize("name", NAMES)
def test_the_setting_names_the_default(name):
    with config(device=name.lower()):
        assert default_device() is Device[name]


def test_without_a_compiler_python_is_the_default_and_one_line_says_so(without_compiler, capsys):
    with config(device=""):
        first = without_compiler.default()
        second = without_compiler.default()

    assert first.name == "PYTHON"
    assert second is first
    assert capsys.readouterr().err == (
        "tinytensor: CPU is passed over: no C compiler found, looked for CC=no-such-compiler.\n"
    )


def test_a_chosen_device_leaves_no_line(without_compiler, capsys):
    with config(device="PYTHON"):
        without_compiler.default()

    assert capsys.readouterr().err == ""


def test_no_device_of_the_host_is_missing_here():
    assert not missing_devices().keys() & set(NAMES)


def test_a_missing_device_has_its_reason(without_compiler):
    assert without_compiler.missing() == {
        "CPU": "no C compiler found, looked for CC=no-such-compiler"
    }


ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.array(7, dtype=np.int64),
    np.array([1.5, -0.0, np.nan, np.inf], np.float16),
    np.array([True, False, True]),
    np.zeros((0, 3), np.float64),
    np.arange(3_000_000, dtype=np.uint8),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_bytes_come_back_as_they_went_in(name, array):
    device = Device[name]
    buffer = device.allocate(array.nbytes)
    result = np.empty_like(array)

    device.copy_in(buffer, array)
    device.copy_out(buffer, result)

    assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("byte", [0, 171])
@pytest.mark.parametrize("nbytes", [0, 1, 64, 3_000_000])
def test_all_bytes_are_filled(name, nbytes, byte):
    assert_fills(Device[name], nbytes, byte)


def assert_fills(device, nbytes, byte):
    buffer = device.allocate(nbytes)
    device.copy_in(buffer, np.arange(nbytes, dtype=np.uint8))
    result = np.ones(nbytes, np.uint8)

    device.fill(buffer, byte)
    device.copy_out(buffer, result)

    assert (result == byte).all()


def test_read_only_bytes_may_be_copied_in():
    device = Device["CPU"]
    buffer = device.allocate(3)
    result = bytearray(3)

    device.copy_in(buffer, b"abc")
    device.copy_out(buffer, memoryview(result))

    assert result == b"abc"


def test_a_refused_copy_changes_nothing():
    device = Device["CPU"]
    buffer = device.allocate(4)
    device.copy_in(buffer, b"abcd")
    result = bytearray(4)

    with pytest.raises(DeviceError):
        device.copy_in(buffer, b"x")

    device.copy_out(buffer, result)
    assert result == b"abcd"


def test_elapsed_time_is_in_microseconds(monkeypatch):
    device = Device["CPU"]
    readings = iter([1_000_000, 3_500_000])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(readings))

    start = device.event_record()
    device.synchronize()
    end = device.event_record()

    assert device.elapsed_us(start, end) == 2500


def test_memory_follows_the_buffers():
    device = Device["CPU"]
    before = device.memory().allocated

    buffer = device.allocate(1 << 20)
    during = device.memory().allocated
    del buffer

    assert during == before + (1 << 20)
    assert device.memory().allocated == before
    assert device.memory().peak >= during
