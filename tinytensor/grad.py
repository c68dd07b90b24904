"""Turns values and upstream gradients into the gradients of what the values were computed from.

Every rule gives nodes of TENSOR form, so a gradient is differentiated like any other value. A
DETACH node without a serial ends gradients. One with a serial is a place of its own: a leaf that
requires a gradient, or one result of a Call, which carries its own rule.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field

from tinytensor.captures import Differentiated
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import GradientError
from tinytensor.ops.attrs import Combine, DetachAttrs, DeviceAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.size import is_repeated
from tinytensor.ops.uop import UOp, cast, walk
from tinytensor.provenance import COLLECTING
from tinytensor.records import dataclass
from tinytensor.tensor.formulas import (
    add,
    cos,
    div,
    exp,
    floor,
    is_equal,
    is_less,
    mul,
    neg,
    sin,
    sub,
)
from tinytensor.tensor.nodes import (
    Shape,
    broadcast,
    fold,
    full,
    full_like,
    gather_at,
    pad,
    permute,
    put_slices,
    reshape,
    select,
    stretch,
    take_slices,
    widen,
)
from tinytensor.tensor.updates import fold_at
from tinytensor.timing import WATCHES, note, timed

Gradients = Sequence[UOp | None]
# (results, their upstream gradients) -> the inputs' gradients; None where there is none.
CallRule = Callable[[Sequence[UOp], Gradients], Gradients]
# (upstream gradient, result, *operands) -> one operand's gradient
Rule = Callable[..., UOp]
Key = UOp | int  # a node, or the serial of a leaf
Ends = Set[UOp]
Paths = Mapping[UOp, Sequence[UOp]]  # nodes, and what the gradient of each goes to

DETACH = Op.DETACH  # looked up once: every look at a gradient's way asks
_SERIALS: Iterator[int] = itertools.count(1)


# What gradients pass through, and where they end.
@dataclass(eq=False, slots=True)
class Call:
    """A computation with a gradient of its own, from `inputs` to `results`.

    `results` are weak, because each result's node holds its Call. A place stands for its input in
    a function that is differentiated: it requires a gradient whether or not the input does.
    """

    inputs: tuple[UOp, ...]
    rule: CallRule
    values: tuple[UOp, ...]
    is_place: bool = False
    results: list[weakref.ref[UOp]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CallResultAttrs(DetachAttrs):
    """DETACH: the result of a Call; its gradient goes to that Call's inputs."""

    call: Call
    number: int

    @property
    def is_differentiable(self) -> bool:
        """Whether the node is a place, or sends its gradient to what requires one."""
        call = self.call
        is_float = call.values[self.number].dtype.is_float
        return call.is_place or (is_float and any(map(requires_gradient, call.inputs)))


def make_leaf(value: UOp) -> UOp:
    """Return a node with that value which requires a gradient and equals no other leaf."""
    return UOp(Op.DETACH, value.dtype, (value,), DetachAttrs(next(_SERIALS)))


def serial_of_leaf(node: UOp) -> int:
    """Return a leaf's serial; 0 for any other node."""
    is_leaf = node.op is DETACH and type(node.attrs) is DetachAttrs
    return node.attrs.serial if is_leaf else 0


def cut(value: UOp) -> UOp:
    """Return a node with that value whose gradient ends there."""
    if not requires_gradient(value):
        return value
    return UOp(Op.DETACH, value.dtype, (value,), DetachAttrs(0))


def route(values: Sequence[UOp], inputs: Sequence[UOp], rule: CallRule) -> tuple[UOp, ...]:
    """Return nodes with those values whose gradients go to the inputs by a rule.

    Values, dtypes and shapes are what they were. Without an input that requires a gradient, so
    are the nodes.
    """
    if not any(map(requires_gradient, inputs)):
        return tuple(values)
    return _results_of(Call(tuple(inputs), rule, tuple(values)))


def _results_of(call: Call) -> tuple[UOp, ...]:
    results = []
    for number, value in enumerate(call.values):
        attrs = CallResultAttrs(next(_SERIALS), call, number)
        results.append(UOp(Op.DETACH, value.dtype, (value,), attrs))
    call.results = [weakref.ref(each) for each in results]
    return tuple(results)


