"""An epilogue stores one value in place of several that come from it, where readers can do so."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config, dtypes
from tinytensor.schedule import schedule as scheduling


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def perceptron(dtype=dtypes.float32):
    """The gradients of a layer with a gelu, by its three operands."""
    arrays = [numbers(32, 48), numbers(48, 64), numbers(64, 40)]
    x, up, down = (Tensor(each, dtype=dtype, requires_grad=True) for each in arrays)
    ((x @ up).gelu() @ down).square().sum().backward()
    return [x.grad, up.grad, down.grad]


def outputs_of(kernels):
    return [sum(param.written for param in each.params) for each in kernels]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
def test_a_gelu_and_its_gradient_share_two_values(dtype):
    kernels = kernels_of(*perceptron(dtype))

    first = kernels[0]

    assert sum(param.written for param in first.params) == 2
    assert {param.dtype for param in first.params if param.written} == {dtype}


def test_what_a_product_reads_is_stored():
    a, b = Tensor(numbers(32, 32)), Tensor(numbers(32, 32))
    product = a @ b
    wave = product.sin()

    kernels = kernels_of(wave @ b, product.cos() + 1.0)

    assert outputs_of(kernels) == [2, 1]


def test_what_is_asked_for_is_stored():
    a, b = Tensor(numbers(32, 32)), Tensor(numbers(32, 32))
    product = a @ b

    kernels = kernels_of(product.sin(), product.cos(), product.exp())

    assert outputs_of(kernels) == [3]


def test_bits_do_not_depend_on_it(monkeypatch):
    spared = [each.numpy() for each in perceptron()]
    calls = []

    def keep_all(outputs, order, chooser):
        calls.append(outputs)
        return outputs

    monkeypatch.setattr(scheduling, "spare_outputs", keep_all)
    with config(verify=False):  # another key, so that the schedule is made anew
        kept = [each.numpy() for each in perceptron()]

    assert calls
    for x, y in zip(spared, kept, strict=True):
        np.testing.assert_array_equal(x, y)
