"""A result takes a leaf's memory when nobody can read the leaf; too little memory loses nothing."""

import gc

import numpy as np
import pytest

from tinytensor import Device, Tensor, config, no_grad
from tinytensor.errors import DeviceError
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.realize import storage_of
from tinytensor.runtime.host import HostMemory


@pytest.fixture(autouse=True, params=[False, True], ids=["plain", "stress"])
def stress(request):
    with config(stress=request.param):
        yield


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def address(tensor):
    return storage_of(tensor.realize().cell.leaf).address


def doubled(x):
    x *= 2.0
    x += 1.0
    return x


def test_an_update_in_place_stays_in_its_memory():
    x = Tensor(numbers(8, 9))
    before = address(x)

    x *= 2.0

    assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) * 2)


def test_each_update_of_the_same_structure_does():
    x = Tensor(numbers(8, 9))
    before = address(x)

    for _ in range(3):
        x += 1.0
        x.realize()

    assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) + 3)


def test_a_value_that_only_earlier_kernels_read_is_replaced():
    x = Tensor(numbers(8, 9))
    before = address(x)

    x.copy_(x.softmax(1).sum(1, keepdim=True).expand(8, 9) * 2.0)

    with config(fuse=1):  # else one row kernel does it all
        assert address(x) == before
    # 8 additions of what divides and 8 of the quotients, each of which is rounded once.
    np.testing.assert_allclose(x.numpy(), np.full((8, 9), 2), rtol=17 * 2.0**-24)


def test_values_that_depend_on_one_another_are_replaced_together():
    x, y = Tensor(numbers(8, 8)), Tensor(numbers(8, 8) + 1)
    places = {address(x), address(y)}
    x -= y * 0.5
    y += x * 0.5

    x.realize(y)

    a, b = numbers(8, 8), numbers(8, 8) + 1
    np.testing.assert_array_equal(x.numpy(), a - b * 0.5)
    np.testing.assert_array_equal(y.numpy(), b + (a - b * 0.5) * 0.5)
    assert places & {address(x), address(y)}


def test_a_step_along_a_gradient_stays_in_the_memory_of_the_parameter():
    weight = Tensor(numbers(8, 8), requires_grad=True)
    before = storage_of(weight.realize().cell.leaf).address
    (weight * weight).sum().backward()

    with no_grad():
        weight -= weight.grad * 0.25
    gradient, weight.grad = weight.grad, None
    weight.realize(gradient)

    assert storage_of(weight.cell.leaf).address == before
    np.testing.assert_array_equal(weight.detach().numpy(), numbers(8, 8) / 2)
    np.testing.assert_array_equal(gradient.numpy(), numbers(8, 8) * 2)


def keep_the_value(x):
    return x.clone().realize()


def keep_a_pending_reader(x):
    return x.exp()


def keep_a_value_in_between(x):
    return x * 2.0


def keep_an_equal_expression(x):
    return x * 2.0 + 1.0


def keep_a_reshaped_value(x):
    flat = x.clone().reshape(-1)
    return flat.realize()


KEEPERS = [
    keep_the_value,
    keep_a_pending_reader,
    keep_a_value_in_between,
    keep_an_equal_expression,
    keep_a_reshaped_value,
]


@pytest.mark.parametrize("keep", KEEPERS)
def test_what_somebody_can_still_read_is_not_replaced(keep):
    x = Tensor(numbers(8, 9))
    expected = keep(Tensor(numbers(8, 9))).numpy()
    kept = keep(x)

    doubled(x).realize()

    np.testing.assert_array_equal(x.numpy(), numbers(8, 9) * 2 + 1)
    np.testing.assert_array_equal(kept.numpy(), expected)


def test_what_two_cells_hold_is_not_replaced():
    x = Tensor(numbers(8, 9))
    y, z = x + 1.0, x + 1.0
    before = {address(y), address(z)}

    y += 1.0

    assert before == {address(z)}
    assert address(y) not in before
    np.testing.assert_array_equal(z.numpy(), numbers(8, 9) + 1)


