"""Turns parts of a tensor along an axis, its diagonals and its triangles into slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Self

from tinytensor.errors import IndexOutOfRange, ShapeError
from tinytensor.tensor import nodes
from tinytensor.tensor.arranging import Arranging
from tinytensor.tensor.axes import Dims, check_axis, flat_sizes
from tinytensor.tensor.formulas import add, is_at_most
from tinytensor.tensor.joining import join
from tinytensor.tensor.movement import Sizes
from tinytensor.tensor.view import View
from tinytensor.tensor.windows import divide, slide


class Slicing(Arranging):
    """Parts of a tensor."""

    __slots__ = ()

    def _part(self, axis: int, part: nodes.Indices) -> Self:
        slices = [nodes.stretch(0, n) for n in self.shape]
        slices[axis] = part
        return self._seen(self._layout().sliced(slices))

    def _axis(self, who: str, dim: int, error: type[Exception] = IndexOutOfRange) -> int:
        if self.ndim == 0:
            sentence = f"{who}: a 0-d tensor has no axis to take parts of: dim is {dim}"
            raise error(f"{sentence}; ndim must be 1 or more.")
        return check_axis(who, dim, self.ndim)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Return `length` elements of an axis from `start`, which may count from the end."""
        axis = self._axis("narrow", dim, ShapeError)
        extent = self.shape[axis]
        begin = start + extent if start < 0 else start
        if not 0 <= begin <= begin + length <= extent:
            sentence = f"narrow: not within the axis: {length} from {start} of extent {extent}"
            raise ShapeError(f"{sentence}; all must be elements of it.")
        return self._part(axis, nodes.stretch(begin, length))

    def select(self, dim: int, index: int) -> Self:
        """Return one element of an axis; the axis goes."""
        axis = self._axis("select", dim)
        extent = self.shape[axis]
        if not -extent <= index < extent:
            sentence = f"select: out of range: {index} on axis {axis} of extent {extent}"
            raise IndexOutOfRange(f"{sentence}; it must be in {-extent} .. {extent - 1}.")
        begin = index if index >= 0 else index + extent
        return self._part(axis, nodes.stretch(begin, 1)).squeeze(axis)

    def __iter__(self) -> Iterator[Self]:
        if self.ndim == 0:
            raise TypeError("iter: a 0-d tensor has no elements in a row; ndim must be 1 or more.")
        return iter(self.unbind())

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return every element of an axis."""
        axis = self._axis("unbind", dim)
        return tuple([self.select(axis, index) for index in range(self.shape[axis])])

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Return an axis in parts of one size, the last one smaller, or in parts of these sizes."""
        axis = self._axis("split", dim, ShapeError)
        extent = self.shape[axis]
        if isinstance(split_size, Sequence):
            sizes = list(split_size)
        else:
            size = index(split_size)
            if size < 0 or (size == 0 and extent):
                sentence = f"split: the size is too small: {size} for extent {extent}"
                raise ShapeError(f"{sentence}; it must be 1 or more.")
            begins = range(0, extent, size or 1) or (0,)
            sizes = [min(size, extent - begin) for begin in begins]
        if sum(sizes) != extent or min(sizes) < 0:
            sentence = f"split: sizes do not fill the axis: {tuple(sizes)} for extent {extent}"
            raise ShapeError(f"{sentence}; their sum must be the extent.")
        begin, parts = 0, []
        for size in sizes:
            parts.append(self._part(axis, nodes.stretch(begin, size)))
            begin += size
        return tuple(parts)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return an axis in at most so many parts, all but the last of one size."""
        axis = self._axis("chunk", dim, ShapeError)
        if chunks < 1:
            raise ShapeError(f"chunk: too few parts: {chunks}; there must be 1 or more.")
        extent = self.shape[axis]
        return self.split(-(-extent // index(chunks)) if extent else [0] * chunks, axis)

    def unfold(self, dimension: int, size: int, step: int) -> Self:
        """Return windows that slide along an axis; their places are the last axis."""
        axis = check_axis("unfold", dimension, self.ndim)
        x = self.atleast_1d()
        extent = x.shape[axis]
        if not 0 < size <= extent or step < 1:
            sentence = f"unfold: no such window: size {size}, step {step} on extent {extent}"
            raise ShapeError(f"{sentence}; 1 <= size <= extent, and the step must be 1 or more.")
        layout = x._layout()
        stride = layout.strides[axis]
        strides = nodes.replace_axis(layout.strides, axis, stride, stride * step)
        if step < size:
            places = View(slide(layout.expression, axis, size, step), strides, layout.offset)
        else:
            places = View(divide(layout.expression, axis, size, step), strides, layout.offset)
        order = (*range(axis), *range(axis + 1, x.ndim + 1), axis)
        seen = self._seen(places.permuted(order))
        return seen if self.ndim else seen.select(0, 0)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return the elements where two axes have one index, less an offset; as the last axis."""
        first, second = (self._axis("diagonal", each) for each in (dim1, dim2))
        if first == second:
            sentence = f"diagonal: both axes are the same: {dim1} and {dim2}"
            raise ShapeError(f"{sentence}; they must be different.")
        rest = [axis for axis in range(self.ndim) if axis not in (first, second)]
        planes = self._layout().permuted((*rest, first, second))
        return self._seen(planes.diagonal(offset))

    def tril(self, diagonal: int = 0) -> Self:
        """Return the matrices with zeros above a diagonal."""
        return self._triangle("tril", diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """Return the matrices with zeros below a diagonal."""
        return self._triangle("triu", diagonal, lower=False)

    def _triangle(self, who: str, diagonal: int, lower: bool) -> Self:
        if self.ndim < 2:
            sentence = f"{who}: no matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 2 or more.")
        rows, columns = self.shape[-2:]
        row = nodes.broadcast(nodes.reshape(nodes.iota(rows), (rows, 1)), self.shape)
        column = nodes.broadcast(nodes.iota(columns), self.shape)
        last = add(row, diagonal)
        is_kept = is_at_most(column, last) if lower else is_at_most(last, column)
        return self._wrap(nodes.select(is_kept, self.uop, nodes.full_like(self.uop, 0)))

    def roll(self, shifts: Sizes, dims: Dims = None) -> Self:
        """Return elements moved along axes, those at the end to the start; flat without dims."""
        moves, axes = flat_sizes((shifts,)), () if dims is None else flat_sizes((dims,))
        if not axes and len(moves) == 1:
            return self.flatten().roll(moves, 0).reshape(self.shape)
        if len(moves) != len(axes):
            sentence = f"roll: shifts and dims do not pair: {moves} and {axes}"
            raise ShapeError(f"{sentence}; there must be as many of each.")
        result = self._wrap(self.uop)
        for shift, dim in zip(moves, axes, strict=True):
            axis = result._axis("roll", dim)
            extent = result.shape[axis]
            start = -shift % max(extent, 1)
            if start:
                tail = result._part(axis, range(start, extent))
                head = result._part(axis, range(start))
                result = self._wrap(join([tail.uop, head.uop], axis))
        return result
