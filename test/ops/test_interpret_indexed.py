import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.indexed import contract, facts, kernel, load, param, reduce, sink, store

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops import interpret_indexed
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret import from_storage, to_storage
from tinytensor.ops.interpret_indexed import find_affine, run_kernel, run_sink
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast, compare, const, index_const, make_range, walk, where

F32 = dtypes.float32
OUT = param(0, F32, 12)
SOURCE = param(1, F32, 12)
ROW, COLUMN = make_range(0, 3), make_range(1, 4)
VALUES = np.arange(12, dtype=np.float32)


@pytest.fixture(params=[1, 5, 2**17], ids=lambda elements: f"blocks-of-{elements}")
def blocks(request, monkeypatch):
    """Runs a test in blocks of few elements, too: they give the same values."""
    monkeypatch.setattr(interpret_indexed, "CACHED_ELEMENTS", request.param)
    monkeypatch.setattr(interpret_indexed, "CONTRACTION_ELEMENTS", request.param)


def run(*stores, ranges=(ROW, COLUMN), arrays=(VALUES,), elements=12, dtype=np.float32):
    """The first param's array after a run; its elements start as 99."""
    out = np.full(elements, 99, dtype)
    run_sink(sink(*stores), ranges, (out, *arrays))
    return out.tolist()


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (ROW * 4 + COLUMN, np.arange(12).reshape(3, 4)),
        (COLUMN * 3 + ROW, np.arange(12).reshape(4, 3).T),
        (index_const(11) - (ROW * 4 + COLUMN), np.arange(12)[::-1].reshape(3, 4)),
        (COLUMN, np.broadcast_to(np.arange(4), (3, 4))),
        (index_const(7), np.full((3, 4), 7)),
        ((ROW * 4 + COLUMN) // 2, np.arange(12).reshape(3, 4) // 2),
        (COLUMN * 3 % 4 + ROW, np.arange(4) * 3 % 4 + np.arange(3)[:, None]),
    ],
)
def test_a_load_reads_the_elements_of_its_index(blocks, index, expected):
    found = run(store(OUT, ROW * 4 + COLUMN, load(SOURCE, index) + 1.0))

    assert found == (expected.ravel() + 1).tolist()


def test_a_store_writes_the_elements_of_its_index(blocks):
    found = run(store(OUT, COLUMN * 3 + ROW, load(SOURCE, ROW * 4 + COLUMN)))

    assert found == np.arange(12).reshape(3, 4).T.ravel().tolist()


def test_a_guarded_load_reads_0_and_touches_nothing_else(blocks):
    index = ROW * 4 + COLUMN - 2
    guard = compare(Op.LE, index_const(0), index)

    found = run(store(OUT, ROW * 4 + COLUMN, load(SOURCE, index, guard)))

    assert found == [0, 0, *range(10)]


def test_a_guarded_load_of_an_empty_buffer_is_0(blocks):
    empty = param(1, dtypes.bool, 0)
    value = cast(load(empty, ROW, const(dtypes.bool, False)), F32)

    found = run(store(OUT, ROW * 4 + COLUMN, value), arrays=(np.zeros(0, np.bool_),))

    assert found == [0] * 12


def test_a_guarded_store_leaves_the_others_alone(blocks):
    guard = compare(Op.LT, COLUMN, index_const(2))

    found = run(store(OUT, ROW * 4 + COLUMN, load(SOURCE, COLUMN), guard))

    assert found == [0, 1, 99, 99] * 3


def test_two_stores_share_their_ranges(blocks):
    second = param(2, F32, 12)
    value = load(SOURCE, ROW * 4 + COLUMN)
    other = np.zeros(12, np.float32)

    found = run(
        store(OUT, ROW * 4 + COLUMN, value * 2.0),
        store(second, COLUMN * 3 + ROW, value),
        arrays=(VALUES, other),
    )

    assert found == (VALUES * 2).tolist()
    assert other.tolist() == VALUES.reshape(3, 4).T.ravel().tolist()


def test_an_index_comes_from_integers_in_memory(blocks):
    table = param(2, dtypes.int32, 3)
    index = cast(load(table, ROW), dtypes.index)
    inside = compare(Op.LT, index, index_const(12))

    found = run(
        store(OUT, ROW, load(SOURCE, index, inside)),
        ranges=(ROW,),
        arrays=(VALUES, np.array([11, 3, 12], np.int32)),
        elements=3,
    )

    assert found == [11, 3, 0]


def test_a_reduction_folds_its_ranges_only(blocks):
    row = reduce(Combine.ADD, load(SOURCE, ROW * 4 + COLUMN), COLUMN)
    largest = reduce(Combine.MAX, load(SOURCE, ROW * 4 + COLUMN), COLUMN)

    found = run(store(OUT, ROW, row * largest), ranges=(ROW,), elements=3)

    assert found == [6 * 3, 22 * 7, 38 * 11]


