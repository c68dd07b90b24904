"""Values at which arithmetic goes wrong, per dtype, and all pairs of them."""

import math

import numpy as np

from tinytensor.dtype import dtypes
from tinytensor.ops.interpret import round_to

SHIFTS = (0, 1, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127)
PLAIN = (0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.0, 127.5, 128.0, 255.5, 256.0, 464.0, 465.0, 1000.0)
ENDS = (
    32767.5,
    32768.0,
    57344.0,
    61440.0,
    65519.0,
    65520.0,
    65536.0,
    2.0**31,
    2.0**32,
    2.0**63,
    2.0**64,
)
TINY = (2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-14, 2.0**-126, 2.0**-133, 2.0**-149, 5e-324)
# Halfway between two floats of 8 or 16 bits, and a little above: wrong when rounded twice.
TIES = (
    1.125,
    1.0625,
    1.1875,
    0.01,
    3 * 2.0**-10,
    2.0**-10,
    2.0**-17,
    1 + 2.0**-11,
    1 + 2.0**-11 + 2.0**-40,
    1 + 2.0**-8,
    1 + 2.0**-8 + 2.0**-40,
    1 / 3,
)
MULTIPLE = 64  # of every vector's lanes


def edges_of(dtype):
    """Values of a dtype, as an array of its value type."""
    if dtype is dtypes.bool:
        return np.array([False, True])
    if dtype.is_float:
        magnitudes = (0.0, *PLAIN, *ENDS, *TINY, *TIES, 3e38, 1e300, math.inf)
        values = np.array([*magnitudes, *(-x for x in magnitudes), math.nan], np.float64)
        with np.errstate(all="ignore"):
            return np.asarray(round_to(values, dtype))
    values = {dtype.min, dtype.min + 1, dtype.max, dtype.max - 1, dtype.max // 2, *SHIFTS}
    values |= {-1, -2, -3, -7, -8, dtype.min // 2} if dtype.kind == "int" else set()
    inside = sorted(value for value in values if dtype.min <= value <= dtype.max)
    return np.array(inside, dtype.value_numpy)


def padded(values):
    """Values repeated up to a multiple of every vector's lanes."""
    return np.resize(values, -(-len(values) // MULTIPLE) * MULTIPLE)


def pairs_of(dtype):
    """Two arrays that hold every pair of edges."""
    edges = edges_of(dtype)
    return padded(np.repeat(edges, len(edges))), padded(np.tile(edges, len(edges)))
