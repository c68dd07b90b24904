"""Computes values: graph to kernels, kernels to programs, programs to launches."""

from __future__ import annotations

import sys
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tinytensor.captures import CAPTURES, note_forward, wants_schedule
from tinytensor.config import config
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import CompileError, IndexOutOfRange, Site, TraceError
from tinytensor.lazy import lazy_import
from tinytensor.ops.attrs import CheckAttrs
from tinytensor.ops.op import Op
from tinytensor.ops.size import are_same, value_of
from tinytensor.ops.uop import UOp, below_views, buffer, nbytes_of, substitute_all, walk
from tinytensor.program_cache import winners_stamp
from tinytensor.records import dataclass
from tinytensor.replay import Replay
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import AnyDevice, Device, default_device
from tinytensor.runtime.interrupts import uninterrupted
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.schedule.probes import complaint, probe_of
from tinytensor.schedule_cache import keep_plan, key_of_structure, read_plan
from tinytensor.structure import Graph, Structure, UnknownGraph, structure_of, variables_of
from tinytensor.timing import WATCHES, count, now, tell, timed

# Looked up once.
BUFFER, CHECK, CONST, RESHAPE, DETACH = Op.BUFFER, Op.CHECK, Op.CONST, Op.RESHAPE, Op.DETACH
REDUCE = Op.REDUCE
APART = frozenset((Op.COPY, Op.RUN))  # what is computed before what it lies below
MOST_SCHEDULES = 1024
MOST_UNREAD = 256
MOST_HOLDERS = 1024


@dataclass(eq=False, slots=True)  # not frozen: it is made at each call, in a third of the time
class Root:
    """A value to compute: its graph, where it lives, and the user's line that made it.

    With `is_dropped`, whoever asks holds the node once and will hold the result in its place. He
    may name a leaf that he held before: when nobody else can read it, the result may be computed
    in its memory. `keep` is given the leaf of the value, and nothing comes between. What nobody
    has asked for says `why` it is stored.
    """

    uop: UOp
    device: str
    site: Site | None = None
    is_dropped: bool = False
    replaces: UOp | None = None
    keep: Callable[[UOp], None] | None = None
    why: str = ""


class Holder(Protocol):
    """What a tensor holds: an expression and, once it is computed, the leaf of its value."""

    uop: UOp
    leaf: UOp | None

    def root(self, device: str, site: Site | None) -> Root:
        """Return what is to be computed."""

    def refer(self, uop: UOp) -> None:
        """Hold another expression of the same value."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A number that is computed beside some values and tells whether a CHECK below them holds."""

    node: UOp
    attrs: CheckAttrs
    site: Site | None


# A structure, the values of its variables, the device, and the settings a schedule depends on.
Key = tuple[Structure, tuple[int, ...], str, tuple[object, ...]]

_SCHEDULES: OrderedDict[Key, Replay] = OrderedDict()
_COMPUTED: OrderedDict[int, None] = OrderedDict()  # graphs that were asked for
# Probes that were computed, with the leaves of their numbers as nodes: read at the next host read.
_UNREAD: list[Probe] = []
_LOCK = ForkSafeLock()
# Who holds the result of an operation; of the last ones only, for who is rebound was so lately.
HOLDERS: Final[deque[Callable[[], Holder | None]]] = deque(maxlen=MOST_HOLDERS)


def canonical_device(name: str) -> str:
    """Return the name a device is known by.

    Raises: DeviceError when there is no such device here.
    """
    return Device[name].name


def default_device_name() -> str:
    """Return the name of the device that new tensors live on."""
    return default_device().name


def from_host(array: npt.NDArray[Any], dtype: DType, device: str) -> UOp:
    """Copy an array of the dtype's storage type to a device; return its BUFFER leaf."""
    leaf = buffer(dtype, array.shape, device)
    memory = Device[device].allocate(array.size * dtype.itemsize)
    if array.size:
        Device[device].copy_in(memory, np.ascontiguousarray(array).reshape(-1))
    leaf.memory = memory
    return leaf


def allocate_zeros(dtype: DType, shape: tuple[int, ...], device: str) -> UOp:
    """Return a BUFFER leaf of zeros: no host array of that size is filled and copied."""
    leaf = buffer(dtype, shape, device)
    leaf.memory = Device[device].allocate(nbytes_of(leaf))
    Device[device].fill(leaf.memory, 0)
    return leaf


