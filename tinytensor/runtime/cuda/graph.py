"""Turns the launches of a schedule into a CUDA graph, in whose nodes addresses are replaced."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import weakref
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinytensor.errors import DeviceError
from tinytensor.runtime.cuda.driver import Context, Driver, Handle
from tinytensor.runtime.cuda.launch import ADDRESS_BYTES, CudaExecutable, PreparedLaunch
from tinytensor.runtime.device import Step
from tinytensor.runtime.steps import make_builtin

if TYPE_CHECKING:
    from tinytensor.runtime.cuda.device import CudaDevice

SOURCE = os.path.join(os.path.dirname(__file__), "graph.c")
EARLY_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC of cuda.h
# What the host needs on an H200 machine (d93d93d, 2026-11-30): for a launch, for a graph where some
# addresses are others (2.7 where none are, 4.3 where all of two are), and to make a graph, a part
# for each node. From two launches on it is as good without a C compiler: 1.3 for each node that
# changes.
LAUNCH_US, GRAPH_US = 5.5, 3.3
MAKING_US, NODE_US = 270, 45

Bases = tuple[int, ...]


class Series:
    """The launches of a schedule, whose addresses are at offsets from bases.

    They start one by one until a graph would have spared what making it takes, then as a graph:
    however often they come, that is at most twice what the better way would have taken.
    """

    def __init__(self, device: CudaDevice, steps: Sequence[Step]) -> None:
        bases = sorted({base for step in steps for base, _ in step.places})
        numbers = {base: number for number, base in enumerate(bases)}
        self.places = tuple([(base, 0) for base in bases])
        self._device = device
        self._steps = [_renumbered(each, numbers) for each in steps]
        self._workspace_bytes = max([each.work.workspace_bytes for each in steps])
        self._count = sum(len(each.work.launches) for each in steps)
        self._runs_left = runs_before(self._count)
        self._graph: LaunchGraph | None = None
        self._refusal = ""

    def start(self, *bases: int) -> None:
        """Start all launches; the addresses are those of the bases, in the order of `places`."""
        context = self._device.context
        if context.is_current():
            self._start(bases)
        else:
            with context:
                self._start(bases)

    def told(self) -> str:
        """Say in a phrase how they start."""
        count = f"{self._count} launch{'es' * (self._count > 1)}"
        if self._refusal:
            return f"{count}, no CUDA graph: {self._refusal}"
        return count + ", as one CUDA graph" * (self._graph is not None)

    def _start(self, bases: Bases) -> None:
        device = self._device
        with device.launch_lock:
            if self._workspace_bytes:
                bases = (*bases, device.workspace_address(self._workspace_bytes))
            if self._runs_left:
                self._runs_left -= 1
            elif self._start_graph(bases):
                return
            for each in self._steps:
                device.launch(each.work, _addresses(each, bases), each.scalars, each.extents)

    def _start_graph(self, bases: Bases) -> bool:
        """Start the graph, if there can be one; else there never will be."""
        try:
            if self._graph is None:
                self._graph = self._make_graph(bases)
            self._graph.start(bases)
        except DeviceError as error:  # launches raise it, too, if it is about more than the graph
            self._refusal, self._graph, self._runs_left = str(error), None, sys.maxsize
        return self._graph is not None

    def _make_graph(self, bases: Bases) -> LaunchGraph:
        if self._count == 1 and self._device.runner is None:
            raise DeviceError("without a C compiler one launch takes no longer")
        return LaunchGraph(self._device, self._steps, bases)


def runs_before(launches: int) -> int:
    """Return after how many runs a graph of launches would have spared what making it takes.

    >>> [runs_before(launches) for launches in (1, 2, 12, 48)]
    [144, 47, 13, 10]
    """
    spared_us = LAUNCH_US * launches - GRAPH_US
    return math.ceil((MAKING_US + NODE_US * launches) / spared_us)


class LaunchGraph:
    """Launches, one after the other, made ready for some addresses; most are those of last time."""

    def __init__(self, device: CudaDevice, steps: Sequence[Step], bases: Bases) -> None:
        self._driver, self._stream = device.driver, device.stream
        self._owned: list[tuple[str, Handle]] = []
        release = weakref.finalize(self, _destroy, device.driver, device.context, self._owned)
        release.atexit = False
        self._blocks = [_Block(each) for each in _tables_apart(steps)]
        self._bases = bases
        self._graph = self._build()
        self._start = self._started_by_python
        self._by_python = self._blocks
        if device.runner is not None:
            table = write_table(device.driver, self._graph, self._stream, self._blocks, len(bases))
            self._start = make_builtin(device.runner.step, table, None)
            self._by_python = [each for each in self._blocks if each.work.with_maps]

    def start(self, bases: Bases) -> None:
        """Start the launches.

        Raises: DeviceError; then none has started.
        """
        if self._by_python and bases != self._bases:
            self._replace(bases)
        status = self._start(*bases)
        if status:
            self._driver.check("the launch of a graph", self._driver.api.CUresult(status))

    def _started_by_python(self, *bases: int) -> int:
        return int(self._driver.api.cuGraphLaunch(self._graph, self._stream)[0])

    def _replace(self, bases: Bases) -> None:
        """Replace addresses in those nodes that Python takes care of: all, or where maps are."""
        before, self._bases = self._bases, ()  # an interrupt leaves nothing half done
        pairs = enumerate(bases)
        moved = {number for number, new in pairs if not before or before[number] != new}
        for block in self._by_python:
            if moved.isdisjoint(block.numbers):
                continue
            block.place(bases)
            for node, params in block.nodes:
                self._driver.call("cuGraphExecKernelNodeSetParams", self._graph, node, params)
        self._bases = bases

    def _build(self) -> Handle:
        """Make a node for each launch, each after the one before."""
        call = self._driver.call
        graph = call("cuGraphCreate", 0)
        self._owned.append(("cuGraphDestroy", graph))
        chain, edges = [], []
        for block in self._blocks:
            block.place(self._bases)
            for launch in block.work.launches:
                params = _params_of(self._driver, launch)
                chain.append(call("cuGraphAddKernelNode", graph, None, 0, params))
                edges.append(_edge_to(self._driver, launch))
                block.nodes.append((chain[-1], params))
        call("cuGraphAddDependencies", graph, chain[:-1], chain[1:], edges[1:], len(chain) - 1)
        ready = call("cuGraphInstantiate", graph, 0)
        self._owned.append(("cuGraphExecDestroy", ready))
        return ready


class _Block:
    """What some launches read: the values of a step, and a node for each launch."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.numbers = {number for number, _ in step.places}
        self.work: CudaExecutable = step.work.again()
        self.nodes: list[tuple[Handle, Handle]] = []  # with what they are given

    def place(self, bases: Bases) -> None:
        """Write all values."""
        self.work.place(_addresses(self.step, bases), self.step.scalars, self.step.extents)

    def words(self) -> Iterator[tuple[int, int, int]]:
        """Give where each address is written, the number of its base, and its offset."""
        first = ctypes.addressof(self.work.values)
        places = self.work.address_places(len(self.step.places), self.step.extents)
        for place, (number, offset) in zip(places, self.step.places, strict=True):
            yield first + ADDRESS_BYTES * place, number, offset


