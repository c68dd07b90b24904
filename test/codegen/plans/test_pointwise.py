"""Kernels without folds: merged ranges, lanes, segments at guards, tiles turned over."""

import pytest
from codegen.plans.plan_kernels import KernelBuilder, assert_plans_agree, contract, fold, load

from tinytensor.codegen.lower import lower
from tinytensor.codegen.plans import pointwise
from tinytensor.codegen.plans.choices import unroll_choices
from tinytensor.codegen.plans.merging import merge_ranges
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import binary, cast, compare, const, index_const, make_range, walk, where
from tinytensor.target import CPU_AVX2, CPU_AVX512, CPU_SSE

F32 = dtypes.float32


def copy(rows, columns, place, elements=None):
    """out[r, c] = x[place(r, c)] + 1"""
    r, c = make_range(0, rows), make_range(1, columns)
    builder = KernelBuilder(r, c)
    source = builder.param(F32, elements or rows * columns)
    builder.store(r * columns + c, load(source, place(r, c)) + 1, rows * columns)
    return builder.kernel()


def padded(rows, columns, before, after, dtype=F32):
    width = before + columns + after
    r, c = make_range(0, rows), make_range(1, width)
    builder = KernelBuilder(r, c)
    guard = (index_const(before) <= c) & (c < before + columns)
    inside = load(builder.param(dtype, rows * columns), r * columns + (c - before), guard)
    builder.store(r * width + c, where(guard, inside, const(dtype, 7)), rows * width)
    return builder.kernel()


def extents(kernel):
    return [each.extent for each in merge_ranges(kernel).ranges]


def test_neighbors_in_memory_merge():
    assert extents(copy(4, 30, lambda r, c: r * 30 + c)) == [120]


def test_a_transposed_operand_keeps_its_ranges_apart():
    assert extents(copy(4, 30, lambda r, c: c * 4 + r)) == [4, 30]


def test_a_broadcast_operand_keeps_its_ranges_apart():
    assert extents(copy(4, 30, lambda r, c: c)) == [4, 30]


def test_a_range_of_one_value_goes():
    assert extents(copy(1, 30, lambda r, c: r * 30 + c)) == [30]


def test_a_division_that_spans_both_ranges_merges():
    assert extents(copy(4, 30, lambda r, c: (r * 30 + c) // 2)) == [120]


def test_folded_ranges_merge_and_kept_ones_stay():
    r, j, k = make_range(0, 3), make_range(1, 4), make_range(2, 5)
    builder = KernelBuilder(r)
    source = builder.param(F32, 60)
    builder.store(r, fold(Combine.ADD, load(source, r * 20 + j * 5 + k), j, k), 3)

    merged = merge_ranges(builder.kernel())

    (store,) = merged.sink.operands
    assert [each.extent for each in store.operands[2].operands[1:]] == [20]
    assert merged.ranges == (r,)


def test_a_contraction_keeps_its_ranges():
    r, k = make_range(0, 3), make_range(1, 4)
    builder = KernelBuilder(r)
    a, b = builder.param(F32, 12), builder.param(F32, 4)
    builder.store(r, contract(load(a, r * 4 + k), load(b, k), F32, m=(r,), k=(k,)), 3)
    kernel = builder.kernel()

    assert merge_ranges(kernel) is kernel


def test_the_lanes_run_along_the_store():
    facts = pointwise.facts(copy(24, 40, lambda r, c: c * 24 + r), CPU_AVX512)

    (segment,) = facts.segments
    assert segment.range_.extent == 40


def test_a_transposed_load_is_turned_over():
    facts = pointwise.facts(copy(24, 40, lambda r, c: c * 24 + r), CPU_AVX512)

    assert facts.turn.range_.extent == 24
    assert len(facts.turn.loads) == 1


def test_an_interleaved_load_is_not_turned_over():
    kernel = copy(24, 40, lambda r, c: r * 80 + c * 2, 24 * 80)

    assert pointwise.facts(kernel, CPU_AVX512).turn is None


def test_a_pad_is_three_segments():
    facts = pointwise.facts(padded(5, 40, 3, 6), CPU_AVX512)

    assert [each.range_.extent for each in facts.segments] == [3, 40, 6]
    inside = facts.segments[1].stores[0].operands[2]
    assert inside.op is Op.LOAD
    assert len(inside.operands) == 2


def exchanged(rows, halves, width, innermost=False, filled=0):
    """The lesser of two elements before the greater, at as many places for the greater.

    So many rows of the result are filled with zeros.
    """
    r, h, c = make_range(0, rows), make_range(1, halves), make_range(2, width)
    builder = KernelBuilder(r, h, c)
    source = builder.param(F32, rows * 2 * width)
    x, y = (load(source, r * 2 * width + part * width + c) for part in range(2))
    lesser = compare(Op.EQ, cast(h, dtypes.int64), const(dtypes.int64, 0))
    index = (r * width + c) * halves + h if innermost else (r * halves + h) * width + c
    value = where(lesser, binary(Op.MIN, x, y), binary(Op.MAX, x, y))
    value = where(index_const(filled) <= r, value, const(F32, 0.0)) if filled else value
    builder.store(index, value, rows * halves * width)
    return builder.kernel()


@pytest.mark.parametrize(
    ("halves", "innermost", "stores"),
    [(2, False, 2), (8, False, 8), (16, False, 16), (17, False, 1), (2, True, 1)],
)
def test_a_choice_along_a_short_range_is_a_store_for_each_value(halves, innermost, stores):
    kernel = exchanged(3, halves, 21, innermost)

    (segment,) = pointwise.facts(kernel, CPU_AVX512).segments

    assert len(segment.stores) == stores
    is_chosen = any(each.op is Op.WHERE for each in walk(segment.stores))
    assert is_chosen == (stores == 1)
    assert_plans_agree(kernel)


def test_of_two_choices_the_one_between_computed_values_is_a_store_for_each():
    kernel = exchanged(3, 16, 21, filled=1)

    opened = unroll_choices(kernel)

    assert [each.extent for each in opened.ranges] == [3, 21]
    assert len(opened.sink.operands) == 16
    assert_plans_agree(kernel)


def joined(count, width):
    """Arrays of one width side by side."""
    r, c = make_range(0, 2), make_range(1, count * width)
    builder = KernelBuilder(r, c)
    value = const(F32, 0.0)
    for begin in range(0, count * width, width):
        guard = (index_const(begin) <= c) & (c < begin + width)
        piece = load(builder.param(F32, 2 * width), r * width + (c - begin), guard)
        value = where(guard, piece, value)
    builder.store(r * (count * width) + c, value, 2 * count * width)
    return builder.kernel()


@pytest.mark.parametrize(("width", "expected"), [(8, [8] * 20), (7, [140])])
def test_many_pieces_are_segments_unless_they_are_short(width, expected):
    segments = pointwise.facts(joined(20, width), CPU_AVX512).segments

    assert [each.range_.extent for each in segments] == expected


def test_pieces_agree():
    assert_plans_agree(joined(12, 9))


@pytest.mark.parametrize("columns", [1, 3, 4, 15, 16, 17, 33])
@pytest.mark.parametrize("rows", [1, 4, 5, 16, 17])
def test_tiles_of_any_size_are_turned_over(rows, columns):
    assert_plans_agree(copy(rows, columns, lambda r, c: c * rows + r))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.float16, dtypes.float64])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (2, 35)])
