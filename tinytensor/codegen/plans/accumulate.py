"""Turns one fold into LINEAR arithmetic: its start, one element more, two parts joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinytensor.codegen.builder import Builder, fma, lane, shuffle, splat, stack
from tinytensor.codegen.vectorize import Evaluator
from tinytensor.dtype import DType, dtypes
from tinytensor.ops.attrs import POSITIONS, Combine
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, binary, cast, compare, const, require, walk, where
from tinytensor.records import dataclass

COMBINE_OPS = {
    Combine.ADD: Op.ADD,
    Combine.MUL: Op.MUL,
    Combine.MAX: Op.MAX,
    Combine.MIN: Op.MIN,
    Combine.AND: Op.AND,
    Combine.OR: Op.OR,
}
NARROWEST_BYTES = 16  # vectors are halved down to one small register, and rotated within it


@dataclass(frozen=True, slots=True)
class Fold:
    """What a REDUCE or CONTRACT folds: `element` over `ranges`, accumulated in `dtype`.

    Sums of float products keep their two `factors`, so that each product joins its sum unrounded.
    Halves accumulate in float32. A `position` dtype marks argmax and argmin. With `is_negated`,
    the result is that of the fold with its sign changed.
    """

    node: UOp
    combine: Combine
    ranges: tuple[UOp, ...]
    element: UOp
    factors: tuple[UOp, UOp] | None
    dtype: DType
    position: DType | None
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A fold over some of its elements: the value and, for argmax and argmin, its position."""

    value: UOp
    position: UOp | None = None


def fold_of(node: UOp) -> Fold:
    """Read the fold that a REDUCE or CONTRACT node says."""
    if node.op is Op.CONTRACT:
        a, b, *ranges = node.operands
        combine = Combine.ADD
        element = cast(a, node.dtype) * cast(b, node.dtype)
    else:
        require(node.op is Op.REDUCE, node, "is no fold")
        element, *ranges = node.operands
        combine = node.attrs.combine
    dtype = dtypes.float32 if element.dtype.is_narrow else element.dtype
    position = None
    if combine in POSITIONS:
        position = dtypes.int32 if ranges[0].extent < 2**31 else dtypes.int64
    factors = factors_of(element) if combine is Combine.ADD else None
    return Fold(node, combine, tuple(ranges), element, factors, dtype, position)


def as_minimum(fold: Fold) -> Fold:
    """Turn a maximum of floats into the minimum of what is negated, which C does in fewer steps."""
    if fold.combine is not Combine.MAX or not fold.dtype.is_float:
        return fold
    element = negate(cast(fold.element, fold.dtype))
    return replace(fold, combine=Combine.MIN, element=element, is_negated=True)


def fold_levels(folds: Sequence[Fold]) -> dict[UOp, int]:
    """Return how many folds follow one another before each one; inner folds come first."""
    levels: dict[UOp, int] = {}
    for fold in folds:
        inner = [levels[node] for node in walk((fold.element,)) if node in levels]
        levels[fold.node] = 1 + max(inner, default=-1)
    return levels


def factors_of(element: UOp) -> tuple[UOp, UOp] | None:
    """Return x and y of an element x * y that may join its sum unrounded."""
    if element.op is not Op.MUL or not element.dtype.is_float or element.dtype.is_narrow:
        return None
    x, y = element.operands
    return x, y


def join(fold: Fold, x: Part, y: Part) -> Part:
    """Return the fold of both parts' elements."""
    if x.position is None or y.position is None:
        return Part(binary(COMBINE_OPS[fold.combine], x.value, y.value))
    ties = same(x.value, y.value) & compare(Op.LT, y.position, x.position)
    wins = beats(fold, y.value, x.value) | ties
    return Part(where(wins, y.value, x.value), where(wins, y.position, x.position))


def beats(fold: Fold, y: UOp, x: UOp) -> UOp:
    """Whether y replaces x as the extreme: it is beyond x, or the first NaN."""
    beyond = compare(Op.LT, x, y) if fold.combine is Combine.ARGMAX else compare(Op.LT, y, x)
    if not fold.dtype.is_float:
        return beyond
    return beyond | (is_nan(y) & compare(Op.EQ, x, x))


def same(x: UOp, y: UOp) -> UOp:
    """Whether neither value beats the other."""
    equal = compare(Op.EQ, x, y)
    if not x.dtype.is_float:
        return equal
    return equal | (is_nan(x) & is_nan(y))


