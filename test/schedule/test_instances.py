"""Kernels that do the same to other buffers are one launch, wherever that changes no value."""

import numpy as np
import pytest
from schedule.reading import decisions_of, kernel_lines

from tinytensor import Tensor, dtypes
from tinytensor.ops.instances import MOST_ELEMENTS, at_extent
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.text import parse, show
from tinytensor.realize import storage_of
from tinytensor.report import capture
from tinytensor.schedule.instances import any_extent
from tinytensor.schedule.memory import assign_memory
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512

SHAPES = [(3, 4), (70,), (), (2, 3, 5), (1, 1)]


def leaf(*shape, scale=1.0):
    size = int(np.prod(shape))
    values = np.arange(size).reshape(shape) % 7 * scale
    return Tensor(values, dtype=dtypes.float32).realize()


def calls_of(*tensors, fuse=3, stress=False):
    return schedule([each.uop for each in tensors], CPU_AVX512, Options(fuse, True, stress))


def realized(*tensors):
    """The kernels that computed some tensors, as the report knows them."""
    with capture() as kernels:
        tensors[0].realize(*tensors[1:])
    return kernels


# Which kernels leave their extent open.
OPEN = {
    "a shape": lambda: leaf(3, 4) * 2.0 + leaf(3, 4),
    "a scalar": lambda: leaf() * 2.0,
    "a number in memory": lambda: leaf(3, 4) * leaf(5)[2],
    "a slice of all": lambda: leaf(3, 4)[:] + 1.0,
    "its own numbers": lambda: Tensor.arange(12) * 2,
}
CLOSED = {
    "a row for all": lambda: leaf(3, 4) + leaf(4),
    "a turned operand": lambda: leaf(3, 3) + leaf(3, 3).T,
    "every second element": lambda: leaf(6)[::2] + 1.0,
    "a part of more": lambda: leaf(9)[:6] + 1.0,
    "a fold": lambda: leaf(3, 4).sum(),
    "a product": lambda: leaf(3, 4) @ leaf(4, 3),
    "padding": lambda: leaf(3).pad((1, 1)),
    "gathered elements": lambda: leaf(4)[Tensor([3, 0, 1, 2])],
    "rows by number": lambda: leaf(3, 4) + Tensor.arange(3).float().reshape(3, 1),
}


@pytest.mark.parametrize("name", [*OPEN, *CLOSED])
def test_a_kernel_of_its_own_elements_runs_at_any_extent(name):
    (call,) = calls_of({**OPEN, **CLOSED}[name]())

    assert (any_extent(call) is not None) == (name in OPEN)


def test_no_extent_is_left_in_an_open_kernel():
    first, second = (calls_of(leaf(*shape) * 2.0)[0] for shape in [(3, 4), (5, 7, 2)])

    assert first.kernel.sink is not second.kernel.sink
    assert any_extent(first).sink is any_extent(second).sink
    assert {each.elements for each in any_extent(first).params} == {MOST_ELEMENTS}


def test_an_open_kernel_at_its_extent_is_what_it_was():
    (call,) = calls_of(leaf(3, 4) * leaf(5)[2] + 1.0)
    x, row = np.arange(12, dtype=np.float32), np.arange(5, dtype=np.float32)
    expected, found = np.empty((2, 12), np.float32)
    run_kernel(call.kernel, [expected, x, row])

    run_kernel(at_extent(any_extent(call), 12), [found, x, row])

    np.testing.assert_array_equal(found, expected)


def test_the_text_of_an_open_kernel_is_read_back():
    kernel = any_extent(calls_of(leaf(3, 4) * 2.0)[0])

    assert parse(show(kernel)) == kernel


# Which are joined.
def test_equal_kernels_over_any_shapes_are_one_launch_with_their_values():
    operands = [leaf(*shape) for shape in SHAPES]
    results = [(each * 2.0).relu() + each for each in operands]

    (kernel,) = realized(*results)

    assert kernel.extents == tuple(int(np.prod(shape)) for shape in SHAPES)
    for x, result in zip(operands, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), x.numpy() * 3)


@pytest.mark.parametrize("stress", [False, True])
def test_several_results_of_each_are_one_launch_with_their_values(stress):
    operands = [(leaf(*shape), leaf(*shape, scale=2.0)) for shape in SHAPES[:4]]
    results = [each for x, y in operands for each in (x + y, x * y - (x + y))]

    (call,) = calls_of(*results, stress=stress)
    results[0].realize(*results[1:])

    assert len(call.extents) == 4
    for (x, y), total, rest in zip(operands, results[::2], results[1::2], strict=True):
        a, b = x.numpy(), y.numpy()
        np.testing.assert_array_equal(total.numpy(), a + b)
        np.testing.assert_array_equal(rest.numpy(), a * b - (a + b))


