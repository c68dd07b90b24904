"""Views become index arithmetic: it reads the elements that NumPy's views hold, and no others."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tinytensor import dtypes
from tinytensor.ops.attrs import Combine, GatherAttrs, ParamAttrs, ReduceAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.interpret_indexed import run_sink
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify
from tinytensor.ops.uop import UOp, binary, buffer, cast, const, make_range, where
from tinytensor.schedule.lower_views import (
    ZERO,
    Lowering,
    Point,
    flatten,
    ranges_over,
    reshape_index,
    unflatten,
)
from tinytensor.tensor.nodes import broadcast, iota, pad, permute, reshape, take_slices

FILL = -7


def reduce(x, combine, *axes):
    dtype = dtypes.int64 if combine in (Combine.ARGMAX, Combine.ARGMIN) else x.dtype
    return UOp(Op.REDUCE, dtype, (x,), ReduceAttrs(combine, axes))


def computed(root, leaf, values):
    """The elements of a node, by running its lowered expression over all of its ranges."""
    lowering = Lowering({leaf: UOp(Op.PARAM, leaf.dtype, (), ParamAttrs(1, values.size))}, 8)
    index = ranges_over(root.shape, 0)
    result = np.zeros(math.prod(root.shape), root.dtype.storage_numpy)
    target = UOp(Op.PARAM, root.dtype, (), ParamAttrs(0, result.size))
    element = lowering.value(Point(root, index))
    store = UOp(Op.STORE, dtypes.void, (target, flatten(index, root.shape), element))
    ranges = [each for each in index if each is not ZERO]
    run_sink(UOp(Op.SINK, dtypes.void, (store,)), ranges, [result, values.reshape(-1)])
    return result.reshape(root.shape)


def shapes_of(count):
    """Every shape of up to four axes with so many elements."""
    found = {(): 1} if count == 1 else {}
    for extents in np.ndindex(*[count + 1] * 3):
        if math.prod(extents) == count:
            found[extents] = 1
            found[(*extents[:2], 1, extents[2])] = 1
    return sorted(found)


def draw_view(draw, x, array):
    """One random view of a node, and NumPy's view of its values."""
    kind = draw(st.sampled_from(["reshape", "permute", "broadcast", "slice", "pad"]))
    if kind == "reshape":
        shape = draw(st.sampled_from(shapes_of(array.size)))
        return reshape(x, shape), array.reshape(shape)
    if kind == "permute":
        order = tuple(draw(st.permutations(range(array.ndim))))
        return permute(x, order), array.transpose(order)
    if kind == "broadcast":
        copies = draw(st.integers(1, 3))
        shape = (copies, *[copies if n == 1 else n for n in array.shape])
        return broadcast(x, shape), np.broadcast_to(array, shape)
    if kind == "slice":
        slices = [draw_slice(draw, extent) for extent in array.shape]
        return take_slices(x, slices), array[np.ix_(*slices)]
    sizes = st.lists(st.integers(0, 2), min_size=array.ndim, max_size=array.ndim)
    before, after = tuple(draw(sizes)), tuple(draw(sizes))
    widths = list(zip(before, after, strict=True))
    padded = np.pad(array, widths, constant_values=FILL) if widths else array
    return pad(x, before, after, FILL), padded


def draw_slice(draw, extent):
    first, last = sorted(draw(st.tuples(*[st.integers(0, extent - 1)] * 2)))
    step = draw(st.integers(1, 3))
    chosen = range(first, last + 1, step)
    return chosen[::-1] if draw(st.booleans()) else chosen


@given(st.data())
def test_a_chain_of_views_reads_what_numpys_views_hold(random):
    shape = random.draw(st.sampled_from([(), (1,), (5,), (2, 3), (4, 1, 3), (2, 3, 2)]))
    values = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    leaf = buffer(dtypes.int32, shape, "CPU")
    x, array = leaf, values
    for _ in range(random.draw(st.integers(1, 6))):
        taller, wider = draw_view(random.draw, x, array)
        if wider.size <= 96:
            x, array = taller, wider

    np.testing.assert_array_equal(computed(x, leaf, values), array)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6))
def test_a_position_and_an_index_are_each_others_inverse(shape, seed):
    count = math.prod(shape)
    position = make_range(0, count)

    there_and_back = flatten(unflatten(position, shape), shape)

    result = np.zeros(count, np.int64)
    target = UOp(Op.PARAM, dtypes.int64, (), ParamAttrs(0, count))
    value = UOp(Op.CAST, dtypes.int64, (there_and_back,))
    store = UOp(Op.STORE, dtypes.void, (target, position, value))
    run_sink(UOp(Op.SINK, dtypes.void, (store,)), [position] if count > 1 else [], [result])
    np.testing.assert_array_equal(result, np.arange(count))


