"""Turns an engine's name into functions on GPU arrays, and into calls that are timed there.

Inputs are torch tensors that every engine shares or copies. Where an engine has a function of its
own for a piece of work, that is used; the others write it out in float32, rounded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

import tinytensor
from extra.bench.gpu.launches import (
    Launch,
    Timed,
    copy_bytes,
    poison,
    recorded,
    run_all,
    wall_us,
)
from tinytensor import Tensor, autograd, dtypes
from tinytensor.lazy import lazy_import
from tinytensor.nn import functional
from tinytensor.realize import from_host, storage_of
from tinytensor.runtime.device import Device

EPSILON = 1e-5  # of the norms
WINDOW = (3, 3)  # of the convolution
GRAPH_US = 2000  # one replay takes about this long, far above what starting it costs
MOST_CALLS = 512  # of one graph

Array = Any  # each engine has its own
Formula = Callable[..., Array]  # (engine, *operands) -> result
Sets = Sequence[Sequence[Array]]


class Clocked(Protocol):
    """Calls whose time on the device can be taken again and again. Units: µs a call."""

    def device_us(self) -> float:
        """Run a batch; return the time of one call."""


class Prepared(ABC):
    """A formula bound to sets of inputs.

    `device_clock` says how `clocked()` takes the time: by events on the device or on the wall.
    """

    device_clock = "events"

    @abstractmethod
    def result(self) -> Array:
        """Compute the first set's result as a torch tensor."""

    @abstractmethod
    def clocked(self, calls: int) -> Clocked:
        """Make a batch of `calls` calls over the sets in turn."""

    @abstractmethod
    def wall_us(self, calls: int) -> float:
        """Time calls as a user writes them, to the end of the last. Units: µs a call."""


class Engine(ABC):
    """Something that computes on a GPU, and the functions it offers."""

    name: str
    version: str

    @abstractmethod
    def prepare(self, formula: Formula, sets: Sets) -> Prepared:
        """Bind a formula to sets of torch tensors; this compiles."""

    @abstractmethod
    def widen(self, x: Array) -> Array:
        """Convert to float32."""

    @abstractmethod
    def narrow(self, x: Array) -> Array:
        """Convert to bfloat16."""

    @abstractmethod
    def row_mean(self, x: Array) -> Array:
        """Return the mean of each row, as a column."""

    @abstractmethod
    def relu(self, x: Array) -> Array:
        """Return max(x, 0)."""

    @abstractmethod
    def gelu(self, x: Array) -> Array:
        """Return the tanh form of gelu."""

    @abstractmethod
    def softmax(self, x: Array) -> Array:
        """Return exp(x) divided by its sum, row by row."""

    @abstractmethod
    def convolve(self, x: Array, weight: Array) -> Array:
        """Return the convolution of planes by windows of 3 x 3, with a border of 1."""

    @abstractmethod
    def input_gradient(self, g: Array, weight: Array) -> Array:
        """Return the gradient of that convolution's input, from its result's."""

    @abstractmethod
    def weight_gradient(self, g: Array, x: Array) -> Array:
        """Return the gradient of its weight."""

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product with sums in float32."""
        return a @ b

    def total(self, x: Array) -> Array:
        """Return the sum of all elements."""
        return x.sum()

    def argmax(self, x: Array) -> Array:
        """Return the position of each row's greatest element."""
        return x.argmax(1)

    def layer_norm(self, x: Array, weight: Array, bias: Array) -> Array:
        """Return each row less its mean, divided by its standard deviation, scaled and moved."""
        wide = self.widen(x)
        centered = wide - self.row_mean(wide)
        scale = (self.row_mean(centered * centered) + EPSILON) ** -0.5
        return self.narrow(centered * scale * self.widen(weight) + self.widen(bias))

    def rms_norm(self, x: Array, weight: Array) -> Array:
        """Return each row divided by the root of its mean square, scaled."""
        wide = self.widen(x)
        scale = (self.row_mean(wide * wide) + EPSILON) ** -0.5
        return self.narrow(wide * scale * self.widen(weight))


