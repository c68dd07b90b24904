"""Turns a number known only at launch into one that counts like an int while a graph is built."""

from __future__ import annotations

import itertools
import math
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tinytensor.ops.extents import index_at
from tinytensor.ops.guards import decide
from tinytensor.ops.op import Op
from tinytensor.ops.simplify_index import simplify_index
from tinytensor.ops.sums import build, collect, divide, multiply
from tinytensor.ops.uop import Open, UOp, binary, compare, index_const, make_variable, walk

Shape = tuple[int, ...]
if TYPE_CHECKING:
    Counting: TypeAlias = int  # shapes hold ints, and a Size does what an int does
else:
    Counting = object


class Size(Open, Counting):
    """An index expression over variables, and its value while the graph is built.

    Arithmetic gives Sizes. A comparison that bounds decide says nothing more; another one is true
    or false as the value has it, which becomes a claim of whoever records claims. Whatever needs a
    plain int gets the value, and the claim that it is this one.
    """

    __slots__ = ("_binding", "_value", "expression")

    def __init__(self, expression: UOp, value: int) -> None:
        self.expression = expression
        self._value = value
        self._binding = _BINDINGS.count

    @property
    def value(self) -> int:
        """The value, once more when some variable was bound again since it was computed."""
        count = _BINDINGS.count
        if self._binding != count:
            self._value = index_at(self.expression, _values_below(self.expression))
            self._binding = count
        return self._value

    def __hash__(self) -> int:
        return hash(self.expression)

    def __repr__(self) -> str:
        return str(self.value)

    def __index__(self) -> int:
        return self.value if self == self.value else 0

    __int__ = __index__
    __trunc__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __bool__(self) -> bool:
        return self != 0

    def __neg__(self) -> int:
        return 0 - self

    def __abs__(self) -> int:
        return self if self >= 0 else -self


class _Bindings:
    """Counts how often variables were given other values."""

    count = 0


_BINDINGS = _Bindings()
# What variables of graphs under construction stand for, and their numbers.
_VALUES: weakref.WeakKeyDictionary[UOp, int] = weakref.WeakKeyDictionary()
_SERIALS: Iterator[int] = itertools.count()


def bind(least: int, most: int, value: int) -> UOp:
    """Return a variable of its own between two ends, that has a value while graphs are built."""
    variable = make_variable(next(_SERIALS), least, most)
    _VALUES[variable] = value
    return variable


def bind_again(values: Mapping[UOp, int]) -> None:
    """Give bound variables other values, which is theirs to do who made them."""
    _VALUES.update(values)
    _BINDINGS.count += 1


def _values_below(expression: UOp) -> dict[UOp, int]:
    return {node: _VALUES[node] for node in walk([expression]) if node.op is Op.VARIABLE}


def has_variables() -> bool:
    """Whether anybody holds a bound variable, without which no graph has one."""
    return bool(_VALUES)


def value_of(variable: UOp) -> int:
    """Return the value that a bound variable has."""
    return _VALUES[variable]


def size_of(expression: UOp, values: Mapping[UOp, int]) -> int:
    """Return an index expression as a Size, or as an int where it has one value only."""
    return _sized(simplify_index(expression), index_at(expression, values))


