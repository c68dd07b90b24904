"""Turns a condition and a body into the state that is left when the condition does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tinytensor.control.run import Spec, While
from tinytensor.control.trace import (
    call,
    check_alike,
    check_tensors,
    condition_of,
    described,
    pass_on,
    place_like,
    traced,
)
from tinytensor.dtype import dtypes
from tinytensor.errors import GradientError
from tinytensor.grad import Gradients, route
from tinytensor.jit.structure import Nest, with_tensors
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, substitute_all
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.formulas import add
from tinytensor.tensor.joining import join
from tinytensor.tensor.nodes import broadcast, full, take_part
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import Feed

S = TypeVar("S", bound=Sequence[Nest])
STREAM = 2**64 - 1  # of all places of elements the one that no draw reaches


def while_loop(
    cond_fn: Callable[..., TensorBase], body_fn: Callable[..., S], carried_inputs: S
) -> S:
    """Return the state after body_fn has been applied to it as long as cond_fn holds for it.

    Both take the parts of the state as arguments and are traced once. The host reads the condition
    before each step, when the value is computed. There is no gradient: use scan for that. Random
    numbers differ from step to step, and follow from one draw for each that is written.

    Shapes: cond_fn gives one element; body_fn gives what the state is made of, in equal shapes.
    DTypes: those of the state do not change.
    Raises: ShapeError, DTypeError, DeviceError; GradientError in backward; TraceError for a
    function that reads a value, or changes or keeps tensors outside of what it returns.

    >>> from tinytensor import Tensor, while_loop
    >>> i, x = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (Tensor(0), Tensor(1)))
    >>> i.item(), x.item()
    (5, 32)
    """
    given = check_tensors("while_loop", "carried_inputs", carried_inputs)
    like = given[0]
    check_devices("while_loop", given)
    inputs = [each.uop for each in given]
    places = [place_like(each, like.device) for each in inputs]
    asked = call("while_loop", cond_fn, carried_inputs, places, like)
    if not isinstance(asked.returned, TensorBase):
        sentence = f"while_loop: cond_fn gives no Tensor: {described(asked.returned)}"
        raise TypeError(f"{sentence}; it must give one of one element.")
    holds = condition_of("while_loop", "the condition", asked.returned)
    ran = call("while_loop", body_fn, carried_inputs, places, like)
    check_alike("while_loop", "the state is", carried_inputs, "body_fn", ran.returned)
    feeds = [*asked.feeds, *ran.feeds]
    pass_on(feeds)
    outside = [*asked.body.outside, *ran.body.outside]
    found = _repeated(like.device, [holds, *ran.body.roots], inputs, places, outside, feeds)
    made: S = with_tensors(
        carried_inputs, iter([Tensor._made(each, like.device) for each in found])
    )
    return made


def _repeated(
    device: str,
    roots: Sequence[UOp],
    inputs: Sequence[UOp],
    places: Sequence[UOp],
    outside: Sequence[UOp],
    feeds: Sequence[Feed],
) -> Sequence[UOp]:
    """Return the last state; the roots are the condition and the next state.

    What draws counts its steps in one more part of the state.
    """
    step = buffer(dtypes.uint64, (), device)
    steps = [step] if feeds else []
    streams = {each.leaf: _stream_of(each.leaf) for each in feeds}
    fed = {leaf: _numbers_at(step, key) for leaf, key in streams.items()}
    known = [*outside, *streams.values()]
    asks, *following = substitute_all(tuple(roots), fed)
    body = traced([*places, *steps], [*following, *[add(each, 1) for each in steps]], known)
    condition = traced([*places, *steps], [asks], known)
    captured = list(dict.fromkeys([*condition.captured, *body.captured]))
    specs = [Spec(each.dtype, each.shape) for each in body.roots]
    lowered = [each.lowered(device, each.roots, captured) for each in (condition, body)]
    sources = [*inputs, *[full(each.dtype, 0, ()) for each in steps], *captured]
    values = While(device, specs, lowered).nodes(sources)[: len(inputs)]
    return route(values, sources, _refuse)


def _stream_of(numbers: UOp) -> UOp:
    """Return the key of a sequence of draws that begins where some draws would be."""
    draw, key = (take_part(numbers, len(numbers.shape) - 1, range(n, n + 1)) for n in range(2))
    return UOp(Op.PHILOX, dtypes.uint64, (full(dtypes.uint64, STREAM, draw.shape), draw, key))


def _numbers_at(step: UOp, key: UOp) -> UOp:
    """Return the draws of a step: its number with each key."""
    return join([broadcast(step, key.shape), key], len(key.shape) - 1)


def _refuse(results: Sequence[UOp], upstreams: Gradients) -> Gradients:
    sentence = "while_loop: a gradient needs to know how often the body runs: a condition decides"
    raise GradientError(f"{sentence}; it must be a number. Use scan.")
