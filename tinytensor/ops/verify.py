"""Refuses a graph, a Kernel or a Linear that breaks an invariant of its form.

Shapes and dtypes of single nodes are checked when they are built (`ops/infer.py`); this is about
what a form allows, and about what several nodes must agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.kernel import Contraction, Kernel, Param
from tinytensor.ops.linear import UNORDERED, Linear, is_pure
from tinytensor.ops.op import Form, Op
from tinytensor.ops.ranges import dependencies, folded_ranges
from tinytensor.ops.text import name_nodes, show_node
from tinytensor.ops.uop import UOp, walk
from tinytensor.ops.verify_blocks import verify_blocks

ALIGNMENT_BYTES = 64
INDEX_DTYPES = (dtypes.int32, dtypes.int64)
OPENER_OF = {Op.ENDLOOP: Op.LOOP, Op.ELSE: Op.IF, Op.ENDIF: Op.IF, Op.ENDROLE: Op.ROLE}


class Verifier:
    """Collects what an error needs: the form's name, and the nodes, for the numbers in its text."""

    def __init__(self, form: Form, subject: str, nodes: Iterable[UOp]) -> None:
        self.form = form
        self.subject = subject
        self.nodes = tuple(nodes)

    def require(self, claim: bool, node: UOp, sentence: str) -> None:
        """Raise InternalError with the node's line when an invariant does not hold.

        `sentence` says what is wrong and, after a semicolon, what is required.
        """
        if not claim:
            wrong, _, required = sentence.partition("; ")
            line = show_node(node, name_nodes(walk(self.nodes)))
            form = str(self.form.name).lower()
            raise InternalError(f"verify {form}: {self.subject}{wrong}: {line}; {required}.")

    def check_node(self, node: UOp) -> None:
        """Check what every form asks of a node by itself."""
        legal = self.form in node.op.forms
        self.require(legal, node, "op is not of this form; each form has its own ops")
        count = len(node.operands)
        self.require(_takes(node.op, count), node, "number of operands; the op table fixes it")
        if self.form is not Form.LINEAR:
            self.require(node.dtype.lanes == 1, node, "vector; only linear has lanes")
        if self.form is not Form.TENSOR:
            self.require(node.shape == (), node, "shape is not (); nodes are scalars here")

    def check_attrs(self, node: UOp) -> None:
        """Check that the attrs are of the class the op table names."""
        kind = node.op.attrs_type
        suits = node.attrs is None if kind is None else isinstance(node.attrs, kind)
        self.require(suits, node, "attrs are of another op; the op table fixes their class")


def _takes(op: Op, count: int) -> bool:
    """Whether the op's column of operands allows that many: `x*` any number, `x?` one or none."""
    fixed = [each for each in op.operands if each[-1] not in "*?"]
    if any(each.endswith("*") for each in op.operands):
        return count >= len(fixed)
    return len(fixed) <= count <= len(op.operands)


def verify_tensor(roots: Sequence[UOp]) -> None:
    """Check a TENSOR graph.

    Raises: InternalError with the node's line.
    """
    verifier = Verifier(Form.TENSOR, "", roots)
    for node in walk(roots):
        verifier.check_node(node)
        verifier.check_attrs(node)
        is_inner = node.dtype is dtypes.void or (node.dtype is dtypes.index and node.shape != ())
        verifier.require(not is_inner, node, "dtype is the compiler's own; users have values")


def verify_indexed(kernel: Kernel) -> None:
    """Check a Kernel: its sink, ranges, params and contraction facts.

    Raises: InternalError with the node's line.
    """
    nodes = walk([kernel.sink])
    facts = [] if kernel.contraction is None else [kernel.contraction.node]
    seeds = [*kernel.ranges, kernel.sink, *facts]
    verifier = Verifier(Form.INDEXED, f"{kernel.name}: ", seeds)
    verifier.require(kernel.sink.op is Op.SINK, kernel.sink, "root is no sink; a kernel is one")
    for node in nodes:
        verifier.check_node(node)
        if node.op in (Op.LOAD, Op.STORE):
            _check_access(verifier, node)
        else:
            verifier.check_attrs(node)
    _check_ranges(verifier, kernel, nodes)
    _check_params(verifier, kernel, nodes)
    _check_contraction(verifier, kernel, nodes)
    for number, node in enumerate(kernel.variables):
        dense = node.attrs.number == number
        verifier.require(dense, node, "number is not its place; variables are numbered from 0")


