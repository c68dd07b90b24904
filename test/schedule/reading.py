"""Reads what a schedule would be, and what its values should be, from tensors."""

from tinytensor import dtypes
from tinytensor.config import config
from tinytensor.ops.interpret import from_storage
from tinytensor.ops.interpret_tensor import interpret
from tinytensor.ops.op import Op
from tinytensor.ops.uop import walk
from tinytensor.realize import to_host
from tinytensor.report import apart_of, schedule_lines
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512


def kernels_of(*tensors, fuse=None, target=CPU_AVX512):
    """The kernels that would compute some tensors together, in order; nothing runs."""
    options = Options(config.fuse if fuse is None else fuse, verify=True, stress=False)
    calls = schedule([each.uop for each in tensors], target, options)
    return [call.kernel for call in calls]


def decisions_of(*tensors, kind=None, fuse=None, target=CPU_AVX512):
    """The decisions of that schedule as lines, those of one kind if asked."""
    kernels = kernels_of(*tensors, fuse=fuse, target=target)
    found = [each for kernel in kernels for each in kernel.decisions]
    kept = [each for each in found if kind in (None, each.kind)]
    return [f"{each.kind} {each.subject}: {each.reason}" for each in kept]


def kernel_lines(planned):
    """What DEBUG=2 prints of kernels, without what stands before them."""
    lines = schedule_lines(planned)
    return lines[next(at for at, line in enumerate(lines) if line.startswith("kernel ")) :]


def apart_lines(*tensors, fuse=None, target=CPU_AVX512):
    """Why each kernel of that schedule is none with one that it reads from, as lines."""
    options = Options(config.fuse if fuse is None else fuse, verify=True, stress=False)
    calls = schedule([each.uop for each in tensors], target, options)
    return [
        f"kernel {number} {each.subject}: {each.reason}"
        for number, told in enumerate(apart_of(calls), start=1)
        for each in told
    ]


def leaf_values(*tensors):
    """The values of all buffers below some tensors."""
    nodes = walk([each.uop for each in tensors])
    leaves = [node for node in nodes if node.op is Op.BUFFER]
    return {leaf: from_storage(to_host(leaf), leaf.dtype) for leaf in leaves}


def interpreted(*tensors):
    """The values by the interpreter of the TENSOR form, which knows no kernels."""
    return interpret([each.uop for each in tensors], leaf_values(*tensors))


FLOAT_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