def test_what_another_cell_holds_is_not_replaced_by_what_was_built_before_it_was_computed():
    x = Tensor(numbers(8, 9))
    y = x + 1.0
    negative = y * -1.0
    z = y + 0.0
    z.copy_(y)
    z.realize(y)

    y.copy_(negative)

    np.testing.assert_array_equal(y.numpy(), -numbers(8, 9) - 1)
    np.testing.assert_array_equal(z.numpy(), numbers(8, 9) + 1)


def test_what_two_cells_held_is_replaced_once():
    x = Tensor(numbers(8, 9))
    y, z = x + 1.0, x + 1.0
    y.realize(z)

    y += 1.0
    z += 2.0
    y.realize(z)

    assert address(y) != address(z)
    np.testing.assert_array_equal(y.numpy(), numbers(8, 9) + 2)
    np.testing.assert_array_equal(z.numpy(), numbers(8, 9) + 3)


def test_what_a_root_that_keeps_its_expression_needs_is_not_replaced():
    x, weight = Tensor(numbers(8, 9)), Tensor(numbers(8, 9), requires_grad=True)
    before = address(x)
    loss = (x * weight).sum()
    x += 1.0

    x.realize(loss)
    loss.backward()

    assert address(x) != before
    np.testing.assert_array_equal(weight.grad.numpy(), numbers(8, 9))


def test_a_running_sum_replaces_what_it_is_of():
    x = Tensor(numbers(32, 32))
    before = address(x)

    x.copy_(x.cumsum(0))

    assert address(x) == before
    np.testing.assert_array_equal(x.numpy(), numbers(32, 32).cumsum(0))


@pytest.mark.parametrize("update", [lambda x: x @ x, lambda x: x.flip(0) + x, lambda x: x.T - x])
def test_a_kernel_that_reads_more_than_it_overwrites_gets_memory_of_its_own(update):
    expected = update(Tensor(numbers(32, 32))).numpy()
    x = Tensor(numbers(32, 32))
    before = address(x)

    x.copy_(update(x))

    assert address(x) != before
    np.testing.assert_array_equal(x.numpy(), expected)


def test_random_updates_of_views_are_as_in_numpy(seed):
    random = np.random.default_rng(seed)
    arrays = [numbers(6, 6).astype(np.int64), numbers(6, 6).astype(np.int64)]
    tensors = [Tensor(each) for each in arrays]
    kept, copies = [], []
    for _ in range(60):
        x, y = random.integers(0, 2, 2)
        a, b = tensors[x], tensors[y]
        begin = int(random.integers(0, 5))
        which = random.integers(0, 6)
        if which == 0:
            a *= 3
            arrays[x] *= 3
        elif which == 1:
            a[begin:] += b[:1]
            arrays[x][begin:] += arrays[y][:1].copy()
        elif which == 2:
            a.T.copy_(b)
            arrays[x][...] = arrays[y].T.copy()
        elif which == 3:
            a -= b.sum(0) * 5
            arrays[x] -= arrays[y].sum(0) * 5
        elif which == 4:
            kept.append(a[begin] * 1)
            copies.append(arrays[x][begin].copy())
        else:
            a.realize(b)
    for x, y in zip([*tensors, *kept], [*arrays, *copies], strict=True):
        np.testing.assert_array_equal(x.numpy(), y)  # whole numbers wrap alike


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
    address(x)
    x += (x @ x.T).sum(1, keepdim=True).expand(1024, 1024).T.contiguous() * 0.0
    limit(1 << 20)

    with pytest.raises(DeviceError, match="out of memory"):
        x.realize()

    below = next(each for each in walk([x.cell.uop]) if each.op is Op.BUFFER)
    np.testing.assert_array_equal(Tensor._made(below, "CPU").numpy(), numbers(1024, 1024))


def test_the_peak_can_be_reset():
    device = Device["CPU"]
    (Tensor(numbers(512, 512)) + 1.0).realize()

    device.reset_peak()

    assert device.memory().peak == device.memory().allocated