def test_reductions_nest(blocks):
    largest = reduce(Combine.MAX, load(SOURCE, ROW * 4 + COLUMN), COLUMN)
    k = make_range(2, 4)
    spread = reduce(Combine.ADD, largest - load(SOURCE, ROW * 4 + k), k)

    found = run(store(OUT, ROW, spread), ranges=(ROW,), elements=3)

    assert found == [6, 6, 6]


def test_a_reduction_counts_a_value_that_does_not_vary(blocks):
    found = run(
        store(OUT, ROW, reduce(Combine.ADD, const(F32, 2), COLUMN)), ranges=(ROW,), elements=3
    )

    assert found == [8, 8, 8]


def test_a_reduction_to_a_position(blocks):
    value = reduce(Combine.ARGMIN, load(SOURCE, ROW * 4 + COLUMN), COLUMN, dtype=dtypes.int64)
    values = np.float32([3, 1, 2, 1, 0, np.nan, 0, 0, 5, 6, 7, 8])

    found = run(
        store(param(0, dtypes.int64, 3), ROW, value),
        ranges=(ROW,),
        arrays=(values,),
        elements=3,
        dtype=np.int64,
    )

    assert found == [1, 1, 0]


def test_a_kernel_without_ranges_writes_one_element(blocks):
    total = reduce(Combine.ADD, load(SOURCE, ROW * 4 + COLUMN), ROW, COLUMN)

    found = run(store(OUT, index_const(0), total), ranges=(), elements=1)

    assert found == [66]


def test_an_empty_reduction_gives_its_identity(blocks):
    none = make_range(1, 0)

    found = run(
        store(OUT, ROW, reduce(Combine.ADD, load(SOURCE, none), none)), ranges=(ROW,), elements=3
    )

    assert found == [0, 0, 0]


def test_an_empty_range_writes_nothing(blocks):
    none = make_range(0, 0)

    assert run(store(OUT, none, load(SOURCE, none)), ranges=(none,)) == [99] * 12


def test_bfloat16_is_stored_as_its_upper_half():
    out, source = param(0, dtypes.bfloat16, 3), param(1, dtypes.bfloat16, 3)
    stored = to_storage(np.float32([1, 1.5, -2]), dtypes.bfloat16)
    result = np.zeros(3, np.uint16)

    run_sink(sink(store(out, ROW, load(source, ROW) + 1.0)), (ROW,), (result, stored))

    assert from_storage(result, dtypes.bfloat16).tolist() == [2, 2.5, -1]


def test_a_boolean_load_stays_boolean():
    out, source = param(0, dtypes.bool, 3), param(1, dtypes.bool, 3)
    value = load(source, ROW, compare(Op.LT, ROW, index_const(2)))
    result = np.ones(3, np.bool_)

    run_sink(sink(store(out, ROW, value)), (ROW,), (result, np.ones(3, np.bool_)))

    assert result.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("index", "worst"),
    [(ROW * 4 + COLUMN + 1, 1), (COLUMN - 1, -1), (ROW * 4 // 3 * 5 + COLUMN, 13)],
)
def test_an_index_outside_is_refused(index, worst):
    with pytest.raises(InternalError) as caught:
        run(store(OUT, ROW * 4 + COLUMN, load(SOURCE, index)))

    assert str(caught.value) == (
        f"load: an index is outside its buffer: {worst} or one of its block, of 12 elements of "
        "param 1; accesses stay inside."
    )


# Contractions.
BATCH, M, N, K = (make_range(number, extent) for number, extent in enumerate((2, 3, 4, 5)))


def run_contraction(a, b, arrays, dtype=F32, epilogue=lambda x: x, result=None):
    node = contract(a, b, (BATCH,), (M,), (N,), (K,), dtype)
    result = result or dtype
    out = param(0, result, 24)
    written = store(out, (BATCH * 3 + M) * 4 + N, epilogue(node))
    buffers = (out, *dict.fromkeys(each for each in walk([a, b]) if each.op is Op.PARAM))
    found = np.zeros(24, result.storage_numpy)
    sample = facts(node, (BATCH,), (M,), (N,), (K,))
    run_kernel(kernel(sink(written), (BATCH, M, N), *buffers, contraction=sample), (found, *arrays))
    return found.reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("dtype", "accumulate"),
    [
        (dtypes.float16, F32),
        (dtypes.bfloat16, F32),
        (F32, F32),
        (dtypes.float64, dtypes.float64),
        (dtypes.int8, dtypes.int32),
        (dtypes.uint64, dtypes.uint64),
    ],
)
def test_a_contraction_is_a_matrix_product(blocks, dtype, accumulate, seed):
    rng = np.random.default_rng(seed)
    x, w = rng.integers(0, 9, (2, 3, 5)), rng.integers(0, 9, (2, 5, 4))
    a = load(param(1, dtype, 30), (BATCH * 3 + M) * 5 + K)
    b = load(param(2, dtype, 40), (BATCH * 5 + K) * 4 + N)
    arrays = [to_storage(each.astype(dtype.value_numpy).ravel(), dtype) for each in (x, w)]

    found = run_contraction(a, b, arrays, accumulate)

    assert found.tolist() == (x @ w).tolist()


