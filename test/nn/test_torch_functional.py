"""The functions that layers apply are PyTorch's: values, shapes, options and error classes."""

import itertools

import numpy as np
import pytest

from tinytensor.config import config
from tinytensor.nn import functional
from tinytensor.tensor.tensor import Tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of what will change there

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _python_device():
    with config(device="PYTHON"):
        yield


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def outcome(call):
    """What a call gives: a result, or the error it raises."""
    try:
        return call()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return error


def convert(make, value):
    return make(value) if isinstance(value, np.ndarray) else value


def check(name, *arguments, **options):
    """Both functions give the same, within what float32 sums of these few numbers may differ."""
    results = []
    for module, make in ((functional, Tensor), (torch.nn.functional, torch.tensor)):
        given = [convert(make, each) for each in arguments]
        named = {key: convert(make, each) for key, each in options.items()}
        results.append(outcome(lambda m=module, g=given, n=named: getattr(m, name)(*g, **n)))
    ours, theirs = results
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception)
        assert isinstance(ours, type(theirs)), repr(ours)
        return
    assert not isinstance(ours, Exception), repr(ours)
    assert (ours.dtype.name, ours.shape) == (str(theirs.dtype)[6:], tuple(theirs.shape))
    # Sums of at most 64 terms of size 10, each rounded a few times in any order.
    epsilon = 2.0**-23
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=64 * epsilon, atol=64 * epsilon)


CONVOLUTIONS = [
    *[{}, {"stride": 2}, {"padding": 1}, {"padding": (2, 1), "stride": (2, 3)}, {"dilation": 2}],
    *[{"padding": "same"}, {"padding": "same", "dilation": 2}, {"padding": "same", "stride": 2}],
    {"stride": 2, "padding": 1, "dilation": (1, 2)},
]


@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (2, 3), (1, 1)], ids=str)
def test_conv2d(kernel, options):
    check("conv2d", floats(2, 3, 9, 8), floats(4, 3, *kernel), floats(4), **options)


def test_convolutions_of_other_kinds():
    check("conv2d", floats(3, 9, 8), floats(4, 3, 3, 2))
    check("conv2d", floats(2, 4, 7, 7), floats(6, 2, 3, 3), floats(6), groups=2)
    check("conv2d", floats(2, 4, 7, 7), floats(4, 1, 3, 3), groups=4)
    check("conv1d", floats(2, 3, 10), floats(4, 3, 3), floats(4), stride=2, padding=1)
    check("conv3d", floats(1, 2, 5, 5, 5), floats(3, 2, 2, 3, 2), floats(3), stride=2, padding=1)


def test_convolutions_that_do_not_fit():
    check("conv2d", floats(2, 4, 7, 7), floats(4, 3, 3, 3))
    check("conv2d", floats(2, 4, 7, 7), floats(4, 4, 9, 3))
    check("conv2d", floats(2, 4, 7, 7), floats(4, 4, 3, 3).astype(np.float64))


POOLS = list(itertools.product((2, 3, (2, 3)), (None, 1, 2, 3), (0, 1), (False, True)))


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_pools(options):
    kernel, stride, padding, ceil_mode = options
    x = floats(2, 3, 7, 9)

    check("max_pool2d", x, kernel, stride, padding, ceil_mode=ceil_mode)
    check("avg_pool2d", x, kernel, stride, padding, ceil_mode, count_include_pad=True)
    check("avg_pool2d", x, kernel, stride, padding, ceil_mode, count_include_pad=False)


def test_pools_of_other_kinds():
    x = floats(2, 3, 7, 9)

    check("max_pool2d", x, 2, 1, 0, 2)
    check("max_pool2d", (x * 9).astype(np.int64), 2)
    check("max_pool2d", x, 3, padding=2)
    check("max_pool2d", np.where(x > 1, np.nan, x), 2)
    check("avg_pool2d", x, 2, divisor_override=3)
    check("max_pool1d", x[0], 2)
    check("avg_pool1d", x[0], 2)


def test_normalizations():
    x, six, five = floats(4, 6, 5), floats(6), floats(5)

    check("layer_norm", x, (5,), five, five)
    check("layer_norm", x, (6, 5))
    check("layer_norm", x, (4,))
    check("rms_norm", x, (5,), five)
    check("rms_norm", x, (6, 5), eps=1e-3)
    check("group_norm", x, 3, six, six)
    check("group_norm", x, 4)
    check("batch_norm", x, six, np.abs(six), six, six)
    check("batch_norm", x, None, None, six, training=True)
    check("batch_norm", x[:1, :, 0], six, six, training=True)
    check("normalize", x)
    check("normalize", x, 1, -1)


def test_running_statistics_move():
    x, mean, spread = floats(4, 6, 5), floats(6), np.abs(floats(6))
    ours, theirs = [Tensor(mean), Tensor(spread)], [torch.tensor(mean), torch.tensor(spread)]

    functional.batch_norm(Tensor(x), *ours, training=True, momentum=0.3)
    torch.nn.functional.batch_norm(torch.tensor(x), *theirs, training=True, momentum=0.3)

    for moved, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(moved.numpy(), expected.numpy(), rtol=16 * 2.0**-23)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none", "other"])
