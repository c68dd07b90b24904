"""Equal nodes are one node, whoever else reads their operands; each lives while it is held."""

import weakref

import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import DetachAttrs, ShapeAttrs
from tinytensor.ops.infer import INFER
from tinytensor.ops.op import Op
from tinytensor.ops.size import bind, recorded_claims, size_of
from tinytensor.ops.uop import UOp, buffer, cast

F32 = dtypes.float32
READERS = (Op.NEG, Op.EXP, Op.SQRT)


def matrix():
    return buffer(F32, (2, 3), "CPU")


@pytest.mark.parametrize("op", READERS)
def test_each_of_several_readers_of_a_node_is_one_node(op):
    x = matrix()
    readers = {each: UOp(each, F32, (x,)) for each in READERS}

    assert UOp(op, F32, (x,)) is readers[op]


def test_readers_that_differ_in_an_operand_a_dtype_or_their_attrs_are_several():
    x, y = matrix(), matrix()
    shapes = [ShapeAttrs((6,)), ShapeAttrs((3, 2))]
    made = [
        *[UOp(Op.ADD, F32, (x, each)) for each in (x, y)],
        *[cast(x, each) for each in (dtypes.float64, dtypes.int32)],
        *[UOp(Op.RESHAPE, F32, (x,), each) for each in shapes],
        *[UOp(Op.DETACH, F32, (x,), DetachAttrs(each)) for each in (0, 1)],
    ]

    assert len(set(made)) == len(made)


def test_a_reader_is_found_when_the_one_before_it_has_gone():
    x = matrix()
    first, second = UOp(Op.NEG, F32, (x,)), UOp(Op.EXP, F32, (x,))
    del first
    third = UOp(Op.SQRT, F32, (x,))

    assert UOp(Op.EXP, F32, (x,)) is second
    assert UOp(Op.SQRT, F32, (x,)) is third


def test_nodes_and_their_operands_go_when_nobody_holds_them():
    x = matrix()
    readers = [UOp(op, F32, (x,)) for op in READERS]
    alive = [weakref.ref(each) for each in (x, *readers)]
    del x, readers

    assert [each() for each in alive] == [None] * len(alive)


def test_an_extent_known_only_at_launch_is_told_from_a_number_without_a_claim():
    single = buffer(F32, (1,), "CPU")
    variable = bind(1, 9, 5)
    with recorded_claims() as claims:
        open_ = UOp(Op.EXPAND, F32, (single,), ShapeAttrs((size_of(variable, {variable: 5}),)))
        plain = UOp(Op.EXPAND, F32, (single,), ShapeAttrs((5,)))

    assert open_ is not plain
    assert not claims


def test_a_reader_that_another_thread_makes_meanwhile_is_not_lost(monkeypatch):
    x, made, infer = matrix(), [], INFER[Op.NEG]

    def be_late(node):
        made.append(UOp(Op.EXP, F32, (x,)))
        return infer(node)

    monkeypatch.setitem(INFER, Op.NEG, be_late)
    late = UOp(Op.NEG, F32, (x,))
    monkeypatch.undo()

    assert UOp(Op.EXP, F32, (x,)) is made[0]
    assert UOp(Op.NEG, F32, (x,)) is late


@pytest.mark.parametrize(
    ("leads", "node"),
    [
        (True, lambda leaf: UOp(Op.NEG, F32, (leaf,))),
        (True, lambda leaf: cast(cast(leaf, dtypes.float16), F32)),
        (False, lambda leaf: cast(cast(leaf, dtypes.int32), F32)),
        (False, lambda leaf: UOp(Op.BITCAST, dtypes.int32, (leaf,))),
        (False, lambda leaf: UOp(Op.LT, dtypes.bool, (leaf, leaf))),
        (False, lambda leaf: UOp(Op.DETACH, F32, (leaf,), DetachAttrs(0))),
        (False, lambda leaf: UOp(Op.NEG, F32, leaf.operands)),
    ],
)
def test_a_node_knows_whether_floats_lead_to_a_leaf_that_requires_a_gradient(leads, node):
    leaf = UOp(Op.DETACH, F32, (matrix(),), DetachAttrs(7))

    assert node(leaf).is_differentiable is leads
