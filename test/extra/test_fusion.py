"""What is timed at two levels of fusing gives the same values, in no more kernels when fused."""

import pytest

from extra.bench import fusion
from tinytensor import config
from tinytensor.runtime.device import Device

SMALL = fusion.Size(8, 64, 32)


@pytest.fixture(autouse=True)
def _on_the_cpu():
    with config(device="CPU"):
        yield


@pytest.mark.parametrize("name", fusion.WORKS)
def test_both_levels_give_the_same_in_no_more_kernels(name):
    call = fusion.WORKS[name](SMALL)

    fused, unfused = (fusion.launches_of(call, Device["CPU"], level) for level in (2, 1))

    assert 0 < len(fused.launches) <= len(unfused.launches)
    assert all(map(fusion.is_close, fused.values, unfused.values))


def test_a_line_names_the_work_and_its_launches():
    call = fusion.softmax(SMALL)

    line, _ = fusion.compare("softmax", call, Device["CPU"])

    assert line.startswith("softmax ")
    assert "1 / 3" in line
