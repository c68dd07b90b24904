"""Convolutions by portable matrix instructions: windows are gathered, and not written out."""

import numpy as np
import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_cuda_hopper_windows import kernel_of

from tinytensor.codegen.plan import choose
from tinytensor.codegen.plans import block_windows, cuda_contraction
from tinytensor.codegen.plans.block_windows import GATHERED_K, LEAST_PLACES
from tinytensor.codegen.plans.tiling_cuda import MmaTiling
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.op import Op
from tinytensor.ops.verify import verify_linear
from tinytensor.target import SM80, SM90A

TINY = MmaTiling("tiny", 32, 64, GATHERED_K, 1, 2, stages=2)


@pytest.fixture(autouse=True)
def packs_small_products(monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)


@pytest.fixture
def gathers_short_rows(monkeypatch):
    monkeypatch.setattr(block_windows, "LEAST_PLACES", 1)


def gathered_of(facts):
    """How many of the factors are gathered, where the product is large."""
    computed = [each for each in (facts.a, facts.b) if not each.is_direct]
    return sum([cuda_contraction._rows(facts, each) is None for each in computed])


def assert_exact(kernel, tiling=TINY):
    facts = cuda_contraction.facts(kernel, SM80)
    linears = cuda_contraction.lower(facts, SM80, tiling)
    for each in linears:
        verify_linear(each)
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_launches(linears, results, 1)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


SHAPES = [
    ((2, 32, 5, 9), (40, 32, 3, 3), {"padding": 1}),
    ((1, 64, 4, 20), (8, 64, 2, 3), {"padding": (0, 2)}),
    ((3, 32, 7, 6), (8, 32, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 32, 6, 9), (8, 32, 3, 2), {"dilation": (2, 3), "padding": (1, 2)}),
    ((1, 64, 4, 4), (16, 32, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 32, 20), (8, 32, 5), {"padding": 2}),
    ((1, 32, 3, 4, 4), (8, 32, 2, 3, 3), {"padding": 1}),
]


@pytest.mark.usefixtures("gathers_short_rows")
@pytest.mark.parametrize("is_last", [False, True], ids=["channels second", "channels last"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_windows_are_gathered(shapes, is_last):
    *arrays, options = shapes
    kernel = kernel_of("forward", *arrays, is_last, **options)

    assert gathered_of(cuda_contraction.facts(kernel, SM80)) == 1
    assert_exact(kernel)


@pytest.mark.usefixtures("gathers_short_rows")
def test_the_gradient_of_an_input_is_gathered():
    kernel = kernel_of("input", (2, 40, 3, 5), (32, 40, 3, 3), padding=(1, 2))

    assert gathered_of(cuda_contraction.facts(kernel, SM80)) == 1
    assert_exact(kernel)


@pytest.mark.usefixtures("gathers_short_rows")
@pytest.mark.parametrize(
    "which, shape, weight, options",
    [
        ("forward", (2, 24, 5, 9), (40, 24, 3, 3), {"padding": 1}),  # a step has two taps
        ("forward", (2, 32, 8, 8), (40, 32, 1, 1), {}),  # each element is read once
        ("weight", (4, 32, 4, 8), (40, 32, 3, 3), {"padding": 1}),  # k is all the places
    ],
    ids=["odd channels", "no windows", "weight"],
)
def test_what_a_step_has_no_place_for_is_written_in_rows(which, shape, weight, options):
    kernel = kernel_of(which, shape, weight, **options)

    assert gathered_of(cuda_contraction.facts(kernel, SM80)) == 0
    assert_exact(kernel)


@pytest.mark.parametrize("width, count", [(LEAST_PLACES, 1), (LEAST_PLACES - 1, 0)])
def test_short_rows_are_written_out(width, count):
    kernel = kernel_of("forward", (1, 32, 3, width), (8, 32, 3, 3), padding=1)

    assert gathered_of(cuda_contraction.facts(kernel, SM80)) == count


LARGE = ((64, 64, 56, 56), (64, 64, 3, 3))


def test_it_is_told_that_the_input_is_not_rewritten():
    kernel = kernel_of("forward", *LARGE, padding=1)

    (told,) = [each.reason for each in choose(kernel, SM80).decisions if each.kind == "plan"]

    assert "(small through registers)" in told
    assert " 1 of 2 factors rewritten in rows before." in told


def test_a_step_reads_channels_that_lie_innermost_in_vectors():
    kernel = kernel_of("forward", *LARGE, is_last=True, padding=1)

    product = choose(kernel, SM80).linears[-1]

    loads = [each for each in product.statements if each.op is Op.LOAD]
    assert {each.dtype.lanes for each in loads if each.operands[0].op is Op.PARAM} == {8}


def test_boxes_are_taken_where_there_is_a_copy_engine():
    kernel = kernel_of("forward", *LARGE, padding=1)

    assert gathered_of(cuda_contraction.facts(kernel, SM90A)) == 0
