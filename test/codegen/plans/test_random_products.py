"""Random products of halves: each of Hopper's forms gives the INDEXED interpreter's bits."""

import numpy as np
import pytest
from codegen.plans.plan_kernels import arrays_for, expected
from codegen.plans.test_contraction import relu, square
from codegen.plans.test_cuda_hopper import FORMS, lowered, results_of

from tinytensor.codegen.plans import cuda_contraction
from tinytensor.dtype import dtypes
from tinytensor.ops.uop import cast, const
from tinytensor.ops.verify import verify_linear

IN_THE_SUITE = 20
ALL = 220


def choose(rng, options):
    return options[rng.integers(len(options))]


def random_kernel(rng, dtype):
    """A product of random extents and layouts, in batches or not, with work around it."""
    batch = (int(rng.integers(1, 4)),) if rng.random() < 0.3 else ()
    m, n, k = [int(each) for each in rng.integers(1, 140, 3)]
    product = square(m, n, -(-k // 8) * 8 if rng.integers(2) else k, *batch)

    def factor(free):
        inner = [free, product.k] if rng.integers(2) else [product.k, free]
        kept = product.batch if rng.integers(2) else ()
        found = product.operand(dtype, *kept, *inner)
        return found + const(dtype, 1) if rng.random() < 0.2 else found

    total = product.contract(factor(product.m), factor(product.n), dtypes.float32)
    value = cast(total, choose(rng, (dtype, dtypes.float32)))
    for _ in range(rng.integers(0, 3)):
        around = choose(rng, ((), (product.n,), (product.m,), (product.m, product.n)))
        value = value + product.operand(value.dtype, *around) if around else relu(value)
    product.store(value)
    return product.kernel(total)


def check(seed, monkeypatch):
    monkeypatch.setattr(cuda_contraction, "PACKED_PRODUCTS", 1)  # so that it takes every factor
    rng = np.random.default_rng(seed)
    kernel = random_kernel(rng, choose(rng, (dtypes.float16, dtypes.bfloat16)))
    tiling = choose(rng, FORMS)
    parts = 1 if tiling.swaps else int(choose(rng, (1, 1, 2, 3)))
    arrays = arrays_for(kernel, seed)
    for array, param in zip(arrays, kernel.params, strict=True):
        if param.written:
            array[:] = np.array(np.nan, array.dtype) if array.dtype.kind == "f" else 0x7FFF

    linears = lowered(kernel, tiling, parts=parts)

    for each in linears:
        verify_linear(each)
    for result, want in zip(results_of(linears, arrays), expected(kernel, arrays), strict=True):
        np.testing.assert_array_equal(result, want, f"seed {seed}, {tiling.name}", strict=True)


@pytest.mark.parametrize("seed", range(IN_THE_SUITE))
def test_random_products_have_the_same_bits_on_hopper(seed, monkeypatch):
    check(seed, monkeypatch)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 20))
def test_many_random_products_have_the_same_bits_on_hopper(first, monkeypatch):
    for seed in range(first, first + 20):
        check(seed, monkeypatch)
