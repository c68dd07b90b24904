"""Sixty ways to write the two lines: each is one kernel, and it computes the right values."""

import itertools
import zlib

import numpy as np
import pytest
from schedule.reading import FLOAT_DTYPES, interpreted, kernels_of

from tinytensor import Tensor, dtypes

LAYOUTS = ("nn", "nt", "tn", "tt")
EPILOGUES = (
    "plain",
    "bias_n",
    "bias_m",
    "residual",
    "relu",
    "bias_n_relu",
    "raw_too",
    "scaled_and_transposed_too",
)
PROLOGUES = ("none", "relu", "cast", "negated")
SIZES = ((5, 7, 3), (33, 17, 12), (13, 64, 40), (1, 9, 4), (24, 32, 16))


def variants():
    rng = np.random.default_rng(7)
    every = list(itertools.product(FLOAT_DTYPES, LAYOUTS, EPILOGUES, PROLOGUES, SIZES, (0, 1, 2)))
    chosen = rng.choice(len(every), 60, replace=False)
    return [every[index] for index in sorted(chosen)]


def small_integers(rng, shape, dtype):
    return Tensor(rng.integers(-3, 4, shape).astype(np.float32), dtype=dtype)


def operand(rng, rows, columns, dtype, transposed, batch):
    lead = (4,)[:batch]
    shape = (columns, rows) if transposed else (rows, columns)
    values = small_integers(rng, (*lead, *shape), dtype)
    return values.transpose(-1, -2) if transposed else values


def with_prologue(kind, x, dtype):
    if kind == "relu":
        return x.relu()
    if kind == "cast":
        return x.cast(dtypes.float32).cast(dtype)
    return -x if kind == "negated" else x


def with_epilogue(kind, y, rng, dtype):
    m, n = y.shape[-2:]
    if kind == "bias_n":
        return (y + small_integers(rng, (n,), dtype),)
    if kind == "bias_m":
        return (y + small_integers(rng, (m, 1), dtype),)
    if kind == "residual":
        return (y + small_integers(rng, y.shape, dtype),)
    if kind == "relu":
        return ((y + 1.0).relu(),)
    if kind == "bias_n_relu":
        return ((y + small_integers(rng, (n,), dtype)).relu(),)
    if kind == "raw_too":
        return (y, (y * 2.0).relu())
    if kind == "scaled_and_transposed_too":
        return (y * 0.5, y.transpose(-1, -2) + 1.0)
    return (y,)


def outputs_of(variant):
    """The tensors of a variant, not yet computed."""
    dtype, layout, epilogue, prologue, (m, n, k), batch = variant
    rng = np.random.default_rng(zlib.crc32(str(variant).encode()))
    a = operand(rng, m, k, dtype, layout[0] == "t", batch=1 if batch == 2 else 0)
    b = operand(rng, k, n, dtype, layout[1] == "t", batch=1 if batch else 0)
    left = with_prologue(prologue, a, dtype)
    return with_epilogue(epilogue, left.matmul(b), rng, dtype)


@pytest.mark.parametrize("variant", variants(), ids=str)
def test_a_variant_is_one_kernel_and_right(variant):
    outputs = outputs_of(variant)

    kernels = kernels_of(*outputs)

    assert len(kernels) == 1, [kernel.name for kernel in kernels]
    for output, values in zip(outputs, interpreted(*outputs), strict=True):
        np.testing.assert_array_equal(output.numpy(), values)
