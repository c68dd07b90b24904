"""Gives cases their places, a device with fusing on or off, and counts what a device starts."""

import pytest

from tinytensor import config
from tinytensor.runtime.device import default_device

PLACES = [(name, fuse) for name in ("", "PYTHON") for fuse in (0, 3)]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0] or 'default'}-fuse{place[1]}")
def device(request, default_device):
    name, fuse = request.param
    with config(fuse=fuse):
        yield name or default_device


class LaunchCount:
    """Counts what a device starts, by asking for every launch of its executables."""

    def __init__(self, monkeypatch):
        device = default_device()
        self.count = 0
        self._run = device.run
        monkeypatch.setattr(device, "run", self._counted)

    def _counted(self, work, buffers, scalars=(), *, extents=()):
        if extents and hasattr(work, "parts"):
            addresses = [each.address for each in buffers]
            self.count += len(work.parts(addresses, extents))
        else:
            self.count += len(getattr(work, "launches", (work,)))
        self._run(work, buffers, scalars, extents=extents)


@pytest.fixture
def launches(monkeypatch):
    return LaunchCount(monkeypatch)
