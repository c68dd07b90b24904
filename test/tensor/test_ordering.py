"""Keys of every dtype are put in NumPy's stable order, by few kernels that are built quickly."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config
from tinytensor.target import CPU_AVX512, SM90A
from tinytensor.tensor.ordering import LONGEST_RUN, ascending_order

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]
EXTENTS = [1, 2, 7, LONGEST_RUN, LONGEST_RUN + 1, 2 * LONGEST_RUN, 97, 300]


def order_of(keys, axis=0, count=None):
    x = Tensor(keys)
    return x._wrap(ascending_order(x.uop, axis, count)).numpy()


def with_ties(extent, dtype, seed=0):
    """Keys of which half occur twice, with the ends of the dtype among them."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, extent).astype(bool)
    if dtype in FLOATS:
        keys = generator.standard_normal(extent).astype(dtype)
        ends = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, np.finfo(dtype).smallest_subnormal]
    else:
        limits = np.iinfo(dtype)
        keys = generator.integers(limits.min, limits.max, extent, dtype, endpoint=True)
        ends = [limits.min, limits.max, 0, 1]
    keys[generator.integers(0, extent, extent // 2)] = keys[0]
    places = generator.integers(0, extent, min(extent // 3, 2 * len(ends)))
    keys[places] = np.resize(np.array(ends, dtype), len(places))
    return keys


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS])
def test_keys_of_a_dtype(dtype):
    keys = with_ties(77, dtype)

    assert order_of(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("extent", EXTENTS)
def test_an_axis_of_any_extent(extent):
    keys = with_ties(extent, "float32", seed=extent)

    assert order_of(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("count", [0, 1, 5, LONGEST_RUN, 40, 120, 199])
def test_the_first_of_an_order(count):
    keys = with_ties(200, "int16")

    assert order_of(keys, count=count).tolist() == np.argsort(keys, kind="stable")[:count].tolist()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_axis_among_others(axis):
    keys = with_ties(2 * 70 * 3, "float64").reshape(2, 70, 3)

    assert order_of(keys, axis).tolist() == np.argsort(keys, axis, kind="stable").tolist()


@pytest.mark.parametrize("fuse", [0, 3])
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_an_order_fused_or_not(device, fuse):
    keys = with_ties(90, "float32")

    with config(fuse=fuse):
        x = Tensor(keys, device=device)
        found = x._wrap(ascending_order(x.uop, 0)).tolist()

    assert found == np.argsort(keys, kind="stable").tolist()


def test_no_keys_have_an_empty_order():
    assert order_of(np.zeros((3, 0)), 1).shape == (3, 0)
    assert order_of(np.zeros((0, 3)), 1).shape == (0, 3)


def test_a_short_axis_takes_few_kernels():
    x = Tensor(np.arange(LONGEST_RUN, dtype=np.float32))

    assert len(kernels_of(x._wrap(ascending_order(x.uop, 0)))) <= 4


@pytest.mark.parametrize("target", [CPU_AVX512, SM90A], ids=lambda target: target.kind)
def test_merging_halves_several_times_a_kernel(target):
    x = Tensor(np.zeros(5000, np.float32))

    kernels = kernels_of(x._wrap(ascending_order(x.uop, 0)), target=target)

    # 8 merges: 1 .. 8 exchanges of runs, and one of their halves, 4 a kernel; two kernels count
    # the elements after each merge, and those of the runs. Keys and positions are two more.
    exchanges = sum(-(-(merge + 1) // 4) for merge in range(1, 9))
    assert len(kernels) <= exchanges + 2 * 9 + 2
    pointwise = {each.sink for each in kernels if each.name.startswith("pointwise")}
    assert len(pointwise) <= 8 + 2 + 2  # the first after each merge, then the same; keys, positions
