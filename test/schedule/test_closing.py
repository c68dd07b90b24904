"""Products for matrix instructions are closed over the sizes of the moment, and stay right."""

import numpy as np

from tinytensor import Tensor, Variable, mark_dynamic
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
