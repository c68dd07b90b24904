"""The search for contractions stops at values that read every axis, and finds the same."""

import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import buffer, cast, walk
from tinytensor.schedule import schedule
from tinytensor.schedule.landmarks import find_landmarks, nodes_down_to_product
from tinytensor.schedule.lower_views import Lowering
from tinytensor.tensor.formulas import add, is_equal, mul
from tinytensor.tensor.nodes import (
    broadcast,
    fold,
    full,
    iota,
    permute,
    reshape,
    select,
    take_part,
)

F32 = dtypes.float32


def test_a_value_of_all_axes_is_a_landmark():
    x, bias = buffer(F32, (3, 4), "CPU"), buffer(F32, (1, 4), "CPU")
    repeated = broadcast(bias, (3, 4))
    total = add(x, repeated)
    turned = permute(reshape(total, (4, 3)), (1, 0))

    found = find_landmarks(walk((turned,)))

    assert {x, bias, total, turned} <= found
    assert repeated not in found


def test_a_repeated_value_is_no_landmark_after_more_ops():
    repeated = broadcast(buffer(F32, (1, 4), "CPU"), (3, 4))
    moved = add(repeated, full(F32, 1.0, (3, 4)))

    assert moved not in find_landmarks(walk((moved,)))


def test_what_tells_each_axis_apart_makes_a_landmark():
    row, column = buffer(F32, (1, 4), "CPU"), buffer(F32, (3, 1), "CPU")
    table = add(broadcast(row, (3, 4)), broadcast(column, (3, 4)))
    half = broadcast(take_part(buffer(F32, (3, 2), "CPU"), 1, range(1)), (3, 2))
    chosen = select(broadcast(is_equal(iota(2), 0), (3, 2)), half, add(half, half))
    numbers = broadcast(iota(4), (3, 4))

    found = find_landmarks(walk((table, chosen, reshape(chosen, (6,)), numbers)))

    assert {table, chosen, reshape(chosen, (6,))} <= found
    assert found.isdisjoint({half, add(half, half), numbers, iota(4)})


def test_the_product_below_casts_and_views_is_looked_at():
    a, b = buffer(dtypes.float16, (3, 4), "CPU"), buffer(dtypes.float16, (3, 4), "CPU")
    product = mul(a, b)
    widened = reshape(cast(product, F32), (12,))

    looked_at = nodes_down_to_product(fold(Combine.ADD, widened, (0,)))

    assert looked_at == {widened, widened.operands[0], product}


def test_of_a_choice_its_ways_are_looked_at_but_not_those_of_a_further_one():
    x, is_taken = buffer(F32, (4,), "CPU"), buffer(dtypes.bool, (2, 2), "CPU")
    product = mul(x, x)
    masked = select(is_taken, reshape(product, (2, 2)), full(F32, 0.0, (2, 2)))
    chosen = select(is_taken, permute(masked, (1, 0)), masked)

    masked_once = nodes_down_to_product(fold(Combine.ADD, masked, (0,)))
    masked_twice = nodes_down_to_product(fold(Combine.ADD, chosen, (0,)))

    assert {masked, masked.operands[1], product} <= masked_once
    assert masked in masked_twice
    assert product not in masked_twice


def test_a_sum_straight_from_memory_looks_at_nothing():
    assert nodes_down_to_product(fold(Combine.ADD, buffer(F32, (3,), "CPU"), (0,))) == frozenset()


@pytest.mark.parametrize("prologue", [lambda x: x + x, lambda x: x.relu() * x], ids=["sum", "gate"])
def test_a_factor_that_is_computed_leaves_a_contraction(prologue):
    x, weight = Tensor([[1.0, 2.0, 3.0]] * 4).realize(), Tensor([[1.0, 2.0]] * 3).realize()

    kernels = kernels_of(prologue(x) @ weight)

    kinds = [node.op for kernel in kernels for node in walk((kernel.sink,))]
    assert Op.CONTRACT in kinds


@pytest.fixture
def visits(monkeypatch):
    """Counts the elements of nodes that planning a tensor's kernels goes through."""
    counted = []
    lower = Lowering._operand_points
    monkeypatch.setattr(
        Lowering, "_operand_points", lambda self, point: counted.append(point) or lower(self, point)
    )

    def count(tensor):
        counted.clear()
        kernels_of(tensor)
        return len(counted)

    return count


def test_a_residual_chain_visits_each_step_about_once(visits):
    def chain(steps):
        x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 2).realize()
        for _ in range(steps):
            x = (x.sum(1, keepdim=True) * 0.1 + x) * 0.5
        return x

    assert visits(chain(40)) < 2.5 * visits(chain(20))


def exchanged(x, steps):
    """The sums and the differences of pairs, of a row of 2**steps in each of 3 rows or one."""
    *outer, extent = x.shape
    is_sum = (Tensor.arange(2) == 0).reshape(2, 1)
    for step in range(steps):
        pairs = x.reshape(*outer, extent >> step + 1, 2, 1 << step)
        a, b = pairs[..., :1, :], pairs[..., 1:, :]
        x = (a + b).expand(*pairs.shape).where(is_sum, (a - b).expand(*pairs.shape))
        x = x.reshape(*outer, extent)
    return x


@pytest.mark.parametrize(
    "repeat", [lambda x: x, lambda x: x.expand(3, len(x))], ids=["row", "rows"]
)
def test_exchanges_are_visited_as_often_as_there_are_of_them(repeat, visits):
    def product(steps):
        x = Tensor.ones(2**steps).realize()
        return (exchanged(repeat(x), steps) * x).sum()

    assert visits(product(16)) < 3 * visits(product(8))


def test_a_sum_without_a_product_is_not_looked_into(monkeypatch):
    def refuse(*_):
        raise AssertionError("the views below a sum of comparisons were searched for a product")

    monkeypatch.setattr(schedule, "Search", refuse)
    x = Tensor.zeros(4, 6)

    kernels = kernels_of((x < x.flip(1)).sum(1))

    assert len(kernels) == 1
