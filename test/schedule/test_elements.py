"""Elementwise results of one shape that read the same elements are one kernel."""

import numpy as np
import pytest
from schedule.reading import decisions_of, kernels_of, leaf_values
from tolerance import assert_close

from tinytensor import Tensor, dtypes
from tinytensor.ops.uop import buffer
from tinytensor.target import CPU_AVX512, SM90A

SHAPE = (6, 40)


def numbers(*shape):
    values = np.random.default_rng(len(shape)).standard_normal(shape or SHAPE)
    return Tensor(values, dtype=dtypes.float32).realize()


def gradients():
    """Those of two operands of a product, which both read the upstream gradient."""
    x, y = numbers(), numbers()
    x.requires_grad_(True)
    y.requires_grad_(True)
    (x * y).backward(numbers())
    return [x.grad, y.grad]


def adam():
    x, gradient, mean, squares = numbers(), numbers(), numbers(), numbers().abs().realize()
    mean = mean + (gradient - mean) * 0.1
    squares = squares * 0.999 + gradient * gradient * 0.001
    return [mean, squares, x - mean / (squares.sqrt() + 1e-8)]


def raw_and_relu():
    product = numbers() @ numbers(40, 5)
    return [product, product.relu()]


def apart():
    x, y = numbers(), numbers()
    return [x + 1.0, y * 2.0]


def crossed():
    x, y = numbers(7, 7), numbers(7, 7)
    total = x + y
    return [total, total.T * x]


def cycle():
    """The last one reads what a fold makes of the first one."""
    x, y = numbers(), numbers()
    total = x * y
    return [total, (total @ numbers(40, 40)).relu().exp().flip(0) + x]


ONE = {
    "the gradients of a product": gradients,
    "a parameter and its state": adam,
    "a product and its relu": raw_and_relu,
    "views of the same": lambda: [numbers().flip(0) + (x := numbers()), x * 2.0],
    "numbers": lambda: [(x := numbers(1)) + 1.0, x * 2.0],
}
SEVERAL = {"other operands": apart, "another place": crossed, "what runs between": cycle}
PROGRAMS = {**ONE, **SEVERAL}


@pytest.mark.parametrize("target", [CPU_AVX512, SM90A], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_reads_the_same_elements_once(name, target):
    kernels = kernels_of(*PROGRAMS[name](), fuse=2, target=target)

    assert (len(kernels) == 1) == (name in ONE)


@pytest.mark.parametrize("name", sorted(set(ONE) - {"a product and its relu"}))
def test_below_level_2_each_result_has_a_kernel(name):
    results = ONE[name]()

    assert len(kernels_of(*results, fuse=1)) == len(results)


@pytest.mark.parametrize("name", PROGRAMS)
def test_joined_or_not_the_values_are_what_the_graph_says(name):
    results = PROGRAMS[name]()
    expressions = [(each.uop, leaf_values(each)) for each in results]

    results[0].realize(*results[1:])

    for result, (root, arrays) in zip(results, expressions, strict=True):
        assert_close(result.numpy(), root, arrays)


def test_a_join_says_what_it_spares():
    (line,) = [each for each in decisions_of(*adam(), kind="fuse") if "elements" in each]

    # The gradient is read once in place of twice, the mean and the squares not at all.
    assert line == (
        "fuse sub f32[6,40]: 3 kernels that read the same elements are one: add#1 f32[6,40], "
        "add#2 f32[6,40], sub f32[6,40]; 2.88 kB less to move, from one to another and of what "
        "several read."
    )


def test_a_joined_kernel_does_not_outgrow_the_target():
    x = numbers()
    results = [(x * numbers(40) + float(at)).exp() for at in range(60)]

    kernels = kernels_of(*results)

    assert 1 < len(kernels) < 60
    assert all(len(each.params) < 40 for each in kernels)


def unrealized(*shape):
    return Tensor._made(buffer(dtypes.float32, shape, "CPU"), "CPU")


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_needed_later_is_not_computed_with_what_is_needed_now(is_late):
    x, w = unrealized(2048, 2048), unrealized(2048, 2048)
    first, second = x.exp().sin(), x.cos().tanh().sin()
    total = sum(each + each.T + each.flip(0) for each in (first, second))
    if is_late:
        total = second.T @ (second + ((first.T @ first) @ w).exp())

    stores = [len(each.sink.operands) for each in kernels_of(total) if each.contraction is None]

    assert stores == ([1, 1] if is_late else [2, 1])
