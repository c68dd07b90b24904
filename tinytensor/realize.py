"""Computes values: graph to kernels, kernels to programs, programs to launches."""

from __future__ import annotations

import sys
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tinytensor import report
from tinytensor.config import config
from tinytensor.dtype import DType, dtypes
from tinytensor.errors import CompileError, DeviceError, IndexOutOfRange, Site
from tinytensor.ops.attrs import CheckAttrs
from tinytensor.ops.instances import split
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.op import VIEWS, Op
from tinytensor.ops.program import Program
from tinytensor.ops.uop import UOp, buffer, substitute_all, walk
from tinytensor.program_cache import Made, make_program
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import AnyDevice, Device, default_device
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.schedule.describe import describe
from tinytensor.schedule.memory import assign_memory
from tinytensor.schedule.numbers import Numbered, take_out_numbers
from tinytensor.schedule.order import nbytes_of, written_by
from tinytensor.schedule.probes import complaint, probe_of
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target

if TYPE_CHECKING:
    from tinytensor.codegen.lower import Lowered

MOST_COMPILED = 4096
MOST_SCHEDULES = 1024
MOST_UNREAD = 256


@dataclass(frozen=True, slots=True)
class Root:
    """A value to compute: its graph, where it lives, and the user's line that made it.

    With `is_dropped`, whoever asks holds the node once and will hold the result in its place. He
    may name a leaf that he held before: when nobody else can read it, the result may be computed
    in its memory.
    """

    uop: UOp
    device: str
    site: Site | None = None
    is_dropped: bool = False
    replaces: UOp | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel made ready for a device; `lowered` is None where it was not lowered just now."""

    kernel: Kernel
    lowered: Lowered | None
    work: Any  # each device runs its own kind of work


@dataclass(frozen=True, slots=True)
class Address:
    """Where a param lies: in the memory of a node, by its number in the walk, or in the arena."""

    holder: int | None
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel of a schedule, where its params lie, and its scalars.

    Of an instanced kernel they are those of all instances, with their extents.
    """

    compiled: Compiled
    addresses: tuple[Address, ...]
    extents: tuple[int, ...]
    scalars: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of a schedule, and the memory they need: all of it, before the first one runs.

    Units: `arena_bytes`. `roots` and `replaced` are numbers in the walk: of the results, and of the
    leaves whose memory some of them take.
    """

    launches: tuple[Launch, ...]
    arena_bytes: int
    roots: tuple[int, ...]
    replaced: dict[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """A number that is computed beside some values and tells whether a CHECK below them holds."""

    node: UOp
    attrs: CheckAttrs
    site: Site | None


@dataclass(frozen=True, slots=True)
class Graph:
    """Values to compute and the walk of everything below them, operands before users."""

    roots: tuple[UOp, ...]
    order: list[UOp]


# A kernel's sink, whether it is instanced, device, TT_STRESS, TT_FP32_MATMUL.
Key = tuple[UOp, bool, str, bool, str]
Structure = tuple[Any, ...]  # nested tuples of ops, dtypes, attrs and numbers: only compared

# Memory of BUFFER leaves, the lines that made them, memory that several leaves have, and the leaf
# that holds an expression's value while somebody keeps it.
_STORAGE: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()
_SITES: weakref.WeakKeyDictionary[UOp, Site] = weakref.WeakKeyDictionary()
_SHARED: weakref.WeakSet[Buffer] = weakref.WeakSet()
_COMPUTED: weakref.WeakKeyDictionary[UOp, weakref.ref[UOp]] = weakref.WeakKeyDictionary()
_COMPILED: OrderedDict[Key, Compiled] = OrderedDict()
# By a kernel without its numbers: the sink of the first with any.
_FIRST: weakref.WeakValueDictionary[Key, UOp] = weakref.WeakValueDictionary()
_SCHEDULES: OrderedDict[tuple[Structure, str, Options, str], Plan] = OrderedDict()
# Probes that were computed, with the leaves of their numbers as nodes: read at the next host read.
_UNREAD: list[Probe] = []
_LOCK = ForkSafeLock()


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
    _STORAGE[leaf] = memory
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


def _copy_out(leaf: UOp) -> npt.NDArray[Any]:
    array = np.empty(leaf.shape, leaf.dtype.storage_numpy)
    if array.size:
        Device[leaf.attrs.device].copy_out(_STORAGE[leaf], array.reshape(-1))
    return array


def storage_of(leaf: UOp) -> Buffer:
    """Return the memory of a BUFFER leaf, for what reads it where it lies."""
    return _STORAGE[leaf]


def realize(roots: Sequence[Root]) -> list[UOp]:
    """Compute all values as one schedule per device; return BUFFER leaves of the same shapes.

    An error leaves every value as it was: all memory is there before the first kernel runs.
    """
    with _LOCK:
        unread = _unread_leaves(roots)
        graph = _resolve_copies([_contents_of(root.uop) for root in roots])
        leaves: dict[tuple[str, UOp], UOp] = {}
        for device in dict.fromkeys(root.device for root in roots):
            wanted = {
                node: root if root.replaces in unread else replace(root, replaces=None)
                for node, root in zip(graph.roots, roots, strict=True)
                if root.device == device
            }
            made = _compute(wanted, graph.order, Device[device])
            leaves.update({(device, node): leaf for node, leaf in made.items()})
        found = [leaves[root.device, node] for node, root in zip(graph.roots, roots, strict=True)]
        shaped = [_with_shape(leaf, root.uop) for leaf, root in zip(found, roots, strict=True)]
        for root, leaf in zip(roots, shaped, strict=True):
            # A constant is cheaper than its memory, and the fill of a PAD must stay one.
            if not _is_constant(root.uop) and _contents_of(root.uop) is not leaf:
                _COMPUTED[root.uop] = weakref.ref(leaf)
        return shaped


def kept_between(earlier: Sequence[UOp], later: Sequence[UOp], device: str) -> list[UOp]:
    """Return the values below some nodes that one schedule of all keeps for what only later needs.

    They are stored intermediates, and leaves that lie in memory already. Computes nothing.
    """
    graph = _resolve_copies([_contents_of(each) for each in (*earlier, *later)])
    inside = set(walk(graph.roots[: len(earlier)]))
    roots = [each for each in dict.fromkeys(graph.roots) if each.op is not Op.BUFFER]
    options = Options(config.fuse, config.verify, config.stress)
    kept: dict[UOp, None] = {}
    for call in schedule(roots, _target_of(Device[device]), options):
        if not inside.issuperset(written_by(call)):
            kept.update(dict.fromkeys([each for each in call.nodes if each in inside]))
    return list(kept)


def _contents_of(node: UOp) -> UOp:
    """Return the node with the same memory: a reshaped value is stored like the value itself."""
    while node.op in (Op.RESHAPE, Op.DETACH):
        node = node.operands[0]
    return node


def _is_constant(node: UOp) -> bool:
    while node.op in VIEWS:
        node = node.operands[0]
    return node.op is Op.CONST


def _with_shape(leaf: UOp, root: UOp) -> UOp:
    if leaf.shape == root.shape:
        return leaf
    other = buffer(leaf.dtype, root.shape, leaf.attrs.device)
    _STORAGE[other] = _STORAGE[leaf]
    _SHARED.add(_STORAGE[leaf])
    return other


def _resolve_copies(roots: Sequence[UOp]) -> Graph:
    """Replace what is already computed, and each COPY, by the leaf that holds its value."""
    nodes = walk(roots)
    known = _computed_among(nodes) if _COMPUTED else {}
    if known:
        nodes = walk(roots, stop=set(known))
    copies = [each for each in nodes if each.op is Op.COPY and each not in known]
    if not copies and not known:
        return Graph(tuple(roots), nodes)
    for node in copies:
        source = _contents_of(substitute_all(node.operands, known)[0])
        device = _device_of(source) or node.attrs.device
        root = Root(source, device)
        leaf = _compute({source: root}, walk((source,)), Device[device])[source]
        moved = leaf if device == node.attrs.device else _move(leaf, node.attrs.device)
        known[node] = _with_shape(moved, node)
    replaced = tuple([_contents_of(node) for node in substitute_all(tuple(roots), known)])
    return Graph(replaced, walk(replaced))


def _computed_among(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return the leaves of those nodes whose value somebody still keeps."""
    found = [(node, _COMPUTED.get(node)) for node in nodes]
    leaves = [(node, made()) for node, made in found if made is not None]
    return {node: leaf for node, leaf in leaves if leaf is not None}


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
    if all(root.replaces is None for root in roots):
        return set()
    nodes = [*walk([root.uop for root in roots]), buffer(dtypes.bool, (), "")]
    expected = Counter([id(each) for node in nodes for each in node.operands])
    for root in roots:
        expected.update([id(root.uop), id(root.uop), id(root.replaces)])
    counts = [sys.getrefcount(node) - expected[id(node)] for node in nodes]
    held = [node for node, count in zip(nodes, counts, strict=True) if count > counts[-1]]
    lasting = set(walk([*held, *[root.uop for root in roots if not root.is_dropped]]))
    named = [root.replaces for root in roots if root.is_dropped and root.replaces is not None]
    return {leaf for leaf in named if leaf not in lasting and _STORAGE[leaf] not in _SHARED}


