"""Turns vector values into scalars and pairs of halves, which is what a GPU's thread computes with.

Vectors remain where a whole one is moved or multiplied: loads and stores, matrix instructions, and
the registers of a warpgroup's products.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tinytensor.codegen.builder import lane, shuffle, splat, stack
from tinytensor.codegen.instructions_cuda import is_instruction
from tinytensor.codegen.placement import Placement, drop_unused
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import AccessAttrs
from tinytensor.ops.linear import UNORDERED, Linear, is_pure
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.uop import UOp, const
from tinytensor.target import Target

LANEWISE = ELEMENTWISE | {Op.FMA, Op.TRUNCDIV, Op.TRUNCMOD, Op.CALL}
BY_GROUP = frozenset((Op.WGMMA_FENCE, Op.WGMMA, Op.WGMMA_WAIT))


@dataclass(frozen=True, slots=True)
class Parts:
    """A value's lanes, each a scalar; and two by two where it was computed in pairs."""

    lanes: tuple[UOp, ...]
    pairs: tuple[UOp, ...] = ()


def split_lanes(linear: Linear, target: Target) -> Linear:
    """Compute lane by lane; arithmetic of halves in pairs where the target has it.

    Takes:  LINEAR form of a thread block without collective ops on tiles.
    Gives:  LINEAR form whose vectors are loads and stores of at most 16 bytes, what matrix
            instructions take and give, pairs of halves, and the accumulators of warpgroups.
    Placed: after `legalize_tiles`, whose accumulators it takes apart; before `legalize`, whose
            rules would widen every half.
    """
    splitter = _Splitter(linear, target)
    for node in linear.statements:
        splitter.split(node)
    return replace(linear, statements=drop_unused(splitter.placement.statements))


