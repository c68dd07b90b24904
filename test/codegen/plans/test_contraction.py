"""The contraction plan: every layout, ragged size, dtype, prologue and epilogue gives the sum."""

from dataclasses import dataclass

import numpy as np
import pytest
from codegen.machine import run_c
from codegen.plans.plan_kernels import KernelBuilder, arrays_for, expected, load

from tinytensor.codegen.plans import contraction
from tinytensor.codegen.plans.flatten import flatten, is_symmetric
from tinytensor.codegen.plans.tiling_cpu import Tiling, cut, list_tilings
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import ContractAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.interpret_linear import LINEAR, run_linear
from tinytensor.ops.kernel import Contraction, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, cast, const, index_const, make_range, substitute, walk, where
from tinytensor.target import CPU_AVX2, CPU_AVX512, CPU_SSE

SMALL = Tiling(lanes=4, rows=2, vectors=2, block_k=8, block_n=16)
MIRRORED = Tiling(lanes=4, rows=2, vectors=1, block_k=8, block_n=16)


@dataclass
class Product:
    """A kernel under construction: c[m, n] = sum over k of a * b, and what is stored of it."""

    m: UOp
    n: UOp
    k: UOp
    batch: tuple[UOp, ...] = ()

    def __post_init__(self):
        self.builder = KernelBuilder(*self.batch, self.m, self.n)

    def operand(self, dtype, *ranges):
        """A load of a fresh row-major array over those ranges."""
        elements, index = 1, index_const(0)
        for each in reversed(ranges):
            index = index + each * elements
            elements *= each.extent
        return load(self.builder.param(dtype, elements), index)

    def contract(self, a, b, accumulate):
        classes = (self.batch, (self.m,), (self.n,), (self.k,))
        numbers = [tuple([each.attrs.number for each in ranges]) for ranges in classes]
        attrs = ContractAttrs(*numbers, accumulate)
        return UOp(Op.CONTRACT, accumulate, (a, b, self.k), attrs)

    def store(self, value, *ranges):
        elements, index = 1, index_const(0)
        for each in reversed(ranges or self.builder.ranges):
            index = index + each * elements
            elements *= each.extent
        self.builder.store(index, value, elements)

    def kernel(self, node):
        return with_contraction(
            self.builder.kernel(), node, self.batch, (self.m,), (self.n,), (self.k,)
        )


def with_contraction(kernel, node, batch, m, n, k):
    facts = Contraction(node, batch, m, n, k)
    return Kernel("k", kernel.sink, kernel.ranges, kernel.params, facts, kernel.index_dtype)


def square(m, n, k, *batch):
    ranges = [make_range(number, extent) for number, extent in enumerate((m, n, k, *batch))]
    return Product(ranges[0], ranges[1], ranges[2], tuple(ranges[3:]))


def lowered(kernel, tiling=SMALL, target=CPU_AVX512):
    facts = contraction.facts(kernel, target)
    assert not isinstance(facts, str), facts
    return contraction.lower(facts, target, tiling)


def assert_exact(kernel, tiling=SMALL, target=CPU_AVX512):
    """Integer-valued inputs: the INDEXED interpreter's bits, whatever the order of the sum."""
    arrays = arrays_for(kernel)
    results = [each.copy() for each in arrays]

    run_linear(lowered(kernel, tiling, target), results)

    for result, want in zip(results, expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, strict=True)


def plain(m, n, k, transposed_a=False, transposed_b=False, dtype=dtypes.float32):
    """A kernel that stores a @ b, each operand in one of two layouts."""
    product = square(m, n, k)
    m, n, k = product.m, product.n, product.k
    a = product.operand(dtype, *((k, m) if transposed_a else (m, k)))
    b = product.operand(dtype, *((n, k) if transposed_b else (k, n)))
    accumulate = dtypes.float32 if dtype.is_half else dtype
    total = product.contract(a, b, accumulate)
    product.store(total)
    return product.kernel(total)


