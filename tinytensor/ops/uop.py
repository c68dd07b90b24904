"""The one node of every graph: interned, immutable, with its shape inferred once."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any

from tinytensor.dtype import DType, decode, dtypes, encode
from tinytensor.errors import InternalError
from tinytensor.ops import attrs as a
from tinytensor.ops.infer import INFER
from tinytensor.ops.op import VIEWS, Op

Key = tuple[Op, DType, tuple["UOp", ...], object]
Number = bool | int | float


class UOp:
    """An operation on operands, with a dtype and static attrs; equal means identical.

    `shape` is the result's shape in TENSOR form and `()` in the other forms.
    """

    __slots__ = (
        *("__weakref__", "attrs", "bounds", "computed", "content", "dtype"),
        *("is_differentiable", "memory", "op", "operands", "shape", "user"),
    )
    op: Op
    dtype: DType
    operands: tuple[UOp, ...]
    attrs: Any  # narrowed by `op`: each op has its own attrs class
    content: object  # of the attrs, what a schedule depends on: no serials
    shape: tuple[int, ...]
    bounds: tuple[int | float, int | float] | None  # filled by ops/bounds.py on first use
    # Gives the leaf that holds the value, while somebody keeps it; None if it was never computed.
    computed: Callable[[], UOp | None] | None
    is_differentiable: bool  # whether it, or a float that goes into it, requires a gradient
    memory: Any  # of a BUFFER: where its elements lie, a matter of the runtime; None until then
    user: weakref.ref[UOp] | None  # a node whose first operand this is, if there ever was one

    def __new__(
        cls,
        op: Op,
        dtype: DType,
        operands: tuple[UOp, ...] = (),
        attrs: a.Attrs | None = None,
    ) -> UOp:
        """Return the one node of that operation, building it when there is none.

        Most nodes are read by one: that one is known to its first operand, and only others, and
        those without operands, to the table, where a place costs as much as all else of a node.
        """
        content = None if attrs is None else _CONTENT[type(attrs)](attrs)
        first = operands[0] if operands and op is not DETACH else None
        seen = first.user if first is not None else None
        known = seen() if seen is not None else None
        if known is not None and known.operands == operands and known.op is op:
            # Hashes first: a Size takes a comparison as a claim.
            is_alike = hash(known.content) == hash(content) and known.content == content
            if is_alike and known.dtype is dtype:
                return known
        if first is None or seen is not None:  # else nobody has ever read it
            reference = _INTERNED.get((op, dtype, operands, content))
            node = reference() if reference is not None else None
            if node is not None:
                return node
        node = object.__new__(cls)
        node.op = op
        node.dtype = dtype
        node.operands = operands
        node.attrs = attrs
        node.bounds = node.computed = node.user = None
        node.content = content
        node.is_differentiable = False
        for each in operands:
            if each.is_differentiable:
                node.is_differentiable = dtype.is_float and op is not BITCAST
        node.shape = INFER[op](node)
        if op is BUFFER:
            node.content = node.shape
        elif op is DETACH:
            node.content = None
            node.is_differentiable = node.attrs.is_differentiable
        user = weakref.ref(node)
        if first is not None and known is None and first.user is seen:  # no other thread's since
            first.user = user
        else:
            kept = _Reference(node, _forget)
            kept.key = (op, dtype, operands, content)
            _INTERNED[kept.key] = kept
        return node

    def __repr__(self) -> str:
        operands = len(self.operands)
        return f"<{self.op.name} {self.dtype.name} {self.shape} of {operands} operands>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("uop: nodes are not pickled; use ops.text to write and read a graph.")

    @property
    def value(self) -> Number:
        """The Python number of a CONST."""
        return decode(self.dtype, self.attrs.bits)

    @property
    def extent(self) -> int:
        """The number of values of a RANGE, at most so many where `is_open`."""
        extent: int = self.attrs.extent
        return extent

    @property
    def is_open(self) -> bool:
        """Whether a RANGE's number of values is its operand, known only at launch."""
        return bool(self.operands)

    def replace(self, operands: tuple[UOp, ...]) -> UOp:
        """Return the same operation on other operands."""
        if operands == self.operands:
            return self
        return UOp(self.op, self.dtype, operands, self.attrs)

    # Arithmetic between nodes of one dtype, or with a Python number of that dtype.
    def __add__(self, other: UOp | Number) -> UOp:
        return binary(Op.ADD, self, other)

    def __sub__(self, other: UOp | Number) -> UOp:
        return binary(Op.SUB, self, other)

    def __mul__(self, other: UOp | Number) -> UOp:
        return binary(Op.MUL, self, other)

    def __floordiv__(self, other: UOp | Number) -> UOp:
        return binary(Op.FLOORDIV, self, other)

    def __mod__(self, other: UOp | Number) -> UOp:
        return binary(Op.MOD, self, other)

    def __and__(self, other: UOp | Number) -> UOp:
        return binary(Op.AND, self, other)

    def __or__(self, other: UOp | Number) -> UOp:
        return binary(Op.OR, self, other)

    def __xor__(self, other: UOp | Number) -> UOp:
        return binary(Op.XOR, self, other)

    def __lt__(self, other: UOp | Number) -> UOp:
        return compare(Op.LT, self, other)

    def __le__(self, other: UOp | Number) -> UOp:
        return compare(Op.LE, self, other)


