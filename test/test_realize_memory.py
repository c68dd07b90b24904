"""A result takes a leaf's memory when nobody can read the leaf; too little memory loses nothing."""

import gc

import numpy as np
import pytest

from tinytensor import Device, Tensor, config
from tinytensor.errors import DeviceError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.realize import Root, realize, storage_of
from tinytensor.runtime.host import HostMemory


@pytest.fixture(autouse=True, params=[False, True], ids=["plain", "stress"])
def stress(request):
    with config(stress=request.param):
        yield


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def leaf_below(node):
    """The first leaf below a node."""
    return next(each for each in walk([node]) if each.op is Op.BUFFER)


def replace(*tensors):
    """Realize tensors as if each had been the only holder of the leaf below it."""
    found = realize(
        [Root(each.cell.uop, each.device, each.site, leaf_below(each.cell.uop)) for each in tensors]
    )
    for each, leaf in zip(tensors, found, strict=True):
        each.cell.keep(leaf)


def address(tensor):
    return storage_of(tensor.cell.leaf).address


def test_a_result_lies_where_the_value_lay_that_it_replaces():
    x = Tensor(numbers(8, 9))
    before = address(x)
    x = x * 2.0 + 1.0

    replace(x)

    assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) * 2 + 1)


def test_a_second_update_of_the_same_structure_replaces_too():
    x = Tensor(numbers(8, 9))
    before = address(x)

    for _ in range(3):
        x = x + 1.0
        replace(x)

    assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) + 3)


def test_a_value_that_only_earlier_kernels_read_is_replaced():
    x = Tensor(numbers(8, 9))
    before = address(x)
    x = x.softmax(1).sum(1, keepdim=True).expand(8, 9) * 2.0

    replace(x)

    assert address(x) == before
    np.testing.assert_allclose(x.numpy(), np.full((8, 9), 2), rtol=1e-5)


def test_several_values_that_depend_on_one_another_are_replaced_together():
    x, y = Tensor(numbers(8, 8)), Tensor(numbers(8, 8) + 1)
    places = {address(x), address(y)}
    x, y = x - y * 0.5, y + x * 0.5

    replace(x, y)

    a, b = numbers(8, 8), numbers(8, 8) + 1
    np.testing.assert_array_equal(x.numpy(), a - b * 0.5)
    np.testing.assert_array_equal(y.numpy(), b + a * 0.5)
    assert len({address(x), address(y)} & places) >= 1  # one of the two is read by the other


def keep_the_tensor(x):
    return x


def keep_a_pending_reader(x):
    return x.exp()


def keep_a_value_in_between(x):
    return (x * 2.0) - 3.0


def keep_an_equal_expression(x):
    return x * 2.0 + 1.0


def keep_a_reshaped_value(x):
    flat = x.reshape(-1)
    flat.realize()
    return flat


KEEPERS = [
    keep_the_tensor,
    keep_a_pending_reader,
    keep_a_value_in_between,
    keep_an_equal_expression,
    keep_a_reshaped_value,
]


@pytest.mark.parametrize("keep", KEEPERS)
def test_what_somebody_can_still_read_is_not_replaced(keep):
    x = Tensor(numbers(8, 9))
    before = address(x)
    expected = keep(Tensor(numbers(8, 9))).numpy()
    kept = keep(x)
    x = x * 2.0 + 1.0

    replace(x)

    assert address(x) != before
    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) * 2 + 1)
    np.testing.assert_array_equal(kept.numpy(), expected)


def test_what_another_root_depends_on_is_not_replaced():
    x = Tensor(numbers(8, 9))
    before = address(x)
    total = x.sum()
    x = x * 2.0

    roots = [Root(total.uop, "CPU"), Root(x.cell.uop, "CPU", None, leaf_below(x.cell.uop))]
    for tensor, leaf in zip((total, x), realize(roots), strict=True):
        tensor.cell.keep(leaf)

    assert address(x) != before
    assert total.item() == numbers(8, 9).sum()


@pytest.mark.parametrize(
    "update", [lambda x: x @ x, lambda x: x.flip(0) + x, lambda x: x.cumsum(0), lambda x: x > 3.0]
)
def test_a_kernel_that_reads_more_than_it_overwrites_gets_memory_of_its_own(update):
    expected = update(Tensor(numbers(8, 8))).numpy()
    x = Tensor(numbers(8, 8))
    before = address(x)
    x = update(x)

    replace(x)

    assert address(x) != before
    np.testing.assert_array_equal(x.numpy(), expected)


# Too little memory.
@pytest.fixture
def limit(monkeypatch):
    """Set how many more bytes the CPU's memory may reserve in large blocks."""
    take = HostMemory.take

    def set_limit(limit_bytes):
        gc.collect()
        source = Device["CPU"].allocator.source
        Device["CPU"].allocator.release_cached()
        most = source.reserved_bytes + limit_bytes

        def take_less(self, nbytes):
            return None if self.reserved_bytes + nbytes > most else take(self, nbytes)

        monkeypatch.setattr(HostMemory, "take", take_less)

    return set_limit


def test_too_little_memory_names_what_is_large_and_loses_nothing(limit):
    x = Tensor(numbers(1024, 1024))
    other = (x * 0.5).realize()
    y = x.T + 1.0
    limit(3 << 20)

    with pytest.raises(DeviceError) as caught:
        y.realize()

    told = str(caught.value)
    assert "4194304 bytes asked for" in told
    assert "asked for add f32[1024,1024]" in told
    assert "4194304 bytes: float32 (1024, 1024)" in told
    assert "test_realize_memory.py" in told
    assert other.numpy()[0, 1] == 1.0
    del other  # the error is still held, and keeps no memory
    np.testing.assert_array_equal(y.numpy()[0, :2], [2.0, 1026.0])


def test_too_little_memory_in_a_schedule_that_replaces_a_leaf_loses_nothing(limit):
    x = Tensor(numbers(1024, 1024))
    x = (x @ x.T).sum(1, keepdim=True) * 1e-12 + x
    limit(3 << 20)

    with pytest.raises(DeviceError, match="out of memory"):
        replace(x)

    np.testing.assert_array_equal(leaf_values(x), numbers(1024, 1024))


def leaf_values(tensor):
    return Tensor._made(leaf_below(tensor.cell.uop), "CPU").numpy()


def test_the_peak_can_be_reset():
    device = Device["CPU"]
    (Tensor(numbers(512, 512)) + 1.0).realize()

    device.reset_peak()

    assert device.memory().peak == device.memory().allocated
