"""Claims about the scalars a launch is given: the same kernel with other numbers, on every road."""

import struct

import numpy as np
import pytest
from codegen.gpu_machine import cubin_of
from codegen.machine import call, device
from codegen.plans.plan_kernels import KernelBuilder, load
from runtime.cuda.programs import needs_nvrtc

from tinytensor.codegen.lower import lower
from tinytensor.dtype import dtypes
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import VariableAttrs
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.interpret_blocks import run_launches
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import UOp, cast, make_range, make_variable
from tinytensor.ops.verify import verify_indexed
from tinytensor.runtime.device import Device
from tinytensor.target import CPU_AVX512, SM80, SM90A

ELEMENTS = 37
X = np.arange(2 * ELEMENTS, dtype=np.float32)
BEGIN, SCALE = 5, 0.5


def scaled_kernel(dtype=dtypes.float32):
    """out[i] = x[i + v0] * v1 + v0, where v0 is an index of at most ELEMENTS."""
    i = make_range(0, ELEMENTS)
    begin = make_variable(0, 0, ELEMENTS)
    scale = UOp(Op.VARIABLE, dtype, (), VariableAttrs(1))
    builder = KernelBuilder(i)
    x = builder.param(dtypes.float32, 2 * ELEMENTS)
    value = load(x, i + begin) * cast(scale, dtypes.float32) + cast(begin, dtypes.float32)
    builder.store(i, value, ELEMENTS)
    return builder.kernel()


EXPECTED = X[BEGIN : BEGIN + ELEMENTS] * np.float32(SCALE) + BEGIN


def arrays():
    return [X.copy(), np.zeros(ELEMENTS, np.float32)]


def test_the_indexed_form_reads_scalars():
    kernel, memory = scaled_kernel(), arrays()
    verify_indexed(kernel)

    run_kernel(kernel, memory, (BEGIN, SCALE))

    assert memory[1].tolist() == EXPECTED.tolist()


def test_the_linear_form_of_a_cpu_reads_scalars():
    lowered, memory = lower(scaled_kernel(), CPU_AVX512), arrays()

    run_linear(lowered.legal[0], memory, scalars=(BEGIN, SCALE))

    assert memory[1].tolist() == EXPECTED.tolist()


def test_the_linear_form_of_a_gpu_reads_scalars():
    lowered, memory = lower(scaled_kernel(), SM80), arrays()

    run_launches(lowered.legal, memory, scalars=(BEGIN, SCALE))

    assert memory[1].tolist() == EXPECTED.tolist()


@pytest.mark.parametrize(("begin", "scale"), [(0, 2.0), (BEGIN, SCALE), (ELEMENTS, -1.5)])
def test_one_c_program_serves_all_scalars(begin, scale):
    lowered, memory = lower(scaled_kernel(), device().target), arrays()
    (executable,) = device().compile([lowered.program])

    call(executable, memory, (begin, scale))

    expected = X[begin : begin + ELEMENTS] * np.float32(scale) + begin
    assert memory[1].tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["CPU", "PYTHON"])
def test_a_device_runs_a_kernel_with_scalars(name):
    kernel, place = scaled_kernel(), Device[name]
    work = kernel
    if name == "CPU":
        (work,) = place.compile([lower(kernel, place.target).program])
    buffers = [place.allocate(each.nbytes) for each in arrays()]
    place.copy_in(buffers[0], X)

    place.run(work, buffers, (BEGIN, SCALE))

    result = np.empty(ELEMENTS, np.float32)
    place.copy_out(buffers[1], result)
    assert result.tolist() == EXPECTED.tolist()


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.uint8, dtypes.int64, dtypes.float64])
def test_a_scalar_has_any_dtype_but_halves(dtype):
    lowered, memory = lower(scaled_kernel(dtype), device().target), arrays()
    (executable,) = device().compile([lowered.program])

    call(executable, memory, (BEGIN, 1))

    assert memory[1].tolist() == (X[BEGIN : BEGIN + ELEMENTS] + BEGIN).tolist()


def test_the_door_refuses_what_is_no_number():
    lowered, memory = lower(scaled_kernel(), device().target), arrays()
    (executable,) = device().compile([lowered.program])

    with pytest.raises(struct.error, match="required argument is not a float"):
        call(executable, memory, (BEGIN, "2"))


@needs_nvrtc
@pytest.mark.parametrize("target", [SM80, SM90A], ids=lambda each: each.name)
def test_cuda_takes_scalars_after_the_buffers(target):
    program = lower(scaled_kernel(), target).program

    assert program.scalars == "qd"
    assert "long long scalar0,\n    double scalar1)" in program.source
    assert cubin_of(program.source, target.name)


def test_the_text_of_a_form_keeps_its_scalars():
    kernel = scaled_kernel()
    linear = lower(kernel, CPU_AVX512).legal[0]

    assert parse(show(kernel)) == kernel
    assert parse(show(linear)) == linear


def test_an_index_has_its_ends_as_bounds():
    assert bounds_of(make_variable(0, 8, 64) * 2 + 1) == (17, 129)


@pytest.mark.parametrize(
    ("dtype", "attrs", "sentence"),
    [
        (dtypes.float16, VariableAttrs(0), "is no scalar that a launch can take"),
        (dtypes.index, VariableAttrs(0, 4, 3), "no value lies between its ends"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused(dtype, attrs, sentence):
    with pytest.raises(InternalError) as error:
        UOp(Op.VARIABLE, dtype, (), attrs)

    expected = f"variable: {sentence}: dtype {dtype.name}, operands (), attrs {attrs}."
    assert str(error.value) == expected


def test_a_number_that_two_variables_have_is_refused():
    i = make_range(0, 4)
    builder = KernelBuilder(i)
    builder.store(i, cast(make_variable(0, 0, 1) + make_variable(0, 0, 2), dtypes.int64), 4)

    with pytest.raises(InternalError, match="variables are numbered from 0"):
        verify_indexed(builder.kernel())
