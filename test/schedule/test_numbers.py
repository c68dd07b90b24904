"""Kernels that differ from an earlier one in their numbers alone share a program."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.nn.functional import layer_norm
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.report import capture
from tinytensor.schedule.numbers import take_out_numbers

VALUES = np.linspace(-3, 3, 30).reshape(5, 6)


def x(dtype=dtypes.float32):
    return Tensor(VALUES, dtype=dtype)


def scalars_of(tensor):
    (kernel,) = kernels_of(tensor)
    return take_out_numbers(kernel).scalars


def test_the_numbers_of_a_kernel_become_scalars_in_the_order_of_the_walk():
    assert scalars_of(x(dtypes.float64) * 1.7 + 0.3) == (1.7, 0.3)


def test_kernels_that_differ_in_numbers_alone_are_equal_without_them():
    kernels = [kernel for number in (1.3, 2.9) for kernel in kernels_of(x() * number + number)]

    first, second = [take_out_numbers(each).kernel.sink for each in kernels]

    assert first is second
    assert kernels[0].sink is not kernels[1].sink


@pytest.mark.parametrize("number", [0.0, 1.0, -1.0, 2.0, 0.25, float("inf"), float("nan")])
def test_a_number_that_makes_better_code_stays(number):
    assert scalars_of(x() * 1.7 + number) in [(np.float32(1.7),), ()]
    assert scalars_of(x() + number) == ()


@pytest.mark.parametrize(
    "make",
    [lambda: x().clamp(-1.3, 1.3), lambda: x() @ x().T * 1.3, lambda: x(dtypes.int32) * 3],
    ids=["clip", "contraction", "integers"],
)
def test_what_plans_use_stays(make):
    assert scalars_of(make()) == ()


def test_halves_stay():
    (kernel,) = kernels_of(x(dtypes.float16) * 1.7)

    numbers = [node for node in walk([kernel.sink]) if node.op is Op.CONST]
    assert [node for node in numbers if node.dtype is dtypes.float16]
    assert take_out_numbers(kernel).kernel is kernel


def scaled(value, number):
    return value * number + number / 3


FORMS = {
    "pointwise": (lambda t, c: scaled(t, c), lambda v, c: v * np.float32(c) + np.float32(c / 3)),
    "fold": (
        lambda t, c: (t.round() * (c * 2)).amax(1),
        lambda v, c: (np.round(v) * np.float32(c * 2)).max(1),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_number_gives_its_own_values_from_two_programs(name):
    tensors, expected = FORMS[name]
    values = VALUES.astype(np.float32)
    numbers = [1.3 + at / 7 for at in range(6)]
    with capture() as found:
        results = [tensors(Tensor(values).realize(), number).numpy() for number in numbers]

    for number, result in zip(numbers, results, strict=True):
        np.testing.assert_array_equal(result, expected(values, number))
    assert len({each.kernel.sink for each in found}) <= 2


def test_a_shared_program_says_so():
    with capture() as found:
        for number in (1.37, 1.47):
            layer_norm(x() * number, (6,)).realize()

    told = [decision for each in found for decision in each.kernel.decisions]
    (shared,) = [each for each in told if each.kind == "share"]
    assert shared.subject == "3 numbers"  # the factor, an eps and 1 / 6
    assert shared.reason == "another kernel differs in them alone, so they are given at launch."
