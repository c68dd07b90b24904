"""Builds small LINEAR kernels for a GPU, runs their forms, and compiles what they become."""

import functools
import struct

import numpy as np

from tinytensor.codegen.block_builder import BlockBuilder
from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.legalize_lanes import split_lanes
from tinytensor.codegen.legalize_tiles import legalize_tiles
from tinytensor.codegen.simplify_linear import simplify_linear
from tinytensor.dtype import dtypes
from tinytensor.ops.interpret_blocks import run_blocks
from tinytensor.ops.kernel import Param
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.cuda.nvrtc import compile_cubin
from tinytensor.runtime.device import Device
from tinytensor.target import SM80, SM90A

PASSES = (legalize_tiles, simplify_linear, split_lanes, legalize)
TARGETS = (SM80, SM90A)
THREADS = 64


def legal(linear, target=SM80):
    """What the passes of a GPU make of a form, each checked."""
    for each in PASSES:
        linear = each(linear, target)
        verify_linear(linear)
    return linear


def program_of(linear, target=SM80):
    """The program of a form, or of several that are launched in order."""
    linears = linear if isinstance(linear, tuple) else (linear,)
    return emit_cuda([legal(each, target) for each in linears], linears[0].name, target)


def source_of(linear, target=SM80):
    return program_of(linear, target).source


def block_kernel(name, sources, results, lanes, count, threads=THREADS):
    """One access of `lanes` elements a thread; results is a list of (dtype, function)."""
    params = [Param(dtype, count, False) for dtype in sources]
    params += [Param(dtype, count, True) for dtype, _ in results]
    blocks = -(-count // (lanes * threads))
    b = BlockBuilder(name, params, dtypes.int32, (blocks, 1, 1), threads)
    i = (b.block(0) * threads + b.thread) * lanes
    with b.branch(i < count):
        operands = [b.load(b.param(number), i, lanes) for number in range(len(sources))]
        for number, (_, function) in enumerate(results, len(sources)):
            b.store(b.param(number), i, function(*operands))
    return b.finish()


def lanes_of_access(*dtypes_used):
    """Elements of the widest dtype that one access moves."""
    return 16 // max(each.itemsize for each in dtypes_used)


def run_form(linear, arrays):
    """Run a form on copies of storage arrays."""
    results = [np.array(each) for each in arrays]
    run_blocks(linear, results)
    return results


def run_on_device(linear, arrays):
    """Compile a form (or several) for the GPU that is here, and run it on copies of arrays."""
    device = Device["CUDA"]
    (executable,) = device.compile([program_of(linear, device.target)])
    buffers = [device.allocate(each.nbytes) for each in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        device.copy_in(buffer, array)
    device.run(executable, buffers)
    results = [np.empty_like(each) for each in arrays]
    for buffer, result in zip(buffers, results, strict=True):
        device.copy_out(buffer, result)
    return results


@functools.cache
def cubin_of(source, architecture):
    return compile_cubin(source, architecture)


FRAME_SIZE = 0x11  # EIATTR_FRAME_SIZE: a function's number, then its bytes of stack
SIZED_RECORD = 0x04


def frame_bytes(cubin):
    """The largest stack frame that a CUBIN's functions ask for, from its `.nv.info` sections."""
    (section_table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", cubin, 0x3A)
    largest = 0
    for number in range(count):
        kind, offset, size = _section(cubin, section_table + number * entry_bytes)
        if kind == INFORMATION:
            largest = max(largest, *_frames(cubin[offset : offset + size]), 0)
    return largest


INFORMATION = 0x70000000  # the section type of `.nv.info`


def _section(cubin, at):
    (kind,) = struct.unpack_from("<I", cubin, at + 4)
    offset, size = struct.unpack_from("<QQ", cubin, at + 0x18)
    return kind, offset, size


def _frames(records):
    """Yield the frame sizes among the records of a section."""
    yield 0
    at = 0
    while at + 4 <= len(records):
        form, attribute, size = struct.unpack_from("<BBH", records, at)
        at += 4
        if form != SIZED_RECORD:
            continue
        if attribute == FRAME_SIZE:
            yield struct.unpack_from("<II", records, at)[1]
        at += size
