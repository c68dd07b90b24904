"""A kernel becomes a program, with the reasons and times of its passes."""

import numpy as np
from codegen.machine import call, device, empty

from tinytensor.codegen.lower import lower
from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import ParamAttrs
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, make_range
from tinytensor.target import SM90A

F32 = dtypes.float32


def square_kernel(count):
    """Each element times itself."""
    r = make_range(0, count)
    source, result = (UOp(Op.PARAM, F32, (), ParamAttrs(number, count)) for number in range(2))
    x = UOp(Op.LOAD, F32, (source, r))
    sink = UOp(Op.SINK, dtypes.void, (UOp(Op.STORE, dtypes.void, (result, r, x * x)),))
    params = (Param(F32, count, False), Param(F32, count, True))
    return Kernel("square", sink, (r,), params, None, dtypes.int32)


def test_a_lowered_kernel_runs():
    x, out = np.arange(37, dtype=np.float32), empty(37, F32)

    lowered = lower(square_kernel(37), device().target)
    (executable,) = device().compile([lowered.program])
    call(executable, [x, out])

    assert np.array_equal(out, x * x)


def test_lowering_says_its_plan_and_times_its_passes():
    lowered = lower(square_kernel(37), device().target)

    assert lowered.plan == "pointwise"
    assert [each.name for each in lowered.times] == [
        "lower: plan",
        "lower: legalize",
        "lower: emit",
    ]
    assert all(each.seconds > 0 for each in lowered.times)


def test_a_gpu_kernel_goes_through_the_passes_of_a_block():
    lowered = lower(square_kernel(37), SM90A)

    assert lowered.plan == "pointwise"
    assert [each.name.removeprefix("lower: ") for each in lowered.times] == [
        *("plan", "legalize_tiles", "simplify_linear", "split_lanes", "legalize", "emit")
    ]
    assert [each.entry for each in lowered.program.launches] == ["square_0"]