class TinyTensor(Engine):
    """This project: launches of a realized graph on the device, fresh graphs on the wall."""

    name = "tinytensor"

    def __init__(self) -> None:
        self.version = tinytensor.__version__
        self.device = Device["CUDA"]
        self.torch = lazy_import("torch", None, self.name)

    def hold(self, array: Array) -> Tensor:
        """Copy a torch tensor to a Tensor of the same type, in memory of its own.

        What is computed alike may share its memory, so the Tensor is not computed.
        """
        dtype = getattr(dtypes, str(array.dtype).removeprefix("torch."))
        anything = np.empty(array.shape, dtype.storage_numpy)
        made = Tensor._made(from_host(anything, dtype, "CUDA"), "CUDA")
        self.torch.cuda.synchronize()
        storage = storage_of(made.uop)
        copy_bytes(self.device, storage.address, array.data_ptr(), storage.nbytes)
        return made

    def fetch(self, result: Tensor) -> Array:
        """Copy a Tensor to a torch tensor."""
        dtype = getattr(self.torch, result.dtype.name)
        made = self.torch.empty(result.shape, dtype=dtype, device="cuda")
        storage = storage_of(result.uop)
        copy_bytes(self.device, made.data_ptr(), storage.address, storage.nbytes)
        return made

    def prepare(self, formula: Formula, sets: Sets) -> Prepared:
        """Realize each set once, and keep what was launched."""
        held = [[self.hold(each) for each in operands] for operands in sets]
        addresses = [storage_of(each.uop).address for operands in held for each in operands]
        assert len({*addresses}) == len(addresses), "two inputs share their memory"
        return TinyTensorPrepared(self, formula, held)

    def widen(self, x: Tensor) -> Tensor:
        """Call Tensor.float."""
        return x.float()

    def narrow(self, x: Tensor) -> Tensor:
        """Call Tensor.bfloat16."""
        return x.bfloat16()

    def row_mean(self, x: Tensor) -> Tensor:
        """Call Tensor.mean."""
        return x.mean(1, keepdim=True)

    def relu(self, x: Tensor) -> Tensor:
        """Call Tensor.relu."""
        return x.relu()

    def gelu(self, x: Tensor) -> Tensor:
        """Call Tensor.gelu."""
        return x.gelu("tanh")

    def softmax(self, x: Tensor) -> Tensor:
        """Call Tensor.softmax."""
        return x.softmax(1)

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """Call functional.conv2d."""
        return functional.conv2d(x, weight, padding=1)

    def input_gradient(self, g: Tensor, weight: Tensor) -> Tensor:
        """Differentiate by an input of which no gradient depends."""
        shape = (g.shape[0], weight.shape[1], *g.shape[2:])
        x = Tensor.zeros(shape, dtype=g.dtype, device=g.device).requires_grad_()
        return autograd.grad(self.convolve(x, weight), [x], g)[0]

    def weight_gradient(self, g: Tensor, x: Tensor) -> Tensor:
        """Differentiate by a weight on which no gradient depends."""
        shape = (g.shape[1], x.shape[1], *WINDOW)
        weight = Tensor.zeros(shape, dtype=g.dtype, device=g.device).requires_grad_()
        return autograd.grad(self.convolve(x, weight), [weight], g)[0]


class TinyTensorPrepared(Prepared):
    """Launches by set, each with buffers of its own."""

    def __init__(
        self, engine: TinyTensor, formula: Formula, sets: Sequence[Sequence[Tensor]]
    ) -> None:
        self.engine = engine
        self.device = engine.device
        self.calls = [partial(formula, engine, *operands) for operands in sets]
        self.results: list[Tensor] = []
        self.launches: list[list[Launch]] = []
        for call in self.calls:
            with recorded(self.device) as launches:
                self.results.append(call().realize())
            self.launches.append(launches)
        self.inputs = {storage_of(each.uop).address for each in sets[0]}

    @property
    def kernels(self) -> int:
        """The number of kernels of one call."""
        return len(self.launches[0])

    def result(self) -> Array:
        """Run the first set again on memory full of NaN."""
        touched = [buffer for each in self.launches[0] for buffer in each.buffers]
        poison(self.device, [each for each in touched if each.address not in self.inputs])
        run_all(self.device, self.launches[0])
        return self.engine.fetch(self.results[0])

    def clocked(self, calls: int) -> Clocked:
        """Capture the launches."""
        return Timed(self.device, self.launches, calls)

    def wall_us(self, calls: int) -> float:
        """Build and realize fresh graphs."""
        made = [self.calls[number % len(self.calls)] for number in range(calls)]
        return wall_us([partial(_realize, call) for call in made], self._wait)

    def _wait(self, _: object) -> None:
        self.device.synchronize()


