"""Describes the operators that move elements, or choose them by indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from extra.coverage.record import (
    EXACT,
    FIXED_SHAPES,
    INTEGER_RESULT,
    Example,
    Record,
    Tolerance,
    on,
    reassociated,
    written,
)

SELECTED = "from its data alone"


def moved(name: str, *calls: Any, **more: Any) -> Record:  # noqa: ANN401 - what an operator takes
    """Return a record of a view or a copy of one operand, by the arguments of each call.

    The empty operand, which has the same axes, is the first call's.
    """
    examples = [on("3 4 6", arguments=each) for each in calls]
    return Record(f"Tensor.{name}", tuple(examples), **more)


def bordered() -> Record:
    """Return the record of pad, in every mode."""
    pads = {"constant": ((1, 2), (1, 0, 2, 1), (-1, 2)), "reflect": ((1, 2), (1, 1, 2, 0))}
    pads |= {"replicate": ((1, 2), (1, 1, 2, 0)), "circular": ((1, 2), (1, 1, 2, 0))}
    shapes = {2: "2 3 4", 4: "2 2 3 4"}
    examples = [on("2 3 4", arguments=[(1, 2), "constant", 1])]
    for mode, several in pads.items():
        examples += [on(shapes[len(pad)], arguments=[pad, mode]) for pad in several]
    return Record("nn.functional.pad", tuple(examples), is_wider=True)


def joined(name: str, *more: Example) -> Record:
    """Return a record of a function of a list of tensors."""

    def call(library: Any, *tensors: Any, **options: Any) -> Any:  # noqa: ANN401 - either library
        return getattr(library, name)(tensors, **options)

    plain = (on("3 4", "3 4", call=call),)
    typed = (on("3 4 any int32", "3 4 any float16", call=call),)
    return Record(name, (*plain, *typed, *more), broadcast=FIXED_SHAPES)


def on_list(name: str, *operands: str, **options: Any) -> Example:  # noqa: ANN401 - what it takes
    """Return an example that hands a list of tensors to a function."""

    def call(library: Any, *tensors: Any) -> Any:  # noqa: ANN401 - either library
        return getattr(library, name)(tensors, **options)

    return on(*operands, call=call)


def indexed(
    name: str,
    *examples: Example,
    tolerance: Tolerance = EXACT,
    **more: Any,  # noqa: ANN401 - what a Record takes
) -> Record:
    """Return a record of an operator whose indices are int64."""
    more.setdefault("zero_dim", (inside_one(examples[0]),))
    return Record(f"Tensor.{name}", examples, tolerance, broadcast=FIXED_SHAPES, **more)


def inside_one(example: Example) -> Example:
    """Return a call of 0-d operands whose indices are 0."""
    plain = example.without_axes()
    below = [replace(each, values="below1") if each.dtype else each for each in plain.operands]
    return replace(plain, operands=tuple(below))


def by_index(
    name: str,
    *operands: str,
    dim: int = 0,
    arguments: Sequence[Any] = (),
    **options: Any,  # noqa: ANN401 - what it takes
) -> Example:
    """Return an example of a method called as (dim, index, ..)."""

    def call(library: Any, x: Any, *rest: Any) -> Any:  # noqa: ANN401 - either library
        del library
        return written(name, x, dim, *rest, *arguments, **options)

    return on(*operands, call=call, arguments=arguments, dim=dim, **options)


VIEWS = [
    moved("reshape", [(12, 6)], [-1, 8], [(3, -1)], empty=(on("0 4 6", arguments=[(0, 24)]),)),
    moved(
        "view",
        [(12, 6)],
        [-1, 8],
        empty=(on("0 4 6", arguments=[(0, 24)]),),
        layouts="as reshape",
        note="copies where no strides give the view; PyTorch refuses",
    ),
    moved("flatten", [], [1], [0, 1]),
    moved("permute", [2, 0, 1], [(0, 2, 1)]),
    moved("transpose", [0, 1], [-1, 0], zero_dim=(on("", arguments=[0, -1]),)),
    moved("swapaxes", [0, 2]),
    moved("movedim", [0, 2], [(0, 1), (2, 0)]),
    moved("squeeze", [], [0], [(0, 1)], zero_dim=(on("", arguments=[]), on("", arguments=[0]))),
    moved("unsqueeze", [0], [-1], [2]),
    moved("flip", [0], [(0, 2)], [[1]]),
    moved("unflatten", [2, (2, 3)], [-1, (-1, 2)]),
    moved("tile", [2], [(2, 1, 2)], [(2, 1, 1, 2)]),
    moved("repeat", [2, 1, 2], [(2, 1, 1, 2)]),
    moved("repeat_interleave", [2], [2, 1], [3, -1]),
    moved("split", [2], [4, 2], [[1, 3], 1]),
    moved("chunk", [2], [4, 2]),
    moved("unbind", [], [1], [-1]),
    moved("narrow", [1, 1, 2], [-1, 0, 3]),
    moved("select", [1, 2], [-1, -1]),
    moved("diagonal", [], [1, 1, 2], [-1, 0, 2]),
    moved("tril", [], [1], [-1]),
    moved("triu", [], [1], [-1]),
    moved("roll", [1], [(1, 2), (0, 2)], [-2, 1]),
    moved("rot90", [], [2, [1, 2]]),
    moved("unfold", [2, 3, 1], [1, 2, 2]),
    Record(
        "Tensor.expand",
        (on("3 1 4", arguments=[3, 5, 4]), on("4", arguments=[(2, -1)])),
        broadcast=(on("3 1", arguments=[2, 3, 4]),),
        empty=(on("1 0", arguments=[3, 0]),),
        zero_dim=(on("", arguments=[2, 3]),),
    ),
    Record("Tensor.diag", (on("4"), on("3 4"), on("4", arguments=[1]))),
    Record("Tensor.trace", (on("4 4"),), reassociated(4), is_wider=True),
    joined("cat", on_list("cat", "3 2", "3 4", dim=1)),
    joined("stack", on_list("stack", "3 4", "3 4", dim=-1)),
    joined("vstack"),
    joined("hstack"),
    joined("concat"),
    joined("concatenate"),
    joined("dstack"),
    bordered(),
]
CHOICES = [
    indexed(
        "gather",
        by_index("gather", "4 5", "3 5 below4 int64"),
        by_index("gather", "4 5", "4 2 below5 int64", dim=1),
    ),
    indexed(
        "index_select",
        by_index("index_select", "4 5", "3 below4 int64"),
        by_index("index_select", "4 5", "6 below5 int64", dim=1),
    ),
    Record(
        "Tensor.take_along_dim",
        (on("4 5", "3 5 below4 int64", dim=0),),
        zero_dim=(on("", "below1 int64"),),
        broadcast=(on("4 5", "1 5 below4 int64", dim=0),),
    ),
    indexed("take", on("4 5", "3 2 below20 int64"), zero_dim=(on("", "below1 int64"),)),
    Record(
        "Tensor.masked_select",
        (on("3 4", "3 4 any bool"),),
        broadcast=(on("3 4", "3 1 any bool"),),
    ),
    Record("Tensor.nonzero", (on("3 4 ties"), on("12 special")), gradient=INTEGER_RESULT),
    Record(
        "nn.functional.one_hot",
        (on("3 4 below5 int64", arguments=[6]), on("3 4 below5 int64")),
        gradient=INTEGER_RESULT,
    ),
    Record(
        "nn.functional.embedding",
        (on("3 2 below5 int64", "5 4"), on("3 below5 int32", "5 4")),
        broadcast=FIXED_SHAPES,
        empty=(on("0 2 below5 int64", "5 4"),),
        zero_dim=(on("below5 int64", "5 4"),),
    ),
]
RECORDS = [*VIEWS, *CHOICES]
