"""Describes reductions, scans and sorts."""

from __future__ import annotations

from dataclasses import replace

from extra.coverage.record import (
    FIXED_SHAPES,
    INTEGER_RESULT,
    Example,
    Library,
    Operand,
    Record,
    Result,
    Tolerance,
    composed,
    on,
    reassociated,
)

EXACT = Tolerance()
AXES = ({}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"dim": (0, -1)})
ONE_AXIS = ({}, {"dim": 1}, {"dim": 0, "keepdim": True})
ALONG = ({"dim": 1}, {"dim": 0})


def along(kind: str, options: tuple[dict[str, object], ...]) -> tuple[Example, ...]:
    """Return an example for each way of choosing axes."""
    return tuple([on(f"3 4 5 {kind}", **each) for each in options])


def emptied(*options: dict[str, object]) -> tuple[Example, ...]:
    """Return examples that fold nothing, and ones that fold something into nothing."""
    return tuple([on("0 3", **each) for each in options])


def fold(
    names: str,
    options: tuple[dict[str, object], ...],
    tolerance: Tolerance = EXACT,
    kind: str = "any",
    gradient: str = "",
    note: str = "",
) -> list[Record]:
    """Return records of reductions."""
    examples = along(kind, options)
    empty = emptied(*options)
    return [
        Record(f"Tensor.{name}", examples, tolerance, gradient, empty=empty, note=note)
        for name in names.split()
    ]


TYPED = ({"dtype": None},)
NORMS = tuple([{"p": p, "dim": 1} for p in (0, 1, 2, 2.5, float("inf"), float("-inf"))])
WEIGHTED = ({"correction": 0}, {"dim": 1, "correction": 2}, {"dim": (0, 2), "keepdim": True})
SORTED = ({}, {"dim": 0}, {"descending": True}, {"stable": True})
BEST = tuple([{"k": 2}, {"k": 2, "dim": 1, "largest": False}, {"k": 3, "dim": 0}])
NTH = ({"k": 2}, {"k": 1, "dim": 1}, {"k": 3, "dim": 0, "keepdim": True})


def in_order(name: str, **options: object) -> Example:
    """Return an example of a search in a sorted vector."""

    def call(library: Library, sequence: Result, values: Result) -> Result:
        ordered = sequence.sort()[0]
        pair = (values, ordered) if name == "bucketize" else (ordered, values)
        return getattr(library, name)(*pair, **options)

    return on("9 ties", "3 4 ties", call=call, **options)


def searched(name: str) -> Record:
    """Return the record of a search for the places of values."""
    examples = tuple([in_order(name, **each) for each in ({}, {"right": True})])
    examples += (in_order(name, out_int32=True),)
    some = replace(examples[0], operands=(Operand((5,)), Operand(())))
    return Record(
        name,
        examples,
        gradient=INTEGER_RESULT,
        broadcast=FIXED_SHAPES,
        zero_dim=(some,),
        is_wider=True,
    )


RECORDS = [
    *fold("sum mean", AXES, reassociated(60)),
    *fold("nansum", AXES, reassociated(60), "special"),
    *fold("prod", ONE_AXIS, reassociated(60), "positive"),
    *fold("amax amin", AXES, kind="ties"),
    *fold("max min", ONE_AXIS, kind="distinct"),
    *fold("all any", AXES, kind="ties", gradient=INTEGER_RESULT),
    *fold("argmax argmin", ONE_AXIS, kind="distinct", gradient=INTEGER_RESULT),
    *fold("count_nonzero", ({}, {"dim": 1}, {"dim": (0, 1)}), EXACT, "ties", INTEGER_RESULT),
    *fold("var std", (*AXES, *WEIGHTED), composed(80)),
    *[
        replace(each, path=each.name + "_mean")
        for each in fold("var std", (*AXES, *WEIGHTED), composed(80))
    ],
    *fold("logsumexp", AXES[1:], composed(70)),
    *fold("norm", (*AXES, *NORMS), composed(70), "nonzero"),
    *fold("cumsum", ALONG, reassociated(5)),
    *fold("cumprod", ALONG, reassociated(5), "positive"),
    *fold("cummax cummin", ALONG, kind="distinct"),
    *fold("aminmax", ONE_AXIS, kind="distinct"),
    *fold("sort", SORTED, kind="distinct"),
    *fold("argsort", SORTED, kind="distinct", gradient=INTEGER_RESULT),
    *fold("msort", ({},), kind="distinct"),
    replace(*fold("topk", BEST, kind="distinct"), zero_dim=(on("", arguments=[1]),), is_wider=True),
    replace(
        *fold("kthvalue", NTH, kind="distinct"), zero_dim=(on("", arguments=[1]),), is_wider=True
    ),
    # PyTorch errs along an axis that is expanded.
    replace(
        *fold("median", ({}, {"dim": 1}, {"dim": 2, "keepdim": True}), kind="distinct"),
        is_wider=True,
    ),
    searched("searchsorted"),
    searched("bucketize"),
    *fold("softmax log_softmax", ALONG, composed(16), "wide"),
]