def _check_access(verifier: Verifier, node: UOp) -> None:
    verifier.require(node.attrs is None, node, "has attrs; accesses get them in linear")
    buffer, index = node.operands[:2]
    guard = node.operands[2 if node.op is Op.LOAD else 3 :]
    is_index = index.dtype is dtypes.index
    verifier.require(is_index, node, "index is of a user's dtype; it must be of dtype index")
    is_bool = all(each.dtype is dtypes.bool for each in guard)
    verifier.require(is_bool, node, "guard is no bool; it says whether memory is touched")
    inside = walk([index])
    is_fixed = all(each.op is not Op.VARIABLE for each in inside)  # else n - 1 - i seems below 0
    if not guard and is_fixed and all(each.extent for each in inside if each.op is Op.RANGE):
        low, high = bounds_of(index)
        elements = buffer.attrs.elements
        sentence = f"index {low} to {high} leaves {elements} elements; a guard must exclude it"
        verifier.require(low >= 0 and high < elements, node, sentence)


def _check_ranges(verifier: Verifier, kernel: Kernel, nodes: Sequence[UOp]) -> None:
    numbered: dict[int, UOp] = {}
    folded = {each for node in nodes for each in folded_ranges(node)}
    for node in (*kernel.ranges, *nodes):
        if node.op is Op.RANGE:
            same = numbered.setdefault(node.attrs.number, node) is node
            verifier.require(same, node, "number is that of another range; numbers are unique")
            owned = (node in kernel.ranges) != (node in folded)
            sentence = "is not either the kernel's or folded; a range has one owner"
            verifier.require(owned, node, sentence)
    depends = dependencies(nodes)
    for node in nodes:
        if node.op is Op.STORE:
            for each in depends[node] - frozenset(kernel.ranges):
                line = "range is used outside its fold; only what is beneath the fold may vary"
                verifier.require(False, each, line)


def _check_params(verifier: Verifier, kernel: Kernel, nodes: Sequence[UOp]) -> None:
    buffers = [node for node in nodes if node.op is Op.PARAM]
    for node in buffers:
        check_param(verifier, node, kernel.params)
    numbers = {node.attrs.number for node in buffers}
    dense = numbers == set(range(len(kernel.params))) and len(numbers) == len(buffers)
    sentence = f"params read or written are {sorted(numbers)}; all {len(kernel.params)} must be"
    verifier.require(dense, kernel.sink, sentence)
    for store in kernel.sink.operands:
        verifier.require(store.op is Op.STORE, store, "is no store; a sink has only stores")
        check_written(verifier, store, kernel.params)
    stored = {store.operands[0].attrs.number for store in kernel.sink.operands}
    for node in buffers:
        written = kernel.params[node.attrs.number].written
        claim = written == (node.attrs.number in stored)
        verifier.require(claim, node, "is written and has no store; a store must fill it")


def check_param(verifier: Verifier, node: UOp, params: Sequence[Param]) -> None:
    """Check that a PARAM node is one of the params, of the same dtype and size."""
    known = 0 <= node.attrs.number < len(params)
    verifier.require(known, node, f"number is unknown; there are {len(params)} params")
    param = params[node.attrs.number]
    same = param.dtype is node.dtype and param.elements == node.attrs.elements
    declared = f"{param.elements} elements of {param.dtype.name}"
    verifier.require(same, node, f"differs from its param; that has {declared}")


def check_written(verifier: Verifier, store: UOp, params: Sequence[Param]) -> None:
    """Check that a STORE's buffer is scratch memory or a param declared as written."""
    buffer = store.operands[0]
    allowed = buffer.op is not Op.PARAM or params[buffer.attrs.number].written
    verifier.require(allowed, store, "param is read only; stores go to written params")