def _realize(call: Callable[[], Tensor]) -> Tensor:
    return call().realize()


class Torch(Engine):
    """PyTorch, eager, with float32 products in float32."""

    name = "torch"

    def __init__(self) -> None:
        self.torch = lazy_import("torch", None, self.name)
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.functional = self.torch.nn.functional
        self.version = self.torch.__version__

    def prepare(self, formula: Formula, sets: Sets) -> Prepared:
        """Bind the formula as it is."""
        return TorchPrepared(self.torch, partial(formula, self), sets)

    def widen(self, x: Array) -> Array:
        """Call Tensor.float."""
        return x.float()

    def narrow(self, x: Array) -> Array:
        """Call Tensor.bfloat16."""
        return x.bfloat16()

    def row_mean(self, x: Array) -> Array:
        """Call Tensor.mean."""
        return x.mean(1, keepdim=True)

    def relu(self, x: Array) -> Array:
        """Call Tensor.relu."""
        return x.relu()

    def gelu(self, x: Array) -> Array:
        """Call gelu."""
        return self.functional.gelu(x, approximate="tanh")

    def softmax(self, x: Array) -> Array:
        """Call Tensor.softmax."""
        return x.softmax(1)

    def convolve(self, x: Array, weight: Array) -> Array:
        """Call conv2d."""
        return self.functional.conv2d(x, weight, padding=1)

    def input_gradient(self, g: Array, weight: Array) -> Array:
        """Call conv2d_input."""
        shape = (g.shape[0], weight.shape[1], *g.shape[2:])
        return self.torch.nn.grad.conv2d_input(shape, weight, g, padding=1)

    def weight_gradient(self, g: Array, x: Array) -> Array:
        """Call conv2d_weight."""
        shape = (g.shape[1], x.shape[1], *WINDOW)
        return self.torch.nn.grad.conv2d_weight(x, shape, g, padding=1)

    def layer_norm(self, x: Array, weight: Array, bias: Array) -> Array:
        """Call layer_norm."""
        return self.functional.layer_norm(x, x.shape[1:], weight, bias, EPSILON)

    def rms_norm(self, x: Array, weight: Array) -> Array:
        """Call rms_norm."""
        return self.functional.rms_norm(x, x.shape[1:], weight, EPSILON)


class TorchCompile(Torch):
    """PyTorch with its compiler."""

    name = "torch.compile"

    def prepare(self, formula: Formula, sets: Sets) -> Prepared:
        """Compile the formula for these operands."""
        self.torch._dynamo.reset()  # no earlier work's shapes may make these ones dynamic
        compiled = self.torch.compile(partial(formula, self), dynamic=False)
        return TorchPrepared(self.torch, compiled, sets)


class TorchPrepared(Prepared):
    """A function of torch tensors, captured into a CUDA graph."""

    def __init__(self, torch: Any, function: Callable[..., Array], sets: Sets) -> None:  # noqa: ANN401
        self.torch = torch
        self.calls = [partial(function, *operands) for operands in sets]

    def result(self) -> Array:
        """Compute it."""
        return self.calls[0]()

    def clocked(self, calls: int) -> Clocked:
        """Capture the calls."""
        made = [self.calls[number % len(self.calls)] for number in range(calls)]
        return TorchTimed(self.torch, made, len(self.calls))

    def wall_us(self, calls: int) -> float:
        """Call as a user does."""
        made = [self.calls[number % len(self.calls)] for number in range(calls)]
        return wall_us(made, lambda _: self.torch.cuda.synchronize())