class Open:
    """An int of a shape that is known only at launch; `ops/size.py` says what it does."""

    __slots__ = ()
    expression: UOp

    @property
    def value(self) -> int:
        """What it is while the graph is built."""
        raise NotImplementedError


class _Reference(weakref.ref[UOp]):
    """A node that lives as long as somebody holds it, and the key it is interned by."""

    __slots__ = ("key",)
    key: Key


class _Contents(dict[type, Callable[[Any], object]]):
    """What gives the fields of attrs, by class: an op has one, and fields are hashed faster."""

    def __missing__(self, kind: type) -> Callable[[Any], object]:
        self[kind] = getter = attrgetter(*[each.name for each in fields(kind)])
        return getter


_CONTENT = _Contents()


def _forget(reference: Any) -> None:  # noqa: ANN401 - a _Reference
    """Remove a dead node's key, unless another thread interned the key again meanwhile."""
    key = reference.key
    if _INTERNED.get(key) is reference:
        _INTERNED.pop(key, None)


# Looked up once: every node that is made asks.
BITCAST, BUFFER, DETACH = Op.BITCAST, Op.BUFFER, Op.DETACH
_INTERNED: dict[Key, _Reference] = {}
_SERIALS: Iterator[int] = itertools.count()


def const(dtype: DType, value: Number) -> UOp:
    """Return the constant of that value, rounded or wrapped to the dtype."""
    if isinstance(value, Open):
        return cast(cast(value.expression, dtypes.int64), dtype)
    return UOp(Op.CONST, dtype, (), a.ConstAttrs(encode(dtype, value)))


def index_const(value: int) -> UOp:
    """Return a constant of the index dtype, or what stands for a number known only at launch."""
    if isinstance(value, Open):
        return value.expression
    return UOp(Op.CONST, dtypes.index, (), a.ConstAttrs(value))


def operand(like: UOp, value: UOp | Number) -> UOp:
    """Return a node as it is, and a number as a constant of the other node's dtype."""
    if isinstance(value, UOp):
        return value
    if like.dtype is dtypes.index:
        return index_const(int(value) if isinstance(value, float) else value)
    made = const(like.dtype.scalar, value)
    if like.dtype.lanes > 1:
        return UOp(Op.SPLAT, like.dtype, (made,))
    return made


def binary(op: Op, x: UOp, y: UOp | Number) -> UOp:
    """Return an elementwise op of two nodes of one dtype."""
    return UOp(op, x.dtype, (x, operand(x, y)))


def compare(op: Op, x: UOp, y: UOp | Number) -> UOp:
    """Return a comparison of two nodes of one dtype, as bool."""
    return UOp(op, dtypes.bool.vector(x.dtype.lanes), (x, operand(x, y)))


def where(cond: UOp, x: UOp, y: UOp | Number) -> UOp:
    """Return x where cond, else y."""
    return UOp(Op.WHERE, x.dtype, (cond, x, operand(x, y)))