def make_place(value: UOp) -> UOp:
    """Return a node with that value to differentiate by; its gradient goes on to the value's."""
    call = Call((value,), lambda _, upstreams: upstreams, (value,), is_place=True)
    return _results_of(call)[0]


def set_apart(value: UOp) -> UOp:
    """Return a node with that value which equals no other one, and where gradients end."""
    return _results_of(Call((), lambda results, upstreams: (), (value,)))[0]


def with_rules(value: UOp, operands: Sequence[UOp], *rules: Rule) -> UOp:
    """Return a node with a function's value whose gradients follow rules, one for each operand.

    Where the value was computed in a way that would give a poor gradient, or another one.
    """
    if not any(map(requires_gradient, operands)):
        return value

    def rule(results: Sequence[UOp], upstreams: Gradients) -> Gradients:
        out, upstream = results[0], upstreams[0]
        if upstream is None:
            return [None] * len(operands)
        return [
            each(upstream, out, *operands) if requires_gradient(operand) else None
            for each, operand in zip(rules, operands, strict=True)
        ]

    return route([value], operands, rule)[0]


def requires_gradient(root: UOp) -> bool:
    """Tell whether a path leads from a node to a leaf that requires a gradient, or to a place."""
    return root.is_differentiable


def is_origin(node: UOp) -> bool:
    """Tell whether a node requires a gradient by itself."""
    if isinstance(node.attrs, CallResultAttrs):
        return node.attrs.call.is_place
    return serial_of_leaf(node) != 0


def origins_below(roots: Iterable[UOp], ends: Ends = frozenset()) -> list[UOp]:
    """Return the leaves and places that some root depends on, and none below the ends."""
    return origins_on(paths_below(roots, ends))


def origins_on(paths: Paths) -> list[UOp]:
    """Return the leaves and places among some nodes."""
    return [node for node in paths if node.op is DETACH and is_origin(node)]


def _sources(node: UOp) -> Sequence[UOp]:
    """Return what a node's gradient goes to."""
    if node.op is DETACH:
        return node.attrs.call.inputs if isinstance(node.attrs, CallResultAttrs) else ()
    if not node.is_differentiable:
        return ()
    return [
        operand
        for operand, rule in zip(node.operands, _rules_of(node), strict=False)
        if rule is not None and operand.is_differentiable and operand.dtype.is_float
    ]


def _rules_of(node: UOp) -> Sequence[Rule | None]:
    """Return the rules of a node's operands; those of a GATHER that none stands for are indices."""
    return RULES.get(node.op) or (_missing,) * len(node.operands)


def paths_below(roots: Iterable[UOp], ends: Ends = frozenset()) -> Paths:
    """Return the sources of every node that gradients of the roots may reach, sources first."""
    order: dict[UOp, Sequence[UOp]] = {}
    found: dict[UOp, Sequence[UOp]] = {}
    stack = [*roots]
    while stack:
        node = stack[-1]
        if node in found:
            stack.pop()
            order[node] = found[node]
            continue
        sources = found[node] = () if node in ends else _sources(node)
        stack += [each for each in sources if each not in found]
    return order


# The gradient of a graph.
@timed("gradients")
def gradients(
    roots: Sequence[UOp],
    upstreams: Sequence[UOp],
    targets: Sequence[UOp],
    ends: Ends = frozenset(),
    paths: Paths | None = None,
) -> list[UOp | None]:
    """Return, for each target, the sum over all paths from the roots; None where none leads there.

    No path goes on below one of the ends. Who has found all paths before gives them.

    Shapes: each upstream gradient is like its root, each result like its target.
    Cost: linear in the graph between the roots and the leaves.
    """
    order = paths_below(roots, ends) if paths is None else paths
    if WATCHES:
        note(Differentiated(weakref.WeakSet(walk(roots))))
    inner = {node: sources for node, sources in order.items() if node not in ends}
    found = _Accumulator(inner, targets)
    for root, upstream in zip(roots, upstreams, strict=True):
        found.add(_key_of(root), upstream)
    collector = COLLECTING.collector
    for node in reversed(inner):
        found.pass_on(node)
        if collector is not None:
            passed = [found.sums.get(_key_of(each)) for each in inner[node]]
            collector.note_gradients(node, passed)
    return [found.sums.get(_key_of(target)) for target in targets]


