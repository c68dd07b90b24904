"""Turns a function of a state and a slice into the last state and what every step gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tinytensor.control.rows import walk_rows
from tinytensor.control.trace import (
    call,
    check_alike,
    check_tensors,
    described,
    listed,
    pass_on,
    place_like,
    traced,
)
from tinytensor.errors import ShapeError
from tinytensor.jit.structure import Nest, with_tensors
from tinytensor.ops.uop import UOp
from tinytensor.tensor.axes import check_axis
from tinytensor.tensor.base import TensorBase
from tinytensor.tensor.nodes import full, permute
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.tensor import Tensor
from tinytensor.tracing import Feed, Numbers, feed

C = TypeVar("C", bound=Nest)


def scan(
    combine_fn: Callable[[C, Nest], tuple[C, Nest]],
    init: C,
    xs: Nest,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[C, Nest]:
    """Return the last state and the stacked results of combine_fn(state, slice) along an axis.

    combine_fn is traced once; it gives the next state and the result of a step. With reverse the
    last slice is the first; the results stand where their slices stood, along dim. Gradients go to
    init, to xs and to what combine_fn reads from outside; they keep the state of every step and
    compute the rest again. Random numbers are those of a Python loop.

    Shapes: all of xs have the same extent along dim; a slice lacks that axis, and stacked results
    have it again. The state keeps its shapes.
    DTypes: those of the state do not change.
    Raises: ShapeError, DTypeError, DeviceError; TypeError unless combine_fn gives a pair;
    TraceError if it reads a value, or changes or keeps tensors outside of what it returns.
    Cost: each step launches the kernels of one.

    >>> from tinytensor import Tensor, scan
    >>> last, sums = scan(lambda total, x: (total + x, total + x), Tensor(0), Tensor([1, 2, 3]))
    >>> last.item(), sums.tolist()
    (6, [1, 3, 6])
    """
    given = check_tensors("scan", "xs", xs)
    state = listed(init)
    like = given[0]
    check_devices("scan", [*given, *state])
    rows = [_rows_of(each, dim) for each in given]
    counts = [int(each.shape[0]) for each in rows]
    if counts.count(counts[0]) < len(counts):
        sentence = f"scan: lengths along dim {dim} differ: {', '.join(map(str, counts))}"
        raise ShapeError(f"{sentence}; all of xs must have one.")
    slices = [full(each.dtype, 0, each.shape[1:]) for each in rows]
    inputs = [each.uop for each in state]
    places = [place_like(each, like.device) for each in [*inputs, *slices]]
    called = call("scan", combine_fn, (init, xs), places, like)
    if not isinstance(called.returned, tuple) or len(called.returned) != 2:
        sentence = f"scan: combine_fn gives no pair: {described(called.returned)}"
        raise TypeError(f"{sentence}; it must give a tuple of the next state and a result.")
    following, result = called.returned
    check_alike("scan", "the state is", init, "combine_fn", following)
    order = range(counts[0])[::-1] if reverse else range(counts[0])
    tables = _tables_of(called.feeds, order, like.device)
    leaves = [each.leaf for each in called.feeds]
    body = traced([*places, *leaves], called.body.roots, called.body.outside)
    found = walk_rows(like.device, body, inputs, [*rows, *tables], order)
    found[len(inputs) :] = [_back(each, dim) for each in found[len(inputs) :]]
    tensors = iter([Tensor._made(each, like.device) for each in found])
    final: C = with_tensors(init, tensors)
    return final, with_tensors(result, tensors)


def _rows_of(tensor: TensorBase, dim: int) -> UOp:
    """Return a tensor with the axis that is scanned in front."""
    axis = check_axis("scan", dim, tensor.ndim)
    others = [each for each in range(tensor.ndim) if each != axis]
    return permute(tensor.uop, (axis, *others))


def _back(rows: UOp, dim: int) -> UOp:
    """Return stacked results with the axis that was scanned where it was."""
    ndim = len(rows.shape)
    order = list(range(1, ndim))
    order.insert(check_axis("scan", dim, ndim), 0)
    return permute(rows, tuple(order))


def _tables_of(feeds: Sequence[Feed], order: range, device: str) -> list[UOp]:
    """Return what the host is asked for in all steps, in the order in which a loop would ask."""
    if not order:
        pass_on(feeds)
        return [full(each.dtype, 0, (0, *each.leaf.shape)) for each in feeds]
    ahead = [[each.first] for each in feeds]

    def numbers_of(place: int) -> Numbers:
        while place == 0 and len(ahead[0]) < len(order):
            for each, rows in zip(feeds, ahead, strict=True):
                rows.append(each.numbers())
        found, ahead[place] = ahead[place], []
        return found[: len(order)][:: order.step]

    return [feed(partial(numbers_of, n), each.dtype, device) for n, each in enumerate(feeds)]
