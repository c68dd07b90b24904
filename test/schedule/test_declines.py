"""Every reason for which a sum of products is left alone, or a value is stored, as a whole text."""

import numpy as np
import pytest
from schedule.reading import decisions_of, kernels_of

from tinytensor import Tensor, dtypes


def ones(*shape, dtype=dtypes.float32):
    return Tensor(np.ones(shape, np.float32), dtype=dtype)


def rounded_product():
    x, y = ones(4, 3, dtype=dtypes.float16), ones(4, 3, dtype=dtypes.float16)
    return (x.unsqueeze(1) * y.unsqueeze(0)).cast(dtypes.float32).sum(-1)


def masked_product():
    x, y = ones(4, 1, 3), ones(1, 5, 3)
    mask = Tensor.arange(3).reshape(1, 1, 3).expand(4, 5, 3) < 2
    return (x * y).where(mask, Tensor.zeros(4, 5, 3)).sum(-1)


def matrix_vector():
    return ones(4, 3).matmul(ones(3))


def vector_matrix():
    return ones(3).matmul(ones(3, 4))


def batch_of_dots():
    x, y = ones(4, 3), ones(4, 3)
    return (x * y).sum(-1)


def lonely_range():
    x, y = ones(4, 1, 3, 2), ones(1, 5, 3, 1)
    return (x * y).sum((2, 3))


def result_range_of_neither():
    x, y = ones(4, 1, 1, 3), ones(1, 5, 1, 3)
    return (x * y).expand(4, 5, 6, 3).sum(-1)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            rounded_product,
            "the product is rounded to float16 before it is summed in float32; cast the factors "
            "first.",
        ),
        (masked_product, "the product is masked before it is summed; mask a factor instead."),
        (matrix_vector, "the product has no n range: a matrix-vector product."),
        (vector_matrix, "the product has no m range: a matrix-vector product."),
        (batch_of_dots, "neither factor has a range of its own: a batch of dot products."),
        (
            lonely_range,
            "one factor alone reads the folded range r7<2; both must, or it is a sum of its own.",
        ),
        (
            result_range_of_neither,
            "neither factor reads range r2<6, so it is no axis of the product.",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_sum_of_products_that_is_no_contraction_says_why(program, reason):
    tensor = program()

    declines = decisions_of(tensor, kind="decline")

    assert declines == [f"decline contraction: {reason}"]


def test_a_value_read_at_two_places_is_stored():
    product = ones(4, 3).matmul(ones(3, 4))

    declines = decisions_of(product + product.T, kind="decline")

    assert declines == [
        "decline add f32[4,4]: it reads two different elements of the result; the result is stored."
    ]


def test_an_operand_that_waits_for_the_result_is_not_fused():
    product = ones(4, 3).matmul(ones(3, 4))
    total = product.sum(1, keepdim=True)

    declines = decisions_of(product + total, kind="decline")

    assert declines == [
        "decline add f32[4,4]: its operand reduce[add] f32[4,1] is computed by a later kernel, "
        "from this kernel's result."
    ]


def test_a_long_chain_is_cut_at_the_kernels_limit():
    x = ones(8)
    for _ in range(900):
        x = x + 1.0

    kernels = kernels_of(x)

    assert len(kernels) == 2
    assert decisions_of(x, kind="store")[0] == (
        "store add f32[8]: a kernel holds at most 512 ops, a read counted as 16."
    )