def negate(x: UOp) -> UOp:
    """Change the sign of a float, NaN and zeros too."""
    return UOp(Op.NEG, x.dtype, (x,))


def is_nan(x: UOp) -> UOp:
    """Whether a float is no number."""
    return compare(Op.NE, x, x)


def join_all(fold: Fold, parts: list[Part]) -> Part:
    """Return the fold of all parts, in pairs."""
    while len(parts) > 1:
        pairs = [join(fold, *parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def join_lanes(fold: Fold, part: Part) -> Part:
    """Return the fold of a part's lanes as a scalar part."""
    lanes = part.value.dtype.lanes
    while lanes > 1 and lanes * part.value.dtype.itemsize > NARROWEST_BYTES:
        lanes //= 2
        part = join(fold, picked(part, range(lanes)), picked(part, range(lanes, 2 * lanes)))
    distance = lanes // 2
    while distance:
        rotated = [(i + distance) % lanes for i in range(lanes)]
        part = join(fold, part, picked(part, rotated))
        distance //= 2
    if lanes == 1:
        return part
    return Part(lane(part.value, 0), None if part.position is None else lane(part.position, 0))


def picked(part: Part, lanes: range | list[int]) -> Part:
    """Return some lanes of a part."""
    value = shuffle(part.value, part.value, lanes)
    if part.position is None:
        return Part(value)
    return Part(value, shuffle(part.position, part.position, lanes))


class Accumulator:
    """The registers of one fold at one point, or along the lanes of one."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self._b = b
        self._fold = fold
        self._lanes = lanes
        self._value = b.register(fold.dtype.vector(lanes), fold.combine.identity(fold.dtype))
        self._position: UOp | None = None
        if fold.position is not None:
            self._position = b.register(fold.position.vector(lanes), 0)

    def part(self) -> Part:
        """Read what was folded so far."""
        position = None if self._position is None else self._b.read(self._position)
        return Part(self._b.read(self._value), position)

    def write(self, part: Part) -> None:
        """Replace what was folded so far."""
        self._b.write(self._value, part.value)
        if self._position is not None and part.position is not None:
            self._b.write(self._position, part.position)

    def join(self, part: Part) -> None:
        """Fold another part into this one."""
        self.write(join(self._fold, self.part(), part))

    def include(self, point: Evaluator, position: UOp, along: bool, valid: int) -> None:
        """Fold the element at a point into this one; elements come in ascending order.

        `position` is the element's (lane 0's). With `along` the lanes are elements of the fold, of
        which the first `valid` exist; otherwise each lane is a fold of its own.
        """
        before = self.part()
        after = with_element(self._fold, before, point, position, along)
        if along and valid < self._lanes:
            after = self._blend(before, after, valid)
        self.write(after)

    def _blend(self, before: Part, after: Part, valid: int) -> Part:
        """Take the valid lanes of `after` and the others of `before`."""
        lanes = [i if i < valid else self._lanes + i for i in range(self._lanes)]
        value = shuffle(after.value, before.value, lanes)
        if before.position is None or after.position is None:
            return Part(value)
        return Part(value, shuffle(after.position, before.position, lanes))


def with_element(fold: Fold, before: Part, point: Evaluator, position: UOp, along: bool) -> Part:
    """Return a part with the element at a point, or one in each of its lanes, joined to it."""
    lanes = before.value.dtype.lanes

    def wide(value: UOp) -> UOp:
        return splat(value, lanes) if value.dtype.lanes == 1 else value

    if fold.factors is not None:
        x, y = [wide(point.value(each)) for each in fold.factors]
        return Part(fma(x, y, before.value))
    element = wide(cast(point.value(fold.element), fold.dtype))
    if fold.position is None or before.position is None:
        return Part(binary(COMBINE_OPS[fold.combine], before.value, element))
    here = wide(cast(position, fold.position))
    if along and lanes > 1:
        here = here + stack([const(fold.position, i) for i in range(lanes)])
    wins = beats(fold, element, before.value)
    value = where(wins, element, before.value)
    return Part(value, where(wins, here, before.position))


def result_of(fold: Fold, part: Part) -> UOp:
    """Return the fold's value in its node's dtype."""
    value = negate(part.value) if fold.is_negated else part.value
    return cast(value if part.position is None else part.position, fold.node.dtype)
