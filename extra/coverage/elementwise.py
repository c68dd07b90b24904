"""Describes the operators on single elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extra.coverage.record import (
    EXACT,
    INTEGER_RESULT,
    UNSIGNED,
    Example,
    Record,
    Tolerance,
    composed,
    function,
    on,
)

SHAPES = ((2, 1, 3), (4, 1), (3,))
PLAIN: tuple[dict[str, Any], ...] = ({},)


def unary(
    names: str,
    values: str = "any",
    tolerance: Tolerance = EXACT,
    options: Sequence[dict[str, Any]] = PLAIN,
    path: str = "Tensor",
    special: bool = True,
    **more: Any,  # noqa: ANN401 - what a Record takes
) -> list[Record]:
    """Return records of functions of one operand, on plain and on special values."""
    kinds = [values, "special"] if special else [values]
    examples = tuple([on(f"3 4 {kind}", **each) for each in options for kind in kinds])
    paths = [f"{path}.{name}" for name in names.split()]
    return [Record(each, examples, tolerance, **more) for each in paths]


def several(
    names: str,
    kinds: str,
    tolerance: Tolerance = EXACT,
    options: Sequence[dict[str, Any]] = PLAIN,
    extra: Sequence[Example] = (),
    path: str = "Tensor",
    **more: Any,  # noqa: ANN401 - what a Record takes
) -> list[Record]:
    """Return records of functions of several operands that broadcast."""
    listed = kinds.split()
    examples = [on(*[f"3 4 {kind}" for kind in listed], **each) for each in options]
    spread = examples[0].reshaped(SHAPES[: len(listed)])
    every = (*examples, *extra)
    paths = [f"{path}.{name}" for name in names.split()]
    return [Record(each, every, tolerance, broadcast=(spread,), **more) for each in paths]


def numbers(kind: str, *given: float) -> list[Example]:
    """Return examples whose last operand is a Python number."""
    return [on(f"3 4 {kind}", arguments=[number]) for number in given]


def mixed(kind: str = "any") -> list[Example]:
    """Return examples of operands of two dtypes, some of them without axes."""
    pairs = ("int32 float16", "bool uint8", "int64 float32", "uint8 int8", "float16 bfloat16")
    found = [on(*[f"3 4 {kind} {dtype}" for dtype in pair.split()]) for pair in pairs]
    ranks = (("int32", "float32"), ("float32", "float64"), ("uint8", "int64"))
    return found + [on(f"3 4 {kind} {x}", f"{kind} {y}") for x, y in ranks]


SPECIAL_PAIR = on("12 special", "5 12 any")
OPERATORS = [*mixed(), *numbers("any", 2, 0.5), SPECIAL_PAIR]
NUMERIC = [each for each in OPERATORS if each.operands[0].dtype != "bool"]
DIVIDED = [*mixed("positive"), *numbers("any", 2, 0.5), on("12 finite", "5 12 nonzero")]
WHOLE = [*numbers("any", 3), on("3 4 any int32", "3 4 any int64")]
COMPARED = {"gradient": INTEGER_RESULT, "extra": [*OPERATORS, on("3 4 ties", "3 4 ties")]}

RECORDS = [
    *unary("abs neg sign relu floor ceil trunc round frac square reciprocal"),
    *unary("isnan isinf isfinite signbit logical_not bitwise_not", gradient=INTEGER_RESULT),
    *unary("sqrt", "positive", function(0.5)),
    *unary("rsqrt", "positive", function(1.5)),
    *unary("exp exp2 expm1", tolerance=function(2.6)),
    *unary("log log2 log10 log1p", "positive", function(1.5)),
    *unary("sin cos tan", tolerance=function(3.1)),
    *unary("atan erf", tolerance=function(2)),
    *unary("asin acos", "unit", function(1)),
    *unary("sinh cosh tanh", tolerance=function(3.4)),
    *unary("sigmoid", tolerance=function(3)),
    *unary("logit", "share", composed(16)),
    *unary("deg2rad rad2deg", tolerance=function(1)),
    *unary("nan_to_num", options=[{}, {"nan": 1.0, "posinf": 2.0, "neginf": -3.0}]),
    *unary(
        "clamp clip", tolerance=UNSIGNED, options=[{"min": -1, "max": 2}, {"min": 0.5}, {"max": 1}]
    ),
    *unary("clamp_min", tolerance=UNSIGNED, options=[{"min": 0}]),
    *unary("clamp_max", tolerance=UNSIGNED, options=[{"max": 0}]),
    *several("add", "any any", options=[{}, {"alpha": 2}], extra=OPERATORS),
    *several("sub", "any any", options=[{}, {"alpha": 2}], extra=NUMERIC),
    *several("mul multiply", "any any", extra=OPERATORS),
    *several("maximum minimum", "any any", UNSIGNED, extra=[*mixed(), SPECIAL_PAIR]),
    *several("div", "any nonzero", options=[{}, {"rounding_mode": "trunc"}], extra=DIVIDED),
    *several("true_divide", "any nonzero"),
    *several("floor_divide", "any nonzero", extra=DIVIDED, gradient="PyTorch has none"),
    *several("remainder fmod", "any nonzero", extra=DIVIDED),
    *several("pow", "positive small", function(1), extra=numbers("any", 0, 2, 3, 0.5, -1)),
    *several("atan2", "any any", function(2), extra=[SPECIAL_PAIR]),
    *several("copysign", "any any"),
    *several("eq ne lt le gt ge", "any any", **COMPARED),
    *several("isclose", "ties ties", gradient=INTEGER_RESULT),
    *several("logical_and logical_or logical_xor", "any any", gradient=INTEGER_RESULT),
    *several("bitwise_and bitwise_or bitwise_xor", "any any", gradient=INTEGER_RESULT, extra=WHOLE),
    *several("bitwise_left_shift", "any below6", gradient=INTEGER_RESULT),
    *several("bitwise_right_shift", "any below6", gradient=INTEGER_RESULT),
    *several("lerp", "any any share", composed(4), extra=[on("3 4", "3 4", weight=0.25)]),
    *several("addcmul", "any any any", composed(4), options=[{}, {"value": 2}]),
    *several("addcdiv", "any any nonzero", composed(4), options=[{}, {"value": 2}]),
    Record(
        "where",
        (
            on("3 4 any bool", "3 4", "3 4"),
            on("3 4 any bool", "3 4", arguments=[1]),
            on("3 4 any bool", "3 4 any int32", "any float32"),
        ),
        broadcast=(on("2 1 3 any bool", "4 1", "3"),),
    ),
]