def numbered_variables(variables: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return what stands for each variable in a kernel: the same one, numbered by its place."""
    return {
        each: UOp(Op.VARIABLE, each.dtype, (), replace(each.attrs, number=number))
        for number, each in enumerate(variables)
    }


def claim_within(variable: UOp, least: int, most: int) -> bool:
    """Say whether a bound variable's value is between two ends, and claim that it is."""
    size = size_of(variable, {variable: value_of(variable)})
    return least <= size and size <= most  # two claims


def is_one(extent: int) -> bool:
    """Whether an extent is 1 at every launch."""
    return type(extent) is int and extent == 1


def is_zero(extent: int) -> bool:
    """Whether an extent is 0 at every launch."""
    return type(extent) is int and extent == 0


def is_open(extents: Iterable[int]) -> bool:
    """Whether some of the extents are known only at launch."""
    return any(isinstance(each, Size) for each in extents)


def are_same(a: Shape, b: Shape) -> bool:
    """Whether extents are the same numbers at every launch; claims nothing.

    A Size has the hash of its expression, which no int has.
    """
    return a is b or (len(a) == len(b) and hash(a) == hash(b) and a == b)


def is_same(a: int, b: int) -> bool:
    """Whether two extents are the same number at every launch; claims nothing."""
    return a is b or (hash(a) == hash(b) and a == b)


def is_repeated(extent: int, wanted: int) -> bool:
    """Whether an axis shows one element again and again where it expands to another extent."""
    return not is_same(extent, wanted) and (is_one(extent) or extent != wanted)


def elements_now(shape: Shape) -> int:
    """Return how many elements a shape has while the graph is built; for estimates."""
    return math.prod([now(extent) for extent in shape])


def now(extent: int) -> int:
    """Return an extent's value while the graph is built; for estimates, as it claims nothing."""
    return extent.value if isinstance(extent, Size) else extent


class _Recorders(threading.local):
    """Each thread's open recorders, the innermost last."""

    claims: tuple[dict[UOp, None], ...] = ()


_RECORDERS = _Recorders()


@contextmanager
def recorded_claims() -> Iterator[dict[UOp, None]]:
    """Record what this thread takes to be true of variables' values: conditions over them."""
    claims: dict[UOp, None] = {}
    before = _RECORDERS.claims
    _RECORDERS.claims = (*before, claims)
    try:
        yield claims
    finally:
        _RECORDERS.claims = before


def _sized(expression: UOp, value: int) -> int:
    return value if expression.op is Op.CONST else Size(expression, value)


def _computed(op: Op, function: Callable[..., int], x: int, y: int) -> int:
    value = function(now(x), now(y))
    return _sized(simplify_index(_combined(op, index_const(x), index_const(y))), value)


def _combined(op: Op, x: UOp, y: UOp) -> UOp:
    """Return an op of two expressions; products are multiplied out, and what cancels does."""
    if op is Op.MUL:
        return build(multiply(collect(x), collect(y)))
    quotient = divide(collect(x), collect(y)) if op is Op.FLOORDIV else None
    return binary(op, x, y) if quotient is None else build(quotient)


_NEGATED = {Op.LT: Op.LE, Op.LE: Op.LT, Op.EQ: Op.NE, Op.NE: Op.EQ}


def _compared(op: Op, function: Callable[..., bool], x: int, y: int) -> bool:
    decided = decide(op, collect(index_const(x) - index_const(y)))
    return _claim(op, x, y, function(now(x), now(y))) if decided is None else decided


def _claim(op: Op, x: int, y: int, holds: bool) -> bool:
    if _RECORDERS.claims:
        a, b = index_const(x), index_const(y)
        if not holds:
            op, a, b = (_NEGATED[op], b, a)
        claim = simplify_index(compare(op, a, b))
        for each in _RECORDERS.claims:
            each[claim] = None
    return holds


def _method(
    function: Callable[..., object], of_sizes: Callable[..., object] | None, swapped: bool
) -> Callable[..., object]:
    """Return a method that asks a function of plain ints where floats are, or nothing else is."""

    def method(self: Size, other: object) -> object:
        if not isinstance(other, (int, float, Size)):
            return NotImplemented
        pair = (other, self) if swapped else (self, other)
        if of_sizes is not None and not isinstance(other, float):
            return of_sizes(*pair)
        return function(*[int(each) if isinstance(each, Size) else each for each in pair])

    return method


for _name, _op, _function in (
    *(("truediv", None, operator.truediv), ("pow", None, operator.pow), ("divmod", None, divmod)),
    *(("lshift", None, operator.lshift), ("rshift", None, operator.rshift)),
    *(("and", None, operator.and_), ("or", None, operator.or_), ("xor", None, operator.xor)),
    ("add", Op.ADD, operator.add),
    ("sub", Op.SUB, operator.sub),
    ("mul", Op.MUL, operator.mul),
    ("floordiv", Op.FLOORDIV, operator.floordiv),
    ("mod", Op.MOD, operator.mod),
):
    _of_sizes = None if _op is None else partial(_computed, _op, _function)
    setattr(Size, f"__{_name}__", _method(_function, _of_sizes, swapped=False))
    setattr(Size, f"__r{_name}__", _method(_function, _of_sizes, swapped=True))
for _name, _op, _function, _swapped in (
    ("lt", Op.LT, operator.lt, False),
    ("le", Op.LE, operator.le, False),
    ("eq", Op.EQ, operator.eq, False),
    ("ne", Op.NE, operator.ne, False),
    ("gt", Op.LT, operator.lt, True),
    ("ge", Op.LE, operator.le, True),
):
    setattr(Size, f"__{_name}__", _method(_function, partial(_compared, _op, _function), _swapped))