def to_host(leaf: UOp) -> npt.NDArray[Any]:
    """Copy a BUFFER leaf's memory to a fresh array of its storage type and shape.

    Raises: IndexOutOfRange when something computed so far has read at an index outside its axis.
    """
    read_probes()
    return _copy_out(leaf)


def read_probes() -> None:
    """Raise IndexOutOfRange when a probe that nobody has read yet tells of an index outside."""
    with _LOCK:
        unread = list(_UNREAD)
        _UNREAD.clear()
    for probe in unread:
        sentence = complaint(probe.attrs, _copy_out(probe.node).item())
        if sentence is not None:
            raise IndexOutOfRange(_with_line(sentence, [probe.site]))


@timed("wait")
def _copy_out(leaf: UOp) -> npt.NDArray[Any]:
    array = np.empty(leaf.shape, leaf.dtype.storage_numpy)
    if array.size:
        Device[leaf.attrs.device].copy_out(storage_of(leaf), array.reshape(-1))
    return array


def storage_of(leaf: UOp) -> Buffer:
    """Return the memory of a BUFFER leaf, for what reads it where it lies.

    Raises: TraceError for one that stood for a value while a body was traced.
    """
    memory: Buffer | None = leaf.memory
    if memory is None:
        sentence = f"realize: a value of a traced body is read outside of it: shape {leaf.shape}"
        raise TraceError(f"{sentence}; the body must return it.")
    return memory


def realize(roots: Sequence[Root]) -> list[UOp]:
    """Compute all values as one schedule per device; return BUFFER leaves of the same shapes.

    An error leaves every value as it was: all memory is there before the first kernel runs.
    """
    with _LOCK:
        begin = now() if WATCHES else None
        unread = _unread_leaves(roots)
        asked = UnknownGraph([contents_of(root.uop) for root in roots])
        kind = None if asked.is_plain else _kind_of(asked)
        held = [] if kind is None or kind in _COMPUTED else _held_below(asked, roots)
        if held:
            roots = [*roots, *held]
            del asked, unread  # who sees what is unread counts references
            unread = _unread_leaves(roots)
            asked = UnknownGraph([contents_of(root.uop) for root in roots])
            kind = _kind_of(asked)
        graph, known = _resolve_copies(asked)
        if CAPTURES:
            note_forward(known)
        wanted: dict[str, dict[UOp, Root]] = {}
        pairs = list(zip(graph.roots, roots, strict=True))
        if held:
            graph.why = {node: root.why for node, root in pairs if root.why}
        for node, root in pairs:
            if root.replaces is not None and root.replaces not in unread:  # somebody can read it
                root.replaces = None
            wanted.setdefault(root.device, {})[node] = root
        ready = {name: _make_ready(each, graph, Device[name]) for name, each in wanted.items()}
        # A value that is computed over another one must reach its holder.
        with uninterrupted(bool(unread)):
            made = {name: run() for name, run in ready.items()}
            if kind is None and graph.is_new:
                kind = _kind_of(asked)
            _note_computed(asked, kind)
            leaves = [_hold(root, made[root.device][node]) for node, root in pairs]
        if held:
            _refer({root.uop: leaf for root, leaf in zip(roots, leaves, strict=True) if root.why})
        if begin is not None:
            tell("realize", begin)
        return leaves[: len(leaves) - len(held)]


def _hold(root: Root, found: UOp) -> UOp:
    """Give a root's holder the leaf of its value, in the root's own shape."""
    uop = root.uop
    leaf = _with_shape(found, uop)
    # A constant is cheaper than its memory, and the fill of a PAD must stay one.
    if uop is not leaf and below_views(uop).op is not CONST and contents_of(uop) is not leaf:
        uop.computed = partial(_same, leaf) if root.why else weakref.ref(leaf)
    if root.keep is not None:
        root.keep(leaf)
    return leaf


def _same(leaf: UOp) -> UOp:
    return leaf


def _lost() -> None:
    """Stand for the leaf of a value that was computed and not kept."""


def _kind_of(asked: Graph) -> int:
    """Return what graphs of one structure share, before anything is added to them."""
    return hash(tuple(asked.facts))


def _note_computed(asked: Graph, kind: int | None) -> None:
    """Note of all but views and leaves that they were computed, and that nobody keeps them yet.

    A graph of a kind that was computed is not weighed: it grew from none, and its plan is there.
    """
    if kind is not None:
        _COMPUTED[kind] = None
        if len(_COMPUTED) > MOST_SCHEDULES:
            _COMPUTED.popitem(last=False)
    lost = _lost
    for node in asked.order:
        if (node.attrs is None or node.op is REDUCE) and node.computed is None:
            node.computed = lost


