"""To store or to recompute is decided by seconds, and the decision shows the numbers."""

import numpy as np
import pytest
from schedule.reading import decisions_of, kernels_of

from tinytensor import Tensor, arange, dtypes, where
from tinytensor.nn.functional import layer_norm
from tinytensor.tensor.formulas import greater, is_equal, lesser
from tinytensor.tensor.nodes import broadcast, iota, reshape, select

# A second of CPU_AVX512 is 100e9 bytes in cache, 120e9 additions, 4e9 exponentials; a launch, 1 us.


def row(extent):
    return Tensor(np.ones(extent, np.float32))


def test_a_function_of_a_row_that_many_rows_read_is_stored():
    # The kernel reads and writes 4 MB each, 80 us, and adds, 8.33 us, which memory hides.
    # Recomputed: 1000 * 1000 exponentials more, 258.33 us in all, 178.33 us longer.
    # Stored: 1000 exponentials, 0.25 us, a launch, 1 us, and 4 kB to read, 0.04 us.
    # With its size grow 178.33 - 0.04 - 0.25 us, as much as a launch at 4000 / 178.04 bytes.
    table = Tensor(np.ones((1000, 1000), np.float32)) + row(1000).exp()

    stored = decisions_of(table, kind="store")

    assert stored == [
        "store exp f32[1000]: each element is read 1000 times, by 1 kernel; storing takes 1.29 us "
        "(making it 1.25 us, 1 us of it the launch; reading it adds 40 ns; holding it for later "
        "readers 0 ns), recomputing 178 us; recomputed below 22.5 B of it (here 4 kB), since its "
        "launch takes as long at any size.",
        "store add f32[1000,1000]: its value was asked for.",
    ]


def test_what_costs_less_than_a_launch_is_recomputed():
    # Recomputed: 30 * 30 * 0.25 ns = 0.23 us; a launch alone takes 1 us.
    table = Tensor(np.ones((30, 30), np.float32)) + row(30).exp()

    assert len(kernels_of(table)) == 1


def test_what_memory_holds_in_fewer_bytes_is_widened_where_it_is_read():
    held = row(1000).half().realize()
    tables = [
        Tensor(np.ones((10_000, 1000), np.float32)) + x for x in (held.float(), row(1000).exp())
    ]

    assert [len(kernels_of(each)) for each in tables] == [1, 2]


def test_a_value_that_each_reader_needs_once_is_recomputed():
    x = row(4096)

    assert len(kernels_of((x * 2.0).relu() + 1.0)) == 1


def test_a_factor_is_weighed_by_blocks_of_the_other_range():
    # Each of the 64 columns reads the factor, but one panel keeps it.
    x, y = (Tensor(np.ones((64, 64), np.float32)) for _ in range(2))

    (kernel,) = kernels_of(x.exp() @ y)

    assert kernel.contraction.prologues == "a"


@pytest.mark.parametrize(("fuse", "count"), [(0, 3), (1, 1)])
def test_without_fusing_each_op_is_a_kernel(fuse, count):
    x = row(5)

    assert len(kernels_of((x * 2.0).relu(), fuse=fuse)) == count


def test_a_sum_of_products_is_one_op_also_without_fusing():
    x = Tensor(np.ones((4, 4), np.float32))

    kernels = kernels_of(x @ x.T + 1.0, fuse=0)

    assert [kernel.name for kernel in kernels] == ["contract_f32_4x4x4", "pointwise_f32_4x4"]


def test_the_reason_of_a_kernel_without_fusing_is_the_setting():
    stored = decisions_of(row(5).exp() * 2.0, kind="store", fuse=0)

    assert stored[0] == "store exp f32[5]: TT_FUSE=0: one kernel per op."


def test_a_value_that_one_kernel_reads_twice_at_one_place_is_computed_once():
    x = Tensor(np.ones((4, 8), np.float32))
    scale = Tensor(np.ones(8, np.float32))

    line = (x * scale + 1.0).gelu() * scale

    assert len(kernels_of(line)) == 1


def trained_layers(count):
    """Weights after a step; each layer adds its product to what it normalized."""
    x = Tensor(np.ones((64, 64), np.float32))
    weights = [Tensor(np.eye(64) * number, dtypes.float32) for number in range(count)]
    for each in weights:
        x = x + layer_norm(x, (64,)) @ each.requires_grad_()
    x.square().sum().backward()
    return [each.detach() - each.grad * 0.1 for each in weights]


def test_equal_layers_have_equal_kernels_also_where_kernels_meet_their_limit():
    few, many = [{kernel.sink for kernel in kernels_of(*trained_layers(n))} for n in (8, 24)]

    assert len(many) - len(few) <= 1  # it was 7 when each kernel ended where it happened to be full


def test_what_is_padded_is_computed_inside_alone():
    x = Tensor(np.ones((1000, 500), np.float32))

    assert len(kernels_of(Tensor.cat([x * 2.0, x.exp()], 1))) == 1


def exchanged(x, axis):
    """The lesser of two elements along an axis of extent 2 before the greater."""
    x, y = (broadcast(x.narrow(axis, part, 1).uop, x.shape) for part in range(2))
    place = broadcast(reshape(iota(2), (2, *[1] * (len(x.shape) - axis - 1))), x.shape)
    return select(is_equal(place, 0), lesser(x, y), greater(x, y))


@pytest.mark.parametrize(("axes", "count"), [(4, 1), (5, 2), (8, 2), (9, 3)])
def test_ways_that_places_choose_are_computed_side_by_side(axes, count):
    x = Tensor(np.ones((*[2] * axes, 64), np.float32)).realize()
    for axis in range(axes):
        x = x._wrap(exchanged(x, axis))

    told = decisions_of(x, kind="store")

    assert len(kernels_of(x)) == count
    side_by_side = "one kernel computes at most 16 values side by side."
    assert [each.split(": ")[1] for each in told] == [
        *[side_by_side] * (count - 1),
        "its value was asked for.",
    ]


def test_a_value_read_at_very_many_places_is_stored():
    x = Tensor(np.ones((4, 4), np.float32))
    for _ in range(12):
        x = x + x.T

    reasons = decisions_of(x, kind="store")

    # 31 additions at 16 places are 496 ops and the read of x 16 more for each of them.
    assert any("has no room for its" in reason and reason.endswith("places.") for reason in reasons)
    assert len(kernels_of(x)) < 12


def test_a_number_chosen_by_a_place_may_have_several_readers():
    two, three = (Tensor(np.float32(each)).realize() for each in (2, 3))
    chosen = where(arange(5)[2] == 2, two * 4, three * 5)
    rows = [Tensor(np.arange(n, dtype=np.float32)) for n in (4, 3)]

    first, second, third = rows[0] * chosen, rows[1] + chosen, chosen + 1
    first.realize(second, third)

    np.testing.assert_array_equal(first.numpy(), [0, 8, 16, 24])
    np.testing.assert_array_equal(second.numpy(), [8, 9, 10])
    assert third.item() == 9
