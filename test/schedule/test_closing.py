"""Products for matrix instructions are closed over the sizes of the moment, and stay right."""

import numpy as np
import pytest
from fuzz import test_open_sizes as random_programs
from tensor import test_open_sizes as programs
from tolerance import assert_close

from tinytensor import Tensor, Variable, mark_dynamic, planning
from tinytensor.config import config
from tinytensor.ops.interpret_indexed import run_kernel
from tinytensor.ops.op import Op
from tinytensor.ops.size import recorded_claims
from tinytensor.ops.uop import walk
from tinytensor.ops.verify import verify_indexed
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512, SM90A

N = Variable("n", 1, 512)


def product_calls(rows, target):
    """The kernels of x @ w for an x of so many rows, and what they claim."""
    x = mark_dynamic(Tensor.ones(rows, 16, device="CPU"), 0, N)
    weight = Tensor.ones(16, 8, device="CPU").realize()
    with recorded_claims() as claims:
        calls = schedule([(x @ weight + 1).uop], target, Options(3, True, False))
    return calls, claims


def test_a_product_of_a_gpu_has_the_sizes_of_the_moment():
    (call,), claims = product_calls(24, SM90A)

    verify_indexed(call.kernel)
    assert call.variables == ()
    assert call.kernel.variables == ()
    assert call.kernel.contraction.extents == (1, 24, 8, 16)
    assert [each.elements for each in call.kernel.params] == [24 * 8, 24 * 16, 16 * 8]
    assert call.kernel.decisions[-1].reason == (
        "a matrix instruction's tiles fix their extents: one program for each of 24."
    )
    assert [each.op for each in claims] == [Op.EQ]


def test_the_closed_product_is_the_product():
    (call,), _ = product_calls(24, SM90A)
    arrays = [np.zeros(24 * 8, np.float32), np.ones(24 * 16, np.float32), np.ones(128, np.float32)]

    run_kernel(call.kernel, arrays)

    assert arrays[0].tolist() == [17.0] * (24 * 8)


def test_a_product_of_a_cpu_stays_open():
    (call,), claims = product_calls(24, CPU_AVX512)

    assert len(call.variables) == 1
    assert any(each.is_open for each in walk([call.kernel.sink]) if each.op is Op.RANGE)
    assert not claims


@pytest.fixture
def planned_for_a_gpu(monkeypatch):
    """Kernels that a GPU would be given, each verified, run by the interpreter."""

    def calls_for_a_gpu(roots, device):
        return schedule(roots, SM90A, Options(3, True, False)) if roots else []

    monkeypatch.setattr(planning, "_calls", calls_for_a_gpu)
    with config(device="PYTHON"):
        yield


@pytest.mark.parametrize("name", programs.EXACT)
def test_programs_for_a_gpu_are_exact_at_every_size(name, planned_for_a_gpu):
    compute, expected = programs.EXACT[name]
    for n in (1, 2, *programs.SIZES):
        x = programs.operand(n)
        result = compute(mark_dynamic(Tensor(x), 0, programs.N))

        assert result.tolist() == expected(x.astype(np.float64)).tolist(), f"{n} rows"


@pytest.mark.parametrize("name", programs.CLOSE)
def test_functions_for_a_gpu_are_close_at_every_size(name, planned_for_a_gpu):
    for n in (1, 2, *programs.SIZES):
        x = Tensor(programs.operand(n))
        result = programs.CLOSE[name](mark_dynamic(x, 0, programs.N)).numpy()

        assert_close(result, programs.CLOSE[name](x).uop, {x.uop: programs.operand(n)})


@pytest.mark.parametrize("seed", range(random_programs.PROGRAMS))
def test_random_programs_for_a_gpu_are_those_of_each_fixed_size(seed, planned_for_a_gpu):
    random_programs.assert_serves_every_size(seed)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_ranges_of_one_value_are_none(batch, rows, depth, planned_for_a_gpu):
    values = (np.arange(batch * rows * depth).reshape(batch, rows, depth) % 5 - 2).astype("float32")
    x = Tensor(values)
    for axis, name in enumerate("bmk"):
        x = mark_dynamic(x, axis, Variable(name, 1, 512))

    found = (x @ x.transpose(1, 2)).tolist()

    wanted = np.einsum("bmk,bnk->bmn", *[values.astype(np.float64)] * 2)
    assert found == wanted.tolist()


def test_a_sum_of_one_negative_zero_is_zero(planned_for_a_gpu):
    x = mark_dynamic(Tensor(np.full((2, 1), -0.0, np.float32)), 1, N)

    (total,) = np.unique(np.signbit((x @ Tensor.ones(1, 3)).numpy()))

    assert not total
