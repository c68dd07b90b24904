"""Convolutions of each channel by itself on a GPU: threads fold whole windows, several together."""

import math
from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, program_of, run_on_device
from codegen.plans.plan_kernels import KernelBuilder, arrays_for, expected, fold, load
from codegen.plans.test_cuda_hopper_windows import leaf
from runtime.cuda.programs import needs_nvrtc
from schedule.reading import kernels_of

from tinytensor import autograd, dtypes
from tinytensor.codegen.pieces_cuda import pieces_of
from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_reduction
from tinytensor.codegen.plans.spread_windows import fold_together
from tinytensor.nn import functional
from tinytensor.ops.attrs import Combine
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.uop import compare, index_const, make_range, where
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.device import Device
from tinytensor.target import SM90A

MANY = replace(SM90A, multiprocessors=0)  # however few results there are, they fill it


def kernel_of(which, shape, taps, is_last, dtype, **options):
    """The kernel of a convolution of each channel, or of a gradient of it."""
    channels = shape[1]
    x = leaf(shape, is_last, dtype).requires_grad_()
    weight = leaf((channels, 1, *taps), False, dtype).requires_grad_()
    convolve = functional.conv2d if len(taps) == 2 else functional.conv1d
    result = convolve(x, weight, groups=channels, **options)
    if which != "forward":
        g = leaf(result.shape, is_last, dtype)
        (result,) = autograd.grad(result, [{"input": x, "weight": weight}[which]], g)
    if is_last and which != "weight":
        result = result.movedim(1, -1).contiguous()
    return kernels_of(result, target=SM90A)[-1]


def assert_exact(kernel, target=MANY):
    choice = choose(kernel, target)
    for each in choice.linears:
        verify_linear(each)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_launches(choice.linears, results)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