def _replaceable(
    wanted: dict[UOp, Root], order: Sequence[UOp], device: AnyDevice
) -> dict[UOp, UOp]:
    """Return the leaves on a device that have the size of the root that replaces them."""
    pairs = [(node, root.replaces) for node, root in wanted.items()]
    found = {node: leaf for node, leaf in pairs if leaf is not None and node.op is not Op.BUFFER}
    inside = set(order) if found else set()
    return {
        node: leaf
        for node, leaf in found.items()
        if leaf in inside and leaf.attrs.device == device.name
        if nbytes_of(leaf) == nbytes_of(node)
    }


def _compute(wanted: dict[UOp, Root], nodes: Sequence[UOp], device: AnyDevice) -> dict[UOp, UOp]:
    """Run the kernels that give some nodes on a device; return each node's leaf.

    `nodes` is the walk of a graph that holds them, and perhaps what other devices compute.
    """
    roots = [node for node in wanted if node.op is not Op.BUFFER]
    leaves = {node: node for node in wanted if node.op is Op.BUFFER}
    order = nodes if len(roots) == len(wanted) else walk(roots)
    sites = [root.site for root in wanted.values()]
    probes = _probes_below(roots, order, sites)
    if probes:
        roots = list(dict.fromkeys([*roots, *[each.node for each in probes]]))
        order = walk(roots)
    replaceable = _replaceable(wanted, order, device)
    try:
        plan = _plan_for(order, roots, replaceable, device)
    except CompileError as error:
        raise CompileError(_with_line(str(error), sites)) from error
    memory = _run(plan, order, device)
    for number, node in zip(plan.roots, roots, strict=True):
        leaf = buffer(node.dtype, node.shape, device.name)
        _STORAGE[leaf] = memory[number]
        site = wanted[node].site if node in wanted else None
        if site is not None:
            _SITES[leaf] = site
        leaves[node] = leaf
    _UNREAD.extend([replace(each, node=leaves[each.node]) for each in probes])
    return leaves


