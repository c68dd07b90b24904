"""Extents known only at launch: every plan gives the bits of the INDEXED form at each size."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.machine import call, device
from codegen.plans.plan_kernels import (
    TARGETS,
    KernelBuilder,
    arrays_for,
    contract,
    contraction_facts,
    fold,
    load,
)
from codegen.plans.test_contraction import Product
from codegen.plans.test_random_kernels import fold_kernels, pointwise_kernels, row_kernels
from hypothesis import given, settings
from hypothesis import strategies as st

from tinytensor.codegen.lower import lower
from tinytensor.codegen.plan import PLANS, choose
from tinytensor.codegen.plans import contraction
from tinytensor.codegen.plans.tiling_cpu import Tiling
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.extents import index_at
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import (
    UOp,
    const,
    make_range,
    make_variable,
    substitute,
    substitute_all,
    walk,
    where,
)
from tinytensor.ops.verify import verify_indexed, verify_linear
from tinytensor.target import CPU_AVX512


def opened(kernel, least=0):
    """The kernel with every extent a variable from `least` on; equal extents stay equal."""
    ranges = [node for node in walk([kernel.sink, *kernel.ranges]) if node.op is Op.RANGE]
    extents = sorted({each.extent for each in ranges})
    variables = {most: make_variable(at, least, most) for at, most in enumerate(extents)}
    places = {
        each: make_range(each.attrs.number, each.extent, variables[each.extent]) for each in ranges
    }
    sink = substitute(kernel.sink, places)
    return replace(kernel, sink=sink, ranges=tuple([places[each] for each in kernel.ranges]))


def assert_open_plans_agree(kernel, scalars):
    """Every plan that takes variables gives the interpreter's bits, on every target."""
    verify_indexed(kernel)
    wanted = arrays_for(kernel)
    run_kernel(kernel, wanted, scalars)
    for target in TARGETS:
        for plan in PLANS:
            facts = plan.module.facts(kernel, target) if plan.takes_open else None
            if facts is None or isinstance(facts, str):
                continue
            linear = plan.module.lower(facts, target)
            verify_linear(linear)
            results = arrays_for(kernel)
            run_linear(linear, results, scalars=scalars)
            for number, (result, want) in enumerate(zip(results, wanted, strict=True)):
                message = f"{plan.name} at {target.vector_bytes} bytes, buffer {number}, {scalars}"
                np.testing.assert_array_equal(result, want, message, strict=True)


@st.composite
def open_kernels(draw, kernels, least=0):
    """A random kernel whose extents are variables, and their values."""
    kernel = opened(draw(kernels), least)
    return kernel, tuple([draw(st.integers(least, each.attrs.most)) for each in kernel.variables])


@given(open_kernels(pointwise_kernels()))
@settings(max_examples=60)
def test_a_pointwise_kernel_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


@given(open_kernels(fold_kernels()))
@settings(max_examples=60)
def test_a_fold_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


@given(open_kernels(row_kernels()))
@settings(max_examples=40)
def test_a_row_kernel_has_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


@pytest.mark.fuzz
@given(st.one_of([open_kernels(each()) for each in (pointwise_kernels, fold_kernels, row_kernels)]))
@settings(max_examples=3000)
def test_many_random_kernels_have_the_same_bits_at_every_size(example):
    assert_open_plans_agree(*example)


N = make_variable(0, 1, 4096)
BEGIN = make_variable(1, 0, 4096)


def row_sums(dtype=dtypes.float32):
    """out[r] = sum of x[r, c] over c < n, of 3 rows that lie n apart."""
    row, column = make_range(0, 3), make_range(1, 4096, N)
    builder = KernelBuilder(row)
    x = builder.param(dtype, 3 * 4096)
    builder.store(row, fold(Combine.ADD, load(x, row * N + column), column), 3)
    return builder.kernel()


def sliced():
    """out[i] = x[i + begin] where that is inside, else -1, for i < n."""
    i = make_range(0, 4096, N)
    builder = KernelBuilder(i)
    inside = i + BEGIN < 4096
    x = load(builder.param(dtypes.float32, 4096), i + BEGIN, inside)
    builder.store(i, where(inside, x, const(dtypes.float32, -1)), 4096)
    return builder.kernel()


SIZES = (1, 2, 15, 16, 17, 127, 128, 129, 1000, 4095, 4096)


@pytest.fixture(scope="module")
def run_sums():
    (executable,) = device().compile([lower(row_sums(), device().target).program])
    return lambda *arrays, sizes: call(executable, arrays, sizes)


@pytest.mark.parametrize("n", SIZES)
def test_one_program_sums_rows_of_every_size(run_sums, n):
    x = np.arange(3 * n, dtype=np.float32) % 7
    out = np.empty(3, np.float32)

    run_sums(x, out, sizes=(n,))

    assert out.tolist() == x.reshape(3, n).sum(axis=1, dtype=np.float64).tolist()


@pytest.fixture(scope="module")
def run_slice():
    (executable,) = device().compile([lower(sliced(), device().target).program])
    return lambda *arrays, sizes: call(executable, arrays, sizes)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("begin", [0, 1, 63, 4000, 4096])