class TorchTimed:
    """A torch CUDA graph; the results of as many calls as there are sets live at once."""

    def __init__(self, torch: Any, calls: Sequence[Callable[[], Array]], sets: int) -> None:  # noqa: ANN401
        self.torch = torch
        self.count = len(calls)
        self.graph = torch.cuda.CUDAGraph()
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            calls[0]()
        torch.cuda.synchronize()
        self.results: list[Array] = [None] * sets
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            for number, call in enumerate(calls):
                self.results[number % sets] = None
                self.results[number % sets] = call()

    def device_us(self) -> float:
        """Replay once."""
        start, end = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / self.count


class Jax(Engine):
    """JAX, jitted, with float32 products in float32."""

    name = "jax"

    def __init__(self) -> None:
        self.jax = lazy_import("jax", None, self.name)
        self.jax.config.update("jax_default_matmul_precision", "highest")
        self.numpy = self.jax.numpy
        self.version = self.jax.__version__

    def prepare(self, formula: Formula, sets: Sets) -> Prepared:
        """Jit the formula."""
        held = [[self.jax.dlpack.from_dlpack(each) for each in operands] for operands in sets]
        return JaxPrepared(self.jax.jit(partial(formula, self)), held)

    def widen(self, x: Array) -> Array:
        """Call Array.astype."""
        return x.astype(self.numpy.float32)

    def narrow(self, x: Array) -> Array:
        """Call Array.astype."""
        return x.astype(self.numpy.bfloat16)

    def row_mean(self, x: Array) -> Array:
        """Call Array.mean."""
        return x.mean(1, keepdims=True)

    def relu(self, x: Array) -> Array:
        """Call jax.nn.relu."""
        return self.jax.nn.relu(x)

    def gelu(self, x: Array) -> Array:
        """Call jax.nn.gelu."""
        return self.jax.nn.gelu(x, approximate=True)

    def softmax(self, x: Array) -> Array:
        """Call jax.nn.softmax in float32."""
        return self.jax.nn.softmax(self.widen(x), axis=1).astype(x.dtype)

    def convolve(self, x: Array, weight: Array) -> Array:
        """Call jax.lax.conv."""
        return self.jax.lax.conv(x, weight, (1, 1), "SAME")

    def input_gradient(self, g: Array, weight: Array) -> Array:
        """Transpose the convolution, which is linear in its input."""
        x = self.jax.ShapeDtypeStruct((g.shape[0], weight.shape[1], *g.shape[2:]), g.dtype)
        return self.jax.linear_transpose(lambda x: self.convolve(x, weight), x)(g)[0]

    def weight_gradient(self, g: Array, x: Array) -> Array:
        """Transpose the convolution, which is linear in its weight."""
        weight = self.jax.ShapeDtypeStruct((g.shape[1], x.shape[1], *WINDOW), g.dtype)
        return self.jax.linear_transpose(lambda weight: self.convolve(x, weight), weight)(g)[0]


class JaxPrepared(Prepared):
    """A jitted function; its stream is out of reach, so its time is that on the wall."""

    device_clock = "wall"

    def __init__(self, function: Callable[..., Array], sets: Sets) -> None:
        self.calls = [partial(function, *operands) for operands in sets]

    def result(self) -> Array:
        """Compute it."""
        torch = lazy_import("torch", None, "jax")
        return torch.from_dlpack(self.calls[0]().block_until_ready())

    def clocked(self, calls: int) -> Clocked:
        """Make a batch."""
        return JaxTimed(self, calls)

    def wall_us(self, calls: int) -> float:
        """Call as a user does."""
        made = [self.calls[number % len(self.calls)] for number in range(calls)]
        return wall_us(made, lambda result: result.block_until_ready())  # type: ignore[attr-defined]


class JaxTimed:
    """A batch of jitted calls."""

    def __init__(self, prepared: JaxPrepared, calls: int) -> None:
        self.prepared = prepared
        self.calls = calls

    def device_us(self) -> float:
        """Time the batch."""
        return self.prepared.wall_us(self.calls)


GPU_ENGINES: tuple[type[Engine], ...] = (TinyTensor, Torch, TorchCompile, Jax)