def gram(n, k, dtype=dtypes.float32, biased=False):
    """A kernel that stores relu(x @ x.T), plus a bias along n when biased."""
    product = square(n, n, k)
    x = product.operand(dtype, product.m, product.k)
    accumulate = dtypes.float32 if dtype.is_half else dtype
    total = product.contract(x, substitute(x, {product.m: product.n}), accumulate)
    result = cast(total, dtype)
    if biased:
        result = result + product.operand(dtype, product.n)
    product.store(relu(result))
    return product.kernel(total)


def relu(x):
    return where(x < 0, const(x.dtype, 0), x)


@pytest.mark.parametrize("transposed_b", [False, True])
@pytest.mark.parametrize("transposed_a", [False, True])
@pytest.mark.parametrize("sizes", [(2, 2, 1), (7, 13, 2), (8, 16, 8), (9, 33, 17), (5, 31, 24)])
def test_every_layout_and_ragged_size_is_summed(sizes, transposed_a, transposed_b):
    assert_exact(plain(*sizes, transposed_a, transposed_b))


@pytest.mark.parametrize("n", [15, 16, 17, 23, 33])
@pytest.mark.parametrize("m", [3, 4, 5])
def test_one_off_the_tile_is_summed(m, n):
    assert_exact(plain(m, n, 9, transposed_b=True), Tiling(4, 4, 2, 4, 8))


@pytest.mark.parametrize("sizes", [(3, 4, 0), (0, 4, 3), (3, 0, 4)])
def test_an_empty_range_stores_zeros_or_nothing(sizes):
    assert_exact(plain(*sizes))


DTYPES = (
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
    *(dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint16),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda each: each.name)
def test_every_dtype_is_summed_in_its_accumulator(dtype):
    assert_exact(plain(5, 11, 18, transposed_b=True, dtype=dtype))


@pytest.mark.parametrize("target", [CPU_AVX2, CPU_SSE], ids=["avx2", "sse"])
def test_smaller_registers_give_the_same_sum(target):
    assert_exact(plain(13, 37, 19, transposed_b=True), None, target)


def test_narrow_integers_may_be_summed_in_wide_ones():
    product = square(5, 6, 7)
    a = product.operand(dtypes.int8, product.m, product.k)
    b = product.operand(dtypes.uint16, product.k, product.n)
    total = product.contract(a, b, dtypes.int64)
    product.store(total)

    assert_exact(product.kernel(total))


@pytest.mark.parametrize("broadcast", [False, True])
def test_a_batch_is_an_outer_loop(broadcast):
    product = square(3, 9, 10, 2, 3)
    outer, inner = product.batch
    a = product.operand(dtypes.float32, outer, inner, product.m, product.k)
    b_batch = (inner,) if broadcast else (outer, inner)
    b = product.operand(dtypes.float32, *b_batch, product.n, product.k)
    total = product.contract(a, b, dtypes.float32)
    product.store(total)

    assert_exact(product.kernel(total))


def test_stores_adjacent_along_m_exchange_the_operands():
    product = square(9, 5, 6)
    a = product.operand(dtypes.float32, product.m, product.k)
    b = product.operand(dtypes.float32, product.k, product.n)
    total = product.contract(a, b, dtypes.float32)
    product.store(total, product.n, product.m)
    kernel = product.kernel(total)

    assert flatten(kernel).n is product.m
    assert_exact(kernel)


def test_a_prologue_runs_while_packing():
    product = square(6, 10, 11)
    a = relu(product.operand(dtypes.float16, product.m, product.k))
    b = cast(product.operand(dtypes.int8, product.n, product.k), dtypes.float32) + 1.0
    total = product.contract(a, b, dtypes.float32)
    product.store(total)

    assert_exact(product.kernel(total))


def test_a_guarded_operand_reads_zero_outside():
    product = square(6, 10, 11)
    k, n = product.k, product.n
    a = product.operand(dtypes.float32, product.m, k)
    shifted = n + index_const(-2)
    guard = (index_const(-1) < shifted) & (shifted < 7)
    b = load(product.builder.param(dtypes.float32, 11 * 7), k * 7 + shifted, guard)
    total = product.contract(a, b, dtypes.float32)
    product.store(total)

    assert_exact(product.kernel(total))


