"""Turns the functions between the layers of a network into nodes."""

from __future__ import annotations

from collections.abc import Callable

from tinytensor.grad import with_rules
from tinytensor.ops.uop import Number, UOp
from tinytensor.tensor.arithmetic import check_dtype, is_no_bool
from tinytensor.tensor.elementwise import logistic
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
from tinytensor.tensor.reduction import check_float
from tinytensor.tensor.tensor import Tensor
from tinytensor.tensor.transcendental import less_one, log_above_one

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def held(x: UOp, least: Number, greatest: Number) -> UOp:
    """Return x held between two bounds; at a bound it is the bound, so no gradient passes."""
    low, high = full_like(x, least), full_like(x, greatest)
    raised = select(is_at_most(x, low), low, x)
    return select(is_at_most(high, x), high, raised)


def apply_to_float(who: str, x: Tensor, formula: Callable[[UOp], UOp]) -> Tensor:
    """Apply several ops to floats; halves are widened before and rounded once after.

    Raises: DTypeError for other dtypes.
    """
    check_float(who, x.dtype)
    return x._composite(formula)


def exponential_unit(x: UOp, alpha: float, divisor: float = 1) -> UOp:
    """Return x above 0, else alpha * (e ** (x / divisor) - 1); at 0 the slope is that below."""
    zero = full_like(x, 0)
    is_above = is_less(zero, x)

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        left = select(is_less(x, 0), x, zero)
        power = exp(div(left, divisor))
        below = mul(power, alpha / divisor)
        return select(is_above, g, mul(g, below))

    below = select(is_above, zero, x)
    curve = mul(less_one(div(below, divisor)), alpha)
    return with_rules(select(is_above, x, curve), [x], slope)


def soft_maximum(x: UOp, beta: float = 1, threshold: float = 20) -> UOp:
    """Return log(1 + e ** (beta * x)) / beta; x itself where beta * x is above a threshold."""
    scaled = mul(x, beta)
    is_large = is_less(full_like(x, threshold), scaled)
    small = select(is_large, full_like(x, 0), scaled)
    return select(is_large, x, div(log_above_one(exp(small)), beta))


def log_logistic(x: UOp) -> UOp:
    """Return log(1 / (1 + e ** -x)) without overflow."""

    def slope(g: UOp, out: UOp, x: UOp) -> UOp:
        return mul(g, logistic(neg(x)))

    below = exp(neg(magnitude(x)))
    value = sub(lesser(x, 0), log_above_one(below))
    return with_rules(value, [x], slope)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + e ** (beta * x)) / beta; x where beta * x is above the threshold."""
    return apply_to_float("softplus", input, lambda x: soft_maximum(x, beta, threshold))


def logsigmoid(input: Tensor) -> Tensor:
    """Return the logarithm of sigmoid(x)."""
    return apply_to_float("logsigmoid", input, log_logistic)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (e ** x - 1)."""
    return apply_to_float("elu", input, lambda x: exponential_unit(x, alpha))


def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return x where x > 0, else alpha * (e ** (x / alpha) - 1)."""
    return apply_to_float("celu", input, lambda x: exponential_unit(x, alpha, alpha))


def selu(input: Tensor) -> Tensor:
    """Return elu with the scale that keeps a normal distribution."""

    def formula(x: UOp) -> UOp:
        return mul(exponential_unit(x, SELU_ALPHA), SELU_SCALE)

    return apply_to_float("selu", input, formula)


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return x where x > 0, else x * negative_slope."""

    def formula(x: UOp) -> UOp:
        return select(is_less(full_like(x, 0), x), x, mul(x, negative_slope))

    return apply_to_float("leaky_relu", input, formula)


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
    return apply_to_float("hardsigmoid", input, lambda x: div(held(add(x, 3), 0, 6), 6))


def hardswish(input: Tensor) -> Tensor:
    """Return x * hardsigmoid(x)."""
    return apply_to_float("hardswish", input, lambda x: div(mul(x, held(add(x, 3), 0, 6)), 6))


def mish(input: Tensor) -> Tensor:
    """Return x * tanh(softplus(x))."""
    return apply_to_float("mish", input, lambda x: mul(x, tanh(soft_maximum(x))))


def softsign(input: Tensor) -> Tensor:
    """Return x / (1 + abs(x))."""
    check_dtype("softsign", input.dtype, is_no_bool)
    return input._composite(lambda x: div(x, add(magnitude(x), 1)))


def tanhshrink(input: Tensor) -> Tensor:
    """Return x - tanh(x)."""
    check_dtype("tanhshrink", input.dtype, is_no_bool)
    return input._composite(lambda x: sub(x, tanh(x)))
