"""An epilogue stores one value in place of several that come from it, where readers can do so."""

from dataclasses import replace

import numpy as np
import pytest
from schedule.reading import decisions_of, kernels_of, leaf_values
from tolerance import assert_close

from tinytensor import Tensor, config, dtypes
from tinytensor.runtime.device import Device
from tinytensor.schedule import schedule as scheduling
from tinytensor.target import CPU_AVX512


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


def two_sums():
    """Sums by row and by column of what is computed from one product."""
    product = Tensor(numbers(64, 64)) @ Tensor(numbers(64, 64))
    return (product.exp() * 2.0).sum(1), (product + 1.0).sum(0)


def test_what_is_spared_is_told_with_its_price():
    told = decisions_of(*two_sums(), kind="spare")

    # One value of 64 * 64 * 4 bytes less; eight times as many move in 2.62 us. A kernel reads one
    # in 0.166 us, which hide its sum and an addition. An exponential and a product take 1.058 us
    # more than the sum of 0.034.
    all_told = "in all, 16.4 kB less to hold are worth 2.62 us."
    assert told == [
        "spare add f32[64,64]: computed again from reduce[add] f32[64,64,1] for 0 ns in 1 kernel; "
        + all_told,
        "spare mul f32[64,64]: computed again from reduce[add] f32[64,64,1] for 926 ns in 1 "
        "kernel; " + all_told,
    ]


def test_what_takes_longer_than_its_memory_is_worth_is_stored():
    slow = replace(CPU_AVX512, rates=replace(CPU_AVX512.rates, functions=1e9))  # 4.1 us

    kernels = kernels_of(*two_sums(), target=slow)

    assert outputs_of(kernels)[0] == 2


@pytest.mark.parametrize(("products", "outputs"), [(1, 1), (3, 2)])
def test_what_lives_long_is_not_replaced_by_what_is_larger(products, outputs):
    # The mask has a quarter of the product's bytes. With one product between, all live as long.
    a, b = Tensor(numbers(64, 64)), Tensor(numbers(64, 64))
    product = a @ b
    result = product.relu()
    for _ in range(products):
        result = result @ b

    kernels = kernels_of(result.where(product < 0.5, -result))

    assert outputs_of(kernels)[0] == outputs


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


def test_results_do_not_depend_on_it(monkeypatch, default_device):
    tensors = perceptron()
    graphs = [(each.uop, leaf_values(each)) for each in tensors]
    spared = [each.numpy() for each in tensors]
    calls = []

    def keep_all(outputs, order, chooser):
        calls.append(outputs)
        return outputs

    monkeypatch.setattr(scheduling, "spare_outputs", keep_all)
    with config(verify=False):  # another key, so that the schedule is made anew
        kept = [each.numpy() for each in perceptron()]

    assert calls
    for x, y, (root, arrays) in zip(spared, kept, graphs, strict=True):
        if Device[default_device].target.kind == "cuda":  # its plans choose how sums are cut
            assert_close(x, root, arrays)
            assert_close(y, root, arrays)
        else:
            np.testing.assert_array_equal(x, y)