SHAPES = [
    ((2, 8, 8, 16), (3, 3), {"padding": 1}),
    ((2, 8, 6, 8), (3, 5), {"padding": (1, 2)}),
    ((1, 8, 9, 16), (3, 3), {"padding": 1, "stride": 2}),
    ((1, 16, 8, 24), (1, 3), {"padding": (0, 2), "dilation": 2}),
    ((2, 3, 7, 5), (3, 3), {}),
    ((1, 8, 8, 24), (7, 7), {"padding": 3}),
]


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("which", ["forward", "input", "weight"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_each_channel_is_convolved(which, shapes, is_last, dtype):
    shape, taps, options = shapes
    kernel = kernel_of(which, shape, taps, is_last, dtype, **options)

    assert_exact(kernel)


def loads_of(linear):
    return [node for node in linear.statements if node.op is Op.LOAD]


def test_a_thread_reads_each_row_of_several_windows_once():
    kernel = kernel_of("forward", (64, 128, 56, 56), (3, 3), False, dtypes.float16, padding=1)

    (linear,) = choose(kernel, SM90A).linears

    # Of 4 rows of 8 results: 6 rows of 8 and of a neighbor on each side; and 9 taps.
    lanes = [each.dtype.lanes for each in loads_of(linear)]
    assert (lanes.count(8), lanes.count(1)) == (18, 9)
    assert not any(each.op in (Op.LOOP, Op.BARRIER) for each in linear.statements)


def test_a_thread_reads_the_filters_of_several_channels_in_vectors():
    kernel = kernel_of("forward", (64, 128, 56, 56), (3, 3), True, dtypes.float16, padding=1)

    (linear,) = choose(kernel, SM90A).linears

    # Of 2 rows of 4 columns: 4 rows of 6 vectors of 8 channels; and 9 vectors with 9 taps of each.
    assert [each.dtype.lanes for each in loads_of(linear)] == [8] * (24 + 9)


# Windows that step: each element of the input's gradient takes the taps of its own comb.
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize(
    "shape, taps, options",
    [
        ((2, 8, 8, 16), (3, 3), {"padding": 1, "stride": 2}),
        ((1, 16, 6, 18), (5, 5), {"padding": 2, "stride": 2}),
        ((1, 8, 7, 9), (3, 3), {"padding": 1, "stride": 2}),
        ((1, 8, 5, 12), (2, 5), {"stride": (1, 3)}),
        ((1, 8, 12, 8), (3, 3), {"padding": 2, "stride": 2, "dilation": 2}),
        ((2, 8, 24), (4,), {"padding": 1, "stride": 2}),
    ],
    ids=str,
)
def test_each_element_takes_the_taps_that_reach_it(shape, taps, options, is_last):
    kernel = kernel_of("input", shape, taps, is_last, dtypes.float16, **options)

    assert_exact(kernel)


def strided(shape, is_last, dtype=dtypes.float16):
    """The kernel of the gradient by the input of 3 x 3 windows that step by two."""
    return kernel_of("input", shape, (3, 3), is_last, dtype, padding=1, stride=2)


def stores_of(linear):
    return [each.operands[2].dtype.lanes for each in linear.statements if each.op is Op.STORE]


def test_a_thread_computes_all_elements_around_the_same_results():
    (linear,) = choose(strided((64, 128, 56, 56), True), SM90A).linears

    # Of 2 x 4 places: 2 x 3 vectors of 8 channels; and 9 vectors with 9 taps of each.
    assert [each.dtype.lanes for each in loads_of(linear)] == [8] * (6 + 9)
    assert stores_of(linear) == [8] * 8


def test_elements_of_two_combs_are_stored_in_one_vector():
    (linear,) = choose(strided((64, 128, 56, 56), False), SM90A).linears

    assert stores_of(linear) == [8] * 4


def test_ragged_rows_are_stored_by_elements():
    choice = choose(strided((64, 128, 56, 57), False), SM90A)

    assert {*stores_of(choice.linears[0])} == {1}


@pytest.mark.parametrize("extent", [57, 56])
def test_the_last_rows_of_all_are_guarded(extent):
    (linear,) = choose(strided((64, 128, extent, 56), True), SM90A).linears

    stores = [each for each in linear.statements if each.op is Op.STORE]
    assert sum(len(each.operands) > 3 for each in stores) == (extent % 2) * len(stores) // 2


def test_few_elements_are_computed_by_one_thread_each():
    assert cuda_reduction.facts(strided((1, 8, 8, 16), True), SM90A).team.members == 1


@needs_nvrtc
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize(
    "which, taps, stride", [("forward", 3, 1), ("forward", 7, 1), ("input", 3, 2), ("input", 5, 2)]
)
def test_registers_do_not_spill(which, taps, stride, is_last):
    shape, options = (64, 128, 56, 56), {"padding": taps // 2, "stride": stride}
    kernel = kernel_of(which, shape, (taps, taps), is_last, dtypes.float16, **options)

    program = program_of(choose(kernel, SM90A).linears, SM90A)

    assert frame_bytes(cubin_of(program.source, SM90A.name)) == 0


@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
def test_the_gradient_of_a_filter_is_shared_by_blocks_that_sum_all_its_places(is_last):
    kernel = kernel_of("weight", (64, 128, 56, 56), (3, 3), is_last, dtypes.float16, padding=1)

    choice = choose(kernel, SM90A)

    part, whole = choice.linears
    stores = [each for each in whole.statements if each.op is Op.STORE]
    assert len([each for each in stores if each.operands[0].op is Op.PARAM]) == 9
    assert len([each for each in part.statements if each.op is Op.LOOP]) == 1
    assert math.prod(part.grid.blocks) >= SM90A.multiprocessors


def test_what_threads_do_is_said():
    forward = kernel_of("forward", (64, 128, 56, 56), (3, 3), False, dtypes.float16, padding=1)

    (told,) = [each.reason for each in choose(forward, SM90A).decisions if each.kind == "plan"]

    assert told == "columns: each thread folds whole results, in vectors of 8."


@pytest.mark.parametrize("combine", [Combine.MAX, Combine.ADD, Combine.ARGMAX])
@pytest.mark.parametrize("step, side", [(1, 3), (2, 2), (2, 3), (3, 3)])
def test_windows_of_a_pool_are_folded_by_one_thread(combine, step, side):
    rows, columns, taps = make_range(0, 4), make_range(1, 32), make_range(2, side)
    pitch = 32 * step + 8
    builder = KernelBuilder(rows, columns)
    x = load(builder.param(dtypes.float32, 4 * pitch), rows * pitch + columns * step + taps)
    builder.store(rows * 32 + columns, fold(combine, x, taps), 4 * 32)
    kernel = builder.kernel()

    facts = cuda_reduction.facts(kernel, MANY)

    assert len(facts.folds[0].taps) == side
    assert facts.kept.lanes == (2 if combine is Combine.ARGMAX else 4)
    assert_exact(kernel)


def test_few_windows_are_shared_by_threads():
    kernel = kernel_of("forward", (1, 8, 8, 16), (3, 3), False, dtypes.float16, padding=1)

    facts = cuda_reduction.facts(kernel, SM90A)

    assert facts.team.members == 8
    assert_exact(kernel, SM90A)


# Loads that begin amid a vector, or step over elements.
def load_along(index, elements, guard=None):
    builder = KernelBuilder()
    return load(builder.param(dtypes.float32, elements), index, guard)


def test_what_begins_amid_a_vector_lies_in_two():
    i = make_range(0, 16)
    guard = (index_const(0) <= i - 1) & (i - 1 < 16)

    pieces = pieces_of(load_along(i - 1, 16, guard), i, 4)

    assert (pieces.width, pieces.lanes) == (4, (3, 4, 5, 6))
    low, high = pieces.vectors
    assert (low.operands[1], high.operands[1]) == (i + -4, i)
    assert low.operands[2] is (index_const(3) < i)
    assert len(high.operands) == 2


@pytest.mark.parametrize(
    "step, lanes, places",
    [(2, 4, (0, 2, 4, 6)), (-1, 4, (7, 6, 5, 4)), (9, 4, (0, 5, 10, 15))],
)
def test_steps_lie_in_the_vectors_that_hold_them(step, lanes, places):
    i = make_range(0, 16)
    start = 15 if step < 0 else 0

    pieces = pieces_of(load_along(i * step + start, 256), i, lanes)

    assert (pieces.width, pieces.lanes) == (4, places if step > 0 else pieces.lanes)
    found = [pieces.vectors[at // 4].operands[1] + at % 4 for at in pieces.lanes]
    wanted = [i * step + (start + step * number) for number in range(lanes)]
    assert [simplify_index(each) for each in found] == [simplify_index(each) for each in wanted]


@pytest.mark.parametrize(
    "make",
    [
        lambda i, j: load_along(i + j, 64),  # at no known place of a vector
        lambda i, j: load_along(i + 1, 63),  # the last vector is beyond the buffer
        lambda i, j: load_along(i + 1, 64, i < 14),  # the guard changes amid a vector
        lambda i, j: load_along(i + 1, 64, i * 3 < 14),  # it does not follow the elements
        lambda i, j: load_along(i * 65, 65 * 16),  # no vector would hold two
        lambda i, j: load_along(j, 64),
    ],
    ids=["amid", "beyond", "guard", "other guard", "far", "still"],
)
def test_what_vectors_cannot_give_is_read_by_itself(make):
    assert pieces_of(make(make_range(0, 16), make_range(1, 8)), make_range(0, 16), 4) is None


# Results taken together.
def moving_sums(rows, columns, taps, apart=1):
    r, c, t = make_range(0, rows), make_range(1, columns), make_range(2, taps)
    builder = KernelBuilder(r, c)
    x = load(builder.param(dtypes.float32, 4096), (r * apart + t) * columns + c)
    builder.store(r * columns + c, fold(Combine.ADD, x, t), rows * columns)
    return builder.kernel()


def chosen_sums(steps):
    """Rows that take one sum where a step begins, and another elsewhere."""
    r, c, t, u = (make_range(number, n) for number, n in enumerate((16, 32, 3, 2)))
    builder = KernelBuilder(r, c)
    x = builder.param(dtypes.float32, 4096)
    first = fold(Combine.ADD, load(x, (r // steps) * 32 + t * 64 + c), t)
    second = fold(Combine.ADD, load(x, (r // steps) * 32 + u * 128 + c), u)
    begins = compare(Op.EQ, r % steps, index_const(0))
    builder.store(r * 32 + c, where(begins, first, second), 16 * 32)
    return builder.kernel()


def turned_sums():
    """Even rows and then odd ones: a sum of its own for each."""
    r, c, t = (make_range(number, n) for number, n in enumerate((16, 32, 3)))
    builder = KernelBuilder(r, c)
    x = builder.param(dtypes.float32, 4096)
    element = load(x, (r % 2 * 8 + r // 2) * 96 + t * 32 + c)
    builder.store(r * 32 + c, fold(Combine.ADD, element, t), 16 * 32)
    return builder.kernel()


@pytest.mark.parametrize(
    "kernel, least, stores",
    [
        (moving_sums(16, 32, 3), 1, 4),
        (moving_sums(6, 32, 3), 1, 6),  # few are taken whole
        (moving_sums(15, 32, 3), 1, 1),  # four do not divide them
        (moving_sums(16, 32, 3, apart=3), 1, 1),  # windows share nothing
        (moving_sums(16, 32, 3), 1 << 20, 1),  # too few elements
        (chosen_sums(2), 1, 2),  # each of two is chosen at every second place
        (chosen_sums(2), 1 << 20, 1),
        (chosen_sums(3), 1, 3),  # of 16 places, so the last ones are guarded
        (chosen_sums(5), 1, 1),  # too many
        (turned_sums(), 1, 1),  # no sum is spared
    ],
    ids=[
        *("four", "whole", "odd", "apart", "few"),
        *("chosen", "chosen of few", "ragged", "many steps", "turned"),
    ],
)
def test_neighbors_that_share_rows_are_taken_together(kernel, least, stores):
    together = fold_together(kernel, least)

    assert len(together.sink.operands) == stores
    places = math.prod([each.extent for each in kernel.ranges])
    assert (
        math.prod([each.extent for each in together.ranges]) == math.ceil(places / 32 / stores) * 32
    )
    assert_exact(together)


@pytest.mark.parametrize(
    "combine, extent, taps", [(Combine.MAX, 96, 4), (Combine.ADD, 95, 1), (Combine.ARGMAX, 2500, 1)]
)
def test_a_step_of_many_folds_takes_neighbors(combine, extent, taps):
    i, c, h = make_range(0, 4), make_range(1, 8), make_range(2, extent)
    builder = KernelBuilder(i, c)
    x = load(builder.param(dtypes.float32, (extent + 4) * 16), (i + h) * 16 + c)
    builder.store(i * 8 + c, fold(combine, x, h), 4 * 8)
    kernel = builder.kernel()

    facts = cuda_reduction.facts(kernel, MANY)

    assert [len(each.taps) for each in facts.folds] == [taps] * 4
    assert_exact(kernel)


@pytest.mark.gpu
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("which", ["forward", "input", "weight"])
def test_the_device_gives_the_exact_sums(which, stride, is_last):
    options = {"padding": 1, "stride": stride}
    kernel = kernel_of(which, (16, 64, 28, 56), (3, 3), is_last, dtypes.float16, **options)
    arrays = arrays_for(kernel)

    results = run_on_device(choose(kernel, Device["CUDA"].target).linears, arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)
