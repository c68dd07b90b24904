"""Writes at computed places give NumPy's elements: the last of several, or their fold."""

import math

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.errors import IndexOutOfRange
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.tensor import updates
from tinytensor.tensor.updates import NOWHERE, Updates, fold_updates, last_update

DEVICES = ["CPU", "PYTHON"]
UFUNCS = {
    Combine.ADD: (np.add, 0),
    Combine.MUL: (np.multiply, 1),
    Combine.MAX: (np.maximum, -np.inf),
    Combine.MIN: (np.minimum, np.inf),
}
# Shapes of the values, the axis of their updates, and the shape of the positions.
LAYOUTS = {
    "vector": ((37,), 0, (37,)),
    "rows alike": ((70, 3), 0, (70, 1)),
    "rows apart": ((3, 20), 1, (3, 20)),
    "middle": ((2, 9, 3), 1, (2, 9, 1)),
    "one update": ((1, 2), 0, (1, 1)),
}
FOLDS = [(layout, Combine.ADD) for layout in LAYOUTS]
FOLDS += [("rows apart", combine) for combine in UFUNCS if combine is not Combine.ADD]


@pytest.fixture(params=["compared", "sorted"])
def way(request, monkeypatch):
    """Each way to find a destination's updates, however many there are."""
    is_compared = request.param == "compared"
    monkeypatch.setattr(updates, "COMPARED_PAIRS", 2**40 if is_compared else 0)
    monkeypatch.setattr(updates, "COMPARED_COUNT", 0)
    return request.param


def random_updates(layout, extent, device, seed):
    """Small integers as floats, so that each order gives the same bits, and where they go."""
    rng = np.random.default_rng(seed)
    shape, axis, narrow = LAYOUTS[layout]
    values = rng.integers(-3, 4, shape).astype(np.float32)
    positions = rng.integers(NOWHERE, extent, narrow)
    node = Tensor(positions, device=device).uop
    return values, positions, Updates(node, axis, extent)


def computed(node, device):
    return Tensor._made(node, device).numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("layout", "combine"), FOLDS)
def test_a_fold_of_updates(layout, combine, device, way, seed):
    values, positions, where = random_updates(layout, 11, device, seed)

    found = computed(fold_updates(combine, Tensor(values, device=device).uop, where), device)

    ufunc, identity = UFUNCS[combine]
    axis = where.axis
    everywhere = np.broadcast_to(positions, values.shape)
    places = list(np.indices(values.shape))
    places[axis] = everywhere
    is_sent = everywhere != NOWHERE
    expected = np.full(found.shape, identity, np.float32)
    ufunc.at(expected, tuple([each[is_sent] for each in places]), values[is_sent])
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_last_update(layout, device, way, seed):
    _, positions, where = random_updates(layout, 11, device, seed)

    found = computed(last_update(where), device)

    expected = np.full(found.shape, NOWHERE)
    for place in np.argwhere(positions != NOWHERE):
        destination = list(place)
        destination[where.axis] = positions[tuple(place)]
        expected[tuple(destination)] = place[where.axis]
    assert found.tolist() == expected.tolist()


# Methods.
X = np.arange(12, dtype=np.float32).reshape(3, 4)
ROWS = np.array([2, 0, 2, 2])
SOURCE = np.arange(16, dtype=np.float32).reshape(4, 4) * 10