@pytest.mark.parametrize("along", ["m", "n"])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_an_epilogue_rounds_then_adds_a_bias_and_a_residual(along, dtype):
    product = square(7, 13, 19)
    a = product.operand(dtypes.float16, product.m, product.k)
    b = product.operand(dtypes.float16, product.n, product.k)
    total = product.contract(a, b, dtypes.float32)
    bias = product.operand(dtype, product.m if along == "m" else product.n)
    residual = product.operand(dtype, product.m, product.n)
    product.store(relu(cast(total, dtype) + bias) + residual)

    assert_exact(product.kernel(total))


def test_two_stores_of_two_dtypes_share_the_sum():
    product = square(7, 13, 19)
    a = product.operand(dtypes.float32, product.m, product.k)
    b = product.operand(dtypes.float32, product.k, product.n)
    total = product.contract(a, b, dtypes.float32)
    product.store(total)
    product.store(cast(relu(total), dtypes.float16))

    assert_exact(product.kernel(total))


def test_an_epilogue_may_ask_where_it_is():
    product = square(7, 13, 5)
    a = product.operand(dtypes.float32, product.m, product.k)
    b = product.operand(dtypes.float32, product.k, product.n)
    total = product.contract(a, b, dtypes.float32)
    is_causal = product.n <= product.m
    product.store(where(is_causal, total, const(dtypes.float32, -100.0)))
    kernel = product.kernel(total)

    assert_exact(kernel)
    assert_exact(kernel, list_tilings(13, 5, 8, CPU_AVX512)[0])


def test_a_long_epilogue_is_a_loop_over_the_tile():
    def kernel(length):
        product = square(7, 13, 19)
        a = product.operand(dtypes.float32, product.m, product.k)
        b = product.operand(dtypes.float32, product.k, product.n)
        total = product.contract(a, b, dtypes.float32)
        result = total
        for number in range(length):
            result = relu(result + float(number % 3)) - product.operand(dtypes.float32, product.n)
        product.store(result)
        return product.kernel(total)

    short, long = (len(lowered(kernel(length)).statements) for length in (12, 36))

    assert long < 2 * short
    assert_exact(kernel(36))


def convolution(padding):
    """out[b, o, y, x] = sum over c, dy, dx of x[b, c, y + dy - padding, ..] * w[o, c, dy, dx]."""
    batch, channels, outputs, height, width, reach = 2, 3, 5, 6, 9, 3
    rows, columns = (each + 2 * padding - reach + 1 for each in (height, width))
    extents = (batch, outputs, rows, columns, channels, reach, reach)
    b, o, y, x, c, dy, dx = (make_range(i, extent) for i, extent in enumerate(extents))
    builder = KernelBuilder(b, o, y, x)
    row, column = y + dy + index_const(-padding), x + dx + index_const(-padding)
    guard = (index_const(-1) < row) & (row < height)
    guard = guard & (index_const(-1) < column) & (column < width)
    image = builder.param(dtypes.float32, batch * channels * height * width)
    index = ((b * channels + c) * height + row) * width + column
    pixel = load(image, index, guard if padding else None)
    weights = builder.param(dtypes.float32, outputs * channels * reach * reach)
    weight = load(weights, ((o * channels + c) * reach + dy) * reach + dx)
    numbers = [tuple([each.attrs.number for each in group]) for group in ((o,), (b, y, x))]
    attrs = ContractAttrs((), *numbers, (4, 5, 6), dtypes.float32)
    total = UOp(Op.CONTRACT, dtypes.float32, (weight, pixel, c, dy, dx), attrs)
    elements = batch * outputs * rows * columns
    builder.store(((b * outputs + o) * rows + y) * columns + x, total, elements)
    return with_contraction(builder.kernel(), total, (), (o,), (b, y, x), (c, dy, dx))


@pytest.mark.parametrize("padding", [0, 1])
def test_a_convolution_is_summed_through_its_gathered_index(padding):
    assert_exact(convolution(padding))


