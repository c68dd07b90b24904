"""A region is a reduction and the tail of which each element needs one of its elements."""

import pytest

from tinytensor import dtypes
from tinytensor.ops.attrs import Combine, ReduceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, cast, walk
from tinytensor.schedule.lower_views import ranges_over
from tinytensor.schedule.region import ComputedSizes, RegionBuilder, source_of
from tinytensor.tensor.nodes import apply, broadcast, permute, reshape

F32 = dtypes.float32
MOST = 512


def total(x, *axes):
    return UOp(Op.REDUCE, x.dtype, (x,), ReduceAttrs(Combine.ADD, axes))


def regions_of(*roots, fuse=3, limit=MOST):
    builder = RegionBuilder(limit, fuse)
    for node in walk(roots):
        builder.visit(node)
    return builder


@pytest.fixture
def sums():
    """The sums of the rows of a cube, as a matrix of 4 x 6."""
    return total(buffer(F32, (4, 6, 5), "CPU"), 2)


def test_the_tail_of_a_reduction_joins_it(sums):
    tail = apply(Op.EXP, apply(Op.ADD, sums, buffer(F32, (4, 6, 1), "CPU")))

    (region,) = regions_of(tail).regions

    assert region.anchor is sums
    assert list(region.position) == [sums, tail.operands[0], tail]


def test_a_members_position_follows_its_views(sums):
    turned = permute(reshape(sums, (4, 6)), (1, 0))
    r0, r1, zero = ranges_over(sums.shape, 0)

    (region,) = regions_of(apply(Op.NEG, turned)).regions

    assert region.position[sums] == (r0, r1, zero)
    assert region.position[turned] == (r1, r0)


def test_without_fusing_a_region_is_its_anchor_alone(sums):
    (region,) = regions_of(apply(Op.EXP, sums), fuse=0).regions

    assert list(region.position) == [sums]


def test_a_value_that_is_repeated_does_not_join(sums):
    centered = apply(Op.SUB, buffer(F32, (4, 6, 5), "CPU"), broadcast(sums, (4, 6, 5)))

    (region,) = regions_of(centered).regions

    assert list(region.position) == [sums]
    assert list(region.read_outside) == [sums]


def test_a_reduction_of_a_result_has_a_higher_rank(sums):
    second = total(apply(Op.EXP, sums), 1)

    first, later = regions_of(second).regions

    assert (first.rank, later.rank) == (0, 1)
    assert later.anchor is second


def test_a_tail_over_two_results_joins_the_later_one(sums):
    other = total(apply(Op.MUL, sums, 2.0), 1)
    both = apply(Op.ADD, other, total(sums, 1))

    regions = regions_of(both).regions

    assert [both in region.position for region in regions] == [False, True, False]
    assert regions[1].rank == 2  # it waits for the third region, of rank 1


def test_a_view_is_stored_as_its_member(sums):
    doubled = apply(Op.MUL, sums, 2.0)
    viewed = permute(doubled, (1, 0, 2))

    (region,) = regions_of(viewed).regions

    assert source_of(region, viewed) is doubled


def test_shared_nodes_count_once_near_the_limit():
    x = buffer(F32, (3,), "CPU")
    sizes = ComputedSizes(limit=8)
    node = x
    for _ in range(5):
        node = apply(Op.ADD, node, node)
        sizes.note(node)

    assert sizes.of([node]) == 5


def test_a_stored_node_costs_its_users_nothing():
    x = buffer(F32, (3,), "CPU")
    half, whole = cast(x, dtypes.float16), cast(cast(x, dtypes.float16), F32)
    sizes = ComputedSizes(limit=8)
    sizes.note(half)
    sizes.store(half)
    sizes.note(whole)

    assert sizes.of([whole]) == 1


def test_a_tail_beyond_the_limit_says_so(sums):
    tail = sums
    for _ in range(10):
        tail = apply(Op.NEG, tail)

    (region,) = regions_of(tail, limit=8).regions

    assert len(region.position) == 8
    declined = region.drafts[-1]
    assert (declined.kind, declined.subject.op) == ("decline", Op.NEG)
    assert declined.plain_reason == "the kernel is at its limit of 8 ops."


def test_a_function_takes_as_much_of_the_limit_as_eight_ops(sums):
    tail = sums
    for _ in range(10):
        tail = apply(Op.SIN, tail)

    (region,) = regions_of(tail, limit=32).regions

    assert len(region.position) == 1 + 4


def test_a_read_takes_its_share_of_the_limit():
    leaves = [buffer(F32, (3,), "CPU") for _ in range(8)]
    sizes = ComputedSizes(limit=128)
    total = leaves[0]
    for each in leaves[1:]:
        total = apply(Op.ADD, total, each)
        sizes.note(total)

    assert sizes.of([total]) == 7 + 8 * 4  # 32 reads fill a kernel


def test_what_is_stored_is_small_for_the_ops_it_saves():
    narrow, wide = buffer(F32, (4, 1), "CPU"), buffer(F32, (4, 64), "CPU")
    for _ in range(60):
        narrow, wide = apply(Op.ADD, narrow, 1.0), apply(Op.ADD, wide, 1.0)
    total = apply(Op.ADD, broadcast(narrow, (4, 64)), wide)

    builder = regions_of(total, limit=96)

    assert list(builder.too_big) == [narrow]


def test_what_views_show_of_stored_values_costs_nothing():
    """Their sizes were noted before; the sum of these is one op below the limit."""
    first, second = buffer(F32, (1, 3), "CPU"), buffer(F32, (1, 3), "CPU")
    for _ in range(8):
        first = apply(Op.NEG, first)
    for _ in range(7):
        second = apply(Op.NEG, second)
    total = apply(Op.ADD, broadcast(first, (4, 3)), broadcast(second, (4, 3)))

    builder = regions_of(total, limit=16)

    assert list(builder.too_big) == [first]
