"""Turns the functions between the layers of a network into nodes."""

from __future__ import annotations

from tinytensor.ops.uop import Number, UOp
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool
from tinytensor.tensor.formulas import (
    add,
    div,
    exp,
    is_at_most,
    is_less,
    lesser,
    magnitude,
    mul,
    neg,
    sub,
    tanh,
)
from tinytensor.tensor.host import check_number
from tinytensor.tensor.nodes import full_like, select
from tinytensor.tensor.tensor import Tensor
from tinytensor.tensor.transcendental import less_one, log_above_one

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def held(x: UOp, least: Number, greatest: Number) -> UOp:
    """Return x held between two bounds; at a bound it is the bound, so no gradient passes."""
    low, high = full_like(x, least), full_like(x, greatest)
    raised = select(is_at_most(x, low), low, x)
    return select(is_at_most(high, x), high, raised)


def exponential_unit(x: UOp, alpha: float, divisor: float = 1) -> UOp:
    """Return x above 0, else alpha * (e ** (x / divisor) - 1)."""
    is_above = is_less(full_like(x, 0), x)
    below = select(is_above, full_like(x, 0), x)
    return select(is_above, x, mul(less_one(div(below, divisor)), alpha))


def soft_maximum(x: UOp, beta: float = 1, threshold: float = 20) -> UOp:
    """Return log(1 + e ** (beta * x)) / beta; x itself where beta * x is above a threshold."""
    scaled = mul(x, beta)
    is_large = is_less(full_like(x, threshold), scaled)
    small = select(is_large, full_like(x, 0), scaled)
    return select(is_large, x, div(log_above_one(exp(small)), beta))


def log_logistic(x: UOp) -> UOp:
    """Return log(1 / (1 + e ** -x)) without overflow."""
    return sub(lesser(x, 0), log_above_one(exp(neg(magnitude(x)))))


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + e ** (beta * x)) / beta; x where beta * x is above the threshold."""
    return input._composite(lambda x: soft_maximum(x, beta, threshold))


def logsigmoid(input: Tensor) -> Tensor:
    """Return the logarithm of sigmoid(x)."""
    return input._composite(log_logistic)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (e ** x - 1)."""
    return input._composite(lambda x: exponential_unit(x, alpha))


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (e ** (x / alpha) - 1)."""
    return input._composite(lambda x: exponential_unit(x, alpha, alpha))


def selu(input: Tensor) -> Tensor:
    """Return elu with the scale that keeps a normal distribution."""

    def formula(x: UOp) -> UOp:
        return mul(exponential_unit(x, SELU_ALPHA), SELU_SCALE)

    return input._composite(formula)


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, else x * negative_slope."""

    def formula(x: UOp) -> UOp:
        return select(is_less(full_like(x, 0), x), x, mul(x, negative_slope))

    return input._composite(formula)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return x held between two bounds."""
    x = input.uop
    check_dtype("hardtanh", x.dtype, is_no_bool)
    least, greatest = (check_number("hardtanh", n, x.dtype) for n in (min_val, max_val))
    return input._wrap(held(x, least, greatest))


def relu6(input: Tensor) -> Tensor:
    """Return x held between 0 and 6."""
    return hardtanh(input, 0, 6)


def hardsigmoid(input: Tensor) -> Tensor:
    """Return (x + 3) / 6 held between 0 and 1."""
    return input._composite(lambda x: div(held(add(x, 3), 0, 6), 6))


def hardswish(input: Tensor) -> Tensor:
    """Return x * hardsigmoid(x)."""
    return input._composite(lambda x: div(mul(x, held(add(x, 3), 0, 6)), 6))


def mish(input: Tensor) -> Tensor:
    """Return x * tanh(softplus(x))."""
    return input._composite(lambda x: mul(x, tanh(soft_maximum(x))))


def softsign(input: Tensor) -> Tensor:
    """Return x / (1 + abs(x))."""
    return input._composite(lambda x: div(x, add(magnitude(x), 1)))


def tanhshrink(input: Tensor) -> Tensor:
    """Return x - tanh(x)."""
    return input._composite(lambda x: sub(x, tanh(x)))
