"""Describes the operators that write to places of a tensor, and the methods in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from extra.coverage import elementwise, folds, places, products
from extra.coverage.places import by_index, indexed
from extra.coverage.record import (
    EXACT,
    FIXED_SHAPES,
    INTEGER_RESULT,
    Example,
    Library,
    Record,
    Result,
    Tolerance,
    on,
    reassociated,
    written,
)
from tinytensor import Tensor

ROWS = ("4 5", "3 5 below4 int64", "3 5")
ONCE = ("4 5", "1 5 below4 int64", "1 5")
COLUMNS = ("4 5", "4 2 below5 int64", "4 2")
SUMMED = reassociated(7)
FOLDS = ("sum", "prod", "mean", "amax", "amin")


def in_place(record: Record) -> Record:
    """Return the record of a method's twin that writes its result to its first operand.

    What the values are is the method's record to say: here are its first example and those of two
    dtypes.
    """
    plain, *others = [each for each in record.examples if each.call is None]
    typed = [each for each in others if all([operand.dtype for operand in each.operands])]
    broadcast = record.broadcast
    if not isinstance(broadcast, str):
        whole = (2, 4, 3)
        shapes = [whole, *elementwise.SHAPES[1 : len(plain.operands)]]
        broadcast = (plain.reshaped(shapes),) if record in elementwise.RECORDS else FIXED_SHAPES
    gradient = "" if record.gradient == INTEGER_RESULT else record.gradient
    if record.name.startswith("logical"):
        gradient = "PyTorch overlooks the write"
    path = f"{record.path}_"
    examples = (plain, *typed)
    return replace(record, path=path, examples=examples, gradient=gradient, broadcast=broadcast)


def seen(name: str, *calls: Sequence[int]) -> Record:
    """Return the record of a method that changes how its tensor sees its memory."""

    def call(library: Library, x: Result, *arguments: int) -> Result:
        del library
        copy = x.clone()
        if getattr(copy, name)(*arguments) is not copy:
            raise AssertionError(f"{name}: the result is not the tensor itself")
        return copy

    def calling(arguments: Sequence[int]) -> Example:
        return on("1 4", call=lambda library, x: call(library, x, *arguments))

    examples = tuple([calling(each) for each in calls])
    return Record(f"Tensor.{name}", examples)


def both(
    name: str, examples: Sequence[tuple[Sequence[str], dict[str, Result]]], **more: Result
) -> list[Record]:
    """Return the records of a method called as (dim, index, ..) and of its twin in place."""
    return [
        indexed(each, *[by_index(each, *shapes, **options) for shapes, options in examples], **more)
        for each in (name, f"{name}_")
    ]


def with_twin(name: str, *examples: Example, **more: Result) -> list[Record]:
    """Return the records of a method by its own operands and of its twin in place."""
    return [Record(f"Tensor.{each}", examples, **more) for each in (name, f"{name}_")]


def put(name: str, accumulate: bool, *operands: str) -> Example:
    """Return an example of index_put at as many index tensors as there are."""

    def call(library: Library, x: Result, values: Result, *indices: Result) -> Result:
        del library
        return written(name, x, indices, values, accumulate)

    return on(*operands, call=call, accumulate=accumulate)


def indexed_puts(name: str, tolerance: Tolerance = EXACT) -> Record:
    """Return the record of index_put or of its twin."""
    row = ("4 5", "2 5", "2 below4 int64")
    pair = ("4 5", "3", "3 below4 int64", "3 below5 int64")
    examples = (put(name, True, *row), put(name, True, *pair), put(name, False, *ONE_EACH))
    marked = put(name, False, "4 5", "", "4 5 ties bool")
    return indexed(name, *examples, marked, tolerance=tolerance, zero_dim="refused by shape")


def assigned(library: Library, x: Result, row: Result, element: Result) -> Result:
    """Assign by numbers, slices and a mask."""
    del library
    copy = x.clone()
    copy[1:, ::2] = row
    copy[..., -1] = 2
    copy[0, 1] = element
    copy[copy == 2] = 3
    return copy


ONE_EACH = ("4 5", "5", "5 below4 int64", "5 distinct int64")
ADDED = ("4 5 any int32", "3 5 below4 int64", "3 5 any int32")  # PyTorch has no gradient
FILLED = {"arguments": [2]}
SCATTERS = [
    *both(
        "scatter", [(ONCE, {}), (ONCE[:2], FILLED), (ADDED, {"reduce": "add"})], tolerance=SUMMED
    ),
    *both("scatter_add", [(ROWS, {}), (COLUMNS, {"dim": 1})], tolerance=SUMMED),
    *both(
        "scatter_reduce",
        [(ROWS, {"reduce": each}) for each in FOLDS]
        + [(COLUMNS, {"dim": 1, "reduce": each, "include_self": False}) for each in FOLDS],
        tolerance=SUMMED,
    ),
    *both(
        "index_add",
        [(("4 5", "3 below4 int64", "3 5"), {}), (("4 5", "6 below5 int64", "4 6"), {"dim": 1})],
        tolerance=SUMMED,
    ),
    *both("index_copy", [(("4 5", "4 distinct int64", "4 5"), {})]),
    *both("index_fill", [(("4 5", "3 below4 int64"), FILLED)]),
    indexed_puts("index_put", SUMMED),
    indexed_puts("index_put_", SUMMED),
    *with_twin(
        "put",
        on("4 5", "7 distinct int64", "7"),
        on("4 5", "7 below20 int64", "7", accumulate=True),
        tolerance=SUMMED,
        broadcast=FIXED_SHAPES,
        zero_dim=(on("", "below1 int64", ""),),
    ),
    *with_twin(
        "masked_fill",
        on("3 4", "3 4 any bool", arguments=[2]),
        on("3 4", "3 4 any bool", ""),
        broadcast=(on("3 4", "4 any bool", arguments=[1]),),
    ),
    *with_twin(
        "masked_scatter",
        on("3 4", "3 4 any bool", "3 4"),
        broadcast=(on("3 4", "4 any bool", "12"),),
    ),
    Record(
        "Tensor.__setitem__",
        (on("4 5", "3 3", "", call=assigned),),
        broadcast=(on("4 5", "3", "", call=assigned),),
        empty=(on("1 5", "0 3", "", call=assigned),),
        zero_dim=FIXED_SHAPES,
    ),
]
FILLS = [
    Record("Tensor.zero_", (on("3 4"),)),
    Record("Tensor.fill_", (on("3 4", arguments=[2]), on("3 4", arguments=[0.5]), on("3 4", ""))),
    Record(
        "Tensor.copy_",
        (on("3 4", "3 4"), *elementwise.mixed()),
        broadcast=(on("3 4", "4"),),
    ),
]
SEEN = [
    seen("t_", []),
    seen("transpose_", [0, 1], [-1, 0]),
    seen("swapaxes_", [0, 1]),
    seen("squeeze_", [], [0]),
    seen("unsqueeze_", [0], [-1]),
]
WITH_TWIN = [
    each
    for part in (elementwise, folds, places, products)
    for each in part.RECORDS
    if each.path.startswith("Tensor.") and hasattr(Tensor, f"{each.name}_")
]
VIEWED = [each.name.removesuffix("_") for each in SEEN]
TWINS = [in_place(each) for each in WITH_TWIN if each.name not in VIEWED]
RECORDS = [*SCATTERS, *FILLS, *SEEN, *TWINS]