def test_a_contraction_s_operands_have_prologues_and_its_result_an_epilogue(blocks):
    x = np.arange(-15, 15, dtype=np.float32)
    w = np.arange(20, dtype=np.float32)
    loaded = load(param(1, F32, 30), (BATCH * 3 + M) * 5 + K)
    a = where(compare(Op.LT, loaded, 0.0), const(F32, 0.0), loaded)
    b = load(param(2, F32, 20), N * 5 + K)  # the same in each batch

    found = run_contraction(
        a, b, (x, w), epilogue=lambda each: cast(each + 0.5, dtypes.float16), result=dtypes.float16
    )

    expected = np.maximum(x, 0).reshape(2, 3, 5) @ w.reshape(4, 5).T + 0.5
    assert found.tolist() == expected.astype(np.float16).tolist()


@pytest.mark.parametrize("value", [127, 2**31 - 1])
def test_an_integer_contraction_wraps_at_its_accumulator(value):
    dtype = dtypes.int32
    a = load(param(1, dtype, 30), (BATCH * 3 + M) * 5 + K)
    b = load(param(2, dtype, 40), (BATCH * 5 + K) * 4 + N)
    arrays = np.full(30, value, np.int32), np.full(40, value, np.int32)

    found = run_contraction(a, b, arrays, dtype)

    exact = 5 * value * value
    assert np.all(found == (exact + 2**31) % 2**32 - 2**31)


def test_a_contraction_of_negative_zeros_is_plus_zero():
    a = load(param(1, F32, 30), (BATCH * 3 + M) * 5 + K)
    b = load(param(2, F32, 40), (BATCH * 5 + K) * 4 + N)

    found = run_contraction(a, b, (np.full(30, -0.0, np.float32), np.ones(40, np.float32)))

    assert not np.signbit(found).any()


# Random index expressions, against Python's integers one position at a time.
def index_nodes():
    leaves = st.one_of(st.sampled_from([ROW, COLUMN]), st.integers(-4, 4).map(index_const))
    operations = st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN])

    def extend(inner):
        return st.builds(binary, operations, inner, inner)

    return st.recursive(leaves, extend, max_leaves=8)


PYTHON = {
    Op.ADD: lambda x, y: x + y,
    Op.SUB: lambda x, y: x - y,
    Op.MUL: lambda x, y: x * y,
    Op.FLOORDIV: lambda x, y: x // y if y else 0,
    Op.MOD: lambda x, y: x % y if y else 0,
    Op.MAX: max,
    Op.MIN: min,
}


def at(root, position):
    """The Python integer an index expression has where the ranges have those values."""
    values = dict(position)
    for node in walk([root]):
        if node.op is Op.CONST:
            values[node] = node.value
        elif node not in values:
            values[node] = PYTHON[node.op](*[values[each] for each in node.operands])
    return values[root]


@given(index_nodes())
def test_an_index_expression_is_python_s(index):
    out = np.zeros(12, np.int64)
    written = store(param(0, dtypes.int64, 12), ROW * 4 + COLUMN, cast(index, dtypes.int64))

    run_sink(sink(written), (ROW, COLUMN), (out,))

    positions = itertools.product(range(3), range(4))
    assert out.tolist() == [at(index, {ROW: i, COLUMN: j}) for i, j in positions]


@given(index_nodes())
def test_an_affine_form_is_the_expression(index):
    affine = find_affine(walk([index])).get(index)

    for i, j in itertools.product(range(3), range(4)):
        position = {ROW: i, COLUMN: j}
        if affine is not None:
            terms = [c * position[each] for each, c in affine.coefficients.items()]
            assert affine.offset + math.fsum(terms) == at(index, position)


def test_a_sum_of_scaled_ranges_is_affine():
    index = (ROW * 4 + COLUMN - 3) * 2 + ROW

    affine = find_affine(walk([index]))[index]

    assert affine.offset == -6
    assert affine.coefficients == {ROW: 9, COLUMN: 2}
