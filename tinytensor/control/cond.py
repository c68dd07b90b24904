"""Turns two functions and a condition into a value that one of them computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tinytensor.control.run import Choice, Spec
from tinytensor.control.trace import (
    Traced,
    call,
    check_alike,
    condition_of,
    listed,
    pass_on,
    place_like,
    traced,
)
from tinytensor.grad import Gradients, requires_gradient, route
from tinytensor.jit.structure import Nest, with_tensors
from tinytensor.ops.uop import UOp
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.tensor import Tensor

R = TypeVar("R")


def cond(
    pred: Tensor | bool,
    true_fn: Callable[..., R],
    false_fn: Callable[..., R],
    operands: Sequence[Nest] = (),
) -> R:
    """Return true_fn(*operands) if pred holds, else false_fn(*operands); only one is computed.

    Both are traced once, and the host reads pred when the value is computed: in a jitted function
    at each call. Of a Python bool the one branch is called, and there is nothing to decide.
    Gradients go to the operands and to what a branch reads from outside. Random numbers are taken
    for both branches.

    Shapes: pred has one element; both branches give one structure of equal shapes.
    DTypes: both branches give equal ones. A pred that is not bool holds unless it is 0.
    Raises: ShapeError, DTypeError, DeviceError; TraceError for a branch that reads a value, or
    changes or keeps tensors outside of what it returns.

    >>> from tinytensor import Tensor, cond
    >>> x = Tensor([1.0, 2.0])
    >>> cond(x.sum() > 2, lambda x: x * 10, lambda x: -x, (x,)).tolist()
    [10.0, 20.0]
    """
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    predicate = condition_of("cond", "the predicate", pred)
    given = listed(operands)
    check_devices("cond", [pred, *given])
    inputs = [each.uop for each in given]
    places = [place_like(each, pred.device) for each in inputs]
    branches = [call("cond", each, operands, places, pred) for each in (true_fn, false_fn)]
    for each in branches:
        pass_on(each.feeds)
    first, second = [each.returned for each in branches]
    check_alike("cond", "the branches differ: true_fn gives", first, "false_fn", second)
    found = choose(pred.device, predicate, [each.body for each in branches], inputs)
    made: R = with_tensors(first, iter([Tensor._made(each, pred.device) for each in found]))
    return made


def choose(
    device: str, predicate: UOp, bodies: Sequence[Traced], inputs: Sequence[UOp]
) -> Sequence[UOp]:
    """Return what one of two bodies gives for the inputs; the gradient is such a choice as well."""
    used = [n for n, each in enumerate(bodies[0].inputs) if any([b.reads(each) for b in bodies])]
    inputs = [inputs[n] for n in used]
    bodies = [traced([each.inputs[n] for n in used], each.roots, each.outside) for each in bodies]
    captured = list(dict.fromkeys([node for each in bodies for node in each.captured]))
    sources = [*inputs, *captured]
    specs = [Spec(each.dtype, each.shape) for each in bodies[0].roots]
    lowered = [
        each.lowered(device, [each.stored(root) for root in each.roots], captured)
        for each in bodies
    ]
    values = Choice(device, specs, lowered).nodes([predicate, *sources])

    def rule(results: Sequence[UOp], upstreams: Gradients) -> Gradients:
        given = {n: each for n, each in enumerate(upstreams) if each is not None}
        weights = [place_like(each, device) for each in given.values()]
        chosen = [n for n, each in enumerate(sources) if requires_gradient(each)]
        pulled = []
        for each in bodies:
            places = [*each.inputs, *captured]
            roots = each.pulled(list(given), weights, [places[n] for n in chosen])
            pulled.append(traced([*each.inputs, *weights], roots, each.outside))
        found: list[UOp | None] = [None] * len(sources)
        made = choose(device, predicate, pulled, [*inputs, *given.values()])
        for n, node in zip(chosen, made, strict=True):
            found[n] = node
        return found

    return route(values, sources, rule)
