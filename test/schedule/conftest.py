"""Plans for a GPU where there is none."""

import pytest

from tinytensor import config, planning
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import SM90A


@pytest.fixture
def planned_for_a_gpu(monkeypatch):
    """Kernels that a GPU would be given, each verified, run by the interpreter."""

    def calls_for_a_gpu(roots, device, *why):
        return schedule(roots, SM90A, Options(3, True, False), *why) if roots else []

    monkeypatch.setattr(planning, "_calls", calls_for_a_gpu)
    with config(device="PYTHON"):
        yield
