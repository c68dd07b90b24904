"""Keys of every dtype are put in NumPy's stable order, by few kernels that are built quickly."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, config
from tinytensor.ops.uop import walk
from tinytensor.schedule.lower_views import Lowering
from tinytensor.target import CPU_AVX512, SM90A
from tinytensor.tensor.autograd import grad
from tinytensor.tensor.ordering import PARTS, ascending_order

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]
EXTENTS = [1, 2, 7, PARTS, PARTS + 1, 2 * PARTS, 97, 300, 1025]


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


@pytest.mark.parametrize("count", [0, 1, 5, PARTS, PARTS + 1, 40, 120, 199])
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
    x = Tensor(np.arange(PARTS, dtype=np.float32))

    assert len(kernels_of(x._wrap(ascending_order(x.uop, 0)))) <= 4


@pytest.mark.parametrize("target", [CPU_AVX512, SM90A], ids=lambda target: target.kind)
def test_merging_exchanges_several_times_a_kernel(target):
    x = Tensor(np.zeros(5000, np.float32))

    kernels = kernels_of(x._wrap(ascending_order(x.uop, 0)), target=target)

    # 10 blocks of 512. 16 elements take 1 + 2 + 3 + 4 exchanges; a merge of runs of 2**n takes
    # n + 1 of them, 4 a kernel, to blocks; a merge of blocks takes up to 4, and 9 in each block.
    runs = sum(-(-(n + 1) // 4) for n in range(4, 9))
    blocks = 4 * (1 + -(-9 // 4))
    assert len(kernels) <= 3 + runs + blocks + 2  # and what is complemented; the order
    assert len({each.sink for each in kernels}) <= 3 + 5 + 4 + 3 + 2


def test_planning_both_gradients_of_a_sort_visits_each_node_a_few_times(monkeypatch):
    counted = []
    lower = Lowering._operand_points
    monkeypatch.setattr(
        Lowering, "_operand_points", lambda self, point: counted.append(point) or lower(self, point)
    )
    x = Tensor(np.arange(40.0).reshape(4, 10), requires_grad=True)
    out = (x * x).sort(1)[0] * x
    (first,) = grad((out * out * out).sum(), x, create_graph=True)
    (second,) = grad((first * first).sum(), x)

    kernels_of(first, second)

    assert len(counted) < 12 * len(walk((first.uop, second.uop)))