def test_losses_of_numbers(reduction):
    x, y = floats(4, 5), floats(4, 5)
    shares = np.abs(y) / np.abs(y).sum(1, keepdims=True)
    shares[0, 0] = 0
    logistic = np.clip(1 / (1 + np.exp(-x)), 0.1, 0.9)
    logistic[0, :2] = 0, 1

    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        check(name, x, y, reduction=reduction)
    check("smooth_l1_loss", x, y, reduction=reduction, beta=0.0)
    check("huber_loss", x, y, reduction=reduction, delta=0.3)
    check("kl_div", x, shares, reduction=reduction)
    check("kl_div", x, y, reduction=reduction, log_target=True)
    name = "binary_cross_entropy_with_logits"
    check(name, x * 50, shares, reduction=reduction)
    check(name, x, shares, np.abs(y), reduction=reduction, pos_weight=np.abs(floats(5)))
    check("binary_cross_entropy", logistic, shares, reduction=reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(weighted, smoothing, reduction):
    weight = np.abs(floats(5)) if weighted else None
    options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    shares = np.abs(floats(4, 5))

    check("cross_entropy", floats(4, 5), np.array([0, 4, -100, 2]), **options)
    check("cross_entropy", floats(2, 5, 3), RNG.integers(0, 5, (2, 3)), **options)
    check("cross_entropy", floats(4, 5), shares, **options)
    check("cross_entropy", floats(5), np.array(3), **options)


def test_losses_that_do_not_fit():
    check("cross_entropy", floats(2, 3), np.array([1, 2, 0]))
    check("cross_entropy", floats(2, 3), floats(2))
    check("binary_cross_entropy_with_logits", floats(2, 3), floats(3))
    check("huber_loss", floats(2), floats(2), delta=0)


def test_attention():
    name = "scaled_dot_product_attention"
    q, k, v = floats(2, 4, 5, 8), floats(2, 4, 7, 8), floats(2, 4, 7, 6)
    mask = RNG.random((5, 7)) > 0.5
    mask[2] = False

    check(name, q, k, v)
    check(name, q, k, v, is_causal=True)
    check(name, q, k, v, scale=0.3)
    check(name, q, k, v, attn_mask=mask)
    check(name, q, k, v, attn_mask=np.where(mask, 0, -np.inf).astype(np.float32))
    check(name, q, k[:, :2], v[:, :2], enable_gqa=True)
    check(name, q, k, v, attn_mask=mask, is_causal=True)


ODD = np.array([-30, -2, -0.7, -1e-3, 0, 1e-4, 0.2, 0.6, 1.7, 25], np.float32)
GRADIENTS = ["softplus", "hardtanh", "relu6", "hardswish", "elu", "mish", "logsigmoid"]


def test_embedding():
    table = floats(5, 3)
    for rows in (np.array([[4, 0], [1, 1]]), np.array(2), np.array([], np.int64)):
        check("embedding", rows, table)
    check("embedding", np.array([1, 4], np.int32), table, padding_idx=-1)
    check("embedding", np.array([1.0]), table)
    check("embedding", np.array([1]), table[0])
    check("one_hot", np.array([1, 4]), num_classes=5)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_activations(name):
    ours, theirs = Tensor(ODD, requires_grad=True), torch.tensor(ODD, requires_grad=True)

    getattr(functional, name)(ours).sum().backward()
    getattr(torch.nn.functional, name)(theirs).sum().backward()

    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=2.0**-18, atol=2.0**-40)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_gradient_of_sure_probabilities_is_a_number(reduction):
    points, shares = [0.0, 0.0, 1.0, 1.0, 0.25, 1 - 2.0**-24], [0.0, 1.0, 1.0, 0.5, 0.75, 0.25]
    found = []
    for module, make in ((functional, Tensor), (torch.nn.functional, torch.tensor)):
        x, y = [make(np.array(each, np.float32), requires_grad=True) for each in (points, shares)]
        module.binary_cross_entropy(x, y.detach(), reduction=reduction).sum().backward()
        found.append(x.grad.numpy())

    np.testing.assert_allclose(found[0], found[1], rtol=2.0**-20)


INVERSES = ["asin", "acos", "atan", "exp2", "expm1", "log1p", "sinh", "tan", "round", "frac"]


@pytest.mark.parametrize("name", INVERSES)
def test_gradients_of_functions(name):
    points = np.array([-0.9, -0.3, -1e-3, 0, 1e-4, 0.45, 0.8], np.float32)
    ours, theirs = Tensor(points, requires_grad=True), torch.tensor(points, requires_grad=True)

    getattr(ours, name)().sum().backward()
    getattr(theirs, name)().sum().backward()

    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=2.0**-19)