def _weighed() -> None:
    """Stand for it as well, once it was found to be cheap, or nobody held what is made of it."""


def _held_below(asked: Graph, roots: Sequence[Root]) -> list[Root]:
    """Return what tensors hold of a graph and had better be stored: it is computed once more."""
    lost = {node for node in asked.order if node.computed is not None}.difference(asked.known)
    if all([node.computed is _weighed for node in lost]):
        return []
    holders = {contents_of(each.uop): each for each in _waiting_holders()}
    # Who waits outside of the graph holds what he reads of it, too, if that was not lost before.
    read = [each for each in walk([*holders], stop=asked.numbers) if each in asked.numbers]
    held = {*map(below_views, read)}.difference(lost) | (holders.keys() & asked.numbers.keys())
    device, site = roots[0].device, roots[0].site
    if held.issubset(asked.roots) or any([root.device != device for root in roots]):
        _note_weighed(lost)
        return []
    ends = {*asked.known, *[node for node in asked.order if node.op in APART]}
    weigh = lazy_import("tinytensor.schedule.held", None, "realize").weigh_held
    stored = []
    for each in weigh(asked.roots, ends, lost, held, Device[device].target):
        if each.is_stored:
            holder = holders.get(each.node)
            root = Root(each.node, device, site) if holder is None else holder.root(device, site)
            stored.append(replace(root, why=each.reason))
        else:
            _note_weighed(lost.intersection(each.inside))
    return stored


def _note_weighed(lost: Iterable[UOp]) -> None:
    for node in lost:
        node.computed = _weighed


def _waiting_holders() -> list[Holder]:
    """Return who lives and holds what is not computed yet, and forget all others."""
    found = [(place, place()) for place in list(HOLDERS)]
    waiting = [(place, each) for place, each in found if each is not None and each.leaf is None]
    HOLDERS.clear()
    HOLDERS.extend([place for place, _ in waiting])
    return [each for _, each in waiting]


def _refer(leaves: dict[UOp, UOp]) -> None:
    """Let whoever waits refer to leaves, where else he would hold what they were made of."""
    waiting = [each for each in _waiting_holders() if not each.uop.is_differentiable]
    uops = substitute_all(tuple([each.uop for each in waiting]), leaves)
    for each, uop in zip(waiting, uops, strict=True):
        if uop is not each.uop:
            each.refer(uop)


def kept_between(earlier: Sequence[UOp], later: Sequence[UOp], device: str) -> list[UOp]:
    """Return the values below some nodes that one schedule of all keeps for what only later needs.

    They are stored intermediates, and leaves that lie in memory already. Computes nothing.
    """
    graph, _ = _resolve_copies(UnknownGraph([contents_of(each) for each in (*earlier, *later)]))
    inside = set(walk(graph.roots[: len(earlier)]))
    roots = [each for each in dict.fromkeys(graph.roots) if each.op is not Op.BUFFER]
    kept: list[UOp] = _planning().kept_between(inside, roots, Device[device])
    return kept


def _planning() -> ModuleType:
    """Return what makes plans; who reads all of them from the disk never loads it."""
    return lazy_import("tinytensor.planning", None, "realize")


def contents_of(node: UOp) -> UOp:
    """Return the node with the same memory: a reshaped value is stored like the value itself."""
    while node.op is RESHAPE or node.op is DETACH:
        node = node.operands[0]
    return node


def _with_shape(leaf: UOp, root: UOp) -> UOp:
    if leaf.shape is root.shape or are_same(leaf.shape, root.shape):
        return leaf
    return alias_of(leaf, root.shape)


def alias_of(leaf: UOp, shape: tuple[int, ...]) -> UOp:
    """Return another leaf with the same memory."""
    other = buffer(leaf.dtype, shape, leaf.attrs.device)
    other.memory = storage_of(leaf)
    other.memory.is_shared = True
    return other