def _check_contraction(verifier: Verifier, kernel: Kernel, nodes: Sequence[UOp]) -> None:
    facts = kernel.contraction
    for node in nodes:
        if node.op is Op.CONTRACT:
            known = facts is not None and facts.node is node
            verifier.require(known, node, "the kernel's facts are of another; it has at most one")
    if facts is None:
        return
    occurs = facts.node in nodes and facts.node.op is Op.CONTRACT
    verifier.require(occurs, facts.node, "facts are of a node outside the kernel; it must occur")
    attrs = facts.node.attrs
    for name in ("batch", "m", "n", "k"):
        ranges: tuple[UOp, ...] = getattr(facts, name)
        same = tuple([each.attrs.number for each in ranges]) == getattr(attrs, name)
        verifier.require(same, facts.node, f"facts about {name} differ; they repeat the attrs")
    folds = facts.k == folded_ranges(facts.node)
    verifier.require(folds, facts.node, "k is not what it folds over; they are the same ranges")
    _check_operands(verifier, facts, dependencies(nodes))


def _check_operands(
    verifier: Verifier, facts: Contraction, depends: dict[UOp, frozenset[UOp]]
) -> None:
    node = facts.node
    a, b = node.operands[:2]
    classes = (*facts.batch, *facts.m, *facts.n, *facts.k)
    distinct = len(set(classes)) == len(classes)
    verifier.require(distinct, node, "a range is of two classes; each has one")
    covered = depends[a] <= {*facts.batch, *facts.m, *facts.k}
    verifier.require(covered, node, "a varies over another range; it has batch, m and k")
    covered = depends[b] <= {*facts.batch, *facts.n, *facts.k}
    verifier.require(covered, node, "b varies over another range; it has batch, n and k")


# LINEAR form.
@dataclass(slots=True)
class Block:
    """An open block: what it defines, the registers surely written in it, and its other half's.

    `opener` is its LOOP, IF or ROLE (None: the whole list). `first_half` is what the IF's first
    half surely wrote, once its ELSE was passed.
    """

    opener: UOp | None
    defined: set[UOp] = field(default_factory=set)
    written: set[UOp] = field(default_factory=set)
    first_half: set[UOp] | None = None


def verify_linear(linear: Linear) -> None:
    """Check a Linear.

    Raises: InternalError with the statement's line.
    """
    verifier = Verifier(Form.LINEAR, f"{linear.name}: ", linear.statements)
    blocks = [Block(None)]
    orders: set[int] = set()
    for node in linear.statements:
        verifier.check_node(node)
        verifier.check_attrs(node)
        _check_visible(verifier, node, blocks)
        _check_order(verifier, node, orders)
        _check_memory(verifier, node, linear)
        _check_values(verifier, node)
        _check_register(verifier, node, blocks)
        _follow_blocks(verifier, node, blocks)
    last = linear.statements[-1:]
    for node in last:
        verifier.require(len(blocks) == 1, node, "a block is still open; each is closed")
    verify_blocks(verifier, linear)


# Order and blocks.
def _check_visible(verifier: Verifier, node: UOp, blocks: list[Block]) -> None:
    for each in node.operands:
        seen = any(each in block.defined for block in blocks)
        verifier.require(seen, node, "an operand is not visible; it is defined before, in reach")
    again = any(node in block.defined for block in blocks)
    verifier.require(not again, node, "is defined twice in one scope; once is enough")
    blocks[-1].defined.add(node)


def _check_order(verifier: Verifier, node: UOp, orders: set[int]) -> None:
    if is_pure(node):
        return
    order: int = node.attrs.order
    unique = order not in orders and order != UNORDERED
    verifier.require(unique, node, "order is that of another effect; orders are unique")
    orders.add(order)