@pytest.mark.parametrize(("fuse", "kernels"), [(0, 4), (1, 2), (2, 1), (3, 1)])
def test_only_from_level_2_on_are_kernels_joined(fuse, kernels):
    results = [leaf(*shape) * 2.0 + 1.0 for shape in SHAPES[:2]]

    assert len(calls_of(*results, fuse=fuse)) == kernels


def test_a_number_is_told_from_a_parameter_of_one_element():
    rate = leaf()
    results = [leaf(*shape) * rate for shape in [(3, 4), (1,), (1, 1)]]

    (call,) = calls_of(*results)

    assert call.extents == (12, 1, 1)


def test_other_graphs_are_other_kernels():
    results = [leaf(3) * 2.0, leaf(4) * 3.0, leaf(5) * 2.0, leaf(6).cast(dtypes.float16) * 3.0]

    assert sorted(len(call.extents) for call in calls_of(*results)) == [0, 0, 2]


def test_a_result_that_needs_another_one_runs_after_it():
    first, second = leaf(3, 4) * 2.0, leaf(70) * 2.0
    later = first[:1, :3] * 2.0  # what `first` is, once that is there

    calls = calls_of(first, second, later)
    first.realize(second, later)

    assert [len(call.extents) for call in calls] == [2, 0]
    np.testing.assert_array_equal(later.numpy(), np.arange(3).reshape(1, 3) * 4)


def test_a_chain_of_equal_steps_stays_a_chain():
    first = leaf(3, 3).T * 2.0
    second = first.T.T.flip(0).flip(0) * 2.0
    x = leaf(7)
    steps = [x.flip(0) * 2.0]
    for _ in range(3):
        steps.append(steps[-1].flip(0) * 2.0)
    steps[0].realize(*steps[1:], first, second)

    np.testing.assert_array_equal(steps[-1].numpy(), np.arange(7) % 7 * 16)


def test_values_between_kernels_are_not_computed_early():
    x, y = leaf(64, 64), leaf(32, 32)
    folds = [(each.exp() * 2.0).flip(0) @ each for each in (x, y)]

    assert all(not call.extents for call in calls_of(*folds))


def test_a_join_is_told():
    results = [leaf(*shape) * 2.0 for shape in SHAPES[:3]]

    (line,) = decisions_of(*results, kind="join")

    reason = "3 kernels that do the same to other buffers are one, of any extent."
    assert line == f"join pointwise_f32_3x4: {reason}"


def test_the_report_counts_instances_and_all_their_bytes():
    kernels = realized(*[leaf(*shape) * 2.0 for shape in SHAPES])

    head, _, _, takes, *_ = kernel_lines(kernels)

    assert head.startswith("kernel 1/1  pointwise_f32_any  5 instances  compiled")
    assert " (456 B read, 456 B written); " in takes


# Where their values lie.
def test_each_instance_takes_over_its_own_operand():
    operands = [leaf(*shape) for shape in SHAPES]
    addresses = [storage_of(each.uop).address for each in operands]
    for each in operands:
        each.mul_(2.0)

    (kernel,) = realized(*operands)

    assert [len(kernel.kernel.params), len(kernel.extents)] == [1, 5]
    assert [storage_of(each.uop).address for each in operands] == addresses
    for shape, each in zip(SHAPES, operands, strict=True):
        np.testing.assert_array_equal(each.numpy(), leaf(*shape).numpy() * 2)


def test_an_instance_whose_operand_somebody_keeps_runs_beside_it():
    operands = [leaf(*shape) for shape in SHAPES]
    kept = operands[1] + 0.0
    for each in operands:
        each.mul_(2.0)

    first, second = realized(*operands)

    assert {len(first.extents), len(second.extents)} == {4, 1}
    np.testing.assert_array_equal(kept.numpy(), leaf(70).numpy())
    np.testing.assert_array_equal(operands[1].numpy(), leaf(70).numpy() * 2)


def test_an_instance_does_not_overwrite_what_another_one_reads():
    x, y = leaf(500), leaf(500, scale=3.0)
    a, b = x.numpy(), y.numpy()
    changed_x, changed_y = x - y, y - x
    x.copy_(changed_x)
    y.copy_(changed_y)
    del changed_x, changed_y

    realized(x, y)

    np.testing.assert_array_equal(x.numpy(), a - b)
    np.testing.assert_array_equal(y.numpy(), b - a)


def test_memory_knows_what_runs_at_the_same_time():
    results = [leaf(*shape) * 2.0 for shape in SHAPES]
    calls = calls_of(*results)

    assigned = assign_memory(calls, [each.uop for each in results], {})

    (step,) = assigned.steps
    assert [each.holder for each in step.locations[::2]] == [each.uop for each in results]
    assert assigned.arena_bytes == 0
