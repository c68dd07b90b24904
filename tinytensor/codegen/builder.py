"""Turns structured Python (with-blocks, reads and writes) into the LINEAR form's statement list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tinytensor.codegen.placement import Placement
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import AccessAttrs, EffectAttrs, LanesAttrs, LoopAttrs, WorkspaceAttrs
from tinytensor.ops.kernel import Param
from tinytensor.ops.linear import UNORDERED, Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import Number, UOp, const, make_param
from tinytensor.records import dataclass

ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Pieces:
    """Loads of `width` aligned elements, and the place that each lane has in them, end to end."""

    vectors: tuple[UOp, ...]
    width: int
    lanes: tuple[int, ...]


class Builder:
    """Collects statements; pure values are placed where they are first needed in a block.

    Arithmetic is written on nodes themselves (`x + y`); `value` pins a value at the current place.
    Indices are of `index_dtype`, in elements.
    """

    has_maximum = False  # whether MAX of floats is one instruction
    aligns_vectors = False  # whether a vector access promises alignment to its own size

    def __init__(self, name: str, params: Sequence[Param], index_dtype: DType) -> None:
        self.name = name
        self.params = tuple(params)
        self.index_dtype = index_dtype
        self._placement = Placement()
        self._order = 0
        self._workspace_bytes = 0

    def finish(self) -> Linear:
        """Return the finished form."""
        if self._placement.is_inside_block:
            raise InternalError(f"builder: {self.name}: a block is still open.")
        statements = tuple(self._placement.statements)
        return Linear(self.name, self.params, statements, self._workspace_bytes)

    # Buffers and constants.
    def param(self, number: int) -> UOp:
        """Return the kernel's buffer of that number."""
        param = self.params[number]
        return make_param(param.dtype, number, param.elements)

    def workspace(self, dtype: DType, elements: int) -> UOp:
        """Return a fresh region of scratch memory, 64-byte aligned."""
        offset = self._workspace_bytes
        size = elements * dtype.itemsize
        self._workspace_bytes = offset + -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return UOp(Op.WORKSPACE, dtype, (), WorkspaceAttrs(offset, elements))

    def index(self, value: int) -> UOp:
        """Return a constant of the index dtype."""
        return const(self.index_dtype, value)

    def pieces_of(self, load: UOp, range_: UOp, lanes: int) -> Pieces | None:
        """Return the vectors in which lanes of an INDEXED load lie that are none themselves."""
        return None

    # Blocks.
    @contextmanager
    def loop(
        self, begin: UOp | int, end: UOp | int, step: int = 1, unroll: int = 1
    ) -> Iterator[UOp]:
        """Open a loop; gives its variable, which takes begin, begin + step, .. below end."""
        first, last = self._as_index(begin), self._as_index(end)
        attrs = LoopAttrs(self._next_order(), step, unroll)
        variable = self._effect(UOp(Op.LOOP, self.index_dtype, (first, last), attrs))
        yield variable
        self._ordered(Op.ENDLOOP, dtypes.void, variable)

    @contextmanager
    def branch(self, cond: UOp) -> Iterator[UOp]:
        """Open a block that runs when cond; gives the IF, which `otherwise` takes."""
        opened = self._ordered(Op.IF, dtypes.void, cond)
        yield opened
        self._ordered(Op.ENDIF, dtypes.void, opened)

    def otherwise(self, opened: UOp) -> None:
        """Start the other half of the innermost open branch."""
        self._ordered(Op.ELSE, dtypes.void, opened)

    # Values and state.
    def value(self, node: UOp) -> UOp:
        """Place a pure value here, so that blocks opened later can use it without recomputing."""
        self._placement.place(node)
        return node

    def register(self, dtype: DType, initial: UOp | Number | None = None) -> UOp:
        """Declare a register variable, perhaps with a value (a number fills every lane)."""
        variable = self._ordered(Op.REGISTER, dtype)
        if initial is None:
            return variable
        if not isinstance(initial, UOp):
            initial = splat(const(dtype.scalar, initial), dtype.lanes)
        self.write(variable, initial)
        return variable

    def read(self, register: UOp) -> UOp:
        """Return the register's value as it is now."""
        return self._ordered(Op.READ, register.dtype, register)

    def write(self, register: UOp, value: UOp) -> None:
        """Set the register."""
        self._ordered(Op.WRITE, dtypes.void, register, value)

    # Memory.
    def load(
        self, source: UOp, index: UOp, lanes: int = 1, valid: int = 0, guard: UOp | None = None
    ) -> UOp:
        """Read `lanes` adjacent elements; lanes from `valid` on (0: none) read 0.

        With a scalar guard, everything reads 0 when it is false and memory is not touched.
        """
        pure = self.load_unwritten(source, index, lanes, valid, guard)
        if source.op is Op.PARAM and not self.params[source.attrs.number].written:
            return pure
        attrs = AccessAttrs(self._next_order(), valid or lanes)
        return self._effect(UOp(Op.LOAD, pure.dtype, pure.operands, attrs))

    def load_unwritten(
        self, source: UOp, index: UOp, lanes: int = 1, valid: int = 0, guard: UOp | None = None
    ) -> UOp:
        """Read what this launch has not written when it is needed: a pure value."""
        operands = (source, index) if guard is None else (source, index, guard)
        attrs = AccessAttrs(UNORDERED, valid or lanes)
        return UOp(Op.LOAD, source.dtype.vector(lanes), operands, attrs)

    def store(
        self, target: UOp, index: UOp, value: UOp, valid: int = 0, guard: UOp | None = None
    ) -> None:
        """Write the value's lanes (the first `valid` of them) to adjacent elements."""
        attrs = AccessAttrs(self._next_order(), valid or value.dtype.lanes)
        operands = (target, index, value) if guard is None else (target, index, value, guard)
        self._effect(UOp(Op.STORE, dtypes.void, operands, attrs))

    # The list itself.
    def _as_index(self, value: UOp | int) -> UOp:
        return self.index(value) if isinstance(value, int) else value

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _ordered(self, op: Op, dtype: DType, *operands: UOp) -> UOp:
        return self._effect(UOp(op, dtype, operands, EffectAttrs(self._next_order())))

    def _effect(self, node: UOp) -> UOp:
        for each in node.operands:
            self._placement.place(each)
        return self._placement.add(node)


