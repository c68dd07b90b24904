"""Turns expressions over named variables into patterns that nodes are matched against."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from tinytensor.dtype import DType
from tinytensor.ops.op import COMPARE, Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

Kind = Literal["any", "index", "integer", "whole", "user", "bool"]
KINDS: dict[Kind, Callable[[DType], bool]] = {
    "any": lambda dtype: True,
    "index": lambda dtype: dtype.kind == "index",
    "integer": lambda dtype: dtype.is_int,
    "whole": lambda dtype: dtype.is_int or dtype.kind == "bool",
    "user": lambda dtype: dtype.kind not in ("index", "void"),
    "bool": lambda dtype: dtype.kind == "bool",
}


class Pattern:
    """A set of nodes; arithmetic between patterns makes the pattern of that operation."""

    __slots__ = ()

    def __add__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.ADD, self, other)

    def __sub__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.SUB, self, other)

    def __mul__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.MUL, self, other)

    def __floordiv__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.FLOORDIV, self, other)

    def __mod__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.MOD, self, other)

    def __and__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.AND, self, other)

    def __xor__(self, other: Pattern) -> Pattern:
        return pattern_of(Op.XOR, self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Pattern):
    """Any node whose dtype is of the kind; wherever the name recurs, the identical node."""

    name: str
    kind: Kind
    is_constant: bool

    def accepts(self, node: UOp) -> bool:
        """Whether the node may stand for this variable."""
        if self.is_constant and node.op is not Op.CONST:
            return False
        return KINDS[self.kind](node.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Pattern):
    """A node of one of `ops` whose operands match; `operands` None takes any."""

    ops: frozenset[Op]
    operands: tuple[Pattern, ...] | None
    kind: Kind = "any"


def variable(name: str, kind: Kind = "any") -> Variable:
    """Return a pattern for any node of a kind of dtype."""
    return Variable(name, kind, False)


def constant(name: str, kind: Kind = "any") -> Variable:
    """Return a pattern for any CONST of a kind of dtype."""
    return Variable(name, kind, True)


def pattern_of(op: Op, *operands: Pattern) -> Operation:
    """Return the pattern of one op over operand patterns."""
    return Operation(frozenset((op,)), operands)


def one_of(ops: Iterable[Op], *operands: Pattern) -> Operation:
    """Return the pattern of any op among several over the same operand patterns."""
    return Operation(frozenset(ops), operands)


def any_operands(ops: Iterable[Op], kind: Kind) -> Operation:
    """Return the pattern of any op among several, whatever its operands, by its result's dtype."""
    return Operation(frozenset(ops), None, kind)


def comparison(x: Pattern, y: Pattern) -> Operation:
    """Return the pattern of any comparison."""
    return one_of(COMPARE, x, y)


def select(cond: Pattern, x: Pattern, y: Pattern) -> Operation:
    """Return the pattern of a WHERE."""
    return pattern_of(Op.WHERE, cond, x, y)


def match(pattern: Pattern, node: UOp, found: dict[str, UOp]) -> bool:
    """Whether a node matches; fills `found` with the node of each variable.

    It recurses over the pattern, which is a few levels deep, never over the graph.
    """
    if isinstance(pattern, Variable):
        return pattern.accepts(node) and found.setdefault(pattern.name, node) is node
    assert isinstance(pattern, Operation), "there are two classes of patterns"
    if node.op not in pattern.ops or not KINDS[pattern.kind](node.dtype):
        return False
    if pattern.operands is None:
        return True
    if len(pattern.operands) != len(node.operands):
        return False
    pairs = zip(pattern.operands, node.operands, strict=True)
    return all(match(part, operand, found) for part, operand in pairs)


def may_match(pattern: Operation, op: Op, operand_ops: tuple[Op, ...]) -> bool:
    """Whether a node could match, judged by its op and the ops of its operands alone."""
    if op not in pattern.ops:
        return False
    if pattern.operands is None:
        return True
    if len(pattern.operands) != len(operand_ops):
        return False
    pairs = zip(pattern.operands, operand_ops, strict=True)
    return all(_may_be(part, found) for part, found in pairs)


def _may_be(pattern: Pattern, op: Op) -> bool:
    if isinstance(pattern, Variable):
        return op is Op.CONST or not pattern.is_constant
    return isinstance(pattern, Operation) and op in pattern.ops
