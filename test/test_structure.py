"""A structure says all that a schedule depends on, and nothing else."""

import numpy as np
import pytest

from tinytensor import Tensor, dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import buffer
from tinytensor.structure import Graph, structure_of

SHAPE = (2, 3)


def leaf(dtype=dtypes.float32, shape=SHAPE):
    return Tensor._made(buffer(dtype, shape, "CPU"), "CPU")


def structure(*roots, replaceable=()):
    return structure_of(Graph([each.uop for each in roots]), dict(replaceable))


def read_back(facts):
    """The roots' numbers, and each node's op, dtype, content and operands' numbers."""
    roots, nodes, numbers = [], [], None
    at = 0
    while at < len(facts):
        if facts[at] == "roots":
            numbers = roots
            at += 1
        elif isinstance(facts[at], Op):
            numbers = []
            nodes.append((*facts[at : at + 3], numbers))
            at += 3
        else:
            numbers.append(facts[at])
            at += 1
    return roots, nodes


def test_a_graph_can_be_read_back_from_its_structure():
    x, y = leaf(), leaf()
    product = x @ y.T
    roots = [(product + 1).relu().sum(0), product, (x * y).softmax(1)]
    graph = Graph([each.uop for each in roots])

    numbers, nodes = read_back(structure_of(graph, {}))

    assert [graph.order[each] for each in numbers] == graph.roots
    assert [node[:3] for node in nodes] == [(n.op, n.dtype, n.content) for n in graph.order]
    for node, found in zip(nodes, graph.order, strict=True):
        assert [graph.order[each] for each in node[3]] == list(found.operands)


def test_roots_that_are_added_say_that_they_are_roots():
    x = leaf()
    below, above = x + 1, (x + 1) * 2
    graph = Graph([above.uop])
    graph.add([below.uop])

    numbers, nodes = read_back(graph.facts)

    assert [graph.order[each] for each in numbers] == [above.uop, below.uop]
    assert len(nodes) == len(graph.order) == len(Graph([above.uop]).order)


def test_other_buffers_give_the_same_structure():
    def line(x, y):
        return ((x @ y.T + x.sum()) * 2).exp()

    assert structure(line(leaf(), leaf())) == structure(line(leaf(), leaf()))


def two(make):
    """What a function makes of two leaves, and of two others."""
    return make(leaf(), leaf())


DIFFERENT = {
    "aliasing": (lambda x, y: [x * y], lambda x, y: [x * x]),
    "which operand": (lambda x, y: [x * y - x], lambda x, y: [x * y - y]),
    "sharing": (lambda x, y: [x.exp() * x.exp()], lambda x, y: [x.exp() * y.exp()]),
    "the order of operands": (lambda x, y: [x - y.exp()], lambda x, y: [y.exp() - x]),
    "an op": (lambda x, y: [x + y], lambda x, y: [x * y]),
    "a constant": (lambda x, y: [x * 0.5], lambda x, y: [x * 0.25]),
    "the sign of 0": (lambda x, y: [x * 0.0], lambda x, y: [x * -0.0]),
    "a dtype": (lambda x, y: [x.to(dtypes.float16)], lambda x, y: [x.to(dtypes.bfloat16)]),
    "a leaf's dtype": (lambda x, y: [x + 1], lambda x, y: [leaf(dtypes.float64) + 1]),
    "a leaf's shape": (lambda x, y: [x + 1], lambda x, y: [leaf(shape=(3, 2)) + 1]),
    "an axis": (lambda x, y: [x.sum(0)], lambda x, y: [x.sum(1)]),
    "a view": (lambda x, y: [x.T], lambda x, y: [x.reshape(3, 2)]),
    "the number of roots": (lambda x, y: [x + y], lambda x, y: [x + y, x * y]),
    "the order of roots": (lambda x, y: [x + y, x * y], lambda x, y: [x * y, x + y]),
    "which is a root": (
        lambda x, y: [(x + y).exp(), x + y],
        lambda x, y: [(x + y).exp(), (x + y).exp().exp()],
    ),
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_graphs_that_differ_have_several_structures(difference):
    one, other = (two(make) for make in DIFFERENT[difference])

    assert structure(*one) != structure(*other)


def test_in_whose_memory_a_root_may_be_is_part_of_the_structure():
    x, y = leaf(), leaf()
    total = x + y
    node = total.uop

    found = {structure(total, replaceable=[(node, each)]) for each in (x.uop, y.uop)}

    assert len(found | {structure(total)}) == 3


def test_a_value_that_somebody_keeps_makes_a_graph_no_plain_one():
    x = Tensor(np.ones(SHAPE, np.float32)).realize()
    product = x * 3
    later = product + 1
    before = Graph([later.uop]).is_plain
    product.realize()

    assert (before, Graph([later.uop]).is_plain) == (True, False)


@pytest.mark.parametrize("make", [lambda x: x.to("PYTHON"), lambda x: x[Tensor([0, 1])]])
def test_what_is_computed_apart_or_checked_makes_a_graph_no_plain_one(make):
    x = Tensor(np.ones(SHAPE, np.float32), device="CPU").realize()

    assert not Graph([(make(x) + 1).uop]).is_plain
