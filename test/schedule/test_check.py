"""A contraction that is not the sum it was recognized in is refused, at any size."""

import re
from dataclasses import replace

import numpy as np
import pytest
from schedule.reading import FLOAT_DTYPES, kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine, ReduceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, substitute_all, walk
from tinytensor.schedule.check import check_contraction
from tinytensor.schedule.contraction import recognize
from tinytensor.schedule.kernels import Numbering
from tinytensor.schedule.lower_views import ZERO, Lowering, Point, ranges_over
from tinytensor.tensor.nodes import broadcast, reshape


def fact_and_sum(root):
    """What a graph's only REDUCE is recognized as, and its expression as a plain sum."""
    nodes = walk([root])
    (reduce,) = [node for node in nodes if node.op is Op.REDUCE]
    leaves = frozenset([node for node in nodes if node.op is Op.BUFFER])
    lowering = Lowering(Numbering(leaves), next_range=len(reduce.shape))
    fact = recognize(reduce, lowering)
    return fact, lowering.compute(Point(reduce, ranges_over(reduce.shape, 0), None))


def operand(*shape, dtype=dtypes.float32):
    return Tensor.zeros(*shape, dtype=dtype).realize()


def product(dtype=dtypes.float32):
    return (operand(7, 6, dtype=dtype) @ operand(6, 9, dtype=dtype)).uop


def refuse(fact, plain):
    with pytest.raises(InternalError) as caught:
        check_contraction(fact, plain)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, dtypes.int8, dtypes.int64], ids=str)
def test_a_right_contraction_passes(dtype):
    check_contraction(*fact_and_sum(product(dtype)))


def test_a_contraction_of_the_wrong_product_is_refused():
    fact, plain = fact_and_sum(product())
    a, b, k = fact.node.operands
    wrong = UOp(Op.CONTRACT, fact.node.dtype, (a + a, b, k), fact.node.attrs)

    sentence = refuse(replace(fact, node=wrong), plain)

    assert re.sub(r"\d+ of", "N of", sentence) == (
        "contraction: it differs from the sum of products it was recognized in: N of 25 "
        "elements; all must agree."
    )


def test_a_contraction_that_leaves_out_a_folded_range_is_refused():
    x, y = operand(4, 1, 3, 2), operand(1, 5, 3, 2)
    fact, plain = fact_and_sum((x * y).sum((2, 3)).uop)
    *factors, first, second = fact.node.operands
    a, b = substitute_all(tuple(factors), {second: ZERO})
    attrs = replace(fact.node.attrs, k=(first.attrs.number,))
    wrong = UOp(Op.CONTRACT, fact.node.dtype, (a, b, first), attrs)

    assert "20 elements; all must agree." in refuse(replace(fact, node=wrong), plain)


@pytest.mark.parametrize("k", [2, 5, 9])
def test_a_prologue_that_leaves_no_integers_is_compared_within_the_bound_of_a_sum(k):
    x, y = Tensor(np.ones((7, k), np.float32)), Tensor(np.ones((k, 8), np.float32))

    (kernel,) = kernels_of((x.exp() @ (y / 3.0)).tanh())  # with verify on

    assert kernel.contraction is not None


def test_a_contraction_that_loads_nothing_is_checked():
    x = Tensor.arange(6).float().reshape(2, 3)

    (kernel,) = kernels_of(x @ x.T)  # with verify on

    assert kernel.contraction is not None


def test_an_error_just_beyond_the_bound_is_refused():
    fact, plain = fact_and_sum(product())
    a, b, k = fact.node.operands
    n = 5
    off = 1 + 8 * n * dtypes.float32.epsilon
    wrong = UOp(Op.CONTRACT, fact.node.dtype, (a * off, b, k), fact.node.attrs)

    assert "all must agree" in refuse(replace(fact, node=wrong), plain)


def test_the_size_of_a_product_does_not_matter():
    n = 2**20
    x, y = (buffer(dtypes.int8, (n, n), "CPU") for _ in range(2))
    left = broadcast(reshape(x, (n, 1, n)), (n, n, n))
    right = broadcast(reshape(y, (1, n, n)), (n, n, n))
    total = ReduceAttrs(Combine.ADD, (2,))

    fact, plain = fact_and_sum(UOp(Op.REDUCE, dtypes.int8, (left * right,), total))

    check_contraction(fact, plain)
    assert fact.extents == (1, n, n, n)
