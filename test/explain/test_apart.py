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


def test_a_kernel_that_reads_another_says_why_it_is_not_one_with_it(found):
    assert found.why_apart(PRODUCT, SOFTMAX) == (
        "reduce[add] f32[16,16,1]: its products are summed in tiles, and a tile need not hold a "
        "whole row that is folded here; a kernel that sums products has no other fold. Joined, "
        "they would spare at most a launch and 2.05 kB of moving."
    )
    (apart,) = found.kernels[SOFTMAX - 1].apart
    assert f"  apart       from kernel 1: {apart.reason}" in str(found.kernels[1]).splitlines()


def test_the_order_of_the_two_does_not_matter(found):
    assert found.why_apart(SOFTMAX, PRODUCT) == found.why_apart(PRODUCT, SOFTMAX)


def test_kernels_side_by_side_are_told_what_would_join_them(found):
    assert found.why_apart(PRODUCT, SUM) == ALONE
    assert found.why_apart(MIXED, SUM) == ALONE


def test_a_kernel_between_two_others_is_named():
    x = ones(12, 12)

    found = explain(lambda: ((x @ x) @ x) @ x, repeats=1)

    assert found.why_apart(1, 3) == "kernel 3 needs the result of kernel 2, which needs kernel 1."


def test_a_way_of_several_kernels_is_told_whole():
    x = ones(12, 12)

    found = explain(lambda: (((x @ x) @ x) @ x) @ x, repeats=1)

    assert found.why_apart(1, 4) == (
        "kernel 4 needs the result of kernel 3, then kernel 2, which needs kernel 1."
    )


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
    assert f"<p>{escape(found.why_apart(SOFTMAX, MIXED))}</p>" in page
