"""Gradients are PyTorch's, op by op, on values that hurt."""

import math

import numpy as np
import pytest

from tinytensor import Tensor, autograd, dtypes
from tinytensor.nn import functional

torch = pytest.importorskip("torch")

inf, nan = math.inf, math.nan
RNG = np.random.default_rng(7)
PLAIN = RNG.uniform(-2, 2, (2, 3, 4))
POSITIVE = RNG.uniform(0.2, 3, (2, 3, 4))
TIES = np.array([[1.0, 2.0, 2.0, -1.0], [0.0, 0.0, -0.0, 0.0], [3.0, nan, 3.0, 1.0]])
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf, nan, 800.0, -800.0])
ONES = np.ones(3)


def gradients(function, arrays, name="float64", second=False, device="PYTHON"):
    """The gradients of a weighted sum of a function: ours, and PyTorch's."""
    dtype = getattr(dtypes, name)
    ours = [Tensor(each, dtype=dtype, device=device, requires_grad=True) for each in arrays]
    theirs = [torch.tensor(each, dtype=getattr(torch, name), requires_grad=True) for each in arrays]
    y, torch_y = function(ours), function(theirs)
    shape = tuple(torch_y.shape)
    weights = np.cos(np.arange(math.prod(shape))).reshape(shape)
    upstream = Tensor(weights, dtype=y.dtype, device=device)
    torch_upstream = torch.tensor(weights, dtype=torch_y.dtype)
    if not second:
        y.backward(upstream)
        torch_y.backward(torch_upstream)
    else:
        found = autograd.grad(y, ours, upstream, create_graph=True)
        torch_found = torch.autograd.grad(torch_y, theirs, torch_upstream, create_graph=True)
        sum((g * g.sin()).sum() for g in found).backward()
        sum((g * g.sin()).sum() for g in torch_found).backward()
    return ours, theirs


def assert_gradients(function, arrays, name="float64", roundings=64, second=False, device="PYTHON"):
    ours, theirs = gradients(function, arrays, name, second, device)
    for x, torch_x in zip(ours, theirs, strict=True):
        expected = torch.zeros_like(torch_x) if torch_x.grad is None else torch_x.grad
        result = x.zeros_like() if x.grad is None else x.grad
        assert (result.dtype.name, result.shape) == (name, tuple(expected.shape))
        wide = expected.double().numpy()
        size = np.max(np.abs(wide), initial=0, where=np.isfinite(wide))
        bound = roundings * result.dtype.epsilon
        np.testing.assert_allclose(
            result.numpy().astype(np.float64), wide, rtol=bound, atol=bound * size
        )


UNARY = {
    "neg": lambda x: -x,
    "abs": abs,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tanh": lambda x: x.tanh(),
    "erf": lambda x: x.erf(),
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "reciprocal": lambda x: x.reciprocal(),
    "sigmoid": lambda x: x.sigmoid(),
    "relu": lambda x: x.relu(),
    "square": lambda x: x.square(),
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "round": lambda x: x.round(),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_low": lambda x: x.clamp(min=0),
    "clamp_high": lambda x: x.clamp(max=1),
    "cube": lambda x: x**3,
    "inverse square": lambda x: x**-2,
    "root": lambda x: x**0.5,
    "high power": lambda x: x**2.5,
    "no power": lambda x: x**0,
    "exponential": lambda x: 2**x,
    "plus": lambda x: 1.5 + x,
    "minus": lambda x: 1.5 - x,
    "times": lambda x: x * 3,
    "over": lambda x: 2 / x,
    "self": lambda x: x * x + x / x,
}
SMOOTH = ["exp", "log", "sin", "cos", "tanh", "erf", "sqrt", "rsqrt", "reciprocal", "sigmoid"]
SMOOTH += ["square", "cube", "high power", "exponential", "inverse square", "over", "self"]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("values", [PLAIN, EDGES], ids=["plain", "edges"])
def test_functions_of_one(op, values):
    assert_gradients(lambda xs: UNARY[op](xs[0]), [values])