def test_a_reshape_leaves_the_axes_alone_that_it_does_not_split():
    r0, r1, r2 = ranges_over((4, 6, 5), 0)

    split = reshape_index((r0, r1, r2), (4, 6, 5), (4, 1, 2, 3, 5))

    assert split == (r0, ZERO, r1 // 3, r1 % 3, r2)


def test_a_padded_element_is_read_under_its_guard_only():
    leaf = buffer(dtypes.float32, (4,), "CPU")
    param = UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(0, 4))
    (r0,) = index = ranges_over((6,), 0)

    element = Lowering({leaf: param}, 1).value(Point(pad(leaf, (2,), (0,), 0.0), index))

    moved = r0 + -2
    guard = moved >= ZERO
    loaded = UOp(Op.LOAD, dtypes.float32, (param, moved, guard))
    assert element is where(guard, loaded, const(dtypes.float32, 0.0))


def gather(x, axes, *indices):
    return UOp(Op.GATHER, x.dtype, (x, *indices), GatherAttrs(axes))


def test_an_index_from_memory_is_held_inside_its_axis():
    leaf, places = buffer(dtypes.float32, (4, 3), "CPU"), buffer(dtypes.int64, (5, 3), "CPU")
    table = UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(0, 12))
    numbers = UOp(Op.PARAM, dtypes.int64, (), ParamAttrs(1, 15))
    r0, r1 = index = ranges_over((5, 3), 0)

    element = Lowering({leaf: table, places: numbers}, 2).value(
        Point(gather(leaf, (0,), places), index)
    )

    loaded = UOp(Op.LOAD, dtypes.int64, (numbers, flatten(index, (5, 3))))
    held = binary(Op.MIN, binary(Op.MAX, loaded, 0), 3)
    row = cast(held, dtypes.index)
    assert element is UOp(Op.LOAD, dtypes.float32, (table, flatten((row, r1), (4, 3))))
    assert bounds_of(element.operands[1]) == (0, 11)


def test_an_index_that_is_proven_inside_is_taken_as_it_is():
    leaf = buffer(dtypes.float32, (4,), "CPU")
    table = UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(0, 4))
    (r0,) = index = ranges_over((4,), 0)

    element = Lowering({leaf: table}, 1).value(Point(gather(leaf, (0,), iota(4)), index))

    assert simplify((element,))[0] is UOp(Op.LOAD, dtypes.float32, (table, r0))


def test_a_long_chain_of_gathers_needs_no_recursion():
    leaf = node = buffer(dtypes.int64, (3,), "CPU")
    values = np.array([2, 0, 1])
    for _ in range(3000):
        node = gather(node, (0,), iota(3))

    np.testing.assert_array_equal(computed(node, leaf, values), values)


def test_a_shared_value_is_lowered_once_for_each_index():
    leaf = buffer(dtypes.float32, (3,), "CPU")
    x = leaf
    for _ in range(60):
        x = UOp(Op.ADD, dtypes.float32, (x, x))
    lowering = Lowering({leaf: UOp(Op.PARAM, dtypes.float32, (), ParamAttrs(0, 3))}, 1)

    lowering.value(Point(x, ranges_over((3,), 0)))

    assert len(lowering.memo) == 61


@pytest.mark.parametrize("combine", [Combine.ADD, Combine.MUL, Combine.MAX, Combine.MIN])
def test_a_fold_over_one_element_keeps_its_sign_unless_it_is_a_sum(combine):
    leaf = buffer(dtypes.float32, (1, 2), "CPU")
    values = np.array([[-0.0, 3.0]], np.float32)

    result = computed(reduce(leaf, combine, 0), leaf, values)

    assert np.signbit(result[0, 0]) == (combine is not Combine.ADD)
    assert result[0, 1] == 3.0


@pytest.mark.parametrize(
    ("combine", "dtype", "value"),
    [
        (Combine.ADD, dtypes.float32, 0.0),
        (Combine.MUL, dtypes.int32, 1),
        (Combine.MAX, dtypes.float32, -math.inf),
        (Combine.MIN, dtypes.int8, 127),
        (Combine.AND, dtypes.bool, True),
        (Combine.AND, dtypes.uint8, 255),
        (Combine.OR, dtypes.bool, False),
        (Combine.ARGMAX, dtypes.float32, 0),
    ],
    ids=str,
)
def test_a_fold_over_nothing_gives_the_identity(combine, dtype, value):
    leaf = buffer(dtype, (0, 2), "CPU")

    result = computed(reduce(leaf, combine, 0), leaf, np.zeros((0, 2), dtype.storage_numpy))

    assert result.tolist() == [[value, value]]
