"""Convolutions on Hopper: boxes of the copy engine give the interpreter's sums."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of, frame_bytes, program_of, run_form, run_on_device
from codegen.plans.plan_kernels import arrays_for, expected
from runtime.cuda.programs import needs_nvrtc
from schedule.reading import decisions_of, kernels_of

from tinytensor import Tensor, autograd, dtypes
from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import cuda_contraction, cuda_hopper, cuda_hopper_windows
from tinytensor.codegen.plans.cuda_hopper_boxes import Boxes
from tinytensor.codegen.plans.cuda_hopper_factor import Factor
from tinytensor.codegen.plans.cuda_hopper_feed import FeedPlace
from tinytensor.codegen.plans.cuda_hopper_tiling import (
    IN_PATCHES,
    Candidate,
    HopperTiling,
    estimate,
)
from tinytensor.errors import InternalError
from tinytensor.nn import functional
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.kernel import Param
from tinytensor.ops.op import Op
from tinytensor.ops.tile import element_index, stage_bytes
from tinytensor.ops.uop import index_const
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.device import Device
from tinytensor.target import SM90A

ONE = HopperTiling("one", 64, 64, 2, 1)
ACROSS = HopperTiling("across", 64, 128, 2, 2, alternates=True)
DOWN = HopperTiling("down", 128, 64, 2, 2)
SMALL = replace(SM90A, multiprocessors=2)
F16 = dtypes.float16


@pytest.fixture(autouse=True)
def packs_small_products(monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)


def leaf(shape, is_last, dtype=F16):
    """A tensor with memory of its own, channels second or innermost."""
    if not is_last:
        return Tensor.zeros(shape, dtype=dtype).contiguous().realize()
    n, channels, *places = shape
    held = Tensor.zeros((n, *places, channels), dtype=dtype).contiguous().realize()
    return held.permute(0, -1, *range(1, len(shape) - 1))


def kernel_of(which, x_shape, weight_shape, is_last=False, **options):
    """The kernel of a convolution, or of its gradient by the input or the weight."""
    x = leaf(x_shape, is_last).requires_grad_()
    weight = leaf(weight_shape, is_last).requires_grad_()
    convolve = {3: functional.conv1d, 4: functional.conv2d, 5: functional.conv3d}[len(x_shape)]
    result = convolve(x, weight, **options)
    if which != "forward":
        g = leaf(result.shape, is_last)
        (result,) = autograd.grad(result, [{"input": x, "weight": weight}[which]], g)
    (kernel,) = kernels_of(result, target=SM90A)
    return kernel


def reach_of(product):
    """How a box of the product's windows serves several taps; None if each has its own."""
    reaches = [each.reach for each in product.flat.windows.values() if each.reach is not None]
    return reaches[0] if reaches else None


def ways_of(kernel, patch=None):
    """The ways to run a kernel over windows: with a box for each tap, or for those of a patch."""
    product = cuda_contraction.facts(kernel, SM90A)
    ways = cuda_hopper_windows.products_in_windows(product)
    reaches = [reach_of(each) for each in ways]
    patches = [None if each is None else each.patch for each in reaches]
    return [way for way, found in zip(ways, patches, strict=True) if found == patch]


def assert_exact(kernel, product, tiling, arrays=None, parts=1):
    candidate = Candidate(tiling, tiling.stages, 0, 0.0, False, parts)
    linears = cuda_hopper.lower(product, SMALL, candidate)
    for each in linears:
        verify_linear(each)
    arrays = arrays_for(kernel) if arrays is None else arrays
    results = [each.copy() for each in arrays]

    run_launches(linears, results, 1)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