@pytest.mark.parametrize("op", SMOOTH)
def test_second_derivatives(op):
    assert_gradients(lambda xs: UNARY[op](xs[0]), [POSITIVE], second=True, roundings=512)


def named(name, *places):
    """The function of that name in the first place that has it."""
    return next(getattr(place, name) for place in places if hasattr(place, name))


@pytest.mark.parametrize("name", ["silu", "gelu", "softplus", "elu"])
def test_activations(name):
    ours, theirs = named(name, Tensor, functional), getattr(torch.nn.functional, name)
    values = np.array([-800.0, -3.0, -1.0, 0.25, 2.0, 800.0])

    assert_gradients(lambda xs: (ours if isinstance(xs[0], Tensor) else theirs)(xs[0]), [values])


WRITTEN_OUT = ["exp2", "expm1", "log2", "log10", "log1p", "tan", "asin", "acos", "atan", "sinh"]
WRITTEN_OUT += ["cosh", "sign", "frac", "logsigmoid", "softsign", "mish", "leaky_relu", "deg2rad"]


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_functions_that_are_written_out(name):
    def called(xs):
        places = (torch, torch.nn.functional)
        if isinstance(xs[0], Tensor):
            places = (Tensor, functional)
        return named(name, *places)(xs[0])

    assert_gradients(called, [EDGES])


@pytest.mark.parametrize("name", ["atan2", "fmod"])
def test_functions_of_two_that_are_written_out(name):
    x, y = np.meshgrid([0.0, -0.0, 1.0, -1.0, 2.5, -2.5], [0.0, -0.0, 1.0, -1.0, 3.0])

    assert_gradients(lambda xs: getattr(xs[0], name)(xs[1]), [x, y])


def test_norms():
    assert_gradients(lambda xs: xs[0].norm(), [PLAIN])
    assert_gradients(lambda xs: xs[0].norm(), [np.zeros(3)])


@pytest.mark.parametrize("p", [-1, 0.5, 1.5, 3])
def test_p_norms(p):
    """1 is a number like others: its powers do not stand still."""
    matrix = np.array([[1.0, 2.0, -0.5], [0.0, -1.0, 3.0], [0.0, 0.0, 0.0]])
    assert_gradients(lambda xs: xs[0].norm(p, dim=1), [matrix])
    assert_gradients(lambda xs: xs[0].norm(p, dim=1), [matrix[:2] + 4], second=True)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pools_of_equal_elements(name):
    def pooled(xs):
        library = functional if isinstance(xs[0], Tensor) else torch.nn.functional
        return getattr(library, name)(xs[0], 3, 2, 1)

    assert_gradients(pooled, [np.round(RNG.standard_normal((2, 2, 7, 6)))])


SLIDES = [
    {"stride": 2, "padding": 1, "groups": 2},
    *[{"padding": (2, 1)}, {"dilation": (2, 1)}, {"padding": 3, "dilation": 2}],
    *[{"stride": (3, 2)}, {"stride": 4, "padding": 2}, {"stride": (1, 2), "dilation": (2, 1)}],
    {"stride": (2, 1), "dilation": 2, "padding": 1},
]


def convolution(options):
    def convolved(xs):
        library = functional if isinstance(xs[0], Tensor) else torch.nn.functional
        return library.conv2d(*xs, **options)

    return convolved


@pytest.mark.parametrize("options", SLIDES, ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (2, 1)], ids=str)
def test_convolutions(kernel, options):
    groups = options.get("groups", 1)
    shapes = ((2, 4, 7, 6), (6, 4 // groups, *kernel), (6,))
    arrays = [RNG.standard_normal(shape) for shape in shapes]

    assert_gradients(convolution(options), arrays)
    assert_gradients(convolution(options), arrays, second=True, roundings=4096)
    assert_gradients(convolution(options), arrays, "float32", device="CPU")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["exp", "tanh", "sqrt", "sigmoid", "over", "cube"])
def test_halves_are_within_two_of_their_own_roundings(op, name):
    assert_gradients(lambda xs: UNARY[op](xs[0]), [POSITIVE], name, roundings=4)


BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "remainder": lambda x, y: x % y,
    "maximum": lambda x, y: x.maximum(y),
    "minimum": lambda x, y: x.minimum(y),
    "clamp": lambda x, y: x.clamp(y, 1 - y),
    "where": lambda x, y: x.where(y > 0.5, y),
}


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3))], ids=str
)
def test_functions_of_two_broadcast(op, shapes):
    arrays = [RNG.uniform(0.5, 4, shape) for shape in shapes]

    assert_gradients(lambda xs: BINARY[op](*xs), arrays)