def test_a_class_that_fills_no_lanes_leaves_them_to_the_other():
    o, c, dx, y, x = (make_range(i, extent) for i, extent in enumerate((9, 2, 3, 4, 5)))
    builder = KernelBuilder(o, c, dx)
    upstream = load(builder.param(dtypes.float32, 9 * 20), (o * 4 + y) * 5 + x)
    pixel = load(builder.param(dtypes.float32, 2 * 28), (c * 4 + y) * 7 + x + dx)
    attrs = ContractAttrs((), (0,), (1, 2), (3, 4), dtypes.float32)
    total = UOp(Op.CONTRACT, dtypes.float32, (upstream, pixel, y, x), attrs)
    builder.store((o * 2 + c) * 3 + dx, total, 54)
    kernel = with_contraction(builder.kernel(), total, (), (o,), (c, dx), (y, x))

    flat = flatten(kernel)

    assert (flat.n, flat.m.extent, flat.outer) == (o, 6, ())
    assert_exact(kernel)


def test_ranges_that_need_no_division_become_one():
    first, second, n, k = (make_range(i, extent) for i, extent in enumerate((2, 3, 8, 5)))
    builder = KernelBuilder(first, second, n)
    a = load(builder.param(dtypes.float32, 30), (first * 3 + second) * 5 + k)
    b = load(builder.param(dtypes.float32, 40), k * 8 + n)
    attrs = ContractAttrs((), (0, 1), (2,), (3,), dtypes.float32)
    total = UOp(Op.CONTRACT, dtypes.float32, (a, b, k), attrs)
    builder.store((first * 3 + second) * 8 + n, total, 48)
    kernel = with_contraction(builder.kernel(), total, (), (first, second), (n,), (k,))

    flat = flatten(kernel)

    assert flat.m.extent == 6
    assert flat.outer == ()
    assert not {Op.FLOORDIV, Op.MOD} & {node.op for node in walk((flat.a, *flat.stores))}
    assert_exact(kernel)


@pytest.mark.parametrize(
    "count, cuts", [(32, [(32, 16)]), (20, [(16, 16), (4, 4)]), (9, [(9, 16)]), (1, [(1, 4)])]
)
def test_columns_beyond_whole_vectors_have_a_vector_that_fits(count, cuts):
    found = list(cut(index_const(0), count, 16))

    assert [(each.count, each.lanes) for each in found] == cuts
    assert [bounds_of(each.begin) for each in found] == [(0, 0), (16, 16)][: len(cuts)]


@pytest.mark.parametrize("k", [5, 17])  # in one block and in three
@pytest.mark.parametrize("block_n", [12, 60])
@pytest.mark.parametrize("lanes, rows", [(4, 2), (2, 6), (4, 4), (4, 1)])
@pytest.mark.parametrize("n", [5, 23, 24, 25, 32, 37, 53])
def test_a_symmetric_product_is_mirrored(n, lanes, rows, block_n, k):
    kernel, tiling = gram(n, k), Tiling(lanes, rows, 1, 8, block_n)

    assert is_symmetric(flatten(kernel))
    assert tiling.gains_by_mirroring(n)
    assert_exact(kernel, tiling)


@pytest.mark.parametrize("tiling", [MIRRORED, Tiling(4, 2, 1, 8, 40)])
def test_a_mirrored_tile_has_its_own_epilogue(tiling):
    assert_exact(gram(37, 17, dtypes.float16, biased=True), tiling)


@pytest.mark.parametrize("biased", [False, True])
def test_an_image_takes_what_is_stored_where_no_place_tells(monkeypatch, biased):
    run = []
    less = LINEAR[Op.LT]

    def counted(machine, node, *operands):
        if node.operands[0].dtype.is_float:
            run.append(node)
        return less(machine, node, *operands)

    monkeypatch.setitem(LINEAR, Op.LT, counted)
    assert_exact(gram(32, 2, biased=biased), MIRRORED)

    strips_at_vectors, strips_inside = 8 * 9 // 2, 8 * 7 // 2
    whole_vectors = (strips_at_vectors + strips_inside) * MIRRORED.rows
    halves = 8 * MIRRORED.rows  # where a strip begins inside a vector
    images = 2 * whole_vectors  # two vectors of two, along the columns, for each of four
    assert len(run) == whole_vectors + halves + (images if biased else 0)


