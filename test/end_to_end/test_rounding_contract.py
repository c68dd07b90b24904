"""A rounding that the program wrote is never dropped, fused or not."""

import numpy as np
import pytest

from tinytensor import Tensor, config, dtypes

DEVICES = (None, "PYTHON")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fuse", [0, 1, 3])
def test_the_product_is_rounded_before_one_is_added(device, fuse):
    x = Tensor.ones(1, 2049, dtype=dtypes.float16, device=device)
    y = Tensor.ones(2049, 1, dtype=dtypes.float16, device=device)

    with config(fuse=fuse):
        result = (x.realize() @ y.realize() + 1.0).item()

    assert result == 2048.0  # 2049 rounds to 2048 in float16; 2050 means the rounding was lost


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fuse", [0, 1, 3])
def test_a_fused_linear_keeps_its_rounding_in_every_element(device, fuse):
    rng = np.random.default_rng(0)
    m, n, k = 128, 96, 512
    x, weight = (rng.integers(-30, 31, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    b = rng.integers(-900, 900, n).astype(np.float16)
    product = (x.astype(np.float64) @ weight.T.astype(np.float64)).astype(np.float16)
    once = (x.astype(np.float64) @ weight.T.astype(np.float64) + b).astype(np.float16)

    with config(fuse=fuse):
        tensors = [Tensor(each, device=device) for each in (x, weight, b)]
        result = (tensors[0].matmul(tensors[1].T) + tensors[2]).numpy()

    expected = product + b
    assert (expected != once).mean() > 0.01  # the inputs do tell the contracts apart
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_a_cast_to_half_and_back_rounds(device):
    values = [65504.0, 65519.0, 65520.0, 65536.0, 1.0009765625, 1.00048828125]

    result = Tensor(values, device=device).cast(dtypes.float16).cast(dtypes.float32).tolist()

    assert result == [65504.0, 65504.0, np.inf, np.inf, 1.0009765625, 1.0]