@pytest.mark.parametrize("op", ["mul", "div", "maximum", "minimum", "clamp"])
def test_functions_of_two_at_edges(op):
    x, y = np.meshgrid(EDGES[:9], EDGES[:9])

    assert_gradients(lambda xs: BINARY[op](*xs), [x, y])


VIEWS = {
    "reshape": lambda x: x.reshape(4, 6),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "expand": lambda x: x[:1].expand(5, 3, 4),
    "step": lambda x: x[1:, ::2, 1::3],
    "steps": lambda x: x[:, ::2, ::3],
    "one": lambda x: x[1, -1],
    "nothing": lambda x: x[2:],
    "flip": lambda x: x.flip(0, 2),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1).flatten(1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view):
    assert_gradients(lambda xs: VIEWS[view](xs[0]), [PLAIN])


def test_pad_and_crop():
    pads = (1, 2, -1, 3)
    ours, theirs = Tensor.pad, torch.nn.functional.pad

    assert_gradients(
        lambda xs: (ours if isinstance(xs[0], Tensor) else theirs)(xs[0], pads, value=nan), [PLAIN]
    )


@pytest.mark.parametrize("join", ["cat", "stack"])
def test_joins(join):
    def joined(xs):
        library = Tensor if isinstance(xs[0], Tensor) else torch
        return getattr(library, join)([xs[0], xs[1], xs[0]], 1)

    assert_gradients(joined, [PLAIN, POSITIVE])


FOLDS = {
    "sum": lambda x: x.sum(),
    "sum of some": lambda x: x.sum((0, -1)),
    "sum kept": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(-1),
    "prod": lambda x: x.prod(),
    "prod of some": lambda x: x.prod(1),
    "var": lambda x: x.var(-1),
    "population var": lambda x: x.var((0, 1), correction=0),
    "std": lambda x: x.std(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(),
    "max along": lambda x: x.max(-1).values,
    "min along": lambda x: x.min(0).values,
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
}


@pytest.mark.parametrize("fold", FOLDS)
def test_folds(fold):
    assert_gradients(lambda xs: FOLDS[fold](xs[0]), [PLAIN])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("fold", ["sum", "mean", "var", "softmax", "log_softmax", "amax", "prod"])
def test_folds_of_halves(fold, name):
    assert_gradients(lambda xs: FOLDS[fold](xs[0]), [POSITIVE], name, roundings=8)


@pytest.mark.parametrize("fold", ["amax", "max along", "logsumexp", "softmax"])
def test_folds_with_ties_and_nan(fold):
    assert_gradients(lambda xs: FOLDS[fold](xs[0]), [TIES])


@pytest.mark.parametrize("fold", ["prod of some", "var", "std", "softmax", "logsumexp"])
def test_second_derivatives_of_folds(fold):
    assert_gradients(lambda xs: FOLDS[fold](xs[0]), [POSITIVE], second=True, roundings=2048)


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0], [0.0, 2.0, 0.0], [2.0, 3.0, 4.0]])
def test_products_with_zeros(values):
    assert_gradients(lambda xs: xs[0].prod(), [values])
    assert_gradients(lambda xs: (xs[0] * xs[1]).prod(), [values, ONES], second=True)