def test_pads_agree(before, after, dtype):
    assert_plans_agree(padded(3, 21, before, after, dtype))


def test_both_operands_of_a_symmetric_sum_agree():
    r, c = make_range(0, 19), make_range(1, 19)
    builder = KernelBuilder(r, c)
    source = builder.param(F32, 361)
    builder.store(r * 19 + c, load(source, r * 19 + c) + load(source, c * 19 + r), 361)

    assert_plans_agree(builder.kernel())


def test_stores_of_several_dtypes_and_orders_agree():
    r, c = make_range(0, 6), make_range(1, 21)
    builder = KernelBuilder(r, c)
    value = load(builder.param(dtypes.int16, 126), r * 21 + c)
    builder.store(r * 21 + c, cast(value, dtypes.float64), 126)
    builder.store(c * 6 + r, compare(Op.LT, value, const(dtypes.int16, 0)), 126)
    builder.store(index_const(125) - (r * 21 + c), value, 126)

    assert_plans_agree(builder.kernel())


def test_a_guarded_store_writes_only_where_its_guard_holds():
    r, c = make_range(0, 6), make_range(1, 21)
    builder = KernelBuilder(r, c)
    value = load(builder.param(F32, 126), r * 21 + c)
    builder.store(r * 21 + c, value + 9, 126, guard=c < r * 3 + 4)

    assert_plans_agree(builder.kernel())


def test_an_index_read_from_memory_agrees():
    r, c = make_range(0, 6), make_range(1, 21)
    builder = KernelBuilder(r, c)
    place = cast(load(builder.param(dtypes.uint8, 21), c), dtypes.index)
    guard = place < 4
    builder.store(r * 21 + c, load(builder.param(F32, 24), r * 4 + place, guard), 126)

    assert_plans_agree(builder.kernel())


def test_values_of_wide_indices_agree():
    r, c = make_range(0, 6), make_range(1, 21)
    builder = KernelBuilder(r, c, index_dtype=dtypes.int64)
    value = load(builder.param(dtypes.int8, 126), r * 21 + c)
    builder.store(r * 21 + c, value + cast(r - c, dtypes.int8), 126)

    assert_plans_agree(builder.kernel())


def converted(x, y, place):
    return y + cast(x + x, y.dtype)


def compared(x, y, place):
    return y + cast(compare(Op.LT, x, x + x), y.dtype)


def chosen(x, y, place):
    return where(compare(Op.LT, cast(place, x.dtype), x), y, y + y)


@pytest.mark.parametrize("target", [CPU_AVX512, CPU_AVX2, CPU_SSE], ids=[64, 32, 16])
@pytest.mark.parametrize("value", [converted, compared, chosen], ids=lambda each: each.__name__)
@pytest.mark.parametrize("inside", [dtypes.int64, dtypes.float64])
@pytest.mark.parametrize("stored", [dtypes.int8, dtypes.float16, dtypes.float32])
def test_a_register_holds_the_widest_value_inside(stored, inside, value, target):
    place = make_range(0, 100)
    builder = KernelBuilder(place)
    x, y = (load(builder.param(dtype, 100), place) for dtype in (inside, stored))
    builder.store(place, value(x, y, place), 100)

    lowered = lower(builder.kernel(), target)  # emitting C refuses a vector that none holds

    lanes = target.vector_bytes // inside.itemsize
    assert f"{lanes} lanes along 100 elements" in lowered.decisions[-1].reason


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (1, 1), (2, 1)])
def test_few_elements_agree(rows, columns):
    assert_plans_agree(copy(rows, columns, lambda r, c: r * columns + c))


def test_a_single_element_is_declined():
    reason = pointwise.facts(copy(1, 1, lambda r, c: r + c), CPU_AVX512)

    assert reason == "it has at most one element; vectors need several."


def test_a_fold_is_of_another_kind():
    r, k = make_range(0, 3), make_range(1, 4)
    builder = KernelBuilder(r)
    builder.store(r, fold(Combine.ADD, load(builder.param(F32, 12), r * 4 + k), k), 3)

    assert pointwise.facts(builder.kernel(), CPU_AVX512) is None