def _key_of(node: UOp) -> Key:
    """Return what tells gradients apart: a leaf is the same one before and after it is stored."""
    return node if node.op is not DETACH else serial_of_leaf(node) or node


class _Accumulator:
    """Sums the gradient of each node on a path to a target, users before sources."""

    def __init__(self, order: Mapping[UOp, Sequence[UOp]], targets: Sequence[UOp]) -> None:
        self.sums: dict[Key, UOp] = {}
        self.needed = {_key_of(target) for target in targets}
        self.waiting: dict[Call, int] = {}
        for node, sources in order.items():
            if not self.needed.isdisjoint(map(_key_of, sources)):
                self.needed.add(_key_of(node))
            if node.op is DETACH and isinstance(node.attrs, CallResultAttrs):
                call = node.attrs.call
                self.waiting[call] = self.waiting.get(call, 0) + 1

    def add(self, key: Key, gradient: UOp) -> None:
        """Add to a node's gradient, if it is asked for."""
        if key in self.needed:
            known = self.sums.get(key)
            self.sums[key] = gradient if known is None else add(known, gradient)

    def pass_on(self, node: UOp) -> None:
        """Pass a node's gradient, which is complete, on to what it was computed from."""
        if node.op is DETACH:
            if isinstance(node.attrs, CallResultAttrs):
                self._pass_on_together(node.attrs.call)
            return
        upstream = self.sums.get(node)
        if upstream is None:
            return
        for operand, rule in zip(node.operands, _rules_of(node), strict=False):
            key = operand if operand.op is not DETACH else _key_of(operand)
            if rule is not None and key in self.needed:
                self.add(key, rule(upstream, node, *node.operands))

    def _pass_on_together(self, call: Call) -> None:
        """Ask a Call's rule once the gradient of its last result is complete."""
        self.waiting[call] -= 1
        if self.waiting[call] or not any(_key_of(each) in self.needed for each in call.inputs):
            return
        alive = [reference() for reference in call.results]
        upstreams = [None if each is None else self.sums.get(each) for each in alive]
        if all(each is None for each in upstreams):
            return
        results = [each or value for each, value in zip(alive, call.values, strict=True)]
        for node, gradient in zip(call.inputs, call.rule(results, upstreams), strict=True):
            if gradient is not None:
                self.add(_key_of(node), gradient)


# One rule for each operand that has a gradient.
def wide(rule: Rule) -> Rule:
    """Compute a rule of several ops in float32 where it gives halves; round once."""

    def widened(upstream: UOp, *nodes: UOp) -> UOp:
        if not upstream.dtype.is_narrow:
            return rule(upstream, *nodes)
        return cast(rule(widen(upstream), *map(widen, nodes)), upstream.dtype)

    return widened