def test_infinite_scores():
    values = [[-inf, 0.0, 1.0], [inf, 1.0, 2.0], [-inf, -inf, -inf]]

    assert_gradients(lambda xs: xs[0].logsumexp(-1), [values])
    assert_gradients(lambda xs: xs[0].softmax(-1), [values[:1]])


def test_the_spread_of_equal_numbers():
    assert_gradients(lambda xs: xs[0].std(), [ONES])


@pytest.mark.parametrize(
    "shapes",
    [
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 2)),
        ((3, 4), (4, 2)),
        ((5, 3, 4), (4, 2)),
        ((5, 3, 4), (5, 4, 2)),
        ((5, 1, 3, 4), (6, 4, 2)),
        ((4,), (5, 4, 2)),
        ((5, 3, 4), (4,)),
    ],
    ids=str,
)
def test_products_of_matrices(shapes):
    assert_gradients(
        lambda xs: xs[0] @ xs[1], [RNG.standard_normal(shape) for shape in shapes], device="CPU"
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_products_of_half_matrices_are_rounded_once(name):
    arrays = [RNG.standard_normal((17, 33)), RNG.standard_normal((33, 9))]

    assert_gradients(lambda xs: xs[0] @ xs[1], arrays, name, roundings=2, device="CPU")


def test_casts():
    assert_gradients(lambda xs: mixed(xs[0]), [PLAIN], "float32")


def mixed(x):
    halves = x.half()
    return (halves * halves).double() + x.sin().float()


def test_the_safe_and_the_plain_where():
    def safe(x, library):
        inside = library.where(x != 0, x, library.ones_like(x))
        return library.where(x == 0, library.zeros_like(x), inside * inside.sqrt())

    x = torch.tensor([0.0, 4.0], requires_grad=True)
    safe(x, torch).sum().backward()
    y = Tensor([0.0, 4.0], requires_grad=True)
    inside = y.where(y != 0, 1.0)
    (inside * inside.sqrt()).where(y != 0, 0.0).sum().backward()

    assert y.grad.tolist() == x.grad.tolist() == [0.0, 3.0]
    assert_gradients(lambda xs: plain(xs[0]), [[0.0, 4.0]])


def plain(x):
    root = x * x.sqrt()
    return root.where(x != 0, x * 0)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_least_quotient_is_found_again(name):
    x = np.array([[3.0, 1.0, 7.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    y = np.array([[1.0, 1 / 3, 7.0, 1.0], [2.0, 3.0, 2.0, 2.0]])

    assert_gradients(lambda xs: (xs[1] / xs[0]).amin(1), [x, y], name, roundings=4)


def test_a_network_learns_as_in_pytorch():
    rng = np.random.default_rng(3)
    shapes = [(8, 16), (16,), (16, 12), (12,), (12, 1), (1,)]
    arrays = [rng.standard_normal(shape).astype(np.float32) * 0.4 for shape in shapes]
    x = rng.standard_normal((32, 8)).astype(np.float32)
    target = np.sin(x.sum(1, keepdims=True)).astype(np.float32)

    ours = losses_of(
        [Tensor(each, requires_grad=True) for each in arrays], Tensor(x), Tensor(target)
    )
    theirs = [torch.tensor(each, requires_grad=True) for each in arrays]
    expected = losses_of(theirs, torch.tensor(x), torch.tensor(target))

    # 50 steps, each of which repeats the rounding of sums of 32 terms about six times.
    np.testing.assert_allclose(ours, expected, rtol=50 * 6 * 32 * 2.0**-24)
    assert expected[-1] < expected[0] / 4


def losses_of(parameters, x, target, steps=50, rate=0.05):
    losses = []
    for _ in range(steps):
        w, a, v, b, u, c = parameters
        hidden = ((x @ w + a).tanh() @ v + b).relu()
        difference = hidden @ u + c - target
        loss = (difference * difference).mean()
        loss.backward()
        stepped = [(each - rate * each.grad).detach() for each in parameters]
        parameters = [each.requires_grad_() for each in stepped]
        losses.append(loss.item())
        if isinstance(loss, Tensor):
            parameters[0].realize(*parameters[1:])
    return losses
