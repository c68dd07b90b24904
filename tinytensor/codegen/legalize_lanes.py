"""Turns vector values into scalars and pairs of halves, which is what a GPU's thread computes with.

Vectors remain where a whole one is moved or multiplied: loads and stores, matrix instructions, and
the registers of a warpgroup's products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tinytensor.codegen.builder import lane, shuffle, splat, stack
from tinytensor.codegen.instructions_cuda import is_instruction
from tinytensor.codegen.placement import Placement, drop_unused, fresh_orders
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import AccessAttrs
from tinytensor.ops.linear import UNORDERED, Linear, is_pure
from tinytensor.ops.op import ELEMENTWISE, MACHINE, Op
from tinytensor.ops.uop import UOp, const
from tinytensor.records import dataclass
from tinytensor.target import Target

LANEWISE = ELEMENTWISE | {*MACHINE, Op.CALL}
BY_GROUP = frozenset((Op.WGMMA_FENCE, Op.WGMMA, Op.WGMMA_WAIT))


@dataclass(frozen=True, slots=True)
class Parts:
    """A value's lanes, each a scalar; and two by two where it was computed in pairs."""

    lanes: tuple[UOp, ...]
    pairs: tuple[UOp, ...] = ()


def split_lanes(linear: Linear, target: Target) -> Linear:
    """Compute lane by lane; arithmetic of halves in pairs where the target has it.

    Takes:  LINEAR form of a thread block without collective ops on tiles.
    Gives:  LINEAR form whose vectors are whole loads and stores, what matrix instructions take
            and give, pairs of halves, and the accumulators of warpgroups.
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
        self._orders = fresh_orders(linear)
        by_group = [node for node in linear.statements if node.op in BY_GROUP]
        held = [each for node in by_group for each in node.operands]
        self._whole = {each for each in held if each.op is Op.REGISTER}

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

    def scalars(self, nodes: Sequence[UOp]) -> tuple[UOp, ...]:
        """Return what several scalars became."""
        return tuple([self.scalar(each) for each in nodes])

    def pairs(self, node: UOp) -> tuple[UOp, ...]:
        """Return a vector's lanes two by two."""
        parts = self.parts[node]
        if parts.pairs:
            return parts.pairs
        firsts, seconds = parts.lanes[::2], parts.lanes[1::2]
        return tuple([stack(each) for each in zip(firsts, seconds, strict=True)])

    def order(self, node: UOp, part: int) -> int:
        """Return the order of one part of an effect: the first keeps the effect's own."""
        order: int = node.attrs.order
        return order if part == 0 else next(self._orders)

    def renew(self, node: UOp, part: int, operands: Sequence[UOp], lanes: int = 1) -> UOp:
        """Return one part of an effect, on parts of its operands."""
        attrs = replace(node.attrs, order=self.order(node, part))
        dtype = node.dtype.scalar.vector(lanes)
        return UOp(node.op, dtype, tuple(operands), attrs)

    # Values.
    def rebuild(self, node: UOp) -> Parts:
        """Keep a node whose operands are scalars."""
        rebuilt = node.replace(self.scalars(node.operands))
        if not is_pure(node):
            self.placement.add(rebuilt)
        return _whole(rebuilt)

    def lanewise(self, node: UOp) -> Parts:
        """Compute each lane, or each pair of lanes."""
        if _has_pairs(node):
            pairs = _remade(node, [self.pairs(each) for each in node.operands], 2)
            if is_instruction(pairs[0], self.target):
                return _of_pairs(pairs)
        lanes = _remade(node, [self.parts[each].lanes for each in node.operands], 1)
        return Parts(tuple(lanes))

    def splat(self, node: UOp) -> Parts:
        """Repeat a scalar."""
        x = self.scalar(node.operands[0])
        count = node.dtype.lanes
        lanes = (x,) * count
        if not _has_pairs(node):
            return Parts(lanes)
        pairs = (splat(x, 2),) * (count // 2)
        return Parts(lanes, pairs)

    def stack(self, node: UOp) -> Parts:
        """Lay scalars side by side."""
        return Parts(self.scalars(node.operands))

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
        """Load the whole vector, or its valid lanes one by one."""
        lanes, valid = node.dtype.lanes, node.attrs.valid
        if valid == lanes:
            return self.load_part(node, 0, lanes)
        loaded = [self.load_part(node, number, 1).lanes[0] for number in range(valid)]
        zero = const(node.dtype.scalar, 0)
        missing = [zero] * (lanes - valid)
        return Parts((*loaded, *missing))

    def load_part(self, node: UOp, begin: int, lanes: int) -> Parts:
        """Load adjacent lanes from the one numbered `begin` on."""
        buffer, index, *guard = self.scalars(node.operands)
        order = UNORDERED if is_pure(node) else self.order(node, begin)
        place = index + begin if begin else index
        dtype = node.dtype.scalar.vector(lanes)
        attrs = AccessAttrs(order, lanes)
        loaded = UOp(Op.LOAD, dtype, (buffer, place, *guard), attrs)
        if not is_pure(node):
            self.placement.add(loaded)
        return _whole(loaded)

    def store(self, node: UOp) -> Parts:
        """Store the whole vector, or its valid lanes one by one."""
        value = self.parts[node.operands[2]].lanes
        valid = node.attrs.valid
        if 1 < valid == len(value):
            self.store_part(node, 0, stack(value))
        else:
            for number in range(valid):
                self.store_part(node, number, value[number])
        return Parts(())

    def store_part(self, node: UOp, begin: int, value: UOp) -> None:
        """Store adjacent lanes from the one numbered `begin` on."""
        buffer, index = self.scalars(node.operands[:2])
        guard = self.scalars(node.operands[3:])
        place = index + begin if begin else index
        order = self.order(node, begin)
        attrs = AccessAttrs(order, value.dtype.lanes)
        operands = (buffer, place, value, *guard)
        self.placement.add(UOp(Op.STORE, dtypes.void, operands, attrs))

    # State.
    def register(self, node: UOp) -> Parts:
        """Declare a register for each lane or pair."""
        if node in self._whole:
            return Parts((self.placement.add(node),))
        lanes = 2 if _has_pairs(node) else 1
        count = node.dtype.lanes // lanes
        registers = [self.renew(node, part, (), lanes) for part in range(count)]
        return Parts(tuple([self.placement.add(each) for each in registers]))

    def read(self, node: UOp) -> Parts:
        """Read the register of each lane or pair."""
        register = node.operands[0]
        if register in self._whole:
            return _whole(self.placement.add(node))
        registers = self.parts[register].lanes
        lanes = node.dtype.lanes // len(registers)
        reads = [self.renew(node, part, (each,), lanes) for part, each in enumerate(registers)]
        for each in reads:
            self.placement.add(each)
        return _of_pairs(reads) if lanes == 2 else Parts(tuple(reads))

    def write(self, node: UOp) -> Parts:
        """Write the register of each lane or pair."""
        register, value = node.operands
        if register in self._whole:
            whole = stack(self.parts[value].lanes)
            self.placement.add(node.replace((register, whole)))
            return Parts(())
        registers = self.parts[register].lanes
        is_paired = registers[0].dtype.lanes == 2
        values = self.pairs(value) if is_paired else self.parts[value].lanes
        for part, operands in enumerate(zip(registers, values, strict=True)):
            self.placement.add(self.renew(node, part, operands))
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
    firsts = range(0, lanes, 2)
    return _of_pairs([shuffle(node, node, (first, first + 1)) for first in firsts])


def _of_pairs(pairs: Sequence[UOp]) -> Parts:
    lanes = [lane(each, number) for each in pairs for number in range(2)]
    return Parts(tuple(lanes), tuple(pairs))


def _has_pairs(node: UOp) -> bool:
    return node.dtype.is_half and node.dtype.lanes % 2 == 0


def _remade(node: UOp, operands: Sequence[Sequence[UOp]], lanes: int) -> list[UOp]:
    """An op on each part of its operands."""
    dtype = node.dtype.scalar.vector(lanes)
    return [UOp(node.op, dtype, parts, node.attrs) for parts in zip(*operands, strict=True)]


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
