"""Groups TENSOR nodes into regions: a reduction with the elementwise tail that runs in its kernel.

A region grows from a REDUCE to its users as long as each of their elements needs exactly the one
element of the region at the same place. Casts, biases, activations, residuals and permuted copies
of the result all join; what is read from outside becomes an output, so a kernel may store several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import ELEMENTWISE, Mark, Op
from tinytensor.ops.size import elements_now
from tinytensor.ops.uop import UOp, below_views
from tinytensor.schedule.describe import Draft
from tinytensor.schedule.lower_views import Index, ranges_over, reshape_index

LEAVES = frozenset((Op.CONST, Op.BUFFER, Op.IOTA, Op.VARIABLE))
# Views that show every element once, so that a region may go on beyond them.
BIJECTIVE = (Op.RESHAPE, Op.PERMUTE, Op.DETACH)
# As many reads fill a kernel: a C compiler's time grows with their square, to 7 s for 120 of them.
MOST_READS = 32
# A gather's read is one for each lane, at an address that may hold the reads of other gathers.
READS_OF_GATHER = 4
# A function is a polynomial and its slow path: 512 sines in one kernel took a C compiler 6 s.
OPS_OF_FUNCTION = 8


@dataclass(slots=True, eq=False)
class Region:
    """One kernel in the making.

    `position` gives, for each member, its index in terms of the anchor's ranges. `rank` is the
    number of kernels that must have run before, so an edge always leads to a higher rank. `drafts`
    become `decisions` when all is decided. `apart` says of values that other kernels store why it
    was not made one with these.
    """

    anchor: UOp
    position: dict[UOp, Index]
    rank: int
    read_outside: dict[UOp, None] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    apart: dict[UOp, str] = field(default_factory=dict)
    computed: list[UOp] = field(default_factory=list)
    ops: int = 1


def ops_of(node: UOp) -> int:
    """Return how many ops a kernel takes to compute a node from its operands."""
    if node.op.mark is Mark.TRANSCENDENTAL or node.op is Op.PHILOX:
        return OPS_OF_FUNCTION
    return int(node.op in ELEMENTWISE)


class ComputedSizes:
    """Counts the ops a kernel would compute, and what it reads, so that none outgrows the target.

    A sum over operands counts shared nodes more than once, and what was stored since, so it is an
    upper bound; only when that leaves no room for one op more are the nodes walked and counted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._read_ops = limit // MOST_READS
        self._most: dict[UOp, int] = {}
        self._stored: set[UOp] = set()

    def of(self, nodes: Sequence[UOp]) -> int:
        """Return how many ops it takes to give some values, at most about the limit."""
        bound = sum(self._bound(each) for each in nodes)
        return bound if bound < self.limit - 1 else self._count(nodes)

    def note(self, node: UOp, ops: int | None = None) -> None:
        """Take in a node that is computed by whoever reads it, from operands of that many `ops`."""
        known = self.of(node.operands) if ops is None else ops
        self._most[node] = self._computed_ops(node) + known

    def store(self, node: UOp) -> None:
        """Note that a node is stored: its users read it instead of computing it."""
        self._stored.add(node)

    def is_computed(self, node: UOp) -> bool:
        """Return whether a node's readers compute it themselves."""
        return node in self._most and node not in self._stored

    def _bound(self, node: UOp) -> int:
        return self._most[node] if self.is_computed(node) else self._own(node)

    def _own(self, node: UOp) -> int:
        if self.is_computed(node):
            return self._computed_ops(node)
        return 0 if node.op in LEAVES - {Op.BUFFER} else self._read_ops

    def _computed_ops(self, node: UOp) -> int:
        if node.op is Op.GATHER:
            return READS_OF_GATHER * self._read_ops
        return ops_of(node)

    def _count(self, nodes: Sequence[UOp]) -> int:
        seen = set(nodes)
        stack = list(seen)
        count = 0
        while stack and count < self.limit:
            node = stack.pop()
            count += self._own(node)
            if self.is_computed(node):
                fresh = set(node.operands) - seen
                seen |= fresh
                stack.extend(fresh)
        return count


