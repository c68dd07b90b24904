"""Gives each case its places: the device of its run or PYTHON, with fusing on or off."""

import pytest

from tinytensor import config

PLACES = [(name, fuse) for name in ("", "PYTHON") for fuse in (0, 3)]


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0] or 'default'}-fuse{place[1]}")
def device(request, default_device):
    name, fuse = request.param
    with config(fuse=fuse):
        yield name or default_device
