"""How many elements may be accessed at once, compared with the values of the index itself."""

import itertools

import pytest
from codegen.plans.plan_kernels import KernelBuilder, load

from tinytensor.codegen.plans.alignment import common_access, power_dividing
from tinytensor.dtype import dtypes
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import index_const, make_range, substitute

ROW, COLUMN = make_range(0, 5), make_range(1, 24)
INDICES = {
    "dense": ROW * 24 + COLUMN,
    "padded": ROW * 20 + COLUMN,
    "odd": ROW * 23 + COLUMN,
    "shifted": ROW * 24 + COLUMN + 2,
    "before": ROW * 24 + COLUMN + -4,
    "scaled": ROW * COLUMN * 4,
    "remainder": (ROW * 24 + COLUMN) % 12,
    "divided": (ROW * 24 + COLUMN) // 3,
    "constant": index_const(0),
}


def values_of(index, step):
    """The index's values where the column is a multiple of a step."""
    for row, column in itertools.product(range(ROW.extent), range(0, COLUMN.extent, step)):
        places = {ROW: index_const(row), COLUMN: index_const(column)}
        yield int(simplify_index(substitute(index, places)).value)


@pytest.mark.parametrize("step", [1, 2, 8])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_the_power_divides_every_value(index, step):
    power = power_dividing(index, {COLUMN: step}, 16)

    assert power in (1, 2, 4, 8, 16)
    assert [value % power for value in values_of(index, step)] == [0] * (5 * (24 // step))


@pytest.mark.parametrize(
    ("name", "elements"), [("dense", 8), ("padded", 4), ("odd", 1), ("shifted", 2), ("scaled", 16)]
)
def test_the_power_is_the_greatest_for_affine_indices(name, elements):
    assert power_dividing(INDICES[name], {COLUMN: 8}, 16) == elements


def accessed(index, dtype, guard=None):
    builder = KernelBuilder(ROW, COLUMN)
    return load(builder.param(dtype, 240), index, guard)


@pytest.mark.parametrize(
    ("dtype", "elements"), [(dtypes.float16, 8), (dtypes.float32, 4), (dtypes.float64, 2)]
)
def test_an_access_has_at_most_16_bytes(dtype, elements):
    value = accessed(INDICES["dense"], dtype)

    assert common_access((value,), COLUMN, {COLUMN: 16}) == elements


def test_a_ragged_extent_is_never_cut_within_an_access():
    short = make_range(1, 18)

    assert common_access((accessed(ROW * 24 + short, dtypes.int8),), short, {short: 16}) == 2


def test_the_narrowest_access_decides():
    values = accessed(INDICES["dense"], dtypes.float16), accessed(INDICES["odd"], dtypes.float16)

    assert common_access(values, COLUMN, {COLUMN: 16}) == 1


def test_a_guard_along_the_range_takes_elements_one_by_one():
    value = accessed(INDICES["dense"], dtypes.float16, COLUMN < 7)

    assert common_access((value,), COLUMN, {COLUMN: 16}) == 1


def test_a_strided_access_limits_nothing():
    value = accessed(COLUMN * 5 + ROW, dtypes.float32)

    assert common_access((value,), COLUMN, {COLUMN: 16}, most=8) == 8
