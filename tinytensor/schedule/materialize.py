"""Chooses which values of a TENSOR graph are stored, and gives each choice with its numbers.

What may be recomputed is decided first: a fold never is, because its sum is rounded in an order,
nor what was asked for, nor what a kernel has no room for. Of the rest, the faster way is taken, by
the rates of the target (`cost.py`): that of a value saved for a gradient as well.

Takes:  the nodes of a graph, operands before users, and which of them must be stored.
Gives:  regions, one a kernel; every value a kernel reads is a leaf or another kernel's output.
Placed: first; lowering views needs to know where reading ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Contraction
from tinytensor.ops.op import ELEMENTWISE, VIEWS, Op
from tinytensor.ops.size import elements_now
from tinytensor.ops.uop import UOp, below_views, nbytes_of
from tinytensor.records import dataclass
from tinytensor.schedule.contraction import path_below, path_to_product, path_to_sum, widens
from tinytensor.schedule.cost import (
    Choice,
    Load,
    evaluation_seconds,
    evaluations_of_factors,
    holding_seconds,
    product_seconds,
    reading_seconds,
    strip_seconds,
    writing_seconds,
)
from tinytensor.schedule.describe import Draft, short_time
from tinytensor.schedule.lower_views import ranges_over
from tinytensor.schedule.region import (
    LEAVES,
    MOST_READS,
    Region,
    RegionBuilder,
    source_of,
)
from tinytensor.schedule.rows import SHARED_KERNELS, space_of
from tinytensor.schedule.uses import Evaluations, Reading, Uses
from tinytensor.target import Target
from tinytensor.timing import timed


@timed("schedule: materialize")
def materialize(
    order: Sequence[UOp],
    roots: Sequence[UOp],
    contractions: Mapping[UOp, Contraction],
    fuse: int,
    target: Target,
) -> tuple[dict[Region, tuple[UOp, ...]], Chooser]:
    """Choose the stored values of a graph: each region with its outputs, and why.

    Where kernels met their limit, it is done once more, now knowing what is stored. Else a kernel
    would end early because of what it seems to compute, at other places in each of equal layers.
    """
    within = {each for node in contractions for each in path_to_sum(node)}
    builder = _grow(order, fuse, target, (), within)
    chooser, outputs = _choose(builder, order, roots, contractions, target, {})
    if builder.met_limit:
        builder = _grow(order, fuse, target, chooser.stored, within)
        known = chooser.stored
        chooser, outputs = _choose(builder, order, roots, contractions, target, known)
    for node in reversed(chooser.stored):
        region = Region(node, {node: ranges_over(node.shape, 0)}, builder.earliest(node))
        outputs[region] = (node,)
    return outputs, chooser


def _grow(
    order: Sequence[UOp], fuse: int, target: Target, stored: Iterable[UOp], within: AbstractSet[UOp]
) -> RegionBuilder:
    builder = RegionBuilder(target.max_kernel_ops, fuse, stored, within)
    for node in order:
        builder.visit(node)
    return builder


def _choose(
    builder: RegionBuilder,
    order: Sequence[UOp],
    roots: Sequence[UOp],
    contractions: Mapping[UOp, Contraction],
    target: Target,
    known: Mapping[UOp, Draft],
) -> tuple[Chooser, dict[Region, tuple[UOp, ...]]]:
    outputs = {region: _outputs_of(region, roots) for region in builder.regions}
    chooser = Chooser(builder, contractions, set(roots), target, known)
    for nodes in outputs.values():
        for node in nodes:
            chooser.add_output(node, builder.region_of[node].anchor)
    for node in reversed(order):
        chooser.visit(node)
    return chooser, outputs


def _outputs_of(region: Region, roots: Sequence[UOp]) -> tuple[UOp, ...]:
    asked = [root for root in roots if root in region.position]
    read = [source_of(region, node) for node in region.read_outside]
    in_order = {node: None for node in region.position if node in {*asked, *read}}
    return tuple(in_order)


# A value is held where its readers are so many ranks apart; a rank apart it is so by half.
HELD_RANKS = 2
MOST_WAYS = 16  # values that a kernel computes side by side where its places choose between them


@dataclass(frozen=True, slots=True)
class Expression:
    """A value with all that is computed on its way: seconds of one evaluation, ops, and reads."""

    seconds: float
    ops: int
    sources: tuple[UOp, ...]


@dataclass(slots=True, eq=False)
class Chooser:
    """Walks from users to operands and decides, for each free value, to store or to recompute."""

    builder: RegionBuilder
    contractions: Mapping[UOp, Contraction]
    roots: set[UOp]
    target: Target
    known: Mapping[UOp, Draft]
    uses: Uses = field(default_factory=Uses)
    stored: dict[UOp, Draft] = field(default_factory=dict)
    choices: dict[UOp, Choice] = field(default_factory=dict)
    recomputed: dict[UOp, list[Draft]] = field(default_factory=lambda: defaultdict(list))
    moved: dict[UOp, UOp] = field(default_factory=dict)  # kernels into those that read them
    _loads: dict[UOp, Load] = field(default_factory=lambda: defaultdict(Load))
    _ops: dict[UOp, int] = field(default_factory=lambda: defaultdict(int))
    _read: set[tuple[UOp, UOp]] = field(default_factory=set)
    _part_of: dict[UOp, Evaluations] = field(default_factory=dict)

    def visit(self, node: UOp) -> None:
        """Decide about one node, whose users are all decided, and tell its operands."""
        if node.op in LEAVES and node not in self.roots:
            return
        region = self.builder.region_of.get(node)
        if region is not None:
            self._tell_stored(node, region.anchor)
            return
        if node not in self.uses and node not in self.roots:
            return
        use = self.uses.of(node)
        decision = self._decide(node, use)
        if decision is None:
            self._tell(node, use)
            return
        self.stored[node] = decision
        self.add_output(node, node)
        for kernel in self.uses.by_kernel(use):
            self._add_read(kernel, node)
        self._tell_stored(node, node)

    def readings_outside(self, region: Region, node: UOp) -> dict[UOp, Reading]:
        """Return how other kernels read a region's member, itself or through its views."""
        shown = [each for each in region.position if source_of(region, each) is node]
        found: dict[UOp, Reading] = {}
        for view in shown:
            for kernel, reading in self.uses.by_kernel(self.uses.of(view)).items():
                if kernel not in region.position:
                    found.setdefault(kernel, Reading()).add(reading)
        return found

    def folding(self, node: UOp) -> str:
        """Say what a fold takes with all that is computed for it, and reading its result."""
        arithmetic = self._loads[self.builder.region_of[node].anchor].arithmetic
        moved = short_time(self._reading(node))
        again = short_time(arithmetic)
        return f"folding again computes for {again}, reading the result moves for {moved}"

    def has_room(self, kernel: UOp, ops: int) -> bool:
        """Whether a kernel may compute that many ops more."""
        return self._ops[kernel] + ops <= self.target.max_kernel_ops

    def move(self, kernel: UOp, reader: UOp) -> bool:
        """Let the one reader of a kernel compute it, if that has room; it reads one value less."""
        each = self.target.max_kernel_ops // MOST_READS
        reads = [node for anchor, node in self._read if anchor is kernel]
        fresh = [node for node in reads if (reader, node) not in self._read]
        ops = self._ops[kernel] + each * (len(fresh) - len(reads) - 1)
        if not self.has_room(reader, ops):
            return False
        self._ops[reader] += ops
        self._read.update([(reader, node) for node in fresh])
        self.moved[kernel] = reader
        return True

    def seconds_longer(
        self, kernel: UOp, use: Reading, found: Expression, spared: UOp | None = None
    ) -> float:
        """Return what a kernel takes longer that computes a value, and has read one less for it."""
        fresh = sum(
            self._reading(each) for each in found.sources if (kernel, each) not in self._read
        )
        load = self._loads[kernel]
        saved = 0.0 if spared is None else self._reading(spared)
        again = Load(use.evaluations * found.seconds + use.slower, fresh - saved)
        return (load + again).seconds - load.seconds

    def add_output(self, node: UOp, anchor: UOp) -> None:
        """Note that a kernel stores a value."""
        self._loads[anchor] += Load(memory=writing_seconds(nbytes_of(node), self.target))

    def _add_read(self, anchor: UOp, node: UOp) -> None:
        home = self.builder.region_of.get(node)
        is_own = home is not None and home.anchor is anchor
        if not is_own and (anchor, node) not in self._read:
            self._read.add((anchor, node))
            self._loads[anchor] += Load(memory=self._reading(node))
            self._ops[anchor] += self.target.max_kernel_ops // MOST_READS

    def _reading(self, node: UOp) -> float:
        return reading_seconds(nbytes_of(node), self.target)

    def _tell_stored(self, node: UOp, anchor: UOp) -> None:
        self._tell(node, {self.uses.kernel_place(anchor): elements_now(node.shape)})

    def _tell(self, node: UOp, evaluations: Evaluations) -> None:
        if node in self.contractions:
            self._tell_factors(node, next(iter(evaluations)))
            return
        behind = evaluations
        if node.operands and node.op not in ELEMENTWISE:
            behind = {
                self.uses.through(place, node): _count_behind(node, each)
                for place, each in evaluations.items()
            }
        seconds = evaluation_seconds(node, self.target)
        for place, count in behind.items():
            self._loads[self.uses.kernel(place)] += Load(arithmetic=count * seconds)
            self._ops[self.uses.kernel(place)] += node.op not in VIEWS
        ways = ways_of(node)
        for number, each in enumerate(node.operands):
            told = behind
            if ways > 1:  # each way is computed where it is taken, and which one is known there
                told = {place: _share(number, ways, count) for place, count in behind.items()}
            self._tell_operand(each, told)
            if node.op in ELEMENTWISE:
                self._part_of[each] = told

    def _tell_operand(self, node: UOp, evaluations: Evaluations) -> None:
        self.uses.tell(node, evaluations)
        source = below_views(node)
        if source.op is Op.BUFFER or source in self.builder.region_of:
            for place in evaluations:
                self._add_read(self.uses.kernel(place), source)

    def _tell_factors(self, node: UOp, place: int) -> None:
        """Count that a factor is computed once for each tile of the other range, not a product."""
        batch, m, n, k = self.contractions[node].extents
        times_a, times_b = evaluations_of_factors(m, n, k, self.target)
        a, b = path_to_product(node)[-1].operands
        products, dtype = batch * m * n * k, path_below(a)[-1].dtype
        seconds = products * product_seconds(dtype, self.target)
        slower = products * product_seconds(dtype, self.target, is_computed=True) - seconds
        self._loads[self.uses.kernel(place)] += Load(arithmetic=seconds)
        count_a, count_b = batch * m * k * times_a, batch * n * k * times_b
        for factor, count in ((a, count_a), (b, count_b)):
            behind = self.uses.through(self.uses.through(place, node), factor)
            self._tell_operand(path_below(factor)[-1], {behind: count})
            is_laid_out = factor is b  # in any case
            strip = 0.0 if is_laid_out else strip_seconds(count, factor.dtype, self.target)
            self.uses.slower[behind] = slower + strip
        path = path_to_sum(node)
        for each in path:  # what scales the sums of a block of k, element by element
            behind = self.uses.through(place, each)
            for beside in {*each.operands}.difference(path) if each is not path[-1] else ():
                self._tell_operand(beside, {behind: elements_now(each.shape)})

    def _decide(self, node: UOp, use: Evaluations) -> Draft | None:
        if node in self.roots:
            return Draft("store", node, ("its value was asked for.",))
        if node in self.known:
            return self.known[node]
        if node in self.builder.too_big:
            limit = self.target.max_kernel_ops
            reason = f"a kernel holds at most {limit} ops, a read counted as {limit // MOST_READS}."
            return Draft("store", node, (reason,))
        if node.op is Op.GATHER and self.builder.fuse:
            return self._weigh(node, use)
        is_view = node.operands and node.op not in ELEMENTWISE
        if is_view or reads_no_memory(node) or widens_memory(node):
            return None
        ways = ways_of(node)
        if ways > 1 and ways * len(use) > MOST_WAYS:
            reason = f"one kernel computes at most {MOST_WAYS} values side by side."
            return Draft("store", node, (reason,))
        if ways > 1 and len(use) > 1 and not self._keep_axes(node, use):
            reason = "the axis along which it is chosen is none of its reader's."
            return Draft("store", node, (reason,))
        if self.builder.fuse:
            return self._weigh(node, use)
        if self._is_product(node, use):
            return None
        return Draft("store", node, ("TT_FUSE=0: one kernel per op.",))

    def _keep_axes(self, node: UOp, use: Evaluations) -> bool:
        """Whether the kernels that read a value run over its outermost and last axis, or fold."""
        readers = [each.shape for each in self.uses.by_kernel(use) if each.op is not Op.REDUCE]
        outer = (*node.shape[:1], *node.shape[-1:])
        return all((*shape[:1], *shape[-1:]) == outer for shape in readers)

    def _is_product(self, node: UOp, use: Evaluations) -> bool:
        """Whether a node is a product that is only summed: a sum of products is one op."""
        return node.op is Op.MUL and all(_is_sum(each) for each in self.uses.by_kernel(use))

    def _weigh(self, node: UOp, use: Evaluations) -> Draft | None:
        readings = self.uses.by_kernel(use)
        slower = sum(each.slower for each in readings.values())
        if sum(use.values()) <= elements_now(node.shape) and len(readings) <= 1 and not slower:
            return None
        found = self._expression(node)
        limit = self.target.max_kernel_ops
        ops = found.ops + len(found.sources) * (limit // MOST_READS)
        places = max(each.places for each in readings.values())
        if ops * places > limit:
            reason = f"a kernel of {limit} ops has no room for its {ops} ops at {places} places."
            return Draft("store", node, (reason,))
        choice = self._choice(node, found, use)
        apart = ", counted before kernels are joined" * (len(readings) > 1)
        reason = f"{describe_uses(sum(use.values()), node, len(readings))}{apart}; {choice}"
        if choice.is_stored:
            self.choices[node] = choice
            return Draft("store", node, (reason,))
        for place in use:
            self.uses.slower.pop(place, None)
        if self._part_of.get(node) != use:
            for kernel in readings:
                self.recomputed[kernel].append(Draft("recompute", node, (reason,)))
        return None

    def _choice(self, node: UOp, found: Expression, use: Evaluations) -> Choice:
        """Compare what each kernel that reads a value would take longer either way."""
        own = self._reading(node)
        reading = [0.0]
        recomputing = 0.0
        readings = self.uses.by_kernel(use)
        for kernel, each in readings.items():
            load = self._loads[kernel]
            recomputing += self.seconds_longer(kernel, each, found)
            reading.append((load + Load(memory=own)).seconds - load.seconds)
        arithmetic = elements_now(node.shape) * found.seconds
        ranks = [self._rank(kernel) for kernel in readings]
        later = max(ranks) - min(ranks)
        is_costly = found.seconds * self.target.rates.functions >= self.target.rates.exponential
        are_one = later < HELD_RANKS and self._share_rows(node, readings)
        if is_costly and are_one:
            # No launch and no memory: one kernel for all, which computes a function once.
            return Choice(arithmetic, 0.0, 0.0, recomputing, len(readings), nbytes_of(node))
        written = writing_seconds(nbytes_of(node), self.target)
        making = Load(arithmetic, written + sum(map(self._reading, found.sources)))
        # A kernel that is made of several reads a value once, and nobody holds it for a later one.
        held = 0.0 if are_one else min(later / HELD_RANKS, 1)
        launch = self.target.rates.launch_seconds
        return Choice(
            making=making.seconds + launch,
            launch=launch,
            reading=max(reading) if are_one else sum(reading),
            recomputing=recomputing,
            kernels=len(readings),
            nbytes=nbytes_of(node),
            holding=holding_seconds(nbytes_of(node), self.target) * held,
        )

    def _share_rows(self, node: UOp, kernels: Iterable[UOp]) -> bool:
        """Whether some kernels fold the same rows of a value, and so will be one."""
        if self.builder.fuse < SHARED_KERNELS:
            return False
        folds = [each for each in kernels if each.op is Op.REDUCE]
        spaces = [None if each in self.contractions else space_of(each) for each in folds]
        space = spaces[0] if spaces else None
        if space is None or not all([space.is_same(each) for each in spaces]):
            return False
        if any(space.place(each.shape) is None for each in (node, *kernels)):
            return False
        return space.fits(node.dtype.itemsize, self.target)

    def _rank(self, anchor: UOp) -> int:
        region = self.builder.region_of.get(anchor)
        return self.builder.earliest(anchor) if region is None else region.rank

    def price(self, nodes: Collection[UOp]) -> Expression:
        """Return one evaluation of some nodes, that read all others."""
        read = dict.fromkeys(
            [below_views(each) for node in nodes for each in node.operands if each not in nodes]
        )
        seconds = sum(evaluation_seconds(node, self.target) for node in nodes)
        sources = tuple([each for each in read if each.op not in (Op.CONST, Op.IOTA)])
        return Expression(seconds, sum(node.op not in VIEWS for node in nodes), sources)

    def _expression(self, root: UOp) -> Expression:
        """Return one evaluation of a value, with every free operand computed on the way."""
        computed: dict[UOp, None] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in computed:
                computed[node] = None
                stack.extend(each for each in node.operands if self._is_computed(each))
        return self.price(computed)

    def _is_computed(self, node: UOp) -> bool:
        is_free = node.op not in LEAVES and node not in self.builder.region_of
        return is_free and node not in self.builder.too_big and node not in self.known


def _count_behind(node: UOp, evaluations: int) -> int:
    """Return how many elements of its operand a view or a fold needs for some of its own."""
    if node.op not in (Op.REDUCE, Op.PAD):
        return evaluations
    inner = elements_now(node.operands[0].shape)
    if node.op is Op.REDUCE:
        return inner
    return -(-evaluations * inner // max(1, elements_now(node.shape)))  # not what is outside


def ways_of(node: UOp) -> int:
    """Return n for a WHERE that takes its first way at one of n places along an axis; else 1."""
    if node.op is not Op.WHERE or node.operands[0].op is not Op.EQ:
        return 1
    place, taken = map(below_views, node.operands[0].operands)
    is_choice = place.op is Op.IOTA and taken.op is Op.CONST and place.shape[0] <= MOST_WAYS
    return place.shape[0] if is_choice else 1


def _share(way: int, ways: int, evaluations: int) -> int:
    return -(-evaluations * (0, 1, ways - 1)[way] // ways)


def describe_uses(total: int, node: UOp, kernels: int) -> str:
    """Return `each element is read 2 times, by 1 kernel`."""
    times = total / max(1, elements_now(node.shape))
    count = f"{times:.0f}" if times >= 100 else f"{times:.3g}"
    often = "once" if count == "1" else f"{count} times" + " on average" * (times % 1 > 0)
    by = "some by each of" if kernels > times > 0 and kernels > 1 else "by"
    return f"each element is read {often}, {by} {count_kernels(kernels)}"


def count_kernels(count: int) -> str:
    """Return `1 kernel`, `2 kernels`."""
    return f"{count} kernel{'s' * (count != 1)}"


def _is_sum(node: UOp) -> bool:
    return node.op is Op.REDUCE and node.attrs.combine is Combine.ADD


def reads_no_memory(node: UOp) -> bool:
    """Whether a node counts sizes, or is a number made of them: that is never stored."""
    while node.op is Op.CAST:
        node = node.operands[0]
    return node.dtype is dtypes.index


def widens_memory(node: UOp) -> bool:
    """Whether a node only widens what lies in memory, which holds it in fewer bytes."""
    is_wider = node.op is Op.CAST and node.dtype.is_float and widens(node)
    return is_wider and below_views(node.operands[0]).op is Op.BUFFER
