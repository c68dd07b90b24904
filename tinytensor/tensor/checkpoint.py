"""Turns a function into one whose gradient computes it again, instead of keeping what it made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinytensor.grad import (
    Gradients,
    gradients,
    make_place,
    origins_below,
    requires_gradient,
    route,
    set_apart,
)
from tinytensor.ops.uop import UOp
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.generator import record_draws, replay_draws
from tinytensor.tensor.grad_mode import MODE, enable_grad
from tinytensor.tensor.nodes import full_like

Content = Any  # what a user's function takes and gives: Tensors and anything else


def checkpoint(function: Callable[..., Content], *args: Content) -> Content:
    """Return function(*args); its gradient keeps the arguments alone, and calls function again.

    Random numbers are the same the second time. Arguments and results that are no Tensors pass as
    they are; a Tensor inside a list counts as part of the function, which may use any others too.

    >>> from tinytensor import Tensor, autograd
    >>> x = Tensor([2.0], requires_grad=True)
    >>> autograd.checkpoint(lambda x: (x * x).exp().log(), x).backward()
    >>> round(x.grad.item(), 4)
    4.0
    """
    if not MODE.get():
        return function(*args)
    with record_draws() as draws:
        places, returned = _called(function, args)
    is_single = isinstance(returned, TensorBase)
    outputs = [returned] if is_single else list(returned)
    chosen = [number for number, each in enumerate(outputs) if _has_gradient(each)]
    values = [outputs[number].uop for number in chosen]
    inputs = [args[number].uop for number in places]
    around = _captured(values, list(places.values()))

    def rule(results: Sequence[UOp], upstreams: Gradients) -> Gradients:
        with replay_draws(draws):
            again, repeated = _called(function, args)
        computed = [repeated] if is_single else list(repeated)
        roots = [computed[number].uop for number in chosen]
        given = [each or full_like(root, 0) for each, root in zip(upstreams, roots, strict=True)]
        inside = list(again.values())
        return gradients(roots, given, [*inside, *around], frozenset(inside))

    routed = route(values, [*inputs, *around], rule)
    for number, node in zip(chosen, routed, strict=True):
        outputs[number] = outputs[number]._wrap(node)
    return outputs[0] if is_single else type(returned)(outputs)


def _called(
    function: Callable[..., Content], args: Sequence[Content]
) -> tuple[dict[int, UOp], Content]:
    """Call a function on copies of the Tensors; return those that have a gradient, and the results.

    No node that depends on a copy equals one of another call: so nothing computed is shared.
    """
    given, places = list(args), {}
    for number, each in enumerate(args):
        if not isinstance(each, TensorBase):
            continue
        node = make_place(each.uop) if _has_gradient(each) else set_apart(each.uop)
        given[number] = each._made(node, each.device)
        if _has_gradient(each):
            places[number] = node
    with enable_grad():
        return places, function(*given)


def _has_gradient(value: Content) -> bool:
    return isinstance(value, TensorBase) and requires_gradient(value.uop)


def _captured(values: Sequence[UOp], places: Sequence[UOp]) -> list[UOp]:
    """Return the leaves that a function uses besides its arguments."""
    found = origins_below(values, frozenset(places))
    return [each for each in found if each not in places]