# (input, weight, options): borders, steps, gaps, groups; windows along one, two and three axes.
SHAPES = [
    ((2, 32, 5, 9), (40, 32, 3, 3), {"padding": 1}),
    ((2, 40, 4, 5), (8, 40, 2, 3), {"padding": (0, 2)}),
    ((3, 32, 7, 6), (8, 32, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 32, 6, 9), (8, 32, 3, 2), {"dilation": (2, 3), "padding": (1, 2)}),
    ((1, 64, 4, 4), (16, 32, 3, 3), {"groups": 2, "padding": 1}),
    ((1, 32, 4, 40), (8, 32, 3, 1), {"padding": (1, 0)}),
    ((2, 32, 20), (8, 32, 5), {"padding": 2}),
    ((1, 32, 3, 4, 4), (8, 32, 2, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_forward_convolution(shapes, is_last):
    *arrays, options = shapes
    kernel = kernel_of("forward", *arrays, is_last, **options)

    ways = ways_of(kernel)

    assert ways
    for way, tiling in zip(ways, (ACROSS, ONE), strict=False):
        assert_exact(kernel, way, tiling)


def last_kernel(which, x_shape, weight_shape, **options):
    """The same, channels last, of which results lie innermost too."""
    x, weight = leaf(x_shape, True).requires_grad_(), leaf(weight_shape, False).requires_grad_()
    result = functional.conv2d(x, weight, padding=1, **options)
    if which == "weight":
        (result,) = autograd.grad(result, [weight], leaf(result.shape, True))
    else:
        result = result.permute(0, 2, 3, 1).contiguous()
    (kernel,) = kernels_of(result, target=SM90A)
    return kernel


@pytest.mark.parametrize("tiling", IN_PATCHES, ids=lambda each: each.name)
@pytest.mark.parametrize("which", ["forward", "weight"])
def test_groups_in_tilings_of_windows(which, tiling):
    kernel = last_kernel(which, (2, 64, 6, 5), (64, 32, 3, 3), groups=2)
    fitting = [way for way in ways_of(kernel) if estimate(tiling, cuda_hopper.need_of(way), SM90A)]

    for way in fitting[:1]:
        assert_exact(kernel, way, tiling)
    assert fitting or (which, tiling.name) == ("forward", "ribbon")


@pytest.mark.parametrize("channels, products", [(64, 4), (48, 3), (40, 3), (32, 2)])
def test_values_of_k_beyond_the_channels_are_not_multiplied(channels, products):
    kernel = last_kernel("forward", (2, channels, 6, 8), (16, channels, 3, 3))
    candidate = Candidate(ONE, ONE.stages, 0, 0.0)

    for way in ways_of(kernel):
        linear = cuda_hopper.lower(way, SMALL, candidate)[-1]
        assert sum(each.op is Op.WGMMA for each in linear.statements) == products


@pytest.mark.parametrize(
    "which, arrays, options, name",
    [
        ("forward", ((64, 128, 28, 28), (128, 32, 3, 3)), {"groups": 4}, "slim"),
        ("weight", ((64, 128, 28, 28), (128, 32, 3, 3)), {"groups": 4}, "ribbon"),
        ("weight", ((64, 128, 28, 28), (128, 64, 3, 3)), {"groups": 2}, "flat"),
        ("forward", ((64, 64, 56, 56), (64, 64, 3, 3)), {}, "slim"),
        ("forward", ((64, 256, 14, 14), (256, 256, 3, 3)), {}, "alternating"),
    ],
)
def test_the_fastest_tiling_of_those_measured_is_taken(which, arrays, options, name):
    choice = choose(last_kernel(which, *arrays, **options), SM90A)

    (told,) = [each.reason for each in choice.decisions if each.kind == "plan"]
    assert f"({name}" in told


# Taps that one box serves, of 128 places: those along rows too where these end before the patch.
REACHES = [
    ((2, 32, 5, 9), (40, 32, 3, 3), {"padding": 1}, True, 9),
    ((2, 40, 4, 5), (8, 40, 2, 3), {"padding": (0, 2)}, False, 6),
    ((1, 32, 6, 9), (8, 32, 3, 2), {"dilation": (2, 3), "padding": (1, 2)}, False, 6),
    ((2, 32, 4, 16), (8, 32, 3, 3), {"padding": 1}, True, 3),
    ((1, 32, 5, 8), (8, 32, 3, 3), {"stride": (1, 2), "padding": 1}, False, 3),
    ((2, 32, 20), (8, 32, 5), {"padding": 2}, False, 5),
    ((1, 32, 3, 4, 4), (8, 32, 2, 3, 3), {"padding": 1}, True, 9),
]


@pytest.mark.parametrize("shapes", REACHES, ids=str)
def test_one_box_serves_several_taps(shapes):
    *arrays, options, is_last, taps = shapes
    kernel = kernel_of("forward", *arrays, is_last, **options)

    way = ways_of(kernel, patch=128)[0]

    assert reach_of(way).steps == taps
    assert_exact(kernel, way, ACROSS)


def test_one_box_serves_several_taps_of_rows_of_a_tile():
    x, weight = leaf((2, 32, 5, 9), True), leaf((40, 32, 3, 3), False)
    result = functional.conv2d(x, weight, padding=1).permute(0, 2, 3, 1).contiguous()
    (kernel,) = kernels_of(result, target=SM90A)

    way = ways_of(kernel, patch=128)[0]

    assert reach_of(way) is way.flat.windows[way.a.value].reach
    assert_exact(kernel, way, DOWN)


def break_tap(monkeypatch):
    """Let every tap begin a row too far on."""
    right = Boxes.rows_ahead
    monkeypatch.setattr(Boxes, "rows_ahead", lambda *given: right(*given) + 1)


def break_rows_beyond(monkeypatch):
    """Leave what lies beyond the box as it is."""
    monkeypatch.setattr(Factor, "clear", lambda self: None)


def break_count(monkeypatch):
    """Await the bytes of rows that the engine does not bring."""
    monkeypatch.setattr(Factor, "nbytes", property(lambda self: stage_bytes(self.tile)))


def break_release(monkeypatch):
    """Give each box back after its first tap."""

    def leave(self, step, is_first_lane):
        with self._at(step, 0):
            self._b.write(self._previous, self.stage)
            self.release(is_first_lane)
        with self._at(step, -1):
            self._ring.advance()

    monkeypatch.setattr(FeedPlace, "leave", leave)


@pytest.mark.parametrize(
    "break_it, words",
    [
        (break_rows_beyond, "reads poison, which nobody has written"),
        (break_count, "deadlock, all wait"),
        (break_release, "what an unfinished product of warp 0 reads without an order"),
        (break_tap, "Arrays are not equal"),
    ],
)
def test_a_broken_promise_of_a_box_is_found(monkeypatch, break_it, words):
    kernel = kernel_of("forward", (2, 32, 5, 9), (8, 32, 3, 3), padding=1)
    way = ways_of(kernel, patch=128)[0]
    break_it(monkeypatch)

    with pytest.raises((AssertionError, InternalError)) as error:
        assert_exact(kernel, way, ACROSS)

    assert words in str(error.value)


@pytest.mark.parametrize(
    "which, options",
    [("forward", {"stride": 2, "padding": 1}), ("weight", {"padding": 1})],
    ids=["places two apart", "places of k"],
)
def test_no_box_serves_several_taps(which, options):
    kernel = kernel_of(which, (64, 32, 7, 6), (8, 32, 3, 3), **options)

    assert ways_of(kernel)
    assert ways_of(kernel, patch=128) == []


GRADIENTS = [
    ((2, 32, 4, 8), (40, 32, 3, 3), {"padding": 1}, False),
    ((2, 32, 4, 8), (40, 32, 3, 3), {"padding": 1}, True),
    ((64, 32, 2, 3), (8, 32, 1, 3), {"padding": (0, 1)}, False),
    ((4, 32, 8, 8), (32, 32, 3, 3), {"stride": 2, "padding": 1}, False),
]


@pytest.mark.parametrize("shapes", GRADIENTS, ids=str)
def test_the_gradient_of_a_weight(shapes):
    *arrays, options, is_last = shapes
    kernel = kernel_of("weight", *arrays, is_last, **options)

    way = ways_of(kernel)[0]

    assert_exact(kernel, way, ONE, parts=2)


def test_what_lies_outside_a_window_is_not_multiplied():
    kernel = kernel_of("weight", (1, 32, 2, 32), (8, 32, 1, 3), padding=(0, 1))
    given = arrays_for(kernel)
    for each, channels in zip(given[1:], (8, 32), strict=True):
        each.reshape(channels, 2, 32)[::7, :, -1] = np.nan
    forward = kernel_of("forward", (2, 32, 3, 10), (8, 32, 3, 3), padding=1)
    arrays = arrays_for(forward)
    arrays[1].reshape(2, 32, 3, 10)[:, ::9, :, ::7] = np.inf

    assert_exact(kernel, ways_of(kernel)[0], ONE, given)
    assert_exact(forward, ways_of(forward)[0], ONE, arrays)


def test_the_gradient_of_an_input():
    kernel = kernel_of("input", (2, 40, 3, 5), (32, 40, 3, 3), padding=(1, 2))

    (way,) = ways_of(kernel)

    assert_exact(kernel, way, DOWN)


@pytest.mark.parametrize("width", [40, 7])
def test_an_epilogue_and_several_stores_over_patches(width):
    x, weight = leaf((1, 32, 3, width), False), leaf((40, 32, 3, 3), False)
    bias, skip = leaf((40,), False), leaf((1, 40, 3, width), False)
    total = functional.conv2d(x, weight, bias, padding=1)
    (kernel,) = kernels_of(total, (total + skip).relu(), target=SM90A)

    (way,) = ways_of(kernel)

    assert_exact(kernel, way, ACROSS)


# What the engine makes of a box.
PLANES = (3, 10, 12, 64)  # images, rows, columns, channels


def box_reader(begin, box, steps):
    """A kernel that copies one box of PLANES, its axes innermost first, to 64 rows of 64."""
    elements = int(np.prod(PLANES))
    params = [Param(F16, 64 * 64, True), Param(F16, elements, False)]
    b = BlockBuilder("read_box", params, dtypes.int32, (1, 1, 1), 128)
    tile, full = b.tile(F16, 64, 64, 1), b.mbarriers(1, 1)
    with b.branch(b.thread < 1):
        b.mbarrier_init(full)
    b.barrier()
    strides = tuple(int(each) for each in np.cumprod(PLANES[:0:-1]))
    shape = [index_const(extent) for extent in PLANES[::-1]]
    seen = b.tensor_map(b.param(1), shape, strides, tile, box=box, steps=steps)
    with b.branch(b.thread < 1):
        b.mbarrier_expect(full, 0, 64 * 64 * 2)
        b.bulk_load(tile, 0, seen, begin, full, 0)
    b.mbarrier_wait(full, 0, 0)
    for first in range(0, 64 * 64, 128 * 8):
        at = b.value(b.thread * 8 + first)
        place = element_index(tile, b.index(0), b.value(at // 64), b.value(at % 64))
        b.store(b.param(0), at, b.load(tile, place, 8))
    return b.finish()


@pytest.mark.parametrize(
    "begin, box, steps",
    [
        ((0, 0, 0, 0), (64, 8, 8, 1), ()),
        ((0, -1, 3, 2), (64, 8, 8, 1), ()),
        ((0, -1, -2, 1), (64, 4, 4, 4), (1, 2, 3, 1)),
        ((8, 5, 9, 0), (64, 1, 32, 2), ()),
    ],
)
@pytest.mark.parametrize("run", [run_form, pytest.param(run_on_device, marks=pytest.mark.gpu)])
def test_a_box_of_several_axes_takes_places_and_zeros(run, begin, box, steps):
    planes = np.arange(np.prod(PLANES)).astype(F16.storage_numpy).reshape(PLANES) % 2039
    pairs = zip(begin, box, steps or (1, 1, 1, 1), PLANES[::-1], strict=True)
    want = planes
    for axis, (first, count, step, extent) in enumerate(pairs):
        places = first + step * np.arange(count)
        taken = np.take(want, places.clip(0, extent - 1), 3 - axis)
        inside = ((places >= 0) & (places < extent)).reshape(-1, *[1] * axis)
        want = np.where(inside, taken, 0)

    result, _ = run(box_reader(begin, box, steps), [np.zeros(64 * 64, np.float16), planes.ravel()])

    np.testing.assert_array_equal(result, want.ravel())


def test_a_box_that_begins_amid_16_bytes_is_refused():
    arrays = [np.zeros(64 * 64, np.float16), np.zeros(np.prod(PLANES), np.float16)]

    with pytest.raises(InternalError) as error:
        run_form(box_reader((-1, 0, 0, 0), (64, 8, 8, 1), ()), arrays)

    assert "a box begins amid 16 bytes, at (-1, 0, 0, 0)" in str(error.value)


# What is chosen, and what is said.
LARGE = ((64, 64, 56, 56), (64, 64, 3, 3))


@pytest.mark.parametrize("which", ["forward", "input", "weight"])
def test_a_large_convolution_is_read_in_windows(which):
    kernel = kernel_of(which, *LARGE, padding=1)

    choice = choose(kernel, SM90A)

    assert choice.plan == "hopper"
    (told,) = [each.reason for each in choice.decisions if each.kind == "plan"]
    assert "stages, read in windows: about " in told
    assert " 2 of 2 factors rewritten in rows before." in told


@pytest.mark.parametrize("width, lanes", [(56, 8), (28, 4), (42, 2), (35, 1)])
def test_channels_are_laid_innermost_several_pixels_at_once(width, lanes):
    kernel = kernel_of("forward", (64, 64, 56, width), (64, 64, 3, 3), padding=1)

    _, rewriting, _ = choose(kernel, SM90A).linears

    loads = [node for node in rewriting.statements if node.op is Op.LOAD]
    assert {node.dtype.lanes for node in loads} == {lanes}


def test_channels_that_lie_innermost_are_not_rewritten():
    kernel = kernel_of("forward", *LARGE, is_last=True, padding=1)

    (linear,) = choose(kernel, SM90A).linears

    assert linear.workspace_bytes == 0


def test_the_first_layer_is_told_to_be_rewritten():
    kernel = kernel_of("forward", (64, 3, 64, 64), (64, 3, 7, 7), stride=2, padding=3)

    reasons = [each.reason for each in choose(kernel, SM90A).decisions]

    assert "windows" not in reasons[0]
    assert " 2 of 2 factors rewritten in rows before." in reasons[0]


def test_a_convolution_of_each_channel_says_why_it_is_no_product():
    x, weight = leaf((2, 8, 9, 9), False), leaf((8, 1, 3, 3), False)

    told = decisions_of(functional.conv2d(x, weight, groups=8), kind="decline", target=SM90A)

    want = "the product has no n range: a matrix-vector product."
    assert told == [f"decline contraction: {want}"]


@needs_nvrtc
@pytest.mark.parametrize("which", ["forward", "weight"])
@pytest.mark.parametrize("make", [kernel_of, last_kernel], ids=["second", "last"])
def test_large_convolutions_spill_no_registers(make, which):
    kernel = make(which, *LARGE, **({"padding": 1} if make is kernel_of else {}))

    program = program_of(choose(kernel, SM90A).linears, SM90A)

    assert frame_bytes(cubin_of(program.source, SM90A.name)) == 0


@pytest.mark.gpu
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("which", ["forward", "input", "weight"])
def test_the_device_gives_the_exact_sums(which, is_last):
    kernel = kernel_of(which, (16, 64, 28, 24), (72, 64, 3, 3), is_last, padding=1)
    arrays = arrays_for(kernel)

    results = run_on_device(choose(kernel, Device["CUDA"].target).linears, arrays)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)