@pytest.mark.parametrize("tiling", [SMALL, Tiling(4, 6, 1, 8, 16)])
def test_a_tile_that_cannot_follow_the_diagonal_computes_all(tiling):
    assert not tiling.gains_by_mirroring(37)
    assert_exact(gram(37, 17), tiling)


def test_mirroring_saves_products(monkeypatch):
    run = []
    multiply_add = LINEAR[Op.FMA]

    def counted(machine, node, *operands):
        run.append(node)
        return multiply_add(machine, node, *operands)

    monkeypatch.setitem(LINEAR, Op.FMA, counted)
    assert_exact(plain(64, 64, 2, transposed_b=True))
    in_full = len(run)
    run.clear()

    assert_exact(gram(64, 2), MIRRORED)

    assert in_full == 64 * 64 // SMALL.lanes * 2
    strips_at_vectors, strips_inside = 16 * 17 // 2, 16 * 15 // 2 + 16  # the 16 are half as wide
    assert len(run) == (strips_at_vectors + strips_inside) * MIRRORED.rows * 2


def test_two_operands_of_one_buffer_read_otherwise_are_not_symmetric():
    product = square(6, 6, 6)
    x = product.operand(dtypes.float32, product.m, product.k)
    y = substitute(x, {product.m: product.k, product.k: product.n})
    total = product.contract(x, y, dtypes.float32)
    product.store(total)

    assert not is_symmetric(flatten(product.kernel(total)))


@pytest.mark.parametrize("accumulate", [dtypes.float16, dtypes.bool])
def test_an_accumulator_without_a_register_tile_is_declined(accumulate):
    product = square(3, 4, 5)
    a = product.operand(accumulate, product.m, product.k)
    b = product.operand(accumulate, product.k, product.n)
    total = product.contract(a, b, accumulate)
    product.store(total)

    reason = contraction.facts(product.kernel(total), CPU_AVX512)

    assert reason == (
        f"the sum is kept in {accumulate.name}; a register tile sums float32, float64, integers."
    )


def test_a_matrix_vector_product_is_declined():
    reason = contraction.facts(plain(4, 1, 5), CPU_AVX512)

    assert reason == "the product has no n range: a matrix-vector product, which has no tile."


def error_bound(a, b, accumulate):
    """A sum of k products in any order, fused or not: (k + 1) roundings of at most sum |a b|."""
    k = a.shape[1]
    return (k + 1) * accumulate.epsilon / 2 * (np.abs(a) @ np.abs(b)).max()


@pytest.mark.parametrize("sizes", [(33, 100, 7), (61, 47, 130), (24, 17, 1100)])
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_compiled_sums_are_within_the_bound_of_float64(dtype, sizes):
    kernel = plain(*sizes, transposed_b=True, dtype=dtype)
    m, n, k = sizes
    rng = np.random.default_rng(7)
    a = rng.standard_normal((m, k)).astype(dtype.storage_numpy)
    b = rng.standard_normal((n, k)).astype(dtype.storage_numpy)
    accumulate = kernel.params[-1].dtype
    out = np.zeros((m, n), accumulate.storage_numpy)

    run_c(lowered(kernel, None), [a, b, out])

    wide_a, wide_b = a.astype(np.longdouble), b.T.astype(np.longdouble)
    assert np.abs(out - wide_a @ wide_b).max() <= error_bound(wide_a, wide_b, accumulate)


def test_a_compiled_symmetric_product_is_symmetric_to_the_bit():
    kernel = gram(150, 70)
    x = np.random.default_rng(3).standard_normal((150, 70)).astype(np.float32)
    out = np.zeros((150, 150), np.float32)

    run_c(lowered(kernel, None), [x, out])

    wide = x.astype(np.float64)
    np.testing.assert_array_equal(out, out.T)
    bound = error_bound(wide, wide.T, dtypes.float32)
    assert np.abs(out - np.maximum(wide @ wide.T, 0)).max() <= bound