def splat(x: UOp, lanes: int) -> UOp:
    """Return a vector with x in every lane (x itself for one lane)."""
    return x if lanes == 1 else UOp(Op.SPLAT, x.dtype.vector(lanes), (x,))


def stack(lanes: Sequence[UOp]) -> UOp:
    """Return the vector of those scalars."""
    return UOp(Op.STACK, lanes[0].dtype.vector(len(lanes)), tuple(lanes))


def lane(x: UOp, number: int) -> UOp:
    """Return one lane of a vector as a scalar."""
    return UOp(Op.LANE, x.dtype.scalar, (x,), LanesAttrs((number,)))


def lanes_from(x: UOp, begin: int, count: int) -> UOp:
    """Return adjacent lanes of a vector."""
    if count == x.dtype.lanes:
        return x
    return lane(x, begin) if count == 1 else shuffle(x, x, range(begin, begin + count))


def shuffle(x: UOp, y: UOp, lanes: Sequence[int]) -> UOp:
    """Return lanes picked from x and y laid end to end."""
    dtype = x.dtype.vector(len(lanes))
    return UOp(Op.SHUFFLE, dtype, (x, y), LanesAttrs(tuple(lanes)))


def fma(x: UOp, y: UOp, z: UOp) -> UOp:
    """Return x * y + z rounded once."""
    return UOp(Op.FMA, x.dtype, (x, y, z))
