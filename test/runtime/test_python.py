"""Claims about what the PYTHON device hands to the interpreter."""

import numpy as np
import pytest

from tinytensor.dtype import dtypes
from tinytensor.ops import attrs as a
from tinytensor.ops.kernel import Kernel, Param
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, make_range
from tinytensor.runtime import python
from tinytensor.runtime.device import Device


def make_double(dtype, elements):
    """Build the kernel: buffer 0 = buffer 1 + buffer 1."""
    access = a.AccessAttrs(0, 1)
    each = make_range(0, elements)
    out, x = (UOp(Op.PARAM, dtype, (), a.ParamAttrs(number, elements)) for number in range(2))
    value = UOp(Op.LOAD, dtype, (x, each), access)
    store = UOp(Op.STORE, dtypes.void, (out, each, value + value), access)
    sink = UOp(Op.SINK, dtypes.void, (store,))
    params = (Param(dtype, elements, written=True), Param(dtype, elements, written=False))
    return Kernel("double", sink, (each,), params, None, dtypes.int32)


def allocate_filled(device, array):
    buffer = device.allocate(array.nbytes)
    device.copy_in(buffer, array)
    return buffer


def test_a_kernel_fills_its_output():
    device = Device["PYTHON"]
    x = np.arange(7, dtype=np.float32)
    buffers = [device.allocate(x.nbytes), allocate_filled(device, x)]
    result = np.empty_like(x)

    device.run(make_double(dtypes.float32, 7), buffers)
    device.copy_out(buffers[0], result)

    assert result.tolist() == [0, 2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [
        (dtypes.bfloat16, np.uint16),
        (dtypes.float16, np.float16),
        (dtypes.bool, np.bool_),
        (dtypes.int64, np.int64),
    ],
)
def test_the_interpreter_sees_the_stored_type(monkeypatch, dtype, storage):
    seen = []
    monkeypatch.setattr(python, "run_kernel", lambda kernel, arrays, scalars: seen.extend(arrays))
    device = Device["PYTHON"]
    content = np.array([0, 1, 1], storage)

    device.run(make_double(dtype, 3), [allocate_filled(device, content)] * 2)

    assert [array.dtype for array in seen] == [storage, storage]
    assert [array.tolist() for array in seen] == [content.tolist()] * 2
