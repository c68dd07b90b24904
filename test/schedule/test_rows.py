"""Kernels over the same rows are joined where that is right and a gain, and the record says so."""

import numpy as np
import pytest
from schedule.reading import apart_lines, decisions_of, kernels_of, leaf_values
from tolerance import assert_close

import tinytensor.nn.functional as F
from tinytensor import Tensor, dtypes
from tinytensor.config import config
from tinytensor.ops.op import Op
from tinytensor.ops.ranges import folded_ranges
from tinytensor.ops.uop import walk
from tinytensor.target import CPU_AVX512, SM90A

ROWS, COLUMNS = 6, 40


def numbers(*shape, dtype=dtypes.float32):
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return Tensor(values).cast(dtype).realize()


def matrix(columns=COLUMNS):
    return numbers(ROWS, columns)


def targets():
    return Tensor(np.arange(ROWS) % COLUMNS).realize()


def gradients(f, *parameters):
    """The gradients of f under given ones of its result."""
    for each in parameters:
        each.requires_grad_(True)
    result = f(*parameters)
    result.backward(numbers(*result.shape))
    return [each.grad for each in parameters]


def norm(x, w, b):
    return F.layer_norm(x, (COLUMNS,), w, b)


def block():
    """Half a transformer block: two products around an activation, and what is added again."""
    x, up, down = matrix(), numbers(64, COLUMNS), numbers(COLUMNS, 64)
    return [x + F.linear(F.gelu(F.linear(x, up, numbers(64))), down, numbers(COLUMNS))]


def residual():
    x, bias = matrix() + numbers(COLUMNS), numbers(COLUMNS)
    return [x, norm(x * 2.0, numbers(COLUMNS), bias).relu()]


ONE = {
    "softmax": lambda: [matrix().softmax(-1)],
    "softmax of a scaled sum": lambda: [(matrix() * 0.5 + numbers(COLUMNS)).softmax(1).relu()],
    "softmax of columns": lambda: [matrix().softmax(0)],
    "softmax in halves": lambda: [numbers(ROWS, COLUMNS, dtype=dtypes.bfloat16).softmax(1)],
    "log_softmax": lambda: [matrix().log_softmax(-1)],
    "logsumexp": lambda: [matrix().logsumexp(-1)],
    "var": lambda: [matrix().var(-1)],
    "var and mean": lambda: list(matrix().var_mean(-1)),
    "std of all": lambda: [matrix().std()],
    "layer_norm": lambda: [norm(matrix() + matrix(), numbers(COLUMNS), numbers(COLUMNS)).relu()],
    "a residual and its norm": residual,
    "rms_norm": lambda: [F.rms_norm(matrix(), (COLUMNS,), numbers(COLUMNS))],
    "group_norm": lambda: [F.group_norm(numbers(2, 6, 4, 5), 3, numbers(6), numbers(6))],
    "batch statistics": lambda: [F.batch_norm(numbers(4, 3, 5), None, None, training=True)],
    "the gradient of softmax": lambda: gradients(lambda x: x.softmax(1), matrix()),
    "the gradient of log_softmax": lambda: gradients(lambda x: x.log_softmax(1), matrix()),
}
TWO = {
    "cross_entropy": lambda: [F.cross_entropy(matrix(), targets())],
    "the gradients of layer_norm": lambda: gradients(
        norm, matrix(), numbers(COLUMNS), numbers(COLUMNS)
    ),
    "the gradients of rms_norm": lambda: gradients(
        lambda x, w: F.rms_norm(x, (COLUMNS,), w), matrix(), numbers(COLUMNS)
    ),
    "a transformer's MLP": block,
}


KERNELS = {**dict.fromkeys(ONE, 1), **dict.fromkeys(TWO, 2)}
PROGRAMS = {**ONE, **TWO}


@pytest.mark.parametrize("target", [CPU_AVX512, SM90A], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_take_few_kernels(name, target):
    assert len(kernels_of(*PROGRAMS[name](), fuse=2, target=target)) == KERNELS[name]


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"a transformer's MLP"}))
def test_below_level_2_each_reduction_has_a_kernel(name):
    assert len(kernels_of(*PROGRAMS[name](), fuse=1)) > KERNELS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_row_kernel_gives_what_the_graph_says(name):
    results = PROGRAMS[name]()
    expressions = [(each.uop, leaf_values(each)) for each in results]

    first, *rest = results
    first.realize(*rest)

    for result, (root, arrays) in zip(results, expressions, strict=True):
        assert_close(result.float().numpy(), root, arrays)


@pytest.mark.parametrize("columns", [1, 7, 64, 1000, 4096, 100_000])
def test_a_row_of_any_length_is_right(columns):
    x = numbers(2, columns)
    y = F.layer_norm((x * 2.0).softmax(1), (columns,))

    root, arrays = y.uop, leaf_values(y)

    assert_close(y.numpy(), root, arrays)