def _probes_below(
    roots: Sequence[UOp], order: Sequence[UOp], sites: Sequence[Site | None]
) -> list[Probe]:
    """Return a probe for each CHECK that some values depend on."""
    if not [node for node in order if node.op is Op.CHECK]:
        return []
    if len(_UNREAD) > MOST_UNREAD:
        read_probes()
    site = next((each for each in sites if each is not None), None)
    checks = [node for node in walk(roots) if node.op is Op.CHECK]
    found = [(probe_of(check), check.attrs) for check in checks]
    return [Probe(node, attrs, site) for node, attrs in found if node is not None]


def _plan_for(
    order: Sequence[UOp], roots: Sequence[UOp], replaceable: dict[UOp, UOp], device: AnyDevice
) -> Plan:
    """Return a schedule's launches; a graph of a structure seen before is not scheduled again."""
    options = Options(config.fuse, config.verify, config.stress)
    key = (_structure_of(order, roots, replaceable), device.name, options, config.fp32_matmul)
    known = _SCHEDULES.get(key)
    if known is None or report.wants_schedule():
        known = _SCHEDULES[key] = _schedule(order, roots, replaceable, device, options)
        if len(_SCHEDULES) > MOST_SCHEDULES:
            _SCHEDULES.popitem(last=False)
    elif len(_SCHEDULES) == MOST_SCHEDULES:  # before, who was used last is all the same
        _SCHEDULES.move_to_end(key)
    return known


