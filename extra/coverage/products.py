"""Describes sums of products: matrices, tensors, convolutions and attention."""

from __future__ import annotations

from typing import Any

from extra.coverage.record import FIXED_SHAPES, Example, Record, composed, on, reassociated


def matrices(
    name: str, shapes: str, empty: str, terms: int = 4, spread: str = "", *more: Example
) -> Record:
    """Return a record of a product; shapes are separated by commas."""
    broadcast = (on(*spread.split(",")),) if spread else FIXED_SHAPES
    examples = (on(*shapes.split(",")), *more)
    nothing = (on(*empty.split(",")),)
    return Record(f"Tensor.{name}", examples, reassociated(terms), "", broadcast, nothing)


def contracted(equation: str, *operands: str) -> Example:
    """Return an example of einsum."""

    def call(library: Any, *tensors: Any) -> Any:  # noqa: ANN401 - either library
        return library.einsum(equation, *tensors)

    return on(*operands, call=call)


def convolution(axes: int) -> Record:
    """Return the record of a convolution with every option."""
    places = " ".join(["7", "6", "5"][:axes])
    kernel = " ".join(["3", "2", "2"][:axes])
    pair = (f"2 4 {places}", f"6 4 {kernel}")
    grouped = (f"2 4 {places}", f"6 2 {kernel}", "6")
    examples = (
        on(*pair),
        on(*grouped, stride=2, padding=1, groups=2),
        on(f"4 {places}", f"6 4 {kernel}", "6", dilation=2, padding=2),
        on(*pair, padding="same"),
    )
    empty = (on(f"0 4 {places}", f"6 4 {kernel}"),)
    path = f"nn.functional.conv{axes}d"
    return Record(path, examples, reassociated(48, 4), "", FIXED_SHAPES, empty, is_wider=True)


def attention() -> Record:
    """Return the record of attention: masks, a scale, and shared heads."""
    heads = ("2 4 3 5", "2 4 6 5", "2 4 6 7")
    shared = ("2 4 3 5", "2 2 6 5", "2 2 6 7")
    examples = (
        on(*heads),
        on(*heads, is_causal=True),
        on(*heads, scale=0.25),
        on(*shared, enable_gqa=True),
        on(*heads, "2 1 3 6 any", call=masked),
        on(*heads, "3 6 ties bool", call=masked),
    )
    spread = (on("2 1 3 5", "1 4 6 5", "4 6 7"),)
    empty = (on("0 4 3 5", "0 4 6 5", "0 4 6 7"),)
    path = "nn.functional.scaled_dot_product_attention"
    return Record(path, examples, composed(40, 2), "", spread, empty)


def masked(library: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:  # noqa: ANN401 - either library
    """Call attention with a mask."""
    attend = library.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=mask)


RECORDS = [
    matrices(
        "matmul",
        "3 4,4 5",
        "0 4,4 5",
        4,
        "2 1 3 4,5 4 2",
        on("4", "4"),
        on("2 3 4", "4"),
        on("4", "4 3"),
        on("3 0 any float32", "0 4 any float32"),
    ),
    matrices("mm", "3 4,4 5", "3 0,0 5"),
    matrices("bmm", "2 3 4,2 4 5", "2 3 0,2 0 5"),
    matrices("mv", "3 4,4", "3 0,0"),
    matrices("dot", "7,7", "0,0", 7),
    matrices("outer", "3,4", "0,4", 1),
    matrices("inner", "3 4,5 4", "0 4,5 4", 4),
    matrices(
        "addmm",
        "3 5,3 4,4 5",
        "3 5,3 0,0 5",
        5,
        "5,3 4,4 5",
        on("3 5", "3 4", "4 5", beta=2, alpha=3),
    ),
    matrices("baddbmm", "2 3 5,2 3 4,2 4 5", "2 3 5,2 3 0,2 0 5", 5, "3 1,2 3 4,2 4 5"),
    matrices("kron", "2 3,3 2", "0 2,2 2", 1),
    Record(
        "einsum",
        (
            contracted("ij,jk->ik", "3 4", "4 5"),
            contracted("ii->i", "3 3"),
            contracted("bij,bkj->bik", "2 3 4", "2 5 4"),
            contracted("i,j", "3 any float32", "4 any float32"),
            contracted("...ij->...ji", "2 3 4"),
        ),
        reassociated(5),
        broadcast=(contracted("...ij,...jk->...ik", "2 1 3 4", "5 4 2"),),
        empty=(contracted("ij,jk->ik", "3 0", "0 5"),),
    ),
    Record(
        "tensordot",
        (on("3 4 5", "4 5 2"), on("3 4", "4 5", dims=1), on("3 4", "5 3", dims=([0], [1]))),
        reassociated(20),
        broadcast=FIXED_SHAPES,
        empty=(on("3 0", "0 5", dims=1),),
    ),
    Record(
        "nn.functional.linear",
        (on("3 4", "5 4"), on("2 3 4", "5 4", "5"), on("4", "5 4")),
        reassociated(6),
        broadcast=FIXED_SHAPES,
        empty=(on("0 4", "5 4", "5"),),
    ),
    convolution(1),
    convolution(2),
    convolution(3),
    attention(),
]
