"""Gives a CUDA device over a driver that only writes down what it is asked for."""

import pytest
from runtime.cuda.fake_driver import FakeDriver

from tinytensor.config import config
from tinytensor.runtime.cuda import device as cuda_device
from tinytensor.runtime.cuda import driver as cuda_driver


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A stand-in driver, and binaries that are their own source."""
    api = FakeDriver()
    monkeypatch.setattr(cuda_driver, "require_library", lambda: None)
    monkeypatch.setattr(cuda_driver, "lazy_import", lambda module, extra, who: api)
    monkeypatch.setattr(cuda_driver.Driver, "entry", lambda driver, name: api.entry(name))
    monkeypatch.setattr(cuda_device, "find_library", lambda: "nvrtc")
    monkeypatch.setattr(cuda_device, "identity", lambda: "nvrtc 1")
    monkeypatch.setattr(cuda_device, "compile_cubin", lambda source, *_: source.encode())
    with config(cache_dir=str(tmp_path / "cache")):
        yield api


@pytest.fixture
def device(fake):
    return cuda_device.open_device()