def folds_of(kernel):
    return [node for node in walk((kernel.sink,)) if node.op is Op.REDUCE]


def test_the_folds_of_a_row_run_over_the_same_range():
    (kernel,) = kernels_of(matrix().softmax(1))

    maximum, total = folds_of(kernel)

    assert folded_ranges(maximum) == folded_ranges(total)
    assert [each.extent for each in kernel.ranges] == [ROWS, COLUMNS]


def test_what_only_the_kernel_itself_reads_is_not_stored():
    (kernel,) = kernels_of(matrix().softmax(1))

    assert [(param.elements, param.written) for param in kernel.params] == [
        (ROWS * COLUMNS, True),
        (ROWS * COLUMNS, False),
    ]


@pytest.mark.parametrize("shape", [(8, 16), (64, 64), (256, 1024)], ids=str)
def test_a_chain_of_row_kernels_repeats_a_few_of_them(shape):
    x = numbers(*shape)
    for _ in range(120):
        x = x.softmax(-1)

    kernels = kernels_of(x)

    assert len(kernels) <= 30  # 240 folds, at least 8 a kernel
    assert len({each.sink for each in kernels}) <= 6  # both ends, and a cycle between them


def test_a_row_kernel_says_what_it_spares():
    moved = 4 * ROWS * COLUMNS * 4  # one more read of x; the exponentials and two reads of them
    moved += 4 * ROWS * 4  # the maximum and the sum, and a read of each

    (fused,) = [each for each in decisions_of(matrix().softmax(1), kind="fuse") if "rows" in each]

    assert fused == (
        f"fuse reduce[max] f32[{ROWS},1]: 4 kernels over the same rows are one: reduce[max] "
        f"f32[{ROWS},1], exp f32[{ROWS},{COLUMNS}], reduce[add] f32[{ROWS},1], div "
        f"f32[{ROWS},{COLUMNS}]; {moved / 1000:.3g} kB less to move, from one to another and of "
        "what several read."
    )


def test_a_result_that_others_read_is_stored_too():
    x = matrix()
    highest = x.amax(1, keepdim=True)

    kernels = kernels_of(highest, (x - highest).exp().sum(1), x.softmax(1))

    assert [len(kernel.sink.operands) for kernel in kernels] == [3]


def test_folds_of_other_axes_stay_apart():
    x = matrix()

    assert len(kernels_of(x.sum(0) + 1.0, x.sum(1))) == 2


def test_a_value_read_at_another_place_is_stored():
    x = numbers(ROWS, ROWS)
    crossed = x - x.amax(1, keepdim=True).transpose(0, 1)
    turned = x.softmax(1).flip(0) + x

    assert len(kernels_of(crossed.sum(1))) == 2
    assert len(kernels_of(turned)) > 1


def test_a_row_waits_for_no_kernel_between():
    x, w = numbers(COLUMNS, COLUMNS), numbers(COLUMNS, COLUMNS)
    shares = x.softmax(1)

    kernels = kernels_of(shares, (shares @ w + x).softmax(1) + shares.sum(1, keepdim=True))

    assert [kernel.contraction is not None for kernel in kernels].count(True) == 1
    assert len(kernels) == 3


def test_nothing_stored_is_computed_again_for_a_row_too_long_to_keep():
    x, bias = numbers(2, 200_000), numbers(200_000)
    total = x + bias

    (told,) = apart_lines(total, total.softmax(1))

    assert told == (
        "kernel 2 from kernel 1: add f32[2,200000]: add f32[2,200000] would be computed again: no "
        "row of it stays on chip. Joined, they would spare at most a launch and 3.2 MB of moving."
    )


def test_long_columns_are_read_in_rows():
    x = numbers(40_000, 3)

    told = apart_lines(x.softmax(0))

    assert len(kernels_of(x.softmax(0))) > 1
    assert any("columns this long" in each for each in told)


def test_a_kernel_does_not_outgrow_the_target():
    x = matrix()
    for _ in range(40):
        x = (x * numbers(COLUMNS)).softmax(1)

    assert all(len(kernel.params) < 40 for kernel in kernels_of(x))
    assert len(kernels_of(x)) > 1


def test_rows_that_share_only_a_small_value_stay_apart():
    x, y, scale = matrix(), numbers(COLUMNS, ROWS).T, numbers(1)
    one, other = [each.sum(1) * scale for each in (x, y + 0.0)]

    assert len(kernels_of(one, other)) == 2
    assert len(kernels_of(one, x.amax(1))) == 1


def test_level_1_and_2_agree_bit_for_bit_on_integers():
    x = Tensor(np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS) % 7)
    program = {level: (x - x.amax(1, keepdim=True)) * x.sum(1, keepdim=True) for level in (1, 2)}

    for level, result in program.items():
        with config(fuse=level):
            result.realize()

    np.testing.assert_array_equal(program[1].numpy(), program[2].numpy())
