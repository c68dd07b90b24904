"""A kernel of any extent computes at each extent what the INDEXED form says, and nothing beyond."""

from dataclasses import replace

import numpy as np
import pytest
from codegen.gpu_machine import TARGETS, legal
from codegen.machine import call, device, targets

from tinytensor import Tensor, dtypes
from tinytensor.codegen.emit_cuda import emit_cuda
from tinytensor.codegen.legalize import legalize
from tinytensor.codegen.lower import lower
from tinytensor.codegen.plan import choose
from tinytensor.ops.attrs import ExtentAttrs
from tinytensor.ops.attrs_blocks import PlaceAttrs
from tinytensor.ops.instances import MOST_ELEMENTS, at_extent, param_at, params_at
from tinytensor.ops.interpret_blocks import run_blocks
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.interpret_linear import run_linear
from tinytensor.ops.op import Op
from tinytensor.ops.text import parse, show
from tinytensor.ops.uop import UOp, buffer, substitute_all
from tinytensor.ops.verify import verify_linear
from tinytensor.runtime.cuda.nvrtc import compile_cubin
from tinytensor.schedule.instances import any_extent
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX2, SM80

GUARD = 16  # elements behind each array that nothing may touch
LANES = 8  # of a thread of a GPU, and of a vector of AVX2
EXTENTS = [1, LANES - 1, LANES, LANES + 1, 300]


def leaf(dtype, *shape):
    return Tensor._made(buffer(dtype, shape, "CPU"), "CPU")


def step(dtype):
    """What an optimizer computes: two results, one of which reads the other, and two numbers."""
    x, gradient, mean, rate = (
        leaf(dtype, 6),
        leaf(dtypes.float32, 6),
        leaf(dtype, 6),
        leaf(dtype, 3),
    )
    after = mean * rate[1] + gradient.cast(dtype)
    return after, x - after.maximum(rate[2]) * 2.0, (x > after)


def kernel_of(dtype):
    (call,) = schedule([each.uop for each in step(dtype)], CPU_AVX2, Options(3, True, False))
    return any_extent(call)


DTYPES = [dtypes.float32, dtypes.bfloat16, dtypes.int16, dtypes.float64]


def linear_at_extent(linear, extent):
    """The form of one instance: interpreters run the longest there is. A GPU's has its blocks."""
    places = params_at(linear.statements, extent)
    grid = linear.grid
    if grid is not None:
        blocks = -(-extent * grid.blocks[0] // MOST_ELEMENTS)
        grid = replace(grid, blocks=(blocks, 1, 1))
    for node in linear.statements:
        if node.op is Op.EXTENT:
            places[node] = UOp(Op.EXTENT, node.dtype, (), ExtentAttrs(extent))
        elif node.op is Op.PLACE and node.attrs.kind == "block_x" and grid is not None:
            attrs = PlaceAttrs("block_x", grid.blocks[0])
            places[node] = UOp(Op.PLACE, node.dtype, (), attrs)
    params = tuple([param_at(each, extent) for each in linear.params])
    statements = substitute_all(linear.statements, places)
    return replace(linear, statements=statements, params=params, grid=grid)


def memory(kernel, extent, rng):
    """Small whole numbers for each param, with more behind."""
    sizes = [each.elements for each in at_extent(kernel, extent).params]
    return [
        rng.integers(0, 5, size + GUARD).astype(param.dtype.storage_numpy)
        for size, param in zip(sizes, kernel.params, strict=True)
    ]


def expected(kernel, extent, arrays):
    copies = [each.copy() for each in arrays]
    static = at_extent(kernel, extent)
    sizes = [each.elements for each in static.params]
    run_kernel(static, [each[:size] for each, size in zip(copies, sizes, strict=True)])
    return copies


def assert_same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_the_forms_of_a_cpu_stay_within_the_extent(dtype, extent, seed):
    kernel = kernel_of(dtype)
    arrays = memory(kernel, extent, np.random.default_rng(seed))
    wanted = expected(kernel, extent, arrays)
    (planned,) = choose(kernel, CPU_AVX2).linears

    for linear in (planned, legalize(planned, CPU_AVX2)):
        found = [each.copy() for each in arrays]
        run_linear(linear_at_extent(linear, extent), found)

        assert_same(found, wanted)


@pytest.mark.parametrize("target", targets(), ids=lambda target: str(target.vector_bytes))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_c_runs_the_rows_of_a_table(dtype, target, seed):
    kernel = kernel_of(dtype)
    rng = np.random.default_rng(seed)
    instances = [memory(kernel, extent, rng) for extent in EXTENTS]
    wanted = [expected(kernel, n, each) for n, each in zip(EXTENTS, instances, strict=True)]
    (executable,) = device().compile([lower(kernel, target).program])

    call(executable, [each for arrays in instances for each in arrays], extents=EXTENTS)

    for found, each in zip(instances, wanted, strict=True):
        assert_same(found, each)


@pytest.mark.parametrize("extent", [*EXTENTS, 256 * LANES, 256 * LANES + 1])
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_blocks_of_a_gpu_stay_within_the_extent(target, extent, seed):
    kernel = kernel_of(dtypes.bfloat16)
    arrays = memory(kernel, extent, np.random.default_rng(seed))
    wanted = expected(kernel, extent, arrays)
    (planned,) = choose(kernel, target).linears

    for linear in (planned, legal(planned, target)):
        instance = linear_at_extent(linear, extent)
        found = [each.copy() for each in arrays]
        sizes = [each.elements for each in instance.params]
        verify_linear(instance)
        run_blocks(instance, [each[:size] for each, size in zip(found, sizes, strict=True)])

        assert_same(found, wanted)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_cuda_compiles(dtype, target):
    program = lower(kernel_of(dtype), target).program

    assert len(compile_cubin(program.source, target.name, program.name)) > 1000


def test_a_block_of_a_gpu_finds_its_instance():
    kernel = kernel_of(dtypes.float32)
    linears = [legal(each) for each in choose(kernel, SM80).linears]

    program = emit_cuda(linears, "step", SM80)

    (launch,) = program.launches
    assert launch.block_elements == 256 * 4
    assert "struct Instances { unsigned long long count, words[511]; };" in program.source
    assert (
        f"if (instances.words[middle * {len(kernel.params) + 2}] <= blockIdx.x)" in program.source
    )


def test_the_text_of_a_form_with_an_extent_is_read_back():
    (linear,) = choose(kernel_of(dtypes.float32), CPU_AVX2).linears

    assert any(node.op is Op.EXTENT for node in linear.statements)
    assert parse(show(linear)) == linear
