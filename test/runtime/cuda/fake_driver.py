"""A stand-in for cuda.bindings.driver: GPU memory is host memory, launches are written down."""

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from tinytensor.lazy import lazy_import

bindings = lazy_import("cuda.bindings.driver", None, "test")
Result = bindings.CUresult
OK = Result.CUDA_SUCCESS
BLOCK_ALIGNMENT = 512
STREAM = 0x5000
NO_CONTEXT, OTHER_CONTEXT, PRIMARY_CONTEXT = 0, 0x7000, 0x1000
PARAMETERS = {
    b"add": 2,
    b"turn": 2,
    b"pick": 2,
    b"twice": 3,
    b"backwards": 3,
    b"box": 3,
    b"scaled": 4,
}


@dataclass
class RecordedLaunch:
    """One launch, by either call or as a node, with the parameters' values at that moment."""

    function: tuple[bytes, bytes]
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    values: list[int]


@dataclass
class FakeGraph:
    """Launches in the order of their edges, (from, to, whether it starts early)."""

    nodes: list[RecordedLaunch]
    edges: list[tuple[int, int, bool]]

    def __int__(self):
        return id(self)


class NodeParams(SimpleNamespace):
    """What a node is given; C knows it by its number."""

    def getPtr(self):
        return id(self)


SET_PARAMS = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)


def seen(number):
    """Return the object that C knows by a number."""
    return ctypes.cast(number, ctypes.py_object).value