def fold_sum(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Return the sum over axes, which stay with extent 1.

    Halves are summed in float32 and rounded once. What was rounded only to be summed here is
    summed before: so the gradient of a half matrix product is again a sum of exact products.
    """
    return cast(fold(Combine.ADD, _unrounded(x), axes), x.dtype)


def _unrounded(x: UOp) -> UOp:
    """Return the terms of a sum: halves in float32, and as they were before they became halves."""
    if not x.dtype.is_narrow:
        return x
    wider = x.operands[0] if x.op is Op.CAST else x
    return wider if wider.dtype is dtypes.float32 else widen(x)


def _missing(g: UOp, out: UOp, *operands: UOp) -> UOp:
    name = out.op.name.lower()
    raise GradientError(f"grad: {name} has no gradient: {out!r}; use detach() below it.")


def _unchanged(g: UOp, out: UOp, *operands: UOp) -> UOp:
    return g


def _zero(g: UOp, out: UOp, *operands: UOp) -> UOp:
    return full_like(g, 0)


def _masked(mask: UOp, g: UOp) -> UOp:
    return select(mask, g, full_like(g, 0))


def _of_larger(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
    """Return the share of x in maximum(x, y): half of it in a tie, all of it with a NaN."""
    shared = select(is_equal(x, y), mul(g, 0.5), g)
    return select(is_less(x, y), full_like(g, 0), shared)


def _of_smaller(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
    shared = select(is_equal(x, y), mul(g, 0.5), g)
    return select(is_less(y, x), full_like(g, 0), shared)


def _of_divisor(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
    return neg(div(mul(g, out), y))


def _of_modulus(g: UOp, out: UOp, x: UOp, y: UOp) -> UOp:
    return neg(mul(g, floor(div(x, y))))


def _of_erf(g: UOp, out: UOp, x: UOp) -> UOp:
    bell = exp(neg(mul(x, x)))
    return mul(g, mul(bell, 2 / math.sqrt(math.pi)))


# Views.
def _of_permuted(g: UOp, out: UOp, x: UOp) -> UOp:
    order = out.attrs.order
    return permute(g, tuple([order.index(axis) for axis in range(len(order))]))


def _of_expanded(g: UOp, out: UOp, x: UOp) -> UOp:
    axes = [axis for axis, n in enumerate(x.shape) if is_repeated(n, out.shape[axis])]
    return fold_sum(g, tuple(axes))


def _of_padded(g: UOp, out: UOp, x: UOp, fill: UOp) -> UOp:
    inside = zip(out.attrs.before, x.shape, strict=True)
    return take_slices(g, [stretch(before, extent) for before, extent in inside])


def _of_sliced(g: UOp, out: UOp, x: UOp) -> UOp:
    return put_slices(g, out.attrs, x.shape)


def _of_gathered(g: UOp, out: UOp, x: UOp, *indices: UOp) -> UOp:
    return sum_at(g, out.attrs.axes, indices, x.shape)


def sum_at(values: UOp, axes: Shape, indices: Sequence[UOp], shape: Shape) -> UOp:
    """Return, for each place of a shape, the sum of the values that indices along axes send there.

    Halves are summed in float32 and rounded once, as fold_sum does. The gradient is a gather.
    """
    if 0 in values.shape:
        return full(values.dtype, 0, shape)
    folded = fold_at(Combine.ADD, _unrounded(values), axes, indices, shape)
    total = cast(folded, values.dtype)
    return with_rules(total, [values], lambda g, *_: gather_at(g, axes, indices))


def device_of(root: UOp) -> str | None:
    """Return the device whose memory a node reads; None when it reads no memory."""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        if node.op in (Op.BUFFER, Op.COPY):
            device: str = node.attrs.device
            return device
        fresh = [each for each in node.operands if each not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return None


def _of_copied(g: UOp, out: UOp, x: UOp) -> UOp:
    source = device_of(x)
    if source is None or source == out.attrs.device:
        return g
    return UOp(Op.COPY, g.dtype, (g,), DeviceAttrs(source))


# Folds.
def _of_folded(g: UOp, out: UOp, x: UOp) -> UOp:
    return OF_FOLDED.get(out.attrs.combine, _missing)(g, out, x)


def _of_sum(g: UOp, out: UOp, x: UOp) -> UOp:
    return broadcast(g, x.shape)


def _of_product(g: UOp, out: UOp, x: UOp) -> UOp:
    others = products_of_others(widen(x), out.attrs.axes)
    return cast(mul(widen(broadcast(g, x.shape)), others), x.dtype)


def _of_extreme(g: UOp, out: UOp, x: UOp) -> UOp:
    """Share among all elements that are the extreme; NaN of none, as with a NaN among them."""
    hits = is_equal(x, broadcast(out, x.shape))
    computing: DType = widen(g).dtype
    count = fold_sum(cast(hits, computing), out.attrs.axes)
    share = _masked(hits, broadcast(widen(g), x.shape))
    return cast(div(share, broadcast(count, x.shape)), x.dtype)


OF_FOLDED: dict[Combine, Rule] = {
    Combine.ADD: _of_sum,
    Combine.MUL: _of_product,
    Combine.MAX: _of_extreme,
    Combine.MIN: _of_extreme,
}


def products_of_others(x: UOp, axes: Sequence[int]) -> UOp:
    """Return, for each element, the product of all others along axes, without a division.

    Pairs are multiplied up to one product, and each element takes its partner's on the way down.
    Cost: linear in the elements; twice the logarithm of their number in nodes.
    """
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = (*kept, *axes)
    rows = permute(x, order)
    count = math.prod(x.shape[axis] for axis in axes)
    others = _others_in_rows(reshape(rows, (*[x.shape[axis] for axis in kept], count)))
    inverse = tuple([order.index(axis) for axis in range(len(order))])
    return permute(reshape(others, rows.shape), inverse)


def _others_in_rows(x: UOp) -> UOp:
    *rows, count = x.shape
    whole = [range(extent) for extent in rows]
    levels = []
    products = x
    while products.shape[-1] > 1:
        extent = products.shape[-1]
        none, odd = (0,) * len(x.shape), (*[0] * len(rows), extent % 2)
        even = pad(products, none, odd, 1)
        pairs = reshape(even, (*rows, (extent + 1) // 2, 2))
        levels.append((pairs, extent))
        left, right = (_side(pairs, side) for side in (0, 1))
        products = mul(left, right)
    others = full_like(products, 1)
    for pairs, extent in reversed(levels):
        partners = take_slices(pairs, [*map(range, pairs.shape[:-1]), range(1, -1, -1)])
        above = broadcast(reshape(others, (*others.shape, 1)), pairs.shape)
        joined = reshape(mul(above, partners), (*rows, 2 * pairs.shape[-2]))
        others = take_slices(joined, [*whole, range(extent)])
    return others


def _side(pairs: UOp, side: int) -> UOp:
    single = take_slices(pairs, [*map(range, pairs.shape[:-1]), range(side, side + 1)])
    return reshape(single, pairs.shape[:-1])


RULES: dict[Op, tuple[Rule | None, ...]] = {
    Op.ADD: (_unchanged, _unchanged),
    Op.SUB: (_unchanged, lambda g, out, x, y: neg(g)),
    Op.MUL: (lambda g, out, x, y: mul(g, y), lambda g, out, x, y: mul(g, x)),
    Op.DIV: (lambda g, out, x, y: div(g, y), wide(_of_divisor)),
    Op.MOD: (_unchanged, wide(_of_modulus)),
    Op.NEG: (lambda g, out, x: neg(g),),
    Op.MAX: (_of_larger, lambda g, out, x, y: _of_larger(g, out, y, x)),
    Op.MIN: (_of_smaller, lambda g, out, x, y: _of_smaller(g, out, y, x)),
    Op.SQRT: (wide(lambda g, out, x: div(g, mul(out, 2))),),
    Op.FLOOR: (_zero,),
    Op.TRUNC: (_zero,),
    Op.EXP: (lambda g, out, x: mul(g, out),),
    Op.LOG: (lambda g, out, x: div(g, x),),
    Op.SIN: (wide(lambda g, out, x: mul(g, cos(x))),),
    Op.COS: (wide(lambda g, out, x: neg(mul(g, sin(x)))),),
    Op.TANH: (wide(lambda g, out, x: mul(g, sub(full_like(out, 1), mul(out, out)))),),
    Op.ERF: (wide(_of_erf),),
    Op.WHERE: (
        None,
        lambda g, out, cond, x, y: _masked(cond, g),
        lambda g, out, cond, x, y: select(cond, full_like(g, 0), g),
    ),
    Op.CAST: (lambda g, out, x: cast(g, x.dtype),),
    Op.BITCAST: (None,),
    Op.RESHAPE: (lambda g, out, x: reshape(g, x.shape),),
    Op.PERMUTE: (_of_permuted,),
    Op.EXPAND: (_of_expanded,),
    Op.SLICE: (_of_sliced,),
    Op.GATHER: (_of_gathered,),
    Op.PAD: (_of_padded, None),  # the fill is a constant
    Op.REDUCE: (_of_folded,),
    Op.COPY: (_of_copied,),
}