@pytest.mark.parametrize("device", DEVICES)
def test_the_last_of_several_writes_wins(device, way):
    x, rows, source = (Tensor(each, device=device) for each in (X, ROWS, SOURCE))

    copied = x.index_copy(0, rows, source)
    put = x.index_put((rows, rows), source[:, 0])
    scattered = x.scatter(1, rows.reshape(1, 4), source[3:])

    assert copied.tolist() == [SOURCE[1].tolist(), X[1].tolist(), SOURCE[3].tolist()]
    assert put.tolist() == [[40, 1, 2, 3], [4, 5, 6, 7], [8, 9, 120, 11]]
    assert scattered.tolist() == [[130, 1, 150, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("device", DEVICES)
def test_sums_into_rows(device, way):
    x, rows, source = (Tensor(each, device=device) for each in (X, ROWS, SOURCE))

    found = x.index_add(0, rows, source, alpha=2)

    expected = X.copy()
    np.add.at(expected, ROWS, 2 * SOURCE)
    assert found.tolist() == expected.tolist()


def test_what_is_not_hit_keeps_its_bits(way):
    x = Tensor([-0.0, 1.0, -0.0])

    found = x.index_add(0, Tensor([1]), Tensor([1.0])).numpy()

    assert np.signbit(found).tolist() == [True, False, True]
    assert found[1] == 2


def test_a_sum_of_halves_is_rounded_once(way):
    # Each term alone would be lost: 2048 + 1 is 2048 in float16.
    x = Tensor([2048.0]).half()

    found = x.scatter_add(0, Tensor([0] * 4), Tensor([1.0] * 4).half())

    assert found.tolist() == [2052.0]


def test_integer_sums_wrap(way):
    x = Tensor([100, 0], dtype=dtypes.int8)

    found = x.index_add(0, Tensor([0, 0]), Tensor([100, 100], dtype=dtypes.int8))

    assert found.tolist() == [44, 0]


def test_nan_is_an_extreme_and_spoils_its_own_place_alone(way):
    x = Tensor([1.0, 2.0, 3.0])
    values = Tensor([float("nan"), 5.0, 7.0])

    found = x.scatter_reduce(0, Tensor([0, 0, 2]), values, "amax")

    assert str(found.tolist()) == "[nan, 2.0, 7.0]"


@pytest.mark.parametrize("device", DEVICES)
def test_two_runs_give_the_same_bits(device, way, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(300).astype(np.float32)
    rows = rng.integers(0, 7, 300)
    given = [Tensor(each, device=device) for each in (np.zeros(7, np.float32), rows, values)]

    first, second = (given[0].scatter_add(0, *given[1:]).numpy() for _ in range(2))

    assert first.tobytes() == second.tobytes()


def test_masks_choose_without_being_read():
    x, mask = Tensor(X), Tensor(X) > 5
    filled = x.masked_fill(mask, -1)

    assert mask.cell.leaf is None
    assert len(kernels_of(filled)) == 1
    assert filled.tolist() == np.where(X > 5, -1, X).tolist()
    assert x.masked_scatter(mask, Tensor(SOURCE)).tolist()[1] == [4, 5, 0, 10]


def test_a_mask_that_is_assigned_to_is_not_realized():
    x, mask = Tensor(X), Tensor(X) > 5
    rows = Tensor([True, False, True])

    x[mask] = 0
    x[rows] = Tensor(X)[1] * 2
    x[rows, 1:] = Tensor(-1.0)

    assert mask.cell.leaf is None
    assert rows.logical_not().cell.leaf is None
    assert x.tolist() == [[8, -1, -1, -1], [4, 5, 0, 0], [8, -1, -1, -1]]


def test_the_right_side_is_read_before_it_is_written():
    x = Tensor(X)
    before = x * 2

    x[[1, 0]] = x[:2]
    x[[2, 2]] = x[:2]

    assert before.tolist() == (X * 2).tolist()
    assert x.tolist() == [X[1].tolist(), X[0].tolist(), X[0].tolist()]


def test_few_updates_are_one_kernel():
    x, rows, source = Tensor(X), Tensor(ROWS) % 3, Tensor(SOURCE)

    assert len(kernels_of(x.index_add(0, rows, source))) == 1


def test_rows_that_go_alike_are_sorted_once(way):
    rows = Tensor.arange(300).unsqueeze(1)
    narrow, broad = Tensor.zeros(400, 1), Tensor.zeros(400, 64)

    alike = broad.scatter_add(0, rows.expand(300, 64), broad[:300])

    single = narrow.scatter_add(0, rows, narrow[:300])
    assert integers_computed(alike) == integers_computed(single)
    assert (integers_computed(alike) > 0) == (way == "sorted")


def integers_computed(x):
    """The elements of the folds that find the order of updates, and where it begins."""
    folds = [node for node in walk((x.uop,)) if node.op is Op.REDUCE and node.dtype.is_int]
    return sum(math.prod(node.operands[0].shape) for node in folds)


# A large table.
def test_the_gradient_of_a_long_table_sorts_its_rows(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 20_000, 500)
    scale = rng.integers(-3, 4, (500, 8)).astype(np.float32)
    table = Tensor.zeros(20_000, 8, requires_grad=True)

    (table[Tensor(rows)] * Tensor(scale)).sum().backward()

    expected = np.zeros((20_000, 8), np.float32)
    np.add.at(expected, rows, scale)
    assert np.array_equal(table.grad.numpy(), expected)


# Out of range.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [3, -1, 2**32, -(2**63)])
def test_a_write_out_of_range_raises_at_the_host_read(row, device):
    x = Tensor(X, device=device)
    index = Tensor([[row, 1]], device=device)
    found = x.scatter_add(0, index, Tensor([[1.0, 1.0]], device=device)).realize()

    with pytest.raises(IndexOutOfRange, match=f"scatter_add: an index is out of range: {row} on"):
        found.tolist()


def test_too_few_elements_for_a_mask_raise_at_the_host_read():
    found = Tensor(X).masked_scatter(Tensor(X) > 5, Tensor([1.0, 2.0])).realize()

    with pytest.raises(IndexOutOfRange, match="masked_scatter: an index is out of range"):
        found.tolist()


def test_nothing_to_write_changes_nothing():
    nothing = Tensor.zeros(0, dtype=dtypes.int64)
    x = Tensor(X)

    assert x.index_add(0, nothing, Tensor.zeros(0, 4)).tolist() == X.tolist()
    assert x.index_put((nothing,), Tensor(1.0)).tolist() == X.tolist()
    assert Tensor.zeros(0, 3).index_fill(1, Tensor([1]), 2).shape == (0, 3)