def test_one_program_reads_from_every_place(run_slice, n, begin):
    x = np.arange(4096, dtype=np.float32)
    out = np.full(4096, 9, np.float32)

    run_slice(x, out, sizes=(n, begin))

    wanted = np.concatenate([x[begin:], np.full(begin, -1, np.float32)])[:n]
    assert out.tolist() == [*wanted.tolist(), *[9.0] * (4096 - n)]


def test_a_plan_that_fixes_extents_declines_them():
    choice = choose(row_sums(), CPU_AVX512)
    told = {each.subject: each.reason for each in choice.decisions}

    assert choice.plan == "reduction"
    assert (
        told["reduction"] == "rows: 8 vectors of 16 lanes fold parts of one row, joined at its end."
    )


def test_an_extent_is_known_at_launch():
    n = make_variable(0, 0, 9)

    assert index_at((n * 3 + 5) // 4 % 3, {n: 4}) == 17 // 4 % 3
    assert index_at(n // (n - 4), {n: 4}) == 0
    assert index_at(n < 5, {n: 4}) == 1


def test_what_no_launch_knows_is_refused():
    element = UOp(Op.LOAD, dtypes.int64, (_param(), N))

    with pytest.raises(InternalError) as error:
        index_at(element, {N: 1})

    assert str(error.value) == (
        "extents: a launch does not know this number: <PARAM int64 () of 0 operands>."
    )


def _param():
    return KernelBuilder().param(dtypes.int64, 4)


def test_the_text_of_an_open_range_comes_back():
    kernel = row_sums()

    assert parse(show(kernel)) == kernel


# Contractions.
SMALL = Tiling(lanes=4, rows=2, vectors=2, block_k=8, block_n=16)


@st.composite
def open_products(draw):
    """A product with some of m, n and k open, each in one of two layouts, perhaps a batch."""
    m, n, k = draw(st.integers(2, 40)), draw(st.integers(2, 40)), draw(st.integers(1, 40))
    open_classes = draw(st.lists(st.sampled_from("mnk"), unique=True))
    ranges = {
        name: make_range(at, extent, make_variable(at, 1, extent))
        for at, (name, extent) in enumerate({"m": m, "n": n, "k": k}.items())
    }
    fixed = {name: make_range(each.attrs.number, each.extent) for name, each in ranges.items()}
    chosen = {name: ranges[name] if name in open_classes else fixed[name] for name in "mnk"}
    product = Product(*chosen.values())
    a = product.operand(dtypes.float32, *draw(st.permutations([product.m, product.k])))
    b = product.operand(dtypes.float32, *draw(st.permutations([product.n, product.k])))
    total = product.contract(a, b, dtypes.float32)
    if draw(st.booleans()):
        product.store(total + product.operand(dtypes.float32, product.n))
    else:
        product.store(total)
    kernel = numbered(product.kernel(total))
    return kernel, tuple([draw(st.integers(1, each.attrs.most)) for each in kernel.variables])


def numbered(kernel):
    """The kernel with its variables numbered from 0."""
    places = {
        each: make_variable(at, each.attrs.least, each.attrs.most)
        for at, each in enumerate(kernel.variables)
    }
    nodes = (kernel.sink, kernel.contraction.node, *kernel.ranges)
    sink, node, *ranges = substitute_all(nodes, places)
    return replace(kernel, sink=sink, ranges=tuple(ranges), contraction=contraction_facts(sink))


@given(open_products())
@settings(max_examples=30)
def test_a_product_is_summed_at_every_size(example):
    kernel, scalars = example
    verify_indexed(kernel)
    wanted = arrays_for(kernel)
    run_kernel(kernel, wanted, scalars)
    for tiling in (SMALL, None):
        linear = contraction.lower(contraction.facts(kernel, CPU_AVX512), CPU_AVX512, tiling)
        verify_linear(linear)
        results = arrays_for(kernel)
        run_linear(linear, results, scalars=scalars)
        for result, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(result, want, str(scalars), strict=True)


def dense_product(most=300):
    """c = a @ b over dense matrices of the launch's sizes m, n, k."""
    m, n, k = [make_variable(at, 1, most) for at in range(3)]
    row, column, inner = [make_range(at, most, each) for at, each in enumerate((m, n, k))]
    builder = KernelBuilder(row, column)
    a = load(builder.param(dtypes.float32, most * most), row * k + inner)
    b = load(builder.param(dtypes.float32, most * most), inner * n + column)
    total = contract(a, b, dtypes.float32, (row,), (column,), (inner,))
    builder.store(row * n + column, total, most * most)
    return builder.kernel()


@pytest.fixture(scope="module")
def run_product():
    lowered = lower(dense_product(), device().target)
    (executable,) = device().compile([lowered.program])
    return lambda *arrays, sizes: call(executable, arrays, sizes)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (8, 32, 64), (9, 33, 65), (7, 31, 1), (64, 15, 300), (300, 300, 300)]
)
def test_one_program_multiplies_matrices_of_every_size(run_product, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    c = np.full((m + 1, n), 7, np.float32)

    run_product(a, b, c, sizes=sizes)

    assert c[:m].tolist() == (a.astype(np.float64) @ b).tolist()
    assert (c[m] == 7).all()
