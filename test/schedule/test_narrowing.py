"""A write in place touches what it changes, and nothing else."""

import numpy as np
import pytest
from codegen.plans.plan_kernels import KernelBuilder, load

from tinytensor import Tensor, realize
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, compare, make_range, make_variable, operand, where
from tinytensor.ops.verify import verify_indexed
from tinytensor.schedule.narrowing import narrow_writes

PLACES = {
    "one row": (slice(None), slice(5, 6)),
    "rows": (slice(None), slice(2, 9)),
    "a corner": (slice(3, None), slice(0, 4), slice(1, 3)),
    "every second": (slice(None), slice(1, 10, 2)),
    "all": (slice(None),),
    "nothing": (slice(None), slice(4, 4)),
    "an element": (2, 7, 1),
}


def array():
    return np.arange(4 * 12 * 3, dtype=np.float32).reshape(4, 12, 3)


@pytest.mark.parametrize("name", PLACES)
def test_a_part_is_written_and_the_rest_is_kept(name):
    index = PLACES[name]
    x, wanted = Tensor(array()), array()
    address = realize.storage_of(x.cell.leaf).address
    value = -np.arange(wanted[index].size, dtype=np.float32).reshape(wanted[index].shape)

    x[index] = Tensor(value)
    wanted[index] = value

    assert x.tolist() == wanted.tolist()
    is_part = name != "all"  # what is written whole is a value of its own
    assert (realize.storage_of(x.cell.leaf).address == address) == is_part


@pytest.mark.parametrize("name", ["one row", "rows", "a corner"])
def test_a_part_that_reads_itself_is_right(name):
    index = PLACES[name]
    x, wanted = Tensor(array()), array()

    x[index] += 3.0
    wanted[index] += 3

    assert x.tolist() == wanted.tolist()


P = make_variable(0, 0, 11)


def row_write(least, most):
    """p0[i, j] = p1[j] where least <= i < most, else p0[i, j], of 12 rows of 3."""
    row, column = make_range(0, 12), make_range(1, 3)
    builder = KernelBuilder(row, column)
    target = builder.param(dtypes.float32, 36, written=True)
    index = row * 3 + column
    guard = compare(Op.LE, operand(row, least), row) & compare(Op.LT, row, most)
    value = where(guard, load(builder.param(dtypes.float32, 3), column), load(target, index))
    builder.stores.append(UOp(Op.STORE, dtypes.void, (target, index, value)))
    return builder.kernel()


@pytest.mark.parametrize(
    ("least", "most", "extents"),
    [(5, 6, [3]), (2, 9, [7, 3]), (P, P + 1, [3]), (P, 12, [12, 3]), (P, P + 4, [12, 3])],
)
def test_only_the_rows_that_change_are_walked(least, most, extents):
    kernel = row_write(least, most)
    narrow = narrow_writes(kernel)
    verify_indexed(narrow)

    assert [each.extent for each in narrow.ranges] == extents
    for place in (0, 3, 8, 11):
        wanted = [np.arange(36, dtype=np.float32), -np.ones(3, np.float32)]
        found = [each.copy() for each in wanted]
        run_kernel(kernel, wanted, (place,))
        run_kernel(narrow, found, (place,))
        assert found[0].tolist() == wanted[0].tolist()


def test_what_is_no_write_in_place_stays():
    row = make_range(0, 12)
    builder = KernelBuilder(row)
    source = builder.param(dtypes.float32, 12)
    builder.store(row, where(row < 5, load(source, row), load(source, row) + 1.0), 12)
    kernel = builder.kernel()

    assert narrow_writes(kernel) is kernel
