"""Why two kernels of a schedule are not one, told for any pair."""

from html import escape

import numpy as np
import pytest

from tinytensor import Tensor, explain


def ones(*shape):
    return Tensor(np.ones(shape, np.float32)).realize()


def chain(x, y):
    """A product, its rows' softmax, a product with those, and a sum that reads none of it."""
    return (x @ y).softmax(-1) @ y, (y.T * 2.0).sum(0)


PRODUCT, SOFTMAX, MIXED, SUM = 1, 2, 3, 4
ALONE = (
    "neither needs what the other makes; kernels side by side are one where they fold the same "
    "rows, or give elements of one shape that read the same elements."
)


@pytest.fixture(scope="module")
def found():
    found = explain(chain, ones(16, 16), ones(16, 16), repeats=1)
    kinds = [each.kernel.name.partition("_f32")[0] for each in found.kernels]
    assert kinds == ["contract", "max_add", "contract", "add"]
    return found


def test_a_fold_that_is_read_is_stored_and_what_declined_says_why(found):
    assert found.why_apart(PRODUCT, SOFTMAX) == [
        "reduce[add] f32[16,16,1] lies between them: read 3 times by 2 kernels; a fold is never "
        "computed twice.",
        "sub f32[16,16] of kernel 2 is not in kernel 1: another operand is computed later, from "
        "this kernel's result.",
    ]


def test_the_order_of_the_two_does_not_matter(found):
    assert found.why_apart(SOFTMAX, PRODUCT) == found.why_apart(PRODUCT, SOFTMAX)


def test_a_product_of_matrices_says_that_it_shares_no_kernel(found):
    assert found.why_apart(SOFTMAX, MIXED)[-1] == (
        "kernel 3 is a product of matrices: no other fold shares its kernel."
    )


def test_kernels_side_by_side_are_told_what_would_join_them(found):
    assert found.why_apart(PRODUCT, SUM) == [ALONE]
    assert found.why_apart(MIXED, SUM) == [ALONE]


def test_a_kernel_between_two_others_is_named():
    x = ones(12, 12)

    found = explain(lambda: ((x @ x) @ x) @ x, repeats=1)

    assert found.why_apart(1, 3) == ["kernel 3 needs the result of kernel 2, which needs kernel 1."]


def test_a_fold_over_other_rows_is_another_kernel():
    x = ones(64, 64)

    found = explain(lambda: x.sum(1).sum(0), repeats=1)

    first, second = found.kernels
    assert found.why_apart(first.number, second.number) == [
        "reduce[add] f32[64,1] lies between them: read once by 1 kernel; a fold is never computed "
        "twice.",
        "kernel 2 folds other rows than kernel 1 makes.",
    ]


def test_elements_read_at_other_places_are_another_kernel():
    x = ones(6, 5)

    found = explain(lambda: x.sum(1).flip(0) + 1.0, repeats=1)

    assert found.why_apart(1, 2)[-1] == "kernel 2 reads at other places than kernel 1 makes."


@pytest.mark.parametrize("pair", [(0, 1), (1, 5), (2, 2)])
def test_a_number_that_no_kernel_has_is_refused(found, pair):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole sentence is compared
        found.why_apart(*pair)

    assert str(caught.value) == (
        f"why_apart: these are no two kernels: {pair[0]} and {pair[1]}; there are those from 1 "
        "to 4."
    )


def test_the_page_says_it_at_each_kernel_that_is_read(found):
    page = found.to_html()

    assert page.count("; why they are two</summary>") == 3
    assert all(f"<li>{escape(told)}</li>" in page for told in found.why_apart(SOFTMAX, MIXED))
