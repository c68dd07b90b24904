"""Joins kernels that read the same elements, or fold the same rows, into one that reads them once.

Softmax folds each row twice and divides its elements: three kernels, that read and write the same
rows. They become one when everything that one of them reads of another is read at the element's own
place, no kernel outside has to run between them, and nothing stored is computed again for a row too
long to stay on chip. How it stays there is the business of the plans. Elementwise results of one
shape that read the same elements are joined last: an optimizer's parameter and its state.

Takes:  regions, each with the values it stores.
Gives:  fewer regions; values that only one of them reads are not stored any more.
Placed: after `materialize`, whose choices say what each kernel reads; before lowering.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace

from tinytensor.ops.bounds import most_of
from tinytensor.ops.kernel import Contraction
from tinytensor.ops.op import Op
from tinytensor.ops.size import are_same, is_one, is_same
from tinytensor.ops.uop import UOp, nbytes_of, walk
from tinytensor.records import dataclass
from tinytensor.schedule.describe import Draft, describe, short_size
from tinytensor.schedule.kernels import Numbering, computed_within, lower_members
from tinytensor.schedule.lower_views import (
    Index,
    Lowering,
    Point,
    flatten,
    range_over,
    ranges_over,
    reshape_index,
)
from tinytensor.schedule.region import MOST_READS, Region, ops_of
from tinytensor.target import Target
from tinytensor.timing import timed

SHARED_KERNELS = 2  # the level of TT_FUSE from which results that could be apart share a kernel
MOST_TRIED = 4  # readers of the same elements that a kernel may join

Loads = list[tuple[UOp, tuple[UOp, ...]]]  # what is read, and the index with perhaps a guard


@dataclass(frozen=True, slots=True)
class Space:
    """What a reduction folds: elements of shape `full`, to results of shape `kept`.

    Without a fold both are the shape of the elements.
    """

    kept: tuple[int, ...]
    full: tuple[int, ...]

    def is_same(self, other: Space | None) -> bool:
        """Whether another space is this one, at every launch."""
        return other is not None and are_same((*self.kept, *self.full), (*other.kept, *other.full))

    @property
    def elements(self) -> Index:
        """The place of an element: that of its row, and a range for each axis folded over."""
        first = len(self.full)
        places = zip(ranges_over(self.kept, 0), self.kept, self.full, strict=True)
        return tuple(
            [
                row if is_same(kept, extent) else range_over(extent, first + axis)
                for axis, (row, kept, extent) in enumerate(places)
            ]
        )

    def place(self, shape: tuple[int, ...]) -> Index | None:
        """Return where elementwise work of a shape would be: one value an element, or a row."""
        for source, index in ((self.full, self.elements), (self.kept, ranges_over(self.kept, 0))):
            if is_same(math.prod(shape), math.prod(source)):
                return reshape_index(index, source, shape)
        return None

    @property
    def count(self) -> int:
        """How many elements there are."""
        return math.prod(self.full)

    def fits(self, itemsize: int, target: Target) -> bool:
        """Whether a row stays on chip; of columns, whole vectors do."""
        elements = most_of(self.count) // most_of(math.prod(self.kept))
        return elements * (itemsize if self.has_rows else target.vector_bytes) <= target.row_bytes

    @property
    def has_rows(self) -> bool:
        """Whether the elements of a row are neighbors, because the last axis is folded."""
        return not self.kept or is_one(self.kept[-1])


def space_of(anchor: UOp) -> Space | None:
    """Return what a reduction folds; None for another op, and where nothing is folded."""
    if anchor.op is not Op.REDUCE:
        return None
    full = anchor.operands[0].shape
    return None if are_same(anchor.shape, full) or 0 in full else Space(anchor.shape, full)


@dataclass(slots=True, eq=False)
class Part:
    """One kernel of those to join: what it stores and reads, and the ops it takes."""

    region: Region
    outputs: tuple[UOp, ...]
    reads: tuple[UOp, ...]
    space: Space | None
    ops: int
    bit: int


@dataclass(slots=True, eq=False)
class Group:
    """Parts that become one kernel; bits of `before` say which parts must have run."""

    parts: tuple[Part, ...]
    space: Space | None
    before: int

    @property
    def written(self) -> dict[UOp, Part]:
        """The parts by what they store."""
        return {node: part for part in self.parts for node in part.outputs}

    @property
    def bits(self) -> int:
        """The bits of its own parts."""
        return sum(part.bit for part in self.parts)


@timed("schedule: rows")
def join_rows(
    outputs: Mapping[Region, tuple[UOp, ...]],
    order: Sequence[UOp],
    contractions: Mapping[UOp, Contraction],
    roots: AbstractSet[UOp],
    target: Target,
) -> dict[Region, tuple[UOp, ...]]:
    """Join what may be joined; see the top of this file."""
    at = {node: number for number, node in enumerate(order)}
    leaves = [node for node in order if node.op is Op.BUFFER]
    joiner = _Joiner(frozenset(leaves).union(*outputs.values()), contractions, target)
    # An edge never leads to a lower rank, and within one only from elementwise work to its users.
    for region in sorted(outputs, key=lambda each: (each.rank, max(at[n] for n in outputs[each]))):
        joiner.visit(region, outputs[region])
    joiner.join_elements(roots)
    joined: dict[Region, tuple[UOp, ...]] = {}
    for group in dict.fromkeys(joiner.group_of.values()):
        asked = [node for node in group.written if node in roots or joiner.leaves(node, group)]
        region = group.parts[0].region
        if len(group.parts) > 1:
            region = _region_of(group, [node for node in group.written if node not in asked], at)
        joined[region] = tuple(sorted(asked, key=at.__getitem__))
    return joined


def _region_of(group: Group, dropped: Sequence[UOp], at: Mapping[UOp, int]) -> Region:
    regions = [part.region for part in group.parts]
    folds = [each.anchor for each in regions if each.anchor.op is Op.REDUCE]
    anchor = folds[0] if folds else regions[-1].anchor
    places = {node: index for each in regions for node, index in each.position.items()}
    position = {node: places[node] for node in sorted(places, key=at.__getitem__)}
    region = Region(anchor, position, max(each.rank for each in regions))
    read = [node for part in group.parts for node in part.reads]
    needed = {*read} - group.written.keys()
    spared = sum(map(nbytes_of, [*read, *dropped])) - sum(map(nbytes_of, needed))
    shared = "over the same rows" if folds else "that read the same elements"
    names = [piece for each in regions for piece in (", ", each.anchor)][1:]
    less = f"{short_size(spared)} less to move, from one to another and of what several read."
    reason = (f"{len(regions)} kernels {shared} are one: ", *names, f"; {less}")
    region.drafts.append(Draft("fuse", anchor, reason))
    region.drafts.extend(draft for each in regions for draft in each.drafts)
    for each in reversed(regions):  # of several reasons the first one counts
        region.apart.update(each.apart)
    return region


@dataclass(slots=True, eq=False)
class _Joiner:
    """One walk over the kernels, those that store before those that read."""

    _stored: frozenset[UOp]
    _contractions: Mapping[UOp, Contraction]
    _target: Target
    group_of: dict[Part, Group] = field(default_factory=dict)
    _writer: dict[UOp, Part] = field(default_factory=dict)
    _readers: dict[UOp, list[Part]] = field(default_factory=dict)
    _known_loads: dict[tuple[Part, Index], Loads] = field(default_factory=dict)

    def leaves(self, node: UOp, group: Group) -> bool:
        """Whether a kernel outside a group reads a value of it."""
        return any(self.group_of[part] is not group for part in self._readers.get(node, ()))

    def visit(self, region: Region, outputs: tuple[UOp, ...]) -> None:
        """Give a kernel a group: those of what it reads and of who reads its rows, or its own."""
        params = self._params(region)
        nodes = walk(outputs, stop=params)
        reads = [node for node in nodes if node in params]
        computed = sum(ops_of(node) for node in nodes if node not in params)
        ops = computed + len(reads) * (self._target.max_kernel_ops // MOST_READS)
        space = None if region.anchor in self._contractions else space_of(region.anchor)
        part = Part(region, outputs, tuple(reads), space, ops, 1 << len(self.group_of))
        producers = dict.fromkeys([self._writer[node] for node in reads if node in self._writer])
        before = 0
        for each in producers:
            before |= self.group_of[each].before | self.group_of[each].bits
        self.group_of[part] = Group((part,), space, before)
        rows = [each for each in reads if space and is_same(math.prod(each.shape), space.count)]
        beside = [each for node in rows for each in self._readers.get(node, ())]
        for other in dict.fromkeys((*producers, *beside)):
            self._join(self.group_of[other], self.group_of[part])
        self._writer.update(dict.fromkeys(outputs, part))
        for node in reads:
            self._readers.setdefault(node, []).append(part)

    def join_elements(self, roots: AbstractSet[UOp]) -> None:
        """Join elementwise kernels of one shape that read the same elements.

        Results that were asked for may be computed at any time. Others are joined when the same
        kernels read them, so that none lies in memory for long before it is needed.
        """
        for part in list(self.group_of):
            space = Space(part.region.anchor.shape, part.region.anchor.shape)
            for other in self._near(part, space):
                groups = (self.group_of[other], self.group_of[part])
                readers = [self._waiting(each, roots) for each in groups]
                is_timely = readers[0] == readers[1] or not all(readers)
                spaces = [each.space for each in groups if each.space is not None]
                if is_timely and all(space.is_same(each) for each in spaces):
                    self._join(*groups, space)

    def _waiting(self, group: Group, roots: AbstractSet[UOp]) -> set[Part]:
        """Return the kernels that read what a group stores for them alone."""
        between = [node for node in group.written if node not in roots]
        found = {part for node in between for part in self._readers.get(node, ())}
        return found.difference(group.parts)

    def _near(self, part: Part, space: Space) -> list[Part]:
        """Return elementwise kernels of a space that store what a part reads, or read the same."""
        if part.region.anchor.op is Op.REDUCE or not space.count:
            return []
        found = [self._writer[node] for node in part.reads if node in self._writer]
        for node in part.reads:
            if is_same(math.prod(node.shape), space.count):
                readers = self._readers[node]
                found += readers[: readers.index(part)][-MOST_TRIED:]
        return [
            each
            for each in dict.fromkeys(found)
            if each.region.anchor.op is not Op.REDUCE
            if are_same(each.region.anchor.shape, space.full)
        ]

    def _params(self, region: Region) -> Numbering:
        within: AbstractSet[UOp] = frozenset()
        if region.anchor in self._contractions:
            within = computed_within(region.anchor)
        return Numbering(self._stored, region.position.keys() | within)

    def _join(self, first: Group, second: Group, elements: Space | None = None) -> None:
        """Make one group of two, the second of which runs later, or record why not."""
        space = first.space or second.space or elements
        if first is second or space is None or not space.is_same(second.space or space):
            return
        moved = {part: _placed(part, space) for part in (*first.parts, *second.parts)}
        found = {part: region for part, region in moved.items() if region is not None}
        if len(found) < len(moved) or not self._reads_in_place(found):
            return
        group = Group(tuple(found), space, first.before | second.before)
        obstacle = self._obstacle(group)
        if obstacle:
            latest = second.parts[-1].region
            read = [node for node in second.parts[-1].reads if node in first.written]
            latest.apart.update(dict.fromkeys(read, obstacle))
            if not read:
                latest.drafts.append(Draft("decline", latest.anchor, (obstacle,)))
            return
        group.before &= ~group.bits
        for part, region in found.items():
            part.region = region
            self.group_of[part] = group
        for each in {*self.group_of.values()}:
            if each.before & group.bits:
                each.before |= group.before | group.bits

    def _reads_in_place(self, regions: Mapping[Part, Region]) -> bool:
        """Whether each part reads the others' values at their own places."""
        places = {
            node: each.position[node] for part, each in regions.items() for node in part.outputs
        }
        return all(
            node not in places or operands == (flatten(places[node], node.shape),)
            for part, region in regions.items()
            if not places.keys().isdisjoint(part.reads)
            for node, operands in self._loads_at(part, region)
        )

    def _loads_at(self, part: Part, region: Region) -> Loads:
        """Return what a part loads at its place in a space: it is tried with many others."""
        key = part, region.position[region.anchor]
        if key not in self._known_loads:
            self._known_loads[key] = self._loads(part, region)
        return self._known_loads[key]

    def _loads(self, part: Part, region: Region) -> Loads:
        """Lower a part by itself: each node it reads, with the index and perhaps a guard."""
        params = self._params(region)
        lowering = Lowering(params, next_range=len(region.anchor.shape))
        lower_members(region, lowering, None)
        nodes = {param: node for node, param in params.items()}
        values = [lowering.memo[Point(each, region.position[each], None)] for each in part.outputs]
        loads = [each.operands for each in walk(values) if each.op is Op.LOAD]
        return [(nodes[param], tuple(rest)) for param, *rest in loads]

    def _obstacle(self, group: Group) -> str:
        """Say why parts are better apart; nothing when they are not."""
        target, space = self._target, group.space
        assert space is not None, "only parts with a space are joined"
        if sum(part.ops for part in group.parts) >= target.max_kernel_ops:
            return f"one kernel would be at its limit of {target.max_kernel_ops} ops."
        read = [node for part in group.parts for node in part.reads]
        outside = {self._writer[node] for node in read if node in self._writer} - {*group.parts}
        if any(self.group_of[part].before & group.bits for part in outside):
            return "another kernel runs between those over the same rows."
        sizes = [
            node.dtype.itemsize for node in read if is_same(math.prod(node.shape), space.count)
        ]
        if space.fits(max(sizes, default=1), target):
            return ""
        inside = [node for node in read if node in group.written]
        again = [node for node in inside if is_same(math.prod(node.shape), space.count)]
        if again:
            return f"{describe(again[0])} would be computed again: no row of it stays on chip."
        if inside and not space.has_rows:
            return "columns this long do not stay on chip; read in rows they are faster."
        return ""


def _placed(part: Part, space: Space) -> Region | None:
    """Return a region at its place in a space; elementwise work takes that of its elements."""
    region = part.region
    if region.anchor.op is Op.REDUCE:
        return region if space.is_same(part.space) else None
    place = space.place(region.anchor.shape)
    return None if place is None else replace(region, position={region.anchor: place})