def write_table(
    driver: Driver, graph: Handle, stream: Handle, blocks: Sequence[_Block], bases: int
) -> bytes:
    """Write what graph.c reads; what has tensor maps is left to Python, which encodes them."""
    plain = [each for each in blocks if not each.work.with_maps]
    calls = [driver.entry(f"cuGraph{name}") for name in ("ExecKernelNodeSetParams_v2", "Launch")]
    table = array("Q", [bases, *calls, int(graph), int(stream), len(plain)])
    for block in plain:
        table.extend([len(block.step.places), len(block.nodes)])
        table.extend([word for each in block.words() for word in each])
        for node, params in block.nodes:
            table.extend([int(node), params.getPtr()])
    return table.tobytes()


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    """Return a step whose bases have other numbers; scratch memory is the last one."""
    places = [(numbers[base], offset) for base, offset in step.places]
    places += [(len(numbers), 0)] * (step.work.workspace_bytes > 0)
    return replace(step, places=tuple(places))


def _addresses(step: Step, bases: Bases) -> list[int]:
    return [bases[number] + offset for number, offset in step.places]


def _tables_apart(steps: Sequence[Step]) -> Iterator[Step]:
    """Give as many steps as there are tables of instances."""
    for step in steps:
        for places, extents in step.work.parts(step.places, step.extents):
            yield replace(step, places=tuple(places), extents=tuple(extents))


def _params_of(driver: Driver, launch: PreparedLaunch) -> Handle:
    shape, config = launch.shape, launch.config
    params = driver.api.CUDA_KERNEL_NODE_PARAMS()
    params.func = launch.function
    params.gridDimX, params.gridDimY, params.gridDimZ = shape.grid
    if config is not None:
        params.gridDimX = config.gridDimX
    params.blockDimX, params.blockDimY, params.blockDimZ = shape.threads, 1, 1
    params.sharedMemBytes = shape.shared_bytes
    params.kernelParams = ctypes.addressof(launch.pointers)
    return params


def _edge_to(driver: Driver, launch: PreparedLaunch) -> Handle:
    """Return how a launch follows the one before: an entry that waits itself starts early."""
    edge = driver.api.CUgraphEdgeData()
    if launch.shape.waits_itself:
        kind = "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC"
        edge.type = driver.constant("CUgraphDependencyType", kind)
        edge.from_port = EARLY_PORT
    return edge


def _destroy(driver: Driver, context: Context, owned: Sequence[tuple[str, Handle]]) -> None:
    """Give back what the driver holds: after the work in flight, and never in a forked child."""
    if not context.forked_from:
        for function, handle in reversed(owned):
            getattr(driver.api, function)(handle)  # nobody is there to be told of an error
