"""A region becomes one kernel: outputs first, unread buffers gone, indices as wide as needed."""

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Tensor, dtypes
from tinytensor.ops.op import Op
from tinytensor.ops.uop import buffer
from tinytensor.schedule.schedule import Options, schedule
from tinytensor.target import CPU_AVX512
from tinytensor.tensor.nodes import apply, broadcast, permute, take_slices

OPTIONS = Options(fuse=3, verify=True, stress=False)
HALF = 2**30
F32 = dtypes.float32


def kernel_of(root):
    """The only kernel of a graph whose buffers have no memory: it is never run."""
    (call,) = schedule([root], CPU_AVX512, OPTIONS)
    return call.kernel


def leaf(*shape, dtype=dtypes.int8):
    return buffer(dtype, shape, "CPU")


def test_indices_are_32_bit_up_to_the_last_element_they_can_count():
    assert kernel_of(apply(Op.NEG, leaf(2, HALF))).index_dtype is dtypes.int32


@pytest.mark.parametrize(
    "root",
    [
        apply(Op.NEG, leaf(2 * HALF + 1)),
        apply(Op.NEG, leaf(46341, 46341)),
        apply(Op.NEG, permute(leaf(46341, 46341), (1, 0))),
        apply(Op.NEG, take_slices(leaf(2 * HALF + 8), [range(2 * HALF, 2 * HALF + 8)])),
        apply(Op.ADD, leaf(3, HALF), broadcast(leaf(1, HALF), (3, HALF))),
    ],
    ids=["one_more", "a_square", "transposed", "a_late_slice", "broadcast"],
)
def test_indices_are_64_bit_where_one_index_needs_it(root):
    assert kernel_of(root).index_dtype is dtypes.int64


def test_a_large_space_over_a_small_buffer_counts_what_it_stores():
    few = take_slices(leaf(2 * HALF - 1), [range(0, 2 * HALF - 1, HALF)])

    assert kernel_of(apply(Op.NEG, few)).index_dtype is dtypes.int32


def test_outputs_come_first():
    a, b = Tensor(np.ones((3, 4), np.float32)), Tensor(np.ones(4, np.float32))
    product = a @ a.T

    (kernel,) = kernels_of(product, product + b[:3])

    assert [param.written for param in kernel.params] == [True, True, False, False]
    assert [param.elements for param in kernel.params] == [9, 9, 12, 4]


def test_a_buffer_that_simplification_leaves_unread_is_no_parameter():
    x, unread = leaf(4, dtype=dtypes.int32), leaf(4, dtype=dtypes.int32)
    nothing = apply(Op.MUL, unread, 0)

    kernel = kernel_of(apply(Op.ADD, nothing, x))

    assert [param.written for param in kernel.params] == [True, False]


def test_kernels_that_do_the_same_to_other_buffers_have_one_sink():
    first, second = (apply(Op.EXP, leaf(5, dtype=F32)) for _ in range(2))

    assert kernel_of(first).sink is kernel_of(second).sink


def test_a_buffer_read_twice_is_not_two_buffers():
    x, y = leaf(5, dtype=F32), leaf(5, dtype=F32)

    assert kernel_of(apply(Op.ADD, x, x)).sink is not kernel_of(apply(Op.ADD, x, y)).sink


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda x: x + 1.0, "pointwise_f32_4x6"),
        (lambda x: x.sum(1), "add_f32_4x6"),
        (lambda x: x.amax(), "max_f32_4x6"),
        (lambda x: x.argmin(1), "argmin_i64_4x6"),
        (lambda x: x @ x.T, "contract_f32_4x4x6"),
        (lambda x: x[0, 0] * 2.0, "pointwise_f32_1"),
    ],
)
def test_a_kernels_name_says_its_kind_its_dtype_and_its_space(program, name):
    assert kernels_of(program(Tensor(np.ones((4, 6), np.float32))))[0].name == name


def test_an_empty_result_needs_no_kernel():
    assert kernels_of(Tensor.zeros(0, 3) + 1.0) == []
