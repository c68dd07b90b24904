"""Compares float results with a float64 reference, within a number of roundings."""

import numpy as np

from tinytensor.dtype import dtypes


def assert_within(tensor, reference, roundings, scale=0.0):
    """Each of `roundings` moves a result by at most an epsilon of float32 (or float64).

    `scale` is the size of what a sum cancels, for results that may be smaller than that. A half
    result is rounded once more, from float32, so that one epsilon of its own is enough.
    """
    reference = np.asarray(reference, np.float64)
    computing = dtypes.float32 if tensor.dtype.is_half else tensor.dtype
    bound = roundings * computing.epsilon
    if tensor.dtype.is_half:
        bound += tensor.dtype.epsilon
    result = tensor.numpy()

    assert result.shape == reference.shape
    least = 2.0**-25 if tensor.dtype is dtypes.float16 else 0.0  # half a step below 2**-14
    wide = result.astype(np.float64)
    np.testing.assert_allclose(wide, reference, rtol=bound, atol=bound * scale + least)


def assert_bits(tensor, expected):
    """The same dtype, shape and bits; any NaN equals any other."""
    result, expected = tensor.numpy(), np.asarray(expected)

    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)
    if result.dtype.kind == "f":
        signs = np.signbit(result) == np.signbit(expected)
        assert (signs | np.isnan(expected)).all()
