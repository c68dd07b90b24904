"""The table of gradients: what it covers, and the pieces that no Tensor method shows alone."""

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.errors import GradientError
from tinytensor.grad import RULES, cut, gradients, make_leaf, products_of_others, with_rules
from tinytensor.ops.attrs import ShapeAttrs
from tinytensor.ops.interpret_tensor import interpret
from tinytensor.ops.op import COMPARE, Form, Op
from tinytensor.ops.uop import UOp, buffer, const
from tinytensor.tensor.formulas import mul

# What gives no float from floats, has no operands, or is handled before the table is asked.
WITHOUT_GRADIENT = {
    *COMPARE,
    *(Op.CONST, Op.VARIABLE, Op.BUFFER, Op.IOTA, Op.FLOORDIV, Op.PHILOX, Op.CHECK),
    *(Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.DETACH, Op.RUN),
}


def test_every_op_of_the_tensor_form_has_a_rule_or_needs_none():
    of_form = {op for op in Op if Form.TENSOR in op.forms}

    assert of_form - WITHOUT_GRADIENT == set(RULES)


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_an_op_has_a_rule_for_each_operand(op):
    fixed = [each for each in op.operands if not each.endswith("*")]

    assert len(RULES[op]) == len(fixed)


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 5), (4, 1, 2)], ids=str)
def test_products_of_others_leave_each_out(shape):
    x = buffer(dtypes.float64, shape, "PYTHON")
    values = np.random.default_rng(0).integers(0, 4, shape).astype(np.float64)
    axes = tuple(range(len(shape) - 1, len(shape)))

    (result,) = interpret([products_of_others(x, axes)], {x: values})

    expected = [
        [np.prod(np.delete(row, place)) for place in range(row.size)]
        for row in values.reshape(-1, shape[-1])
    ]
    assert result.tolist() == np.reshape(expected, shape).tolist()


def test_several_paths_add_up():
    x = make_leaf(buffer(dtypes.float32, (2,), "CPU"))
    y = mul(x, x)
    one = UOp(Op.EXPAND, y.dtype, (reshaped(const(y.dtype, 1)),), ShapeAttrs((2,)))

    by_x, by_y = gradients([mul(y, y)], [one], [x, y])

    found = interpret([by_x, by_y], {x: np.array([2.0, 3.0], np.float32)})
    assert [each.tolist() for each in found] == [[32.0, 108.0], [8.0, 18.0]]


def reshaped(scalar):
    return UOp(Op.RESHAPE, scalar.dtype, (scalar,), ShapeAttrs((1,)))


def test_nothing_is_marked_where_no_gradient_is_required():
    x = buffer(dtypes.float32, (2,), "CPU")

    assert cut(x) is x
    assert with_rules(mul(x, x), [x], None) is mul(x, x)


def test_the_table_refuses_an_op_it_does_not_know(monkeypatch):
    monkeypatch.delitem(RULES, Op.MUL)
    x = make_leaf(const(dtypes.float32, 2))

    with pytest.raises(GradientError, match="grad: mul has no gradient: .*; use detach"):
        gradients([mul(x, x)], [const(dtypes.float32, 1)], [x])