def _structure_of(
    order: Sequence[UOp], roots: Sequence[UOp], replaceable: dict[UOp, UOp]
) -> Structure:
    """Describe a graph up to which buffers its leaves are; equal buffers stay equal.

    Nor does it matter to a schedule where gradients end.
    """
    numbers = {node: number for number, node in enumerate(order)}
    described = [
        (node.dtype, node.attrs.shape)
        if node.op is Op.BUFFER
        else (
            *(node.op, node.dtype, None if node.op is Op.DETACH else node.attrs),
            *[numbers[each] for each in node.operands],
        )
        for node in order
    ]
    pairs = [(numbers[root], numbers.get(leaf)) for root, leaf in replaceable.items()]
    return (*described, *[numbers[root] for root in roots], *pairs)


def _schedule(
    order: Sequence[UOp],
    roots: Sequence[UOp],
    replaceable: dict[UOp, UOp],
    device: AnyDevice,
    options: Options,
) -> Plan:
    calls = schedule(roots, _target_of(device), options) if roots else []
    assigned = assign_memory(calls, roots, replaceable)
    numbered = [_share_program(step.kernel, device) for step in assigned.steps]
    kernels = [each.kernel for each in numbered]
    ready_before = [_key_of(kernel, device) in _COMPILED for kernel in kernels]
    compiled = _compile(kernels, device)
    if kernels and report.wants_schedule():
        plans = [each.lowered.decisions if each.lowered else () for each in compiled]
        reads = report.reads_of(calls)
        told = [reads[step.number] for step in assigned.steps]
        planned = zip(kernels, told, plans, ready_before, strict=True)
        target = _target_of(device)
        sizes = [step.extents for step in assigned.steps]
        shown = [report.Planned(*a, target, b) for a, b in zip(planned, sizes, strict=True)]
        report.show_schedule(roots, shown)
        for each in compiled:
            _show_code(each, device)
    numbers: dict[UOp | None, int] = {node: number for number, node in enumerate(order)}
    launches: list[Launch] = []
    for made, step, given in zip(compiled, assigned.steps, numbered, strict=True):
        places = [(numbers.get(at.holder), at.offset, at.nbytes) for at in step.locations]
        addresses = tuple([Address(*place) for place in places])
        launches.append(Launch(made, addresses, step.extents, given.scalars))
    return Plan(
        launches=tuple(launches),
        arena_bytes=assigned.arena_bytes,
        roots=tuple([numbers[root] for root in roots]),
        replaced={numbers[root]: numbers[leaf] for root, leaf in assigned.replaced.items()},
    )


def _show_code(compiled: Compiled, device: AnyDevice) -> None:
    if compiled.lowered is None or config.debug < 3:
        return
    code = device.disassemble(compiled.work) if config.debug >= 6 else ""
    report.print_code(compiled.lowered, code)


def _with_line(sentence: str, sites: Sequence[Site | None]) -> str:
    lines = [site.describe() for site in sites if site is not None]
    return f"{sentence}\nwhile computing the value made at {lines[0]}" if lines else sentence


def _run(plan: Plan, order: Sequence[UOp], device: AnyDevice) -> dict[int | None, Buffer]:
    """Launch the kernels of a plan, all of whose memory is there; return that of its results."""
    held = _take_memory(plan, order, device)
    for leaf in plan.replaced.values():
        del _STORAGE[order[leaf]]
    for launch in plan.launches:
        _launch(launch, [_buffer_at(held, each, order) for each in launch.addresses], device)
    return held


def _take_memory(plan: Plan, order: Sequence[UOp], device: AnyDevice) -> dict[int | None, Buffer]:
    """Allocate results and the arena, by number in the walk; a replaced leaf gives its memory.

    Raises: DeviceError when there is too little; then nothing has changed.
    """
    held: dict[int | None, Buffer] = {}
    purpose = "the scratch memory of kernels"
    try:
        device.reserve_workspace([launch.compiled.work for launch in plan.launches])
        purpose = "the values between"
        if plan.arena_bytes:
            held[None] = device.allocate(plan.arena_bytes)
        for number in plan.roots:
            purpose = describe(order[number])
            leaf = plan.replaced.get(number)
            if leaf is None:
                held[number] = device.allocate(nbytes_of(order[number]))
            else:  # kernels read the leaf before they write the result
                held[number] = held[leaf] = _STORAGE[order[leaf]]
    except DeviceError as error:
        held.clear()  # else the traceback keeps what was allocated
        raise DeviceError(f"{error}\nasked for {purpose}\n{_largest_on(device)}") from error
    return held


