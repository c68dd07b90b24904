"""Turns an equation between subscripts into products of pairs, each summed as soon as it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tinytensor.dtype import DType, dtypes
from tinytensor.errors import DTypeError, ShapeError
from tinytensor.ops.attrs import Combine
from tinytensor.ops.uop import UOp, cast
from tinytensor.records import dataclass
from tinytensor.tensor.axes import broadcast_shapes, check_axis, check_shape, flat_sizes
from tinytensor.tensor.formulas import mul
from tinytensor.tensor.nodes import broadcast, fold, permute, reshape, widen
from tinytensor.tensor.operands import check_devices
from tinytensor.tensor.tensor import Tensor

Labels = tuple[str, ...]
ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor and the label of each of its axes."""

    x: UOp
    labels: Labels


def refuse(what: str, required: str) -> ShapeError:
    """Return the error of an equation that does not fit."""
    return ShapeError(f"einsum: {what}; {required}.")


def split_equation(equation: str, ndims: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Return the labels of each operand's axes and of the result's; those of `...` are numbers.

    Raises: ShapeError.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        what = f"operands and subscripts differ: {len(ndims)} and {len(parts)} in {equation!r}"
        raise refuse(what, "there must be as many of each")
    inputs = [axis_labels(part, ndim) for part, ndim in zip(parts, ndims, strict=True)]
    counts = Counter([label for labels in inputs for label in labels])
    hidden = sorted([each for each in counts if each.isdigit()], key=int, reverse=True)
    if not arrow:
        named = [each for each in counts if not each.isdigit()]
        single = sorted([each for each in named if counts[each] == 1])
        return inputs, (*hidden, *single)
    before, dots, after = right.partition(ELLIPSIS)
    output = (*before, *(hidden if dots else ()), *after)
    unknown = [each for each in output if each not in counts]
    if unknown or len(set(output)) < len(output):
        what = f"the result's subscripts are not clear: {right!r} in {equation!r}"
        raise refuse(what, "each must occur in an operand, and in the result once")
    return inputs, output


def axis_labels(part: str, ndim: int) -> Labels:
    """Return one operand's labels; those of `...` are numbered from the last axis it stands for.

    Raises: ShapeError.
    """
    before, dots, after = part.partition(ELLIPSIS)
    named = before + after
    hidden = ndim - len(named)
    is_named = not named or (named.isascii() and named.isalpha())
    is_counted = hidden >= 0 if dots else hidden == 0
    if not (is_named and is_counted):
        what = f"subscripts do not name the axes: {part!r} for ndim {ndim}"
        raise refuse(what, "there must be a letter for each axis, or '...' for several")
    return (*before, *map(str, reversed(range(hidden))), *after)


def product_of(a: Term, b: Term, kept: set[str]) -> Term:
    """Return the product of two terms, summed over the labels that are not kept.

    DTypes: as those of matmul.
    """
    dtype = a.x.dtype
    a = total(a, kept.union(b.labels), dtype)
    b = total(b, kept.union(a.labels), dtype)
    labels = tuple(dict.fromkeys(a.labels + b.labels))
    x, y = align_axes(a, labels), align_axes(b, labels)
    shape = broadcast_shapes("einsum", [x.shape, y.shape])
    factors = [broadcast(each, shape) for each in (x, y)]
    if dtype.is_float:
        factors = [widen(each) for each in factors]
    return total(Term(mul(*factors), labels), kept, dtype)


def total(term: Term, kept: set[str], dtype: DType) -> Term:
    """Return a term summed over the labels that are not kept, rounded to a dtype."""
    axes = tuple([axis for axis, label in enumerate(term.labels) if label not in kept])
    if not axes:
        return Term(cast(term.x, dtype), term.labels)
    wide = widen(term.x) if dtype.is_float else cast(term.x, dtype)
    left = tuple([label for label in term.labels if label in kept])
    sums = fold(Combine.ADD, wide, axes)
    shape = [n for axis, n in enumerate(sums.shape) if axis not in axes]
    summed = reshape(sums, tuple(shape))
    return Term(cast(summed, dtype), left)


def align_axes(term: Term, labels: Labels) -> UOp:
    """Return a term with its axes in the order of labels, of extent 1 where it has none."""
    own = term.labels
    order = [own.index(label) for label in labels if label in own]
    moved = permute(term.x, tuple(order))
    extents = iter(moved.shape)
    shape = [next(extents) if label in own else 1 for label in labels]
    return reshape(moved, tuple(shape))


def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """Return the sum of products that an equation such as 'ij,jk->ik' writes.

    Operands are multiplied from left to right; halves round after each product.
    """
    tensors: list[Tensor] = []
    for each in operands:
        tensors += [each] if isinstance(each, Tensor) else each
    inputs, output = split_equation(equation, [each.ndim for each in tensors])
    check_devices("einsum", [*tensors])
    pairs = zip(tensors, inputs, strict=True)
    last, *others = (take_diagonals(each, labels) for each, labels in pairs)
    lonely = not others and len(output) < len(last.labels)
    for number, term in enumerate(others, 1):
        check_factors("einsum", last, term)
        ahead = [label for each in others[number:] for label in each.labels]
        last = product_of(last, term, {*output, *ahead})
    dtype = last.x.dtype
    if lonely and not dtype.is_float:
        dtype = dtypes.int64
    summed = total(last, set(output), dtype)
    return tensors[0]._wrap(align_axes(summed, output))


def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[int] | Sequence[Sequence[int]] = 2
) -> Tensor:
    """Return sums of products over so many last and first axes, or over those listed."""
    check_devices("tensordot", [a, b])
    if isinstance(dims, Sequence):
        listed = [flat_sizes((each,)) for each in dims]
    else:
        (count,) = check_shape("tensordot", (dims,))
        listed = [tuple(range(a.ndim - count, a.ndim)), tuple(range(count))]
    counts = [len(each) for each in listed]
    if counts not in [[n, n] for n in range(min(a.ndim, b.ndim) + 1)]:
        sentence = f"tensordot: axes do not pair: {listed} of shapes {a.shape} and {b.shape}"
        raise ShapeError(f"{sentence}; there must be as many of each.")
    rows = [f"a{n}" for n in range(a.ndim)]
    columns = [f"b{n}" for n in range(b.ndim)]
    summed: set[str] = set()
    for each, partner in zip(*listed, strict=True):
        row = check_axis("tensordot", each, a.ndim)
        column = check_axis("tensordot", partner, b.ndim)
        if a.shape[row] != b.shape[column]:
            sentence = f"tensordot: summed sizes differ: {a.shape} and {b.shape}"
            raise ShapeError(f"{sentence}; axes {row} and {column} must have equal extents.")
        columns[column] = rows[row]
        summed.add(rows[row])
    terms = Term(a.uop, tuple(rows)), Term(b.uop, tuple(columns))
    check_factors("tensordot", *terms)
    output = [label for label in rows + columns if label not in summed]
    product = product_of(*terms, set(output))
    return a._wrap(align_axes(product, tuple(output)))


def take_diagonals(tensor: Tensor, labels: Labels) -> Term:
    """Return a tensor's term, with the diagonal of the axes that share a label."""
    x, left = tensor, list(labels)
    for label in labels:
        while left.count(label) > 1:
            first = left.index(label)
            second = left.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                what = f"the axes of {label} differ: shape {tensor.shape}"
                raise refuse(what, "axes with one label must have one extent")
            x = x.diagonal(0, first, second)
            del left[second], left[first]
            left.append(label)
    return Term(x.uop, tuple(left))


def check_factors(who: str, a: Term, b: Term) -> None:
    """Raise DTypeError unless two terms can be multiplied."""
    left, right = a.x.dtype, b.x.dtype
    if left is not right or left is dtypes.bool:
        sentence = f"{who}: dtypes do not multiply: {left.name} and {right.name}"
        raise DTypeError(f"{sentence}; they must be equal and not bool.")
