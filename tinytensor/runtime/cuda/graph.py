"""Turns the launches of a schedule into CUDA graphs, in whose nodes addresses are replaced."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinytensor.errors import DeviceError
from tinytensor.runtime.cuda.driver import Context, Driver, Handle
from tinytensor.runtime.cuda.launch import CudaExecutable, PreparedLaunch
from tinytensor.runtime.device import Step

if TYPE_CHECKING:
    from tinytensor.runtime.cuda.device import CudaDevice

LEAST_LAUNCHES = 2
PLAIN_RUNS = 2
MOST_GRAPHS = 4
MOST_SEEN = 8
EARLY_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC of cuda.h

Bases = tuple[int, ...]


class Series:
    """The launches of a schedule, whose addresses are at offsets from bases.

    They start one by one, from the third run on as one graph. On an H200 a launch takes the host
    5.5 us, a graph 2.7, a node that gets new addresses 1.3, and making a graph as long as some four
    runs of its launches: so a graph is worth it for two launches, whatever has moved.
    """

    def __init__(self, device: CudaDevice, steps: Sequence[Step]) -> None:
        bases = sorted({base for step in steps for base, _ in step.places})
        numbers = {base: number for number, base in enumerate(bases)}
        self.places = tuple([(base, 0) for base in bases])
        self._device = device
        self._steps = [_renumbered(each, numbers) for each in steps]
        self._workspace_bytes = max([each.work.workspace_bytes for each in steps])
        self._go = device.driver.api.cuGraphLaunch
        self._runs = 0
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
        count = sum(len(each.work.launches) for each in self._steps)
        if self._refusal:
            return f"{count} launches, no CUDA graph: {self._refusal}"
        return f"{count} launches" + ", as one CUDA graph" * (self._graph is not None)

    def _start(self, bases: Bases) -> None:
        device = self._device
        with device.launch_lock:
            if self._workspace_bytes:
                bases = (*bases, device.workspace_address(self._workspace_bytes))
            graph = self._find(bases)
            if graph is None:
                for each in self._steps:
                    device.launch(each.work, _addresses(each, bases), each.scalars, each.extents)
                return
            status = self._go(graph, device.stream)[0]
            if status:
                device.driver.check("the launch of a graph", status)

    def _find(self, bases: Bases) -> Handle | None:
        """Return the graph that runs on some addresses, or None where launches start one by one."""
        if self._graph is None:
            self._runs += 1
            if self._runs <= PLAIN_RUNS or self._refusal:
                return None
        try:
            if self._graph is None:
                self._graph = LaunchGraph(self._device, self._steps, bases)
            return self._graph.find(bases)
        except DeviceError as error:  # most likely too little memory
            self._refusal = str(error)
            self._graph = None
            return None


class LaunchGraph:
    """A graph of launches, made ready for a few sets of addresses: the allocator brings them again.

    A set that was there before, or that is far from all others, gets a graph of its own while there
    are few; else the nearest one is changed where addresses have moved.
    """

    def __init__(self, device: CudaDevice, steps: Sequence[Step], bases: Bases) -> None:
        self._driver = device.driver
        self._owned: list[tuple[str, Handle]] = []
        release = weakref.finalize(self, _destroy, device.driver, device.context, self._owned)
        release.atexit = False
        self._pieces = [_Piece(each) for each in _tables_apart(steps)]
        self._first = bases
        self._build()
        self._ready = {bases: self._instantiate()}
        self._seen = deque([bases], MOST_SEEN)

    def find(self, bases: Bases) -> Handle:
        """Return what runs on some addresses."""
        found = self._ready.get(bases)
        return self._place(bases) if found is None else found

    def _place(self, bases: Bases) -> Handle:
        nearest = min(self._ready, key=lambda each: len(_moved(each, bases)), default=self._first)
        found = self._pieces_moved(nearest, bases)
        is_far = 2 * len(found) > len(self._pieces) or bases in self._seen
        self._seen.append(bases)
        if not self._ready or (is_far and len(self._ready) < MOST_GRAPHS):
            found, graph = self._pieces_moved(self._first, bases), self._instantiate()
        else:
            graph = self._ready.pop(nearest)  # an error on the way leaves nothing half done here
        for piece in found:
            piece.place(bases)
            for node, params in piece.nodes:
                self._driver.call("cuGraphExecKernelNodeSetParams", graph, node, params)
        self._ready[bases] = graph
        return graph

    def _pieces_moved(self, before: Bases, bases: Bases) -> list[_Piece]:
        moved = _moved(before, bases)
        return [each for each in self._pieces if not moved.isdisjoint(each.numbers)]

    def _build(self) -> None:
        """Make a node for each launch, each after the one before."""
        call = self._driver.call
        self._graph = call("cuGraphCreate", 0)
        self._owned.append(("cuGraphDestroy", self._graph))
        chain, edges = [], []
        for piece in self._pieces:
            piece.place(self._first)
            for launch in piece.work.launches:
                params = _params_of(self._driver, launch)
                chain.append(call("cuGraphAddKernelNode", self._graph, None, 0, params))
                edges.append(_edge_to(self._driver, launch))
                piece.nodes.append((chain[-1], params))
        ends = (chain[:-1], chain[1:], edges[1:], len(chain) - 1)
        call("cuGraphAddDependencies", self._graph, *ends)

    def _instantiate(self) -> Handle:
        graph = self._driver.call("cuGraphInstantiate", self._graph, 0)
        self._owned.append(("cuGraphExecDestroy", graph))
        return graph


class _Piece:
    """A step whose launches read one block of values, which is its own, and a node for each."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.numbers = {number for number, _ in step.places}
        self.work: CudaExecutable = step.work.again()
        self.nodes: list[tuple[Handle, Handle]] = []  # with what it is given

    def place(self, bases: Bases) -> None:
        """Write what the launches read."""
        self.work.place(_addresses(self.step, bases), self.step.scalars, self.step.extents)


def _renumbered(step: Step, numbers: dict[int, int]) -> Step:
    """Return a step whose bases have other numbers; scratch memory is the last one."""
    places = [(numbers[base], offset) for base, offset in step.places]
    places += [(len(numbers), 0)] * (step.work.workspace_bytes > 0)
    return replace(step, places=tuple(places))


def _moved(before: Bases, bases: Bases) -> set[int]:
    """Return the numbers of the bases that are elsewhere than before."""
    pairs = zip(before, bases, strict=True)
    return {number for number, (old, new) in enumerate(pairs) if old != new}


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
