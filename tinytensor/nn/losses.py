"""Turns predictions and targets into losses, averaged or summed."""

from __future__ import annotations

from collections.abc import Callable

from tinytensor.dtype import dtypes
from tinytensor.errors import DTypeError, ShapeError, ValueOutOfRange
from tinytensor.grad import with_rules
from tinytensor.nn.activation import logsigmoid
from tinytensor.nn.parameter import check_parameters
from tinytensor.nn.rounding import widened
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp, cast
from tinytensor.tensor import nodes
from tinytensor.tensor.formulas import div, greater, mul, neg, sub
from tinytensor.tensor.gathering import checked
from tinytensor.tensor.operands import result_dtype
from tinytensor.tensor.reduction import at_least_1d, check_float
from tinytensor.tensor.tensor import Tensor

IGNORED = -100
LEAST_SPREAD = 1e-12


def reduce_loss(who: str, loss: Tensor, reduction: str) -> Tensor:
    """Return a loss as it is ('none'), its mean or its sum.

    Raises: ValueError.
    """
    if reduction not in ("none", "mean", "sum"):
        sentence = f"{who}: no such reduction: {reduction!r}"
        raise ValueError(f"{sentence}; it must be 'none', 'mean' or 'sum'.")
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def compare(
    who: str,
    input: Tensor,
    target: Tensor,
    reduction: str,
    formula: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return the loss of each pair of floats by a formula; halves compute in float32."""
    dtype = check_float(who, result_dtype(who, input, target))
    loss = formula(widened(input.to(dtype)), widened(target.to(dtype)))
    return reduce_loss(who, loss, reduction).to(dtype)


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the squared difference."""
    return compare("mse_loss", input, target, reduction, lambda x, y: (x - y).square())


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the absolute difference; integers are taken too."""
    if not result_dtype("l1_loss", input, target).is_float:
        return reduce_loss("l1_loss", (input - target).abs(), reduction)
    return compare("l1_loss", input, target, reduction, lambda x, y: (x - y).abs())


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Return half the squared difference up to delta, beyond it a line."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss: delta is not positive: {delta}; it must be above 0.")

    def formula(x: Tensor, y: Tensor) -> Tensor:
        distance = (x - y).abs()
        line = (distance - 0.5 * delta) * delta
        return (distance.square() * 0.5).where(distance <= delta, line)

    return compare("huber_loss", input, target, reduction, formula)


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Return the absolute difference less beta / 2, below beta a parabola."""
    if beta < 0:
        sentence = f"smooth_l1_loss: beta is negative: {beta}"
        raise ValueOutOfRange(f"{sentence}; it must be 0 or more.")
    if beta == 0:
        return l1_loss(input, target, reduction)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        distance = (x - y).abs()
        parabola = distance.square() * 0.5 / beta
        return parabola.where(distance < beta, distance - 0.5 * beta)

    return compare("smooth_l1_loss", input, target, reduction, formula)


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Return target * (log(target) - input), 0 where the target is; input holds logarithms."""

    def formula(x: Tensor, y: Tensor) -> Tensor:
        if log_target:
            return y.exp() * (y - x)
        safe = y.where(y != 0, 1)
        information = (y * safe.log()).where(y != 0, 0)
        return information - y * x

    if reduction != "batchmean":
        return compare("kl_div", input, target, reduction, formula)
    total = compare("kl_div", input, target, "sum", formula)
    return total / input.shape[0]


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return -(y * log(x) + (1 - y) * log(1 - x)); logarithms count as -100 or more.

    The slope is that of the logarithms themselves, as if x were 1e-12 from 0 and 1 or more.
    """
    check_equal_shapes("binary_cross_entropy", input, target)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        inside, outside = x.log().clamp(min=-100), (-x).log1p().clamp(min=-100)
        loss = (y - 1) * outside - y * inside

        def of_input(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
            spread = greater(
                mul(x, sub(nodes.full_like(x, 1), x)), nodes.full_like(x, LEAST_SPREAD)
            )
            return mul(g, div(sub(x, y), spread))

        def of_target(g: UOp, *_: UOp) -> UOp:
            return mul(g, sub(outside.uop, inside.uop))

        loss = loss._wrap(with_rules(loss.uop, [x.uop, y.uop], of_input, of_target))
        return loss if weight is None else loss * weight

    return compare("binary_cross_entropy", input, target, reduction, formula)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return binary_cross_entropy of sigmoid(input), without overflow."""
    check_equal_shapes("binary_cross_entropy_with_logits", input, target)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        share = 1 if pos_weight is None else (pos_weight - 1) * y + 1
        loss = (1 - y) * x - logsigmoid(x) * share
        return loss if weight is None else loss * weight

    return compare("binary_cross_entropy_with_logits", input, target, reduction, formula)


def check_equal_shapes(who: str, input: Tensor, target: Tensor) -> None:
    """Raise ShapeError unless a target has its input's shape."""
    if input.shape != target.shape:
        sentence = f"{who}: shapes differ: {input.shape} and {target.shape}"
        raise ShapeError(f"{sentence}; they must be equal.")


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the loss of class scores, along axis 1, for class indices or class probabilities.

    Indices: see nll_loss.
    Shapes: input (classes,) or (n, classes, ..); target without the classes, or like input.
    """
    if not 0 <= label_smoothing <= 1:
        sentence = f"cross_entropy: no such smoothing: {label_smoothing}"
        raise ValueOutOfRange(f"{sentence}; label_smoothing must be in 0 .. 1.")
    check_float("cross_entropy", input.dtype)
    shares = widened(input).log_softmax(min(input.ndim, 2) - 1)
    if target.dtype.is_float:
        loss = probability_loss(shares, target, weight, reduction, label_smoothing)
    else:
        loss = index_loss(shares, target, weight, ignore_index, reduction, label_smoothing)
    return loss.to(input.dtype)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative of the element of input, along axis 1, that each class index names.

    The mean divides by the weights of the indices that are not ignored. After an index that names
    no class, the next host read raises.
    """
    check_float("nll_loss", input.dtype)
    loss = index_loss(widened(input), target, weight, ignore_index, reduction, 0)
    return loss.to(input.dtype)


def probability_loss(
    shares: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """Return the cross entropy of logarithms and class probabilities."""
    check_equal_shapes("cross_entropy", shares, target)
    dim = min(shares.ndim, 2) - 1
    wanted = widened(target) * (1 - smoothing) + smoothing / shares.shape[dim]
    terms = shares * wanted
    if weight is not None:
        terms = terms * along_classes(weight, shares)
    return reduce_loss("cross_entropy", -terms.sum(dim), reduction)


def index_loss(
    shares: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Return the cross entropy of logarithms and class indices.

    The class of an ignored index is read as 0, and does not count.
    """
    dim = min(shares.ndim, 2) - 1
    check_indices(shares, target, dim)
    classes = shares.shape[dim]
    is_kept = (target != ignore_index).uop
    places = _kept(is_kept, target.uop)
    losses = neg(element_of_class(shares.uop, places, dim))
    chosen, weighted = is_kept, shares.uop
    if weight is not None:
        spread = along_classes(weight, shares).expand(shares.shape).uop
        chosen = _kept(is_kept, element_of_class(spread, places, dim))
        losses, weighted = mul(losses, chosen), mul(weighted, spread)
    if smoothing:
        total = nodes.reshape(nodes.fold(Combine.ADD, weighted, (dim,)), losses.shape)
        losses = sub(mul(losses, 1 - smoothing), mul(total, smoothing / classes))
    losses = _kept(is_kept, losses)
    if reduction != "mean":
        return reduce_loss("cross_entropy", shares._wrap(losses), reduction)
    if chosen.dtype is dtypes.bool:
        chosen = cast(chosen, dtypes.int64)
    return shares._wrap(div(_total(losses), cast(_total(chosen), losses.dtype)))


def _total(x: UOp) -> UOp:
    x = at_least_1d(x)
    return nodes.reshape(nodes.fold(Combine.ADD, x, tuple(range(len(x.shape)))), ())


def _kept(is_kept: UOp, x: UOp) -> UOp:
    """Return x, and 0 for what does not count."""
    return nodes.select(is_kept, x, nodes.full_like(x, 0))


def element_of_class(x: UOp, places: UOp, dim: int) -> UOp:
    """Return the element that each index names along the classes."""
    inside = checked("cross_entropy", places, dim, x.shape[dim])
    indices = nodes.reshape(inside, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return nodes.reshape(nodes.gather_at(x, (dim,), [indices]), places.shape)


def along_classes(x: Tensor, shares: Tensor) -> Tensor:
    """Return one value a class in a shape that expands over all scores."""
    check_parameters("cross_entropy", shares.shape[min(shares.ndim, 2) - 1 :][:1], x)
    if widened(x).dtype is not shares.dtype:
        sentence = f"cross_entropy: dtypes differ: {shares.dtype.name} and weight {x.dtype.name}"
        raise DTypeError(f"{sentence}; they must be equal.")
    return widened(x).reshape(-1, *[1] * max(shares.ndim - 2, 0))


def check_indices(shares: Tensor, target: Tensor, dim: int) -> None:
    """Raise unless there is an integer for all scores of one place."""
    if not target.dtype.is_int:
        sentence = f"cross_entropy: the target holds no indices: {target.dtype.name}"
        raise DTypeError(f"{sentence}; it must be an integer dtype, or float probabilities.")
    if not shares.ndim or target.shape != (*shares.shape[:dim], *shares.shape[dim + 1 :]):
        sentence = f"cross_entropy: shapes do not fit: {shares.shape} and {target.shape}"
        raise ShapeError(f"{sentence}; the target's must be the input's without the classes.")