def _resolve_copies(graph: Graph) -> tuple[Graph, dict[UOp, UOp]]:
    """Replace what is already computed, and each COPY, by the leaf that holds its value.

    Return the graph and the nodes in whose place it has such a leaf.
    """
    if graph.is_plain:
        return graph, {}
    roots, known = graph.roots, {**graph.known}
    apart = [each for each in graph.order if each.op in APART]
    if apart:
        nodes = walk(roots, stop=known)
        apart = [each for each in nodes if each.op in APART and each not in known]
    if not apart and not known:
        return graph, known
    for node in apart:
        if node.op is Op.RUN:
            known[node] = _decided(node, apart, known)
            continue
        source = contents_of(substitute_all(node.operands, known)[0])
        device = _device_of(source) or node.attrs.device
        root = Root(source, device)
        leaf = _make_ready({source: root}, Graph((source,)), Device[device])()[source]
        moved = leaf if device == node.attrs.device else _move(leaf, node.attrs.device)
        known[node] = _with_shape(moved, node)
    replaced = tuple([contents_of(node) for node in substitute_all(tuple(roots), known)])
    return Graph(replaced), known


def _decided(node: UOp, apart: Sequence[UOp], known: dict[UOp, UOp]) -> UOp:
    """Return the leaf of a result of what the host runs; it runs once for all that are asked."""
    control, operands = node.attrs.control, node.operands
    key = (operands, node.attrs.number)
    if key not in control.kept:
        inputs = [contents_of(each) for each in substitute_all(operands, known)]
        wanted = {each: Root(each, control.device) for each in inputs}
        leaves = _make_ready(wanted, Graph(inputs), Device[control.device])()
        nodes = [each for each in apart if each.op is Op.RUN and each.operands == operands]
        numbers = [each.attrs.number for each in nodes if each.attrs.control is control]
        results = control.run([storage_of(leaves[each]) for each in inputs], numbers)
        for number, memory in results.items():
            spec = control.specs[number]
            leaf = control.kept[operands, number] = buffer(spec.dtype, spec.shape, control.device)
            leaf.memory = memory
    found: UOp = control.kept[key]
    return found


