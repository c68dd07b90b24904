"""Computes values: graph to kernels, kernels to programs, programs to launches."""

from __future__ import annotations

import math
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinytensor import report
from tinytensor.codegen.lower import lower
from tinytensor.config import config
from tinytensor.dtype import DType
from tinytensor.errors import CompileError, Site
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.program import Program
from tinytensor.ops.uop import UOp, buffer, substitute_all, walk
from tinytensor.runtime.buffer import Buffer
from tinytensor.runtime.device import AnyDevice, Device, default_device
from tinytensor.runtime.lock import ForkSafeLock
from tinytensor.schedule.order import Step
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import Target

MOST_COMPILED = 4096


@dataclass(frozen=True, slots=True)
class Root:
    """A value to compute: its graph, where it lives, and the user's line that made it."""

    uop: UOp
    device: str
    site: Site | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel made ready for a device; `program` is None where the kernel itself is run."""

    kernel: Kernel
    program: Program | None
    decisions: tuple[Decision, ...]
    work: Any  # each device runs its own kind of work


# Memory of BUFFER leaves, and the leaf that holds an expression's value while somebody keeps it.
_STORAGE: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()
_COMPUTED: weakref.WeakKeyDictionary[UOp, weakref.ref[UOp]] = weakref.WeakKeyDictionary()
_COMPILED: OrderedDict[tuple[UOp, str], Compiled] = OrderedDict()
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
    """Copy a BUFFER leaf's memory to a fresh array of its storage type and shape."""
    array = np.empty(leaf.shape, leaf.dtype.storage_numpy)
    if array.size:
        Device[leaf.attrs.device].copy_out(_STORAGE[leaf], array.reshape(-1))
    return array


def storage_of(leaf: UOp) -> Buffer:
    """Return the memory of a BUFFER leaf."""
    return _STORAGE[leaf]


def realize(roots: Sequence[Root]) -> list[UOp]:
    """Compute all values as one schedule per device; return BUFFER leaves of the same shapes.

    An error leaves every value as it was.
    """
    with _LOCK:
        resolved = _resolve_copies(roots)
        by_device: dict[str, dict[UOp, Site | None]] = {}
        for root in resolved:
            wanted = by_device.setdefault(root.device, {})
            wanted.setdefault(_contents_of(root.uop), root.site)
        leaves = {
            (device, node): leaf
            for device, wanted in by_device.items()
            for node, leaf in _compute(wanted, Device[device]).items()
        }
        found = [leaves[root.device, _contents_of(root.uop)] for root in resolved]
        shaped = [_with_shape(leaf, root.uop) for leaf, root in zip(found, resolved, strict=True)]
        for root, leaf in zip(roots, shaped, strict=True):
            if root.uop is not leaf:
                _COMPUTED[root.uop] = weakref.ref(leaf)
        return shaped


def _contents_of(node: UOp) -> UOp:
    """Return the node with the same memory: a reshaped value is stored like the value itself."""
    while node.op is Op.RESHAPE:
        node = node.operands[0]
    return node


def _with_shape(leaf: UOp, root: UOp) -> UOp:
    if leaf.shape == root.shape:
        return leaf
    other = buffer(leaf.dtype, root.shape, leaf.attrs.device)
    _STORAGE[other] = _STORAGE[leaf]
    return other


def _resolve_copies(roots: Sequence[Root]) -> list[Root]:
    """Replace what is already computed, and each COPY, by the leaf that holds its value."""
    known = {node: leaf for node, made in _COMPUTED.items() if (leaf := made()) is not None}
    nodes = walk([root.uop for root in roots], stop=set(known))
    for node in [each for each in nodes if each.op is Op.COPY and each not in known]:
        source = substitute_all(node.operands, known)[0]
        device = _device_of(source) or node.attrs.device
        leaf = _compute({_contents_of(source): None}, Device[device])[_contents_of(source)]
        moved = leaf if device == node.attrs.device else _move(leaf, node.attrs.device)
        known[node] = _with_shape(moved, node)
    replaced = substitute_all(tuple([root.uop for root in roots]), known)
    pairs = zip(replaced, roots, strict=True)
    return [Root(node, root.device, root.site) for node, root in pairs]