def cast(x: UOp, dtype: DType) -> UOp:
    """Return x in another dtype (itself when it has it), lanes kept."""
    if x.dtype is dtype:
        return x
    target = dtype.vector(x.dtype.lanes)
    return x if x.dtype is target else UOp(Op.CAST, target, (x,))


def bitcast(x: UOp, dtype: DType) -> UOp:
    """Return x's bits read as another dtype of the same width, lanes kept."""
    target = dtype.vector(x.dtype.lanes)
    return x if x.dtype is target else UOp(Op.BITCAST, target, (x,))


def buffer(dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    """Return a leaf for a fresh allocation; no two calls give the same node."""
    leaf = UOp(Op.BUFFER, dtype, (), a.BufferAttrs(next(_SERIALS), shape, device))
    leaf.memory = None
    return leaf


def living_leaves() -> list[UOp]:
    """Return all BUFFER leaves that somebody holds."""
    nodes = [reference() for reference in list(_INTERNED.values())]
    return [node for node in nodes if node is not None and node.op is BUFFER]


def nbytes_of(node: UOp) -> int:
    """Return the size of a node's value in memory, with the values that variables have now."""
    elements = math.prod([n.value if isinstance(n, Open) else n for n in node.shape])
    return elements * node.dtype.itemsize


def make_range(number: int, extent: int, exact: UOp | None = None) -> UOp:
    """Return a loop variable of the indexed form; `exact` is its extent, known only at launch."""
    operands = () if exact is None else (exact,)
    return UOp(Op.RANGE, dtypes.index, operands, a.RangeAttrs(number, extent))


def exact_extent(range_: UOp) -> UOp:
    """Return a RANGE's number of values as an index expression."""
    return range_.operands[0] if range_.is_open else index_const(range_.extent)


def make_variable(number: int, least: int, most: int) -> UOp:
    """Return an index between two ends, known only at launch."""
    return UOp(Op.VARIABLE, dtypes.index, (), a.VariableAttrs(number, least, most))


def make_param(dtype: DType, number: int, elements: int) -> UOp:
    """Return a kernel's buffer, by its number."""
    return UOp(Op.PARAM, dtype, (), a.ParamAttrs(number, elements))


def below_views(node: UOp) -> UOp:
    """Return what the views above it show."""
    while node.op in VIEWS:
        node = node.operands[0]
    return node


def walk(roots: Iterable[UOp], stop: Container[UOp] = frozenset()) -> list[UOp]:
    """Return every node reachable from the roots, operands before users, each once.

    Nodes in `stop` are listed and not entered. Iterative: a chain of any length is fine.
    """
    order: dict[UOp, None] = {}
    seen: set[UOp] = set()
    stack = [*roots][::-1]
    while stack:
        node = stack.pop()
        if node in seen or not node.operands or node in stop:
            order[node] = None
            continue
        seen.add(node)
        stack.append(node)
        for each in reversed(node.operands):
            if each not in order:
                stack.append(each)
    return list(order)


def by_number(nodes: Iterable[UOp], op: Op) -> list[UOp]:
    """Return those nodes that are of an op, by the numbers in their attrs."""
    found = [node for node in nodes if node.op is op]
    return sorted(found, key=lambda each: int(each.attrs.number))


def fresh_number(nodes: Iterable[UOp]) -> int:
    """Return a number above that of each RANGE among some nodes."""
    return 1 + max([int(node.attrs.number) for node in nodes if node.op is Op.RANGE], default=-1)


def substitute(root: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Return the graph with some nodes replaced, wherever they occur."""
    return substitute_all((root,), replacements)[0]


def substitute_all(roots: tuple[UOp, ...], replacements: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """Return several graphs with some nodes replaced, in one walk; in none where all stay."""
    if all(node is other for node, other in replacements.items()):
        return roots
    mapped = dict(replacements)
    for node in walk(roots, stop=set(replacements)):
        if node not in mapped:
            mapped[node] = node.replace(tuple([mapped[each] for each in node.operands]))
    return tuple(mapped[root] for root in roots)


def require(claim: bool, node: UOp, sentence: str) -> None:
    """Raise InternalError naming the node when an invariant of the compiler does not hold."""
    if not claim:
        raise InternalError(f"{node.op.name.lower()}: {sentence}: {node!r}.")
