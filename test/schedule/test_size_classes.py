"""Products on a GPU serve a class of sizes, and are right at every size."""

import io

import numpy as np
import pytest
from fuzz import test_open_sizes as random_programs
from tensor import test_open_sizes as programs
from tolerance import assert_close

from tinytensor import Tensor, Variable, jit, mark_dynamic, planning
from tinytensor.ops.extents import index_at
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


def served(claims):
    """The sizes for which all claims hold; they are of one variable."""
    (variable,) = {node for node in walk(claims) if node.op is Op.VARIABLE}
    sizes = range(1, 513)
    return [n for n in sizes if all(index_at(claim, {variable: n}) for claim in claims)]


def test_a_product_of_a_gpu_serves_a_class_of_sizes():
    (call,), claims = product_calls(24, SM90A)

    verify_indexed(call.kernel)
    (variable,) = call.kernel.variables
    assert (variable.attrs.least, variable.attrs.most) == (2, 128)
    assert call.kernel.contraction.extents == (1, 128, 8, 16)
    assert [each.elements for each in call.kernel.params] == [128 * 8, 128 * 16, 16 * 8]
    assert call.kernel.decisions[-1].reason == (
        "tiles are chosen for 2 to 128; one program serves all of them."
    )
    assert served(claims) == list(range(2, 129))


@pytest.mark.parametrize("rows", [2, 3, 127, 128])
def test_the_product_of_a_class_is_the_product(rows):
    (call,), _ = product_calls(rows, SM90A)
    arrays = [np.zeros(128 * 8, np.float32), np.ones(128 * 16, np.float32)]

    run_kernel(call.kernel, [*arrays, np.ones(128, np.float32)], (rows,))

    assert arrays[0].tolist() == [17.0] * (rows * 8) + [0.0] * ((128 - rows) * 8)


def test_one_row_is_no_product():
    (call,), claims = product_calls(1, SM90A)

    assert call.variables == call.kernel.variables == ()
    assert call.kernel.contraction is None
    assert served(claims) == [1]


def test_a_sum_of_any_length_has_no_class():
    x = mark_dynamic(Tensor.ones(16, 24, device="CPU"), 1, N)
    with recorded_claims() as claims:
        (call,) = schedule([(x @ x.T).uop], SM90A, Options(3, True, False))

    assert call.kernel.contraction.extents == (1, 16, 16, 512)
    assert not claims


def test_a_product_of_a_cpu_stays_open():
    (call,), claims = product_calls(24, CPU_AVX512)

    assert len(call.variables) == 1
    assert any(each.is_open for each in walk([call.kernel.sink]) if each.op is Op.RANGE)
    assert not claims


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


FACTOR = (np.arange(10 * 6).reshape(10, 6) % 5 - 2).astype(np.float32)
ADDED = np.arange(10, dtype=np.float32)
JITTED = {
    "gram": (lambda x, w, b: (x @ x.T + 1).relu(), lambda x: np.maximum(x @ x.T + 1, 0)),
    "linear": (lambda x, w, b: x @ w.T + b, lambda x: x @ FACTOR.T + ADDED),
}


@pytest.mark.parametrize("name", JITTED)
def test_two_hundred_sizes_of_a_gpu_take_two_traces_and_few_kernels(name, planned_for_a_gpu):
    compute, expected = JITTED[name]
    traces = io.StringIO()

    def counting(x, w, b):
        traces.write("x")
        return compute(x, w, b)

    weights = (Tensor(FACTOR), Tensor(ADDED))
    jitted, known = jit(counting), set(planning._COMPILED)
    for n in range(2, 602, 3):
        values = programs.operand(n)[:, :6]
        result = jitted(Tensor(values), *weights)

        assert np.array_equal(result.numpy(), expected(values.astype(np.float64))), f"{n} rows"
    assert len(traces.getvalue()) == 2
    assert len(set(planning._COMPILED) - known) == 4  # one size, and three classes


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