def _device_of(node: UOp) -> str | None:
    devices = (each.attrs.device for each in walk((node,)) if each.op is Op.BUFFER)
    return next(devices, None)


def _move(leaf: UOp, device: str) -> UOp:
    return from_host(to_host(leaf), leaf.dtype, device)


def _compute(wanted: dict[UOp, Site | None], device: AnyDevice) -> dict[UOp, UOp]:
    """Run the kernels that give some nodes on a device; return each node's leaf."""
    roots = [node for node in wanted if node.op is not Op.BUFFER]
    leaves = {node: node for node in wanted if node.op is Op.BUFFER}
    options = Options(config.fuse, config.verify, config.stress)
    steps = schedule(roots, device.target, options) if roots else []
    kernels = [step.call.kernel for step in steps]
    ready_before = [(kernel.sink, device.name) in _COMPILED for kernel in kernels]
    try:
        compiled = _compile(kernels, device)
    except CompileError as error:
        raise _with_line(error, wanted) from error
    if steps and report.wants_schedule():
        plans = [each.decisions for each in compiled]
        report.show_schedule(roots, kernels, plans, ready_before)
    memory = _allocate(roots, device)
    _run(steps, compiled, memory, device)
    for node in roots:
        leaf = buffer(node.dtype, node.shape, device.name)
        _STORAGE[leaf] = memory[node]
        leaves[node] = leaf
    return leaves


def _with_line(error: CompileError, wanted: dict[UOp, Site | None]) -> CompileError:
    lines = [site.describe() for site in wanted.values() if site is not None]
    return CompileError(f"{error}\nwhile computing the value made at {lines[0]}") if lines else error


def _allocate(nodes: Iterable[UOp], device: AnyDevice) -> dict[UOp, Buffer]:
    return {node: device.allocate(math.prod(node.shape) * node.dtype.itemsize) for node in nodes}


def _run(
    steps: Sequence[Step],
    compiled: Sequence[Compiled],
    memory: dict[UOp, Buffer],
    device: AnyDevice,
) -> None:
    """Launch each kernel; an intermediate's memory goes back as soon as nobody reads it."""
    for step, each in zip(steps, compiled, strict=True):
        nodes = step.call.nodes
        fresh = [node for node in nodes if node.op is not Op.BUFFER and node not in memory]
        memory.update(_allocate(fresh, device))
        buffers = [_STORAGE[node] if node.op is Op.BUFFER else memory[node] for node in nodes]
        if config.debug:
            start = device.event_record()
            device.run(each.work, buffers)
            time_us = device.elapsed_us(start, device.event_record())
            report.print_launch(each.kernel, device.name, time_us)
        else:
            device.run(each.work, buffers)
        for node in step.releases:
            del memory[node]


def _compile(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    """Make kernels ready; those with the same canonical sink are lowered once, ever."""
    keys = [(kernel.sink, device.name) for kernel in kernels]
    ready = {key: _COMPILED[key] for key in keys if key in _COMPILED}
    missing = {key: each for key, each in zip(keys, kernels, strict=True) if key not in ready}
    for key, made in zip(missing, _lower_all(list(missing.values()), device), strict=True):
        ready[key] = _COMPILED[key] = made
        if len(_COMPILED) > MOST_COMPILED:
            _COMPILED.popitem(last=False)
    return [ready[key] for key in keys]


def _lower_all(kernels: Sequence[Kernel], device: AnyDevice) -> list[Compiled]:
    target: Target = device.target
    if target.kind == "python" or not kernels:
        return [Compiled(kernel, None, (), kernel) for kernel in kernels]
    lowered = [lower(kernel, target) for kernel in kernels]
    works = device.compile([each.program for each in lowered])
    return [
        Compiled(each.kernel, each.program, each.decisions, work)
        for each, work in zip(lowered, works, strict=True)
    ]
