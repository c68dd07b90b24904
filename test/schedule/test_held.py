"""A held value is stored where that is cheaper than what graphs compute of it once more."""

import numpy as np
import pytest

from tinytensor import Tensor
from tinytensor.ops.uop import walk
from tinytensor.schedule.describe import short_time
from tinytensor.schedule.held import COMPILE_SECONDS, MOST_LOST, weigh_held
from tinytensor.target import CPU_AVX512

RATES = CPU_AVX512.rates
SIDE = 64
HELD_BYTES = 4 * SIDE * SIDE
ADDITION = SIDE * SIDE * 2 / RATES.flops
# Written, read, and held for as long as moving eight times as much.
STORING = HELD_BYTES * (2 / RATES.cache + 8 / RATES.copy)


def ones(side=SIDE):
    return Tensor(np.ones((side, side), np.float32)).realize()


def added(value, count):
    for _ in range(count):
        value = value + 1
    return value


def weighed(root, lost, *held):
    """The verdicts on what is held below a root; all ops below some tensors are lost."""
    gone = {node for node in walk([each.uop for each in lost]) if node.attrs is None}
    return weigh_held([root.uop], set(), gone, {each.uop for each in held}, CPU_AVX512)


def test_a_value_that_is_cheap_to_compute_again_is_not_stored():
    held = added(ones(), 2)

    (verdict,) = weighed(held.sum(), [held], held)

    assert not verdict.is_stored


def test_a_sum_of_products_is_stored():
    held = ones() @ ones()

    (verdict,) = weighed(held.exp().sum(), [held], held)

    assert verdict.is_stored


@pytest.mark.parametrize(("ops", "is_stored"), [(MOST_LOST, False), (MOST_LOST + 1, True)])
def test_a_value_of_many_lost_ops_is_stored(ops, is_stored):
    held = added(ones(), ops)

    (verdict,) = weighed(held.sum(), [held], held)

    assert verdict.is_stored == is_stored


def test_a_value_made_of_a_lost_one_that_nobody_holds_is_stored_with_its_reason():
    lost = added(ones(), 2)
    held = added(lost, 3)

    (verdict,) = weighed(held.sum(), [lost], held)

    again = max(2 * ADDITION, HELD_BYTES / RATES.cache)  # it reads what it is made of
    assert verdict.node is held.uop
    assert verdict.is_stored
    assert verdict.reason == (
        "a tensor holds it, made of 2 ops that an earlier graph computed and nobody kept; storing "
        f"takes {short_time(STORING)}, computing again {short_time(again)}, and "
        f"{short_time(COMPILE_SECONDS)} to compile a graph that grew."
    )


def test_a_value_that_takes_longer_to_store_than_to_compile_is_not_stored():
    side = 1 << 14  # 1 GiB
    lost = added(Tensor.zeros(side, side), 1)
    held = added(lost, 1)

    (verdict,) = weighed(held.sum(), [lost], held)

    assert not verdict.is_stored


def test_the_lowest_of_the_values_made_of_a_lost_one_is_weighed():
    lost = added(ones(), 1)
    low = added(lost, 1)
    high = added(low, 1)

    verdicts = weighed(high.sum(), [lost], high, low)

    assert [each.node for each in verdicts] == [low.uop]


def test_of_lost_values_the_one_that_new_values_read_is_weighed():
    low = added(ones(), 1)
    high = added(low, 1)

    verdicts = weighed(high.exp().sum(), [high], low, high)

    assert [each.node for each in verdicts] == [high.uop]


def test_a_value_that_is_made_of_nothing_lost_is_not_weighed():
    held = added(ones(), 1)

    assert weighed(held.sum(), [], held) == []


def test_what_is_below_an_end_is_not_weighed():
    low = added(ones(), 1)
    high = added(low, 1)
    gone = {node for node in walk([low.uop]) if node.attrs is None}

    found = weigh_held([high.sum().uop], {low.uop}, gone, {low.uop, high.uop}, CPU_AVX512)

    assert found == []