def _computed_among(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return the leaves of those nodes whose value somebody still keeps."""
    known = {}
    for node in nodes:
        leaf = node.computed() if node.computed is not None else None
        if leaf is not None:
            known[node] = leaf
    return known


def _device_of(node: UOp) -> str | None:
    devices = (each.attrs.device for each in walk((node,)) if each.op is Op.BUFFER)
    return next(devices, None)


def _move(leaf: UOp, device: str) -> UOp:
    return from_host(to_host(leaf), leaf.dtype, device)


def _unread_leaves(roots: Sequence[Root]) -> set[UOp]:
    """Return the leaves that roots replace and that nobody can read when the roots are dropped.

    Whoever could holds such a leaf, or a node above it; and then some node of this graph has more
    references than its users here, the Roots, and the holders of dropped roots account for. What
    every node has, for this very count, is seen on a node that nobody uses.
    """
    if not any([root.replaces for root in roots]):
        return set()
    nodes = walk([root.uop for root in roots])
    # Whoever holds the value of a node holds a leaf that the node itself does not mention.
    nodes = [*dict.fromkeys([*nodes, *_computed_among(nodes).values()])]
    nodes.append(buffer(dtypes.bool, (), ""))
    expected = Counter([id(each) for node in nodes for each in node.operands])
    for root in roots:
        expected.update([id(root.uop), id(root.uop), id(root.replaces)])
    counts = [sys.getrefcount(node) - expected[id(node)] for node in nodes]
    held = [node for node, count in zip(nodes, counts, strict=True) if count > counts[-1]]
    lasting = set(walk([*held, *[root.uop for root in roots if not root.is_dropped]]))
    named = [root.replaces for root in roots if root.is_dropped and root.replaces is not None]
    return {leaf for leaf in named if leaf not in lasting and not leaf.memory.is_shared}


def _replaceable(wanted: dict[UOp, Root], graph: Graph, device: AnyDevice) -> dict[UOp, UOp]:
    """Return the leaves on a device that have the size of the root that replaces them."""
    pairs = [(node, root.replaces) for node, root in wanted.items() if node.op is not BUFFER]
    return {
        node: leaf
        for node, leaf in pairs
        if leaf is not None and leaf in graph.numbers and leaf.attrs.device == device.name
        if nbytes_of(leaf) == nbytes_of(node)
    }


def _make_ready(
    wanted: dict[UOp, Root], graph: Graph, device: AnyDevice
) -> Callable[[], dict[UOp, UOp]]:
    """Compile the kernels that give some nodes on a device; return what launches them.

    The graph holds the nodes, and perhaps what other devices compute.
    """
    roots = [node for node in wanted if node.op is not BUFFER]
    if len(roots) < len(graph.roots):
        why, graph = graph.why, Graph(roots)
        graph.why = why
    probes: list[Probe] = []
    if not graph.is_plain:
        probes = probes_below(roots, graph.order, [root.site for root in wanted.values()])
    if probes:
        graph.add(list(dict.fromkeys([each.node for each in probes if each.node not in wanted])))
    replaceable = _replaceable(wanted, graph, device)
    try:
        replay = _replay_for(graph, replaceable, device)
    except CompileError as error:
        sites = [root.site for root in wanted.values()]
        raise CompileError(_with_line(str(error), sites)) from error
    return partial(_run, wanted, graph.order, probes, replay)


def _run(
    wanted: dict[UOp, Root], order: Sequence[UOp], probes: Sequence[Probe], replay: Replay
) -> dict[UOp, UOp]:
    """Launch the kernels; return each node's leaf."""
    leaves = {node: node for node in wanted if node.op is BUFFER}
    memories = replay.run([storage_of(order[number]) for number in replay.leaves])
    for result, memory in zip(replay.results, memories, strict=True):
        if result.replaced is not None:
            order[result.replaced].memory = None
        node = order[result.number]
        leaf = leaves[node] = buffer(node.dtype, node.shape, replay.device.name)
        leaf.memory = memory
        memory.site = wanted[node].site if node in wanted else None
    if probes:
        expect([replace(each, node=leaves[each.node]) for each in probes])
    return leaves


def probes_below(
    roots: Sequence[UOp], order: Sequence[UOp], sites: Sequence[Site | None]
) -> list[Probe]:
    """Return a probe for each CHECK that some values depend on."""
    checks = [node for node in order if node.op is CHECK]
    if len(checks) > 1:
        checks = [node for node in walk(roots) if node.op is CHECK]  # the first mistake is told
    site = next((each for each in sites if each is not None), None)
    found = [(probe_of(check), check.attrs) for check in checks]
    return [Probe(node, attrs, site) for node, attrs in found if node is not None]


def prepare(
    roots: Sequence[UOp], replaceable: dict[UOp, UOp], device: str
) -> tuple[Replay, list[UOp]]:
    """Return the launches that compute some values, and the nodes below them by number.

    What somebody has computed of them counts for nothing: the leaves may hold other values later.
    """
    with _LOCK:
        graph = Graph(roots)
        return _replay_for(graph, replaceable, Device[device]), graph.order


def expect(probes: Sequence[Probe]) -> None:
    """Read probes that have been computed at the next host read."""
    with _LOCK:
        if len(_UNREAD) > MOST_UNREAD:
            read_probes()
        _UNREAD.extend(probes)


def _replay_for(graph: Graph, replaceable: dict[UOp, UOp], device: AnyDevice) -> Replay:
    """Return a schedule's launches; a graph of a structure seen before is not scheduled again."""
    options = (config.fuse, config.verify, config.stress, config.fp32_matmul, config.tune)
    variables = variables_of(graph.order)
    structure = structure_of(graph, replaceable, variables)
    key = (structure, tuple(map(value_of, variables)), device.name, options)
    known = _SCHEDULES.get(key)
    if known is None or not _shows_enough(known):
        graph.is_new = True
        is_told = wants_schedule() or config.debug or config.verify or config.stress
        is_kept = not is_told and not variables and config.tune != "1"
        stamp = winners_stamp() if is_kept and config.tune == "stored" else ""
        name = key_of_structure(structure, (options, stamp), device) if is_kept else None
        plan = None if name is None else read_plan(name, device)
        count("plans made" if plan is None else "plans found")
        if plan is None:
            plan = _planning().make_plan(graph, replaceable, device, structure, variables)
            if name is not None:
                keep_plan(name, plan)
        known = _SCHEDULES[key] = Replay(plan, device)
        if len(_SCHEDULES) > MOST_SCHEDULES:
            _SCHEDULES.popitem(last=False)
        return known
    if WATCHES:
        count("plans found")
    if len(_SCHEDULES) > MOST_SCHEDULES // 2:  # else none of them goes soon
        _SCHEDULES.move_to_end(key)
    return known


def _shows_enough(replay: Replay) -> bool:
    """Whether a plan made before has all that DEBUG tells of it."""
    return not wants_schedule() and (not config.debug or replay.has_kernels)


def _with_line(sentence: str, sites: Sequence[Site | None]) -> str:
    lines = [site.describe() for site in sites if site is not None]
    return f"{sentence}\nwhile computing the value made at {lines[0]}" if lines else sentence
