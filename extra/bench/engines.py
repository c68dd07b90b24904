"""Turns an engine's name into the functions that the works are written in.

Where an engine has a function of its own for a piece of work (a softmax, a layer norm), that is
used, so that each engine is seen at its best; the others write it out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import tinytensor
from tinytensor import Tensor
from tinytensor.lazy import lazy_import

EPSILON = 1e-5  # of the layer norm

HostArray = npt.NDArray[Any]
Array = Any  # each engine has its own
Formula = Callable[..., Array]  # (engine, *operands) -> result
Call = Callable[[], Array]


class Engine(ABC):
    """Something that computes with arrays; its functions go by PyTorch's names unless replaced."""

    name: str
    version: str

    @abstractmethod
    def hold(self, array: HostArray) -> Array:
        """Make a persistent input."""

    def bind(self, formula: Formula, operands: Sequence[Array]) -> Call:
        """Make the call that is timed; it ends when the result is in memory."""
        return partial(formula, self, *operands)

    def fetch(self, result: Array) -> HostArray:
        """Copy a result to NumPy."""
        return np.asarray(result)

    def relu(self, x: Array) -> Array:
        """Return max(x, 0)."""
        return x.relu()

    def row_mean(self, x: Array) -> Array:
        """Return the mean of each row, as a column."""
        return x.mean(1, keepdim=True)

    def softmax(self, x: Array) -> Array:
        """Return exp(x) divided by its sum, row by row."""
        return x.softmax(1)

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product, of halves with the sum in float32."""
        return a @ b

    def total(self, x: Array) -> Array:
        """Return the sum of all elements."""
        return x.sum()

    def layer_norm(self, x: Array) -> Array:
        """Return each row less its mean, divided by its standard deviation."""
        centered = x - self.row_mean(x)
        variance = self.row_mean(centered * centered)
        return centered / (variance + EPSILON) ** 0.5


class TinyTensor(Engine):
    """This project as a user writes it: every call builds its graph anew and realizes it."""

    name = "tinytensor"

    def __init__(self) -> None:
        self.version = tinytensor.__version__

    def hold(self, array: HostArray) -> Array:
        """Make a Tensor on the CPU."""
        return Tensor(array, device="CPU").realize()

    def bind(self, formula: Formula, operands: Sequence[Array]) -> Call:
        """Make a call that builds and realizes."""
        return lambda: formula(self, *operands).realize()

    def fetch(self, result: Array) -> HostArray:
        """Copy a Tensor's values."""
        return np.asarray(result.numpy())


class NumPy(Engine):
    """NumPy with its own BLAS."""

    name = "numpy"

    def __init__(self) -> None:
        self.version = np.__version__

    def hold(self, array: HostArray) -> Array:
        """Keep the array."""
        return array

    def relu(self, x: Array) -> Array:
        """Call np.maximum."""
        return np.maximum(x, 0)

    def row_mean(self, x: Array) -> Array:
        """Call ndarray.mean."""
        return x.mean(1, keepdims=True)

    def softmax(self, x: Array) -> Array:
        """Write it out, in place where NumPy can."""
        weights = x - x.max(1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(1, keepdims=True)
        return weights

    def matmul(self, a: Array, b: Array) -> Array:
        """Widen halves, for which NumPy has no BLAS."""
        if a.dtype == np.float16:
            return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
        return a @ b


class Torch(Engine):
    """PyTorch, eager."""

    name = "torch"

    def __init__(self) -> None:
        self.torch = lazy_import("torch", None, self.name)
        self.torch.set_num_threads(1)
        self.version = self.torch.__version__

    def hold(self, array: HostArray) -> Array:
        """Make a tensor."""
        return self.torch.from_numpy(array)

    def layer_norm(self, x: Array) -> Array:
        """Call torch.layer_norm."""
        return self.torch.layer_norm(x, x.shape[1:], eps=EPSILON)


class TorchCompile(Torch):
    """PyTorch with its compiler."""

    name = "torch.compile"

    def bind(self, formula: Formula, operands: Sequence[Array]) -> Call:
        """Compile the formula for these operands."""
        self.torch._dynamo.reset()  # no earlier work's shapes may make these ones dynamic
        compiled = self.torch.compile(partial(formula, self), dynamic=False)
        return partial(compiled, *operands)


class Jax(Engine):
    """JAX, jitted."""

    name = "jax"

    def __init__(self) -> None:
        self.jax = lazy_import("jax", None, self.name)
        self.version = self.jax.__version__

    def hold(self, array: HostArray) -> Array:
        """Make a jax.Array."""
        return self.jax.device_put(array)

    def bind(self, formula: Formula, operands: Sequence[Array]) -> Call:
        """Jit the formula; a call waits for its result."""
        compiled = self.jax.jit(partial(formula, self))
        return lambda: compiled(*operands).block_until_ready()

    def relu(self, x: Array) -> Array:
        """Call jax.nn.relu."""
        return self.jax.nn.relu(x)

    def row_mean(self, x: Array) -> Array:
        """Call Array.mean."""
        return x.mean(1, keepdims=True)

    def softmax(self, x: Array) -> Array:
        """Call jax.nn.softmax."""
        return self.jax.nn.softmax(x, axis=1)


ENGINES: tuple[type[Engine], ...] = (TinyTensor, NumPy, Torch, TorchCompile, Jax)
