"""Under TT_STRESS fresh memory is no number, so that what a kernel leaves unwritten shows."""

import numpy as np
import pytest

from tinytensor.config import config
from tinytensor.runtime.device import Device

NAMES = ("CPU", "PYTHON", pytest.param("CUDA", marks=pytest.mark.gpu))


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("name", NAMES)
def test_fresh_memory_is_nan_also_where_it_was_used_before(name, dtype):
    device = Device[name]
    values = np.ones(100, dtype)

    with config(stress=1):
        device.copy_in(device.allocate(values.nbytes), values)  # dropped at once
        device.copy_out(device.allocate(values.nbytes), values)

    assert np.isnan(values).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_bytes_need_no_filling(name):
    with config(stress=1):
        assert Device[name].allocate(0).nbytes == 0