class _Splitter:
    """Walks the statements; knows the parts of each value above."""

    def __init__(self, linear: Linear, target: Target) -> None:
        self.target = target
        self.placement = Placement()
        self.parts: dict[UOp, Parts] = {}
        self._orders = _fresh_orders(linear)
        self._whole = {node.operands[0] for node in linear.statements if node.op in BY_GROUP}

    def split(self, node: UOp) -> None:
        """Find the parts of a statement, and place them."""
        rule = RULES.get(node.op, _Splitter.rebuild)
        parts = rule(self, node)
        self.parts[node] = parts
        if is_pure(node):
            for each in parts.pairs or parts.lanes:
                self.placement.add(each)

    def scalar(self, node: UOp) -> UOp:
        """Return what a scalar became."""
        return self.parts[node].lanes[0]

    def pairs(self, node: UOp) -> tuple[UOp, ...]:
        """Return a vector's lanes two by two."""
        parts = self.parts[node]
        lanes = parts.lanes
        return parts.pairs or tuple([stack(lanes[i : i + 2]) for i in range(0, len(lanes), 2)])

    def order(self, node: UOp, part: int) -> int:
        """Return the order of one part of an effect: the first keeps the effect's own."""
        order: int = node.attrs.order
        return order if part == 0 else next(self._orders)

    def renew(self, node: UOp, part: int, operands: Sequence[UOp], lanes: int = 1) -> UOp:
        """Return one part of an effect, on parts of its operands."""
        attrs = replace(node.attrs, order=self.order(node, part))
        return UOp(node.op, node.dtype.scalar.vector(lanes), tuple(operands), attrs)

    def effect(self, node: UOp) -> UOp:
        """Place an effect here."""
        self.placement.add(node)
        return node

    # Values.
    def rebuild(self, node: UOp) -> Parts:
        """Keep a node whose operands are scalars."""
        rebuilt = node.replace(tuple([self.scalar(each) for each in node.operands]))
        if not is_pure(node):
            self.effect(rebuilt)
        return _whole(rebuilt)

    def lanewise(self, node: UOp) -> Parts:
        """Compute each lane, or each pair of lanes."""
        if _has_pairs(node):
            operands = [self.pairs(each) for each in node.operands]
            pairs = [_remade(node, each, 2) for each in zip(*operands, strict=True)]
            if is_instruction(pairs[0], self.target):
                return _of_pairs(pairs)
        operands = [self.parts[each].lanes for each in node.operands]
        return Parts(tuple([_remade(node, each, 1) for each in zip(*operands, strict=True)]))

    def splat(self, node: UOp) -> Parts:
        """Repeat a scalar."""
        x = self.scalar(node.operands[0])
        lanes = (x,) * node.dtype.lanes
        return Parts(lanes, (splat(x, 2),) * (len(lanes) // 2) if _has_pairs(node) else ())

    def stack(self, node: UOp) -> Parts:
        """Lay scalars side by side."""
        return Parts(tuple([self.scalar(each) for each in node.operands]))

    def shuffle(self, node: UOp) -> Parts:
        """Pick lanes."""
        lanes = [each for x in node.operands for each in self.parts[x].lanes]
        return Parts(tuple([lanes[number] for number in node.attrs.lanes]))

    def product(self, node: UOp) -> Parts:
        """Give a matrix instruction its fragments."""
        operands = [stack(self.parts[each].lanes) for each in node.operands]
        return _whole(node.replace(tuple(operands)))

    # Memory.
    def load(self, node: UOp) -> Parts:
        """Load the whole vector, its 16-byte chunks, or its valid lanes one by one."""
        operands = [self.scalar(each) for each in node.operands]
        lanes, chunk = node.dtype.lanes, _chunk_lanes(node.dtype.lanes, node)
        if lanes == chunk and node.attrs.valid == lanes:
            return self.load_chunk(node, operands, 0, chunk)
        begins = range(0, node.attrs.valid, chunk)
        chunks = [self.load_chunk(node, operands, begin, chunk) for begin in begins]
        loaded = [each for part in chunks for each in part.lanes]
        missing = [const(node.dtype.scalar, 0)] * (lanes - len(loaded))
        return Parts((*loaded, *missing), tuple([each for part in chunks for each in part.pairs]))

    def load_chunk(self, node: UOp, operands: Sequence[UOp], begin: int, lanes: int) -> Parts:
        """Load adjacent lanes from the one numbered `begin` on."""
        buffer, index, *guard = operands
        order = UNORDERED if is_pure(node) else self.order(node, begin)
        dtype = node.dtype.scalar.vector(lanes)
        place = index + begin if begin else index
        loaded = UOp(Op.LOAD, dtype, (buffer, place, *guard), AccessAttrs(order, lanes))
        return _whole(loaded if is_pure(node) else self.effect(loaded))

    def store(self, node: UOp) -> Parts:
        """Store the whole vector, its 16-byte chunks, or its valid lanes one by one."""
        buffer, index, value, *guard = node.operands
        lanes, dtype = self.parts[value].lanes, value.dtype
        chunk = _chunk_lanes(dtype.lanes, node)
        for begin in range(0, node.attrs.valid, chunk):
            part = lanes[begin : begin + chunk]
            place = self.scalar(index) + begin if begin else self.scalar(index)
            stored = stack(part) if chunk > 1 else part[0]
            guards = [self.scalar(each) for each in guard]
            attrs = AccessAttrs(self.order(node, begin), chunk)
            operands = (self.scalar(buffer), place, stored, *guards)
            self.effect(UOp(Op.STORE, dtypes.void, operands, attrs))
        return Parts(())

    # State.
    def register(self, node: UOp) -> Parts:
        """Declare a register for each lane or pair."""
        if node in self._whole:
            return Parts((self.effect(node),))
        lanes = 2 if _has_pairs(node) else 1
        count = node.dtype.lanes // lanes
        registers = [self.renew(node, part, (), lanes) for part in range(count)]
        return Parts(tuple([self.effect(each) for each in registers]))

    def read(self, node: UOp) -> Parts:
        """Read the register of each lane or pair."""
        register = node.operands[0]
        if register in self._whole:
            return _whole(self.effect(node))
        registers = self.parts[register].lanes
        lanes = node.dtype.lanes // len(registers)
        reads = [self.renew(node, part, (each,), lanes) for part, each in enumerate(registers)]
        for each in reads:
            self.effect(each)
        return _of_pairs(reads) if lanes == 2 else Parts(tuple(reads))

    def write(self, node: UOp) -> Parts:
        """Write the register of each lane or pair."""
        register, value = node.operands
        if register in self._whole:
            self.effect(node.replace((register, stack(self.parts[value].lanes))))
            return Parts(())
        registers = self.parts[register].lanes
        is_paired = registers[0].dtype.lanes == 2
        values = self.pairs(value) if is_paired else self.parts[value].lanes
        for part, operands in enumerate(zip(registers, values, strict=True)):
            self.effect(self.renew(node, part, operands))
        return Parts(())


def _whole(node: UOp) -> Parts:
    """The parts of a value that stays as it is."""
    lanes = node.dtype.lanes
    if lanes == 1:
        return Parts((node,))
    taken = tuple([lane(node, number) for number in range(lanes)])
    if not _has_pairs(node):
        return Parts(taken)
    if lanes == 2:
        return Parts(taken, (node,))
    return _of_pairs([shuffle(node, node, (i, i + 1)) for i in range(0, lanes, 2)])


def _of_pairs(pairs: Sequence[UOp]) -> Parts:
    return Parts(tuple([lane(each, i) for each in pairs for i in range(2)]), tuple(pairs))


def _has_pairs(node: UOp) -> bool:
    return node.dtype.is_half and node.dtype.lanes % 2 == 0


def _remade(node: UOp, operands: Sequence[UOp], lanes: int) -> UOp:
    return UOp(node.op, node.dtype.scalar.vector(lanes), tuple(operands), node.attrs)


def _chunk_lanes(lanes: int, access: UOp) -> int:
    """How many lanes move at once: a power of two of at most 16 bytes, none of them missing."""
    buffer = access.operands[0]
    is_whole = access.attrs.valid == lanes and lanes & (lanes - 1) == 0
    return min(lanes, MOVED_BYTES // buffer.dtype.itemsize) if is_whole else 1


MOVED_BYTES = 16


def _fresh_orders(linear: Linear) -> Iterator[int]:
    used = [node.attrs.order for node in linear.statements if not is_pure(node)]
    return itertools.count(max(used, default=0) + 1)


RULES: dict[Op, Callable[[_Splitter, UOp], Parts]] = {
    **dict.fromkeys(LANEWISE, _Splitter.lanewise),
    **dict.fromkeys((Op.SHUFFLE, Op.LANE), _Splitter.shuffle),
    Op.SPLAT: _Splitter.splat,
    Op.STACK: _Splitter.stack,
    Op.MMA: _Splitter.product,
    Op.LOAD: _Splitter.load,
    Op.STORE: _Splitter.store,
    Op.REGISTER: _Splitter.register,
    Op.READ: _Splitter.read,
    Op.WRITE: _Splitter.write,
}