def _largest_on(device: AnyDevice) -> str:
    leaves = [leaf for leaf in _STORAGE if leaf.attrs.device == device.name]
    return report.largest({leaf: _SITES.get(leaf) for leaf in leaves})


def _buffer_at(held: dict[int | None, Buffer], address: Address, order: Sequence[UOp]) -> Buffer:
    whole = held.get(address.holder)
    if whole is None:
        assert address.holder is not None, "memory: the arena is there when a kernel uses it"
        return _STORAGE[order[address.holder]]
    return whole.part(address.offset, address.nbytes)


def _launch(launch: Launch, buffers: Sequence[Buffer], device: AnyDevice) -> None:
    compiled, extents = launch.compiled, launch.extents
    if config.stress:
        for part in split(buffers, extents):
            _poison(compiled.kernel, part, device)
    if not config.debug:
        device.run(compiled.work, buffers, launch.scalars, extents=extents)
        return
    start = device.event_record()
    device.run(compiled.work, buffers, launch.scalars, extents=extents)
    time_us = device.elapsed_us(start, device.event_record())
    report.print_launch(compiled.kernel, device.name, time_us, extents)


def _poison(kernel: Kernel, buffers: Sequence[Buffer], device: AnyDevice) -> None:
    """Fill what a kernel writes and does not read: so that a read of what is there gives NaN."""
    read = {node.operands[0].attrs.number for node in walk([kernel.sink]) if node.op is Op.LOAD}
    for number, param in enumerate(kernel.params):
        if param.written and number not in read:
            device.poison(buffers[number])


def _compile(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    """Make kernels ready; those with the same canonical sink are lowered once, ever."""
    keys = [_key_of(kernel, device) for kernel in kernels]
    ready = {key: _COMPILED[key] for key in keys if key in _COMPILED and _tells(_COMPILED[key])}
    missing = {key: each for key, each in zip(keys, kernels, strict=True) if key not in ready}
    for key, made in zip(missing, _lower_all(list(missing.values()), device), strict=True):
        ready[key] = _COMPILED[key] = made
        if len(_COMPILED) > MOST_COMPILED:
            _COMPILED.popitem(last=False)
    return [ready[key] for key in keys]


def _share_program(kernel: Kernel, device: AnyDevice) -> Numbered:
    """Return a kernel without its numbers, if a program was asked for that differs in them alone.

    The first such program knows its numbers, the second serves all others. Instances know theirs.
    """
    is_python = device.target.kind == "python"
    if kernel.instanced or is_python or _key_of(kernel, device) in _COMPILED:
        return Numbered(kernel)
    bare = take_out_numbers(kernel)
    if not bare.scalars:
        return bare
    first = _FIRST.setdefault(_key_of(bare.kernel, device), kernel.sink)
    return Numbered(kernel) if first is kernel.sink else bare


def _key_of(kernel: Kernel, device: AnyDevice) -> Key:
    return (kernel.sink, kernel.instanced, device.name, config.stress, config.fp32_matmul)


def _target_of(device: AnyDevice) -> Target:
    """Return what the compiler plans for: under TT_STRESS a machine that is small everywhere."""
    target = device.target.with_tf32() if config.fp32_matmul == "tf32" else device.target
    return target.stressed() if config.stress else target


def _tells(compiled: Compiled) -> bool:
    """Whether a kernel made before has kept all that somebody wants to see of it."""
    runs_itself = compiled.work is compiled.kernel
    return runs_itself or compiled.lowered is not None or not report.wants_schedule()


def _lower_all(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    target = _target_of(device)
    if target.kind == "python" or not kernels:
        return [Compiled(kernel, None, kernel) for kernel in kernels]
    is_shown = report.wants_schedule()
    made: list[Made] = []

    def lower_next() -> Iterator[Program]:
        for kernel in kernels:
            made.append(make_program(kernel, target, is_shown))
            yield made[-1].program

    works = device.compile(lower_next())
    return [
        Compiled(kernel, each.lowered, work)
        for kernel, each, work in zip(kernels, made, works, strict=True)
    ]