class FakeDriver:
    """The functions the runtime calls, each with the signature and results of the real one.

    A test sets `capability`, `version`, `memory_bytes`, `launch_status`, or `failures`: function ->
    status, for functions that are looked up at each call.
    """

    CUresult = Result
    CUdevice_attribute = bindings.CUdevice_attribute
    CUfunction_attribute = bindings.CUfunction_attribute
    CUtensorMapDataType = bindings.CUtensorMapDataType
    CUtensorMapInterleave = bindings.CUtensorMapInterleave
    CUtensorMapSwizzle = bindings.CUtensorMapSwizzle
    CUtensorMapL2promotion = bindings.CUtensorMapL2promotion
    CUtensorMapFloatOOBfill = bindings.CUtensorMapFloatOOBfill
    CUgraphDependencyType = bindings.CUgraphDependencyType
    CUlaunchConfig = SimpleNamespace
    CUlaunchAttribute = bindings.CUlaunchAttribute
    CUlaunchAttributeID = bindings.CUlaunchAttributeID
    CUDA_KERNEL_NODE_PARAMS = NodeParams
    CUgraphEdgeData = bindings.CUgraphEdgeData
    cuuint32_t = int
    cuuint64_t = int

    def __init__(self):
        self.capability = (9, 0)
        self.version = 13000
        self.memory_bytes = 1 << 30
        self.failures = {}
        self.launch_status = OK
        self.contexts = [OTHER_CONTEXT]  # of the thread, the current one last
        self.context_changes = 0
        self.allocations = {}
        self.launches = []
        self.tensor_maps = []
        self.modules = []
        self.shared_limits = {}
        self.events = 0
        self.graphs = []
        self.graph_launches = 0
        self.replaced_nodes = []
        self.destroyed = []
        self.entries = {
            "cuGraphExecKernelNodeSetParams_v2": SET_PARAMS(
                lambda graph, node, params: self.cuGraphExecKernelNodeSetParams(
                    seen(graph), node or 0, seen(params)
                )[0]
            ),
            "cuGraphLaunch": LAUNCH(
                lambda graph, stream: self.cuGraphLaunch(seen(graph), stream)[0]
            ),
        }

    def entry(self, function):
        """Where code that is not Python finds a function."""
        return ctypes.cast(self.entries[function], ctypes.c_void_p).value

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or name.startswith("cuuint"):
            return found
        failure = object.__getattribute__(self, "failures").get(name)
        return found if failure is None else lambda *arguments: (failure, None)

    def _record(self, function, grid, threads, shared, params):
        """Read what a launch is given: parameters of 64 bits, or a table of 4 KiB."""
        count = PARAMETERS.get(function[1])
        pointers = (ctypes.c_void_p * (count or 1)).from_address(params)
        if count is None:
            values = list((ctypes.c_uint64 * 512).from_address(pointers[0]))
        else:
            values = [ctypes.c_uint64.from_address(each).value for each in pointers]
        return RecordedLaunch(function, grid, threads, shared, values)

    def _record_node(self, params):
        grid = (params.gridDimX, params.gridDimY, params.gridDimZ)
        shape = (grid, params.blockDimX, params.sharedMemBytes)
        return self._record(params.func, *shape, params.kernelParams)

    def cuInit(self, flags):
        return (OK,)

    def cuGetErrorName(self, status):
        return OK, status.name.encode()

    def cuGetErrorString(self, status):
        return OK, b"in words"

    def cuDriverGetVersion(self):
        return OK, self.version

    def cuDeviceGet(self, ordinal):
        return OK, ordinal

    def cuDeviceGetName(self, length, device):
        return OK, b"NVIDIA H200".ljust(length, b"\0")

    def cuDeviceTotalMem(self, device):
        return OK, self.memory_bytes

    def cuDeviceGetAttribute(self, attribute, device):
        major, minor = self.capability
        numbers = {
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "MULTIPROCESSOR_COUNT": 132,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
            "L2_CACHE_SIZE": 60 << 20,
        }
        return OK, numbers[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, PRIMARY_CONTEXT

    def cuCtxGetCurrent(self):
        return OK, self.contexts[-1]

    def cuCtxSetCurrent(self, context):
        self.context_changes += 1
        self.contexts[-1] = context
        return (OK,)

    def cuCtxPushCurrent(self, context):
        self.context_changes += 1
        self.contexts.append(context)
        return (OK,)

    def cuCtxPopCurrent(self):
        return OK, self.contexts.pop()

    def cuStreamCreate(self, flags):
        return OK, STREAM

    def cuStreamSynchronize(self, stream):
        return (OK,)

    def cuMemAlloc(self, nbytes):
        if nbytes > self.memory_bytes - sum(each.nbytes for each in self.allocations.values()):
            return Result.CUDA_ERROR_OUT_OF_MEMORY, None
        array = np.zeros(nbytes + BLOCK_ALIGNMENT, np.uint8)
        array = array[-array.ctypes.data % BLOCK_ALIGNMENT :][:nbytes]
        self.allocations[array.ctypes.data] = array
        return OK, array.ctypes.data

    def cuMemFree(self, address):
        del self.allocations[address]
        return (OK,)

    def cuMemcpyHtoDAsync(self, destination, source, nbytes, stream):
        ctypes.memmove(destination, source, nbytes)
        return (OK,)

    cuMemcpyDtoHAsync = cuMemcpyHtoDAsync

    def cuMemsetD32Async(self, destination, word, count, stream):
        assert (count, stream) == (1, STREAM)
        ctypes.c_uint32.from_address(destination).value = word
        return (OK,)

    def cuMemsetD8Async(self, destination, byte, nbytes, stream):
        ctypes.memset(destination, byte, nbytes)
        return (OK,)

    def cuModuleLoadData(self, cubin):
        self.modules.append(cubin)
        return OK, cubin

    def cuModuleGetFunction(self, module, entry):
        return OK, (module, entry)

    def cuFuncGetAttribute(self, attribute, function):
        if attribute.name.endswith("LOCAL_SIZE_BYTES"):
            return OK, 16 if function[1] == b"pick" else 0
        return OK, self.shared_limits.get(function, 48 << 10)

    def cuFuncSetAttribute(self, function, attribute, value):
        self.shared_limits[function] = value
        return (OK,)

    def cuLaunchKernel(self, function, x, y, z, threads, ty, tz, shared, stream, params, extra):
        self.launches.append(self._record(function, (x, y, z), threads, shared, params))
        return (self.launch_status,)

    def cuLaunchKernelEx(self, config, function, params, extra):
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        shape = (grid, config.blockDimX, config.sharedMemBytes)
        self.launches.append(self._record(function, *shape, params))
        return (OK,)

    def cuGraphCreate(self, flags):
        return OK, FakeGraph([], [])

    def cuGraphAddKernelNode(self, graph, dependencies, count, params):
        graph.nodes.append(self._record_node(params))
        return OK, len(graph.nodes) - 1

    def cuGraphAddDependencies(self, graph, sources, targets, edges, count):
        early = [bool(each.from_port) for each in edges]
        graph.edges += zip(sources, targets, early, strict=True)
        return (OK,)

    def cuGraphInstantiate(self, graph, flags):
        self.graphs.append(FakeGraph(list(graph.nodes), list(graph.edges)))
        return OK, self.graphs[-1]

    def cuGraphExecKernelNodeSetParams(self, graph, node, params):
        graph.nodes[node] = self._record_node(params)
        self.replaced_nodes.append(node)
        return (OK,)

    def cuGraphLaunch(self, graph, stream):
        assert stream == STREAM
        self.graph_launches += 1
        self.launches += graph.nodes
        return (OK,)

    def cuGraphDestroy(self, graph):
        self.destroyed.append(graph)
        return (OK,)

    cuGraphExecDestroy = cuGraphDestroy

    def cuTensorMapEncodeTiled(self, *arguments):
        self.tensor_maps.append(arguments)
        return OK, SimpleNamespace(opaque=[len(self.tensor_maps)] * 16)

    def cuEventCreate(self, flags):
        self.events += 1
        return OK, self.events

    def cuEventRecord(self, event, stream):
        return (OK,)

    def cuEventSynchronize(self, event):
        return (OK,)

    def cuEventElapsedTime(self, start, end):
        return OK, (end - start) * 2.5
