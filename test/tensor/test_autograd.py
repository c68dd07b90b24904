"""Gradients are lazy values: against finite differences, and by the rules of leaves and modes."""

import asyncio
import gc
import math
import threading

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import (
    Tensor,
    autograd,
    config,
    dtypes,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk

RNG = np.random.default_rng(11)
STEP = 2.0**-17


def leaf(values, dtype=dtypes.float64, device="PYTHON"):
    return Tensor(values, dtype=dtype, device=device, requires_grad=True)


FUNCTIONS = {
    "arithmetic": lambda x, y: x * y - x / y + (x - 2) / 3,
    "remainder": lambda x, y: (x + 7) % (y + 8),
    "extremes": lambda x, y: x.maximum(y) + x.minimum(y) * 2,
    "functions": lambda x, y: x.exp() + y.log() + x.sin() * y.cos() + x.tanh() + y.erf(),
    "roots": lambda x, y: x.sqrt() + y.rsqrt() + y**-0.5,
    "powers": lambda x, y: x**3 + x**2.5 + x**y,
    "activations": lambda x, y: x.sigmoid() + y.silu() + (x - 1).relu() + x.gelu() + y.gelu("tanh"),
    "where": lambda x, y: x.where(x < y, y * y),
    "views": lambda x, y: x.flip(1).transpose(0, 1)[1:, ::2].reshape(-1) * y[0, 1],
    "border": lambda x, y: x.pad((1, 2, -1, 1), value=3.0) ** 2 + y.pad((1, 2, 0, 0)),
    "joins": lambda x, y: Tensor.cat([x, y * y], 1).exp(),
    "sums": lambda x, y: (x.sum(0) * y.mean(1, keepdim=True)).exp(),
    "products": lambda x, y: x.prod(1) + y.prod(),
    "greatest": lambda x, y: x.amax(1) + y.min(0).values.sum(),
    "spread": lambda x, y: x.var(1) + y.std(),
    "softmax": lambda x, y: x.softmax(1) * y.log_softmax(0) + x.logsumexp(1, keepdim=True),
    "matrices": lambda x, y: (x @ y.T).exp(),
    "expanded": lambda x, y: x[:, :1].expand(3, 4) * y,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_slopes(name):
    """By central differences: the third derivatives are below 1000, so that is the error's size."""
    function = FUNCTIONS[name]
    arrays = RNG.uniform(0.5, 1.5, (2, 3, 4))
    ways = RNG.uniform(-1, 1, arrays.shape)
    x, y = map(leaf, arrays)

    function(x, y).sum().backward()

    slope = sum(float((t.grad.numpy() * way).sum()) for t, way in zip((x, y), ways, strict=True))
    ends = [function(*map(Tensor, arrays + step * ways)).numpy() for step in (STEP, -STEP)]
    expected = float((ends[0] - ends[1]).sum()) / (2 * STEP)
    size = float(np.abs(ends).sum())
    assert abs(slope - expected) <= 1000 * STEP**2 + size * 2.0**-50 / STEP


def test_gradients_add_up_until_they_are_taken_away():
    x = leaf([1.0, 2.0])

    (x * 3).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]

    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_gradient_is_a_leaf_without_one_of_its_own():
    x = leaf([1.0])
    (x * x).backward()

    assert x.grad.is_leaf
    assert not x.grad.requires_grad


def test_nothing_is_computed_until_a_gradient_is_read():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()

    y.backward()

    assert x.grad.cell.leaf is None
    assert y.cell.leaf is None


def test_a_realized_forward_keeps_its_gradient():
    x = leaf([1.0, 2.0])
    y = x * x
    z = (y * y).sum()
    y.realize(z)

    z.backward()

    assert x.grad.tolist() == [4.0, 32.0]


def test_a_value_computed_before_is_read_by_the_gradient():
    x = leaf(np.ones((4, 4)))
    y = (x @ x).exp()
    y.realize()
    y.sum().backward()

    assert Op.EXP not in launched_ops(x.grad)
    assert x.grad.tolist() == pytest.approx(np.full((4, 4), 8 * math.exp(4)), rel=1e-14)


def launched_ops(tensor):
    """The ops of all kernels that are launched to compute a tensor."""
    launched = []
    with pytest.MonkeyPatch.context() as patch, config(debug=1):
        patch.setattr("tinytensor.report.show_schedule", lambda *_: None)
        patch.setattr("tinytensor.report.print_launch", lambda k, *_: launched.append(k.sink))
        tensor.realize()
    return {node.op for node in walk(launched)}


def test_leaves_of_equal_values_stay_apart():
    x, y = (Tensor.zeros(2, requires_grad=True) for _ in range(2))

    (x * 2 + y * 3).sum().backward()

    assert x.grad.tolist() == [2.0, 2.0]
    assert y.grad.tolist() == [3.0, 3.0]


def test_a_leaf_is_the_same_before_and_after_it_is_computed():
    x = Tensor.ones(2, requires_grad=True)
    before = x * 2
    x.realize()
    after = x * 3

    (before + after).sum().backward()

    assert x.uop.operands[0].op is Op.BUFFER
    assert x.grad.tolist() == [5.0, 5.0]


def test_training_does_not_remember_former_steps():
    w = leaf(np.ones((3, 3)))
    sizes = set()
    for _ in range(4):
        loss = (w @ w).tanh().sum()
        loss.backward()
        w = (w - 0.1 * w.grad).detach().requires_grad_()
        w.realize(loss)
        gc.collect()
        sizes.add(len(walk([(w @ w).uop])))

    assert len(sizes) == 1


def test_every_step_of_training_uses_one_schedule(monkeypatch):
    scheduled = []
    inner = __import__("tinytensor.planning", fromlist=["schedule"]).schedule

    def counted(*args):
        scheduled.append(args)
        return inner(*args)

    monkeypatch.setattr("tinytensor.planning.schedule", counted)
    w = Tensor(np.full((3, 5), 0.5, np.float32), requires_grad=True).realize()
    for _ in range(3):
        (w * 0.71 + 0.3).tanh().sum().backward()
        w = (w - 0.1 * w.grad).detach().requires_grad_().realize()

    assert len(scheduled) == 1


# Modes.
def test_results_under_no_grad_require_no_gradient():
    x = leaf([1.0])
    with no_grad():
        y = x * 2
        assert not is_grad_enabled()
        with enable_grad():
            z = x * 2

    assert (y.requires_grad, z.requires_grad, x.requires_grad) == (False, True, True)
    assert is_grad_enabled()


def test_modes_decorate_functions():
    x = leaf([1.0])

    @no_grad()
    def called(x):
        return x * 2

    doubled = no_grad(called)(x)
    inferred = inference_mode()(lambda: x * 2)()

    assert not (called(x).requires_grad or doubled.requires_grad or inferred.requires_grad)
    assert is_grad_enabled()


def test_a_mode_that_is_set_stays_until_it_is_set_again():
    set_grad_enabled(False)
    off = is_grad_enabled()
    set_grad_enabled(True)
    with set_grad_enabled(False):
        inside = is_grad_enabled()

    assert (off, inside, is_grad_enabled()) == (False, False, True)


def test_a_mode_is_of_one_thread():
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()

    assert seen == [True]


def test_a_mode_is_of_one_task():
    seen = []

    async def switched():
        with no_grad():
            await asyncio.sleep(0)
            seen.append(is_grad_enabled())

    async def plain():
        await asyncio.sleep(0)
        seen.append(is_grad_enabled())

    async def both():
        await asyncio.gather(switched(), plain())

    asyncio.run(both())

    assert seen == [False, True]


def test_a_tensor_made_under_no_grad_may_be_a_leaf():
    with no_grad():
        x = leaf([2.0])

    (x * x).backward()

    assert x.grad.tolist() == [4.0]


# Leaves.
def test_what_a_result_requires_is_what_goes_into_it():
    x, y = leaf([1.0, 2.0]), Tensor([1.0, 2.0], dtype=dtypes.float64, device="PYTHON")

    assert (x * y).requires_grad
    assert not (y * 2).requires_grad
    assert not (x > y).requires_grad
    assert not x.long().requires_grad
    assert not x.argmax().requires_grad
    assert not x.detach().requires_grad
    assert not Tensor(x).requires_grad


def test_leaves_are_what_the_user_made():
    x = leaf([1.0])
    y = x * 2

    assert (x.is_leaf, y.is_leaf, y.detach().is_leaf, x.reshape(1).is_leaf) == (
        *(True, False, True, False),
    )


def test_a_detached_value_is_a_constant_to_gradients():
    x = leaf([3.0])
    y = x * x

    (y.detach() * x).backward()

    assert x.grad.tolist() == [9.0]


def test_requires_grad_can_be_set_on_leaves():
    x = Tensor([1.0, 2.0])
    before = x * 2
    x.requires_grad = True
    assert not before.requires_grad
    assert (x * 2).requires_grad

    x.requires_grad_(False)
    assert not x.requires_grad


def test_a_name_that_is_bound_again_has_the_leaf_no_more():
    x = leaf([1.0, 2.0])
    x = x * 2
    x.sum().backward()

    assert x.grad is None


# Kinds of faults.
def test_ties_share_and_a_chosen_index_takes_all():
    x = leaf([[1.0, 5.0, 5.0]])

    (shared,) = autograd.grad(x.amax(1), x)
    (chosen,) = autograd.grad(x.max(1).values, x)

    assert shared.tolist() == [[0.0, 0.5, 0.5]]
    assert chosen.tolist() == [[0.0, 1.0, 0.0]]


def test_a_product_with_zeros_has_a_gradient():
    x = leaf([[0.0, 2.0, 5.0], [0.0, 0.0, 3.0]])
    x.prod(1).sum().backward()

    assert x.grad.tolist() == [[10.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_a_branch_not_taken_gives_no_nan_if_it_is_safe(device):
    x = leaf([0.0, 4.0], dtypes.float32, device)
    inside = x.where(x != 0, 1.0)

    (safe,) = autograd.grad((inside * inside.sqrt()).where(x != 0, 0.0).sum(), x)
    (plain,) = autograd.grad((x * x.sqrt()).where(x != 0, 0.0).sum(), x)

    assert safe.tolist() == [0.0, 3.0]
    np.testing.assert_array_equal(plain.numpy(), [math.nan, 3.0])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16])
@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_the_least_quotient_is_found_again_in_its_gradient(dtype, device):
    x = leaf([[3.0, 6.0, 7.0], [1.0, 2.0, 1.0]], dtype, device)
    y = leaf([[1.0, 2.0, 7.0], [4.0, 4.0, 2.0]], dtype, device)

    (y / x).amin(1).sum().backward()

    expected = [[1 / 6, 1 / 12, 0.0], [0.0, 0.25, 0.5]]
    np.testing.assert_allclose(y.grad.numpy(), expected, rtol=dtype.epsilon)


def test_a_product_of_nothing_has_an_empty_gradient():
    x = leaf(np.zeros((2, 0)))
    x.prod(1).sum().backward()

    assert x.grad.tolist() == [[], []]


def test_the_gradient_of_a_half_product_is_a_contraction():
    a, b = (Tensor.ones(*shape, dtype=dtypes.float16) for shape in ((24, 40), (40, 56)))
    a.realize(b)
    a.requires_grad_()
    b.requires_grad_()
    out = a @ b
    out.backward(Tensor.ones(24, 56, dtype=dtypes.float16).realize())

    kernels = kernels_of(a.grad, b.grad)

    assert [each.contraction is not None for each in kernels] == [True, True]


def test_saturated_functions_have_a_gradient_of_zero():
    x = leaf([-1000.0, 1000.0])

    assert autograd.grad(x.sigmoid().sum(), x)[0].tolist() == [0.0, 0.0]
    assert autograd.grad(x.silu().sum(), x)[0].tolist() == [0.0, 1.0]
    assert autograd.grad(x.softmax(0)[0], x)[0].tolist() == [0.0, 0.0]


def test_a_gradient_comes_home_to_another_device():
    x = Tensor.ones(2, device="PYTHON", requires_grad=True)
    y = Tensor([1.0, 2.0], device="PYTHON", requires_grad=True)
    weights = Tensor([3.0, 4.0], device="CPU")

    ((x * y).to("CPU") * weights).sum().backward()
    (x.to("CPU") * weights).sum().backward()

    assert (x.grad.device, x.grad.tolist()) == ("PYTHON", [6.0, 12.0])
    assert (y.grad.device, y.grad.tolist()) == ("PYTHON", [3.0, 4.0])


def test_a_long_chain_is_differentiated():
    x = leaf([1.0])
    y = x
    for _ in range(20_000):
        y = y * 1.0 + 0.0

    (found,) = autograd.grad(y, x)

    assert found.cell.leaf is None
    assert found.dtype is dtypes.float64
