"""Chooses which values of a TENSOR graph are stored, and gives each choice with its numbers.

Takes:  the nodes of a graph, operands before users, and which of them must be stored.
Gives:  regions, one a kernel; every value a kernel reads is a leaf or another kernel's output.
Placed: first; lowering views needs to know where reading ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Contraction, Decision
from tinytensor.ops.op import ELEMENTWISE, VIEWS, Mark, Op
from tinytensor.ops.uop import UOp
from tinytensor.schedule.contraction import path_to_product
from tinytensor.schedule.describe import describe
from tinytensor.schedule.lower_views import ranges_over
from tinytensor.schedule.region import LEAVES, MOST_READS, Region, RegionBuilder, source_of
from tinytensor.schedule.uses import Evaluations, Use, Uses
from tinytensor.target import Target
from tinytensor.timing import timed

TRANSCENDENTAL_FLOPS = 20  # exp, log, tanh, erf, sin: 12 to 25 vector operations each
DIVISION_FLOPS = 8
RANDOM_FLOPS = 100  # ten rounds of two products, and what they mix


@timed("schedule: materialize")
def materialize(
    order: Sequence[UOp],
    roots: Sequence[UOp],
    contractions: Mapping[UOp, Contraction],
    fuse: int,
    target: Target,
) -> dict[Region, tuple[UOp, ...]]:
    """Choose the stored values of a graph: each region with its outputs."""
    builder = RegionBuilder(target.max_kernel_ops, fuse)
    for node in order:
        builder.visit(node)
    outputs = {region: _outputs_of(region, roots) for region in builder.regions}
    chooser = _Chooser(builder, contractions, set(roots), fuse, target)
    for node in reversed(order):
        chooser.visit(node)
    for node, decision in reversed(chooser.stored.items()):
        region = Region(node, {node: ranges_over(node.shape, 0)}, builder.earliest(node))
        region.decisions.append(decision)
        outputs[region] = (node,)
    return outputs


def _outputs_of(region: Region, roots: Sequence[UOp]) -> tuple[UOp, ...]:
    asked = [root for root in roots if root in region.position]
    read = [source_of(region, node) for node in region.read_outside]
    in_order = {node: None for node in region.position if node in {*asked, *read}}
    return tuple(in_order)


class _Chooser:
    """Walks from users to operands and decides, for each free value, to store or to recompute."""

    def __init__(
        self,
        builder: RegionBuilder,
        contractions: Mapping[UOp, Contraction],
        roots: set[UOp],
        fuse: int,
        target: Target,
    ) -> None:
        self.region_of = builder.region_of
        self.too_big = builder.too_big
        self.contractions = contractions
        self.roots = roots
        self.fuse = fuse
        self.target = target
        self.stored: dict[UOp, Decision] = {}
        self.uses = Uses()

    def visit(self, node: UOp) -> None:
        """Decide about one node, whose users are all decided, and tell its operands."""
        if node.op in LEAVES and node not in self.roots:
            return
        region = self.region_of.get(node)
        if region is not None:
            self._tell_stored(node, region.anchor)
            return
        if node not in self.uses and node not in self.roots:
            return
        use = self.uses.of(node)
        decision = self._decide(node, use)
        if decision is None:
            self._tell(node, use.evaluations)
            return
        self.stored[node] = decision
        self._tell_stored(node, node)

    def _tell_stored(self, node: UOp, anchor: UOp) -> None:
        self._tell(node, {self.uses.kernel_place(anchor): math.prod(node.shape)})

    def _tell(self, node: UOp, evaluations: Evaluations) -> None:
        if node in self.contractions:
            self._tell_factors(node, next(iter(evaluations)))
            return
        if node.op in ELEMENTWISE:
            behind = dict(evaluations)
        else:
            count = math.prod(node.operands[0].shape) if node.op is Op.REDUCE else None
            behind = {
                self.uses.through(place, node): count or each for place, each in evaluations.items()
            }
        for each in node.operands:
            self.uses.tell(each, behind)

    def _tell_factors(self, node: UOp, place: int) -> None:
        """Count that a factor is read once a block of the other range, not once a product."""
        batch, m, n, k = self.contractions[node].extents
        reloads = max(1, n // self.target.contraction_columns)
        a, b = path_to_product(node)[-1].operands
        per_factor = ((a, batch * m * k * reloads), (b, batch * n * k))
        for factor, evaluations in per_factor:
            behind = self.uses.through(self.uses.through(place, node), factor)
            self.uses.tell(_below_views(factor), {behind: evaluations})

    def _decide(self, node: UOp, use: Use) -> Decision | None:
        if node in self.roots:
            return Decision("store", describe(node), "its value was asked for.")
        if node in self.too_big:
            limit = self.target.max_kernel_ops
            reason = f"a kernel holds at most {limit} ops, a read counted as {limit // MOST_READS}."
            return Decision("store", describe(node), reason)
        if node.op is Op.GATHER and self.fuse:
            return self._weigh(node, use)
        if node.op not in ELEMENTWISE:
            return None
        if self.fuse == 0 and not self._is_product(node):
            return Decision("store", describe(node), "TT_FUSE=0: one kernel per op.")
        if self.fuse == 0:
            return None
        return self._weigh(node, use)

    def _is_product(self, node: UOp) -> bool:
        """Whether a node is a product that is only summed: a sum of products is one op."""
        readers = self.uses.kernels(self.uses.of(node))
        return node.op is Op.MUL and all(_is_sum(each) for each in readers)

    def _weigh(self, node: UOp, use: Use) -> Decision | None:
        elements = math.prod(node.shape)
        readers = self.uses.kernels(use)
        if use.is_scattered:
            reason = f"it is read at {len(use.evaluations)} places."
            return Decision("store", describe(node), reason)
        if use.total <= elements and len(readers) <= 1:
            return None
        target = self.target
        cost = self._cost(node)
        moved = node.dtype.itemsize * (elements + use.total)
        recompute = cost.seconds(use.total, target)
        store = cost.seconds(elements, target) + moved / target.copy_rate + target.launch_seconds
        if store >= recompute:
            return None
        kernels = f"{len(readers)} kernel{'s' * (len(readers) != 1)}"
        reason = (
            f"{use.total / max(1, elements):.0f} uses of each element in {kernels}; "
            f"to store {store * 1e6:.1f} us, to recompute {recompute * 1e6:.1f} us."
        )
        return Decision("store", describe(node), reason)

    def _cost(self, root: UOp) -> Cost:
        """Return the cost of one evaluation, with every free operand computed on the way."""
        computed: dict[UOp, None] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in computed:
                computed[node] = None
                stack.extend(each for each in node.operands if self._is_computed(each))
        read = {each for node in computed for each in node.operands if each not in computed}
        loads = [each.dtype.itemsize for each in read if each.op not in (Op.CONST, Op.IOTA)]
        return Cost(sum(_own_flops(node) for node in computed), sum(loads))

    def _is_computed(self, node: UOp) -> bool:
        return node.op not in LEAVES and node not in self.region_of and node not in self.too_big


@dataclass(frozen=True, slots=True)
class Cost:
    """What one evaluation of a value takes."""

    flops: int
    bytes_read: int

    def seconds(self, evaluations: int, target: Target) -> float:
        """Return the time of that many evaluations on a target."""
        return evaluations * (self.flops / target.flop_rate + self.bytes_read / target.copy_rate)


def _own_flops(node: UOp) -> int:
    if node.op in VIEWS:
        return 0
    if node.op in (Op.DIV, Op.SQRT, Op.FLOORDIV, Op.MOD):
        return DIVISION_FLOPS
    if node.op is Op.PHILOX:
        return RANDOM_FLOPS
    return TRANSCENDENTAL_FLOPS if node.op.mark is Mark.TRANSCENDENTAL else 1


def _is_sum(node: UOp) -> bool:
    return node.op is Op.REDUCE and node.attrs.combine is Combine.ADD


def _below_views(factor: UOp) -> UOp:
    """Return the first computed or stored node below a factor."""
    while factor.op in VIEWS or factor.op is Op.CAST:
        factor = factor.operands[0]
    return factor