class RegionBuilder:
    """One walk over the graph, operands before users; every node is visited once.

    `stored` nodes are known to be read and not computed, those `within` a contraction to be its
    own; `met_limit` says that a kernel was full.
    """

    def __init__(
        self,
        limit: int,
        fuse: int,
        stored: Iterable[UOp] = (),
        within: AbstractSet[UOp] = frozenset(),
    ) -> None:
        self.fuse = fuse
        self._within = within
        self.met_limit = False
        self.region_of: dict[UOp, Region] = {}
        self.regions: list[Region] = []
        self.too_big: dict[UOp, None] = {}
        self._earliest: dict[UOp, int] = {}
        self._sizes = ComputedSizes(limit)
        for node in stored:
            self._sizes.store(node)

    def visit(self, node: UOp) -> None:
        """Place one node: an anchor, a member of its operand's region, or neither."""
        if node.op in LEAVES:
            self._earliest[node] = 0
            return
        if node.op is Op.REDUCE and node not in self._within:
            self._anchor(node)
        elif self.fuse == 0 or not self._join(node):
            self._leave_free(node)
        self._note_outside_reads(node)

    def earliest(self, node: UOp) -> int:
        """Return the lowest rank at which a kernel may read a node."""
        region = self.region_of.get(node)
        return self._earliest[node] if region is None else region.rank + 1

    def _anchor(self, node: UOp) -> None:
        rank = max(self.earliest(each) for each in node.operands)
        position: dict[UOp, Index] = {node: ranges_over(node.shape, 0)}
        region = Region(node, position, rank)
        region.computed.extend(node.operands)
        self.region_of[node] = region
        self.regions.append(region)

    def _join(self, node: UOp) -> bool:
        if node.op not in ELEMENTWISE and node.op not in BIJECTIVE:
            return False
        found = {self.region_of[each]: None for each in node.operands if each in self.region_of}
        for region in sorted(found, key=lambda each: -each.rank):
            place = self._place_in(region, node)
            if isinstance(place, Draft):
                region.drafts.append(place)
                continue
            self._add(region, node, place)
            return True
        return False

    def _place_in(self, region: Region, node: UOp) -> Index | Draft:
        inside = [each for each in node.operands if each in region.position]
        outside = [each for each in node.operands if each not in region.position]
        places = {region.position[each] for each in inside}
        if len(places) > 1:
            reason = "it reads two different elements of the result; the result is stored."
            return Draft("decline", node, (reason,))
        latest = max(outside, key=self.earliest, default=node)
        if region.read_outside and outside and self.earliest(latest) > region.rank:
            later = below_views(latest)
            reason = " is computed by a later kernel, from this kernel's result."
            return Draft("decline", node, ("its operand ", later, reason))
        size = region.ops + self._sizes.of((*region.computed, *outside))
        if size >= self._sizes.limit:
            self.met_limit = True
            reason = f"the kernel is at its limit of {self._sizes.limit} ops."
            return Draft("decline", node, (reason,))
        return _position_through(node, places.pop())

    def _add(self, region: Region, node: UOp, place: Index) -> None:
        outside = [each for each in node.operands if each not in region.position]
        region.position[node] = place
        region.ops += ops_of(node)
        region.rank = max(region.rank, *(self.earliest(each) for each in outside), 0)
        region.computed.extend(outside)
        self.region_of[node] = region
        if node.op in ELEMENTWISE:
            reason = "each element needs one element of what was folded, at the same place."
            region.drafts.append(Draft("fuse", node, (reason,)))

    def _leave_free(self, node: UOp) -> None:
        self._earliest[node] = max(self.earliest(each) for each in node.operands)
        sizes = self._sizes
        ops = sizes.of(node.operands)
        while ops >= sizes.limit - 1:
            self.met_limit = True
            stored = self._best_stored(node)
            self.too_big[stored] = None
            sizes.store(stored)
            ops = sizes.of(node.operands)
        sizes.note(node, ops)

    def _best_stored(self, node: UOp) -> UOp:
        """Return what saves most ops an element stored; a view is stored as what it reads."""
        sources = [below_views(each) for each in node.operands]
        sizes = {each: self._sizes.of([each]) for each in sources if self._sizes.is_computed(each)}
        return max(sizes, key=lambda each: sizes[each] / max(1, elements_now(each.shape)))

    def _note_outside_reads(self, node: UOp) -> None:
        home = self.region_of.get(node)
        for each in node.operands:
            region = self.region_of.get(each)
            if region is not None and region is not home:
                region.read_outside[each] = None


def _position_through(node: UOp, place: Index) -> Index:
    """Return where a user of a value at `place` has that same element in its own shape."""
    if node.op is Op.PERMUTE:
        return tuple([place[axis] for axis in node.attrs.order])
    if node.op is Op.RESHAPE:
        return reshape_index(place, node.operands[0].shape, node.shape)
    return place


def source_of(region: Region, node: UOp) -> UOp:
    """Return the member that holds a view's elements: views are not stored for a reader."""
    while node.op in BIJECTIVE and node.operands[0] in region.position:
        node = node.operands[0]
    return node