def _follow_blocks(verifier: Verifier, node: UOp, blocks: list[Block]) -> None:
    if node.op in (Op.LOOP, Op.IF, Op.ROLE):
        blocks.append(Block(node))
    elif node.op in OPENER_OF:
        opener = node.operands[0]
        # The marker itself was just defined in the block it closes: it goes with it.
        matches = blocks[-1].opener is opener and opener.op is OPENER_OF[node.op]
        verifier.require(matches, node, "closes no open block; blocks nest")
        closed = blocks.pop()
        if node.op is Op.ELSE:
            is_first = closed.first_half is None
            verifier.require(is_first, node, "is a second one; a branch has two halves")
            blocks.append(Block(opener, first_half=closed.written))
        elif node.op is Op.ENDIF and closed.first_half is not None:
            blocks[-1].written |= closed.first_half & closed.written
        elif node.op is Op.ENDLOOP and _runs(opener):
            blocks[-1].written |= closed.written


def _runs(loop: UOp) -> bool:
    """Whether a loop surely runs once at least."""
    begin, end = [bounds_of(each) for each in loop.operands]
    return begin[1] < end[0]


def _check_register(verifier: Verifier, node: UOp, blocks: list[Block]) -> None:
    if node.op in (Op.WRITE, Op.WGMMA):
        blocks[-1].written.add(node.operands[0])
    elif node.op is Op.READ:
        register = node.operands[0]
        same = register.op is Op.REGISTER and register.dtype is node.dtype
        verifier.require(same, node, "reads something else; a register of its own dtype")
        written = any(register in block.written for block in blocks)
        sentence = "register may not be written yet; a write precedes it on every path"
        verifier.require(written, node, sentence)


# Memory.
def _check_memory(verifier: Verifier, node: UOp, linear: Linear) -> None:
    if node.op is Op.PARAM:
        check_param(verifier, node, linear.params)
    elif node.op is Op.WORKSPACE:
        begin, size = node.attrs.offset_bytes, node.attrs.elements * node.dtype.itemsize
        inside = begin >= 0 and begin + size <= linear.workspace_bytes
        sentence = f"region leaves the scratch memory; that has {linear.workspace_bytes} bytes"
        verifier.require(inside, node, sentence)
        aligned = begin % ALIGNMENT_BYTES == 0
        verifier.require(aligned, node, f"region is not aligned; {ALIGNMENT_BYTES} bytes divide it")
    elif node.op in (Op.LOAD, Op.STORE):
        _check_linear_access(verifier, node, linear)


def _check_linear_access(verifier: Verifier, node: UOp, linear: Linear) -> None:
    buffer, index = node.operands[:2]
    value = node if node.op is Op.LOAD else node.operands[2]
    guard = node.operands[2 if node.op is Op.LOAD else 3 :]
    is_index = index.dtype in INDEX_DTYPES
    verifier.require(is_index, node, "index has another dtype; it is int32 or int64")
    is_bool = all(each.dtype is dtypes.bool for each in guard)
    verifier.require(is_bool, node, "guard is no bool; it is one for all lanes")
    fits = 1 <= node.attrs.valid <= value.dtype.lanes
    verifier.require(fits, node, "valid lanes do not fit; there is one at least, and no more")
    if node.op is Op.STORE:
        check_written(verifier, node, linear.params)
    elif node.attrs.order == UNORDERED:
        is_param = buffer.op is Op.PARAM
        verifier.require(is_param, node, "reads scratch memory; such a load has an order")


# Values.
def _check_values(verifier: Verifier, node: UOp) -> None:
    if node.op is Op.LOOP:
        same = {each.dtype for each in (node, *node.operands)} == {node.dtype}
        suits = same and node.dtype in INDEX_DTYPES and node.attrs.step > 0
        verifier.require(suits, node, "is no upward loop; one int dtype, and a step above 0")
    elif node.op is Op.IF:
        is_bool = node.operands[0].dtype is dtypes.bool
        verifier.require(is_bool, node, "condition is no bool; it is one")
    elif node.op is Op.CALL:
        cond, *operands = node.operands
        is_mask = cond.dtype is dtypes.bool.vector(node.dtype.lanes)
        verifier.require(is_mask, node, "condition is no bool of its lanes; it has one each")
        same = all(each.dtype is node.dtype for each in operands)
        verifier.require(same, node, "dtypes differ; a call has one dtype")
