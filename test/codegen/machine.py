"""Builds small LINEAR kernels, runs them as C, and compares bits."""

import functools

import numpy as np

from tinytensor.codegen.builder import Builder
from tinytensor.codegen.emit_c import emit_c
from tinytensor.codegen.legalize import legalize
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret import from_storage, to_storage
from tinytensor.ops.kernel import Param
from tinytensor.runtime.buffer import BufferPart
from tinytensor.runtime.cpu import open_device
from tinytensor.target import CPU_AVX2, CPU_AVX512, CPU_SSE


@functools.cache
def device():
    return open_device()


def target():
    return device().target


def targets():
    """The records of targets whose code this processor runs."""
    known = (CPU_SSE, CPU_AVX2, CPU_AVX512)
    return [each for each in known if each.features <= target().features]


def run_c(linear, arrays, chosen=None):
    """Run one launch on storage arrays, in place, as legal C for a target (this processor's)."""
    chosen = chosen or target()
    program = emit_c(legalize(linear, chosen), chosen)
    (executable,) = device().compile([program])
    call(executable, arrays)


def call(executable, arrays, scalars=(), extents=()):
    """Run an executable on arrays, in place; of instances on those of all, one after the other."""
    buffers = [BufferPart(device(), each.nbytes, each.ctypes.data, None) for each in arrays]
    device().run(executable, buffers, scalars, extents=extents)


def elementwise_kernel(name, sources, results, lanes, count):
    """A kernel over `count` elements: results is a list of (dtype, function of the sources)."""
    params = [Param(dtype, count, False) for dtype in sources]
    params += [Param(dtype, count, True) for dtype, _ in results]
    b = Builder(name, params, dtypes.int32)
    with b.loop(0, count, lanes) as i:
        operands = [b.load(b.param(number), i, lanes) for number in range(len(sources))]
        for number, (_, function) in enumerate(results, len(sources)):
            b.store(b.param(number), i, function(*operands))
    return b.finish()


def stored(values, dtype):
    """Values as memory holds them, in an array of their own."""
    return np.array(to_storage(np.asarray(values, dtype.value_numpy), dtype))


def empty(count, dtype):
    """Memory full of a pattern that no test expects."""
    return np.full(count * dtype.itemsize, 0x5A, np.uint8).view(dtype.storage_numpy)


def bits_of(array, dtype):
    """The bits of stored values, with one pattern for every NaN."""
    values = from_storage(array, dtype)
    if not dtype.is_float:
        return np.array(array).view(f"uint{8 * dtype.itemsize}")
    return np.where(np.isnan(values), -1, np.array(array).view(f"int{dtype.bits}"))
