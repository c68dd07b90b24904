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
from tinytensor.tensor.formulas import add, mul
from tinytensor.tensor.nodes import broadcast, fold, full, permute, reshape

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


def test_the_product_below_casts_and_views_is_looked_at():
    a, b = buffer(dtypes.float16, (3, 4), "CPU"), buffer(dtypes.float16, (3, 4), "CPU")
    product = mul(a, b)
    widened = reshape(cast(product, F32), (12,))

    looked_at = nodes_down_to_product(fold(Combine.ADD, widened, (0,)))

    assert looked_at == {widened, widened.operands[0], product}


def test_a_sum_straight_from_memory_looks_at_nothing():
    assert nodes_down_to_product(fold(Combine.ADD, buffer(F32, (3,), "CPU"), (0,))) == frozenset()


@pytest.mark.parametrize("prologue", [lambda x: x + x, lambda x: x.relu() * x], ids=["sum", "gate"])
def test_a_factor_that_is_computed_leaves_a_contraction(prologue):
    x, weight = Tensor([[1.0, 2.0, 3.0]] * 4).realize(), Tensor([[1.0, 2.0]] * 3).realize()

    kernels = kernels_of(prologue(x) @ weight)

    kinds = [node.op for kernel in kernels for node in walk((kernel.sink,))]
    assert Op.CONTRACT in kinds


def test_a_residual_chain_visits_each_step_about_once(monkeypatch):
    def visits(steps):
        x = Tensor([[1.0, 2.0, 3.0, 4.0]] * 2).realize()
        for _ in range(steps):
            x = (x.sum(1, keepdim=True) * 0.1 + x) * 0.5
        counted.clear()
        kernels_of(x)
        return len(counted)

    counted = []
    lower = Lowering._operand_points
    monkeypatch.setattr(
        Lowering, "_operand_points", lambda self, point: counted.append(point) or lower(self, point)
    )

    assert visits(40) < 2.5 * visits(20)


def test_a_sum_without_a_product_is_not_looked_into(monkeypatch):
    def refuse(*_):
        raise AssertionError("the views below a sum of comparisons were searched for a product")

    monkeypatch.setattr(schedule, "Numbering", refuse)
    x = Tensor.zeros(4, 6)

    kernels = kernels_of((x < x.flip(1)).sum(1))

    assert len(kernels) == 1
