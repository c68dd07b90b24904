"""Turns a border around a tensor into a PAD of one value, or into the tensor's own elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tinytensor.errors import ShapeError
from tinytensor.ops.uop import Number
from tinytensor.tensor import nodes
from tinytensor.tensor.axes import flat_sizes
from tinytensor.tensor.host import check_number
from tinytensor.tensor.joining import join
from tinytensor.tensor.slicing import Slicing

Border = tuple[int, int]
MODES = ("constant", "reflect", "replicate", "circular")


def border_ranges(mode: str, extent: int, before: int, after: int) -> tuple[range, range]:
    """Return which elements of an axis lie before it and after it; a replicated one lies once."""
    if mode == "reflect":
        last = extent - 2
        return range(before, 0, -1), range(last, last - after, -1)
    if mode == "circular":
        return range(extent - before, extent), range(after)
    return range(1), range(extent - 1, extent)


class Borders(Slicing):
    """Tensors with a border around them."""

    __slots__ = ()

    def pad(self, pad: Sequence[int], mode: str = "constant", value: Number | None = None) -> Self:
        """Return a border around the last axes; negative sizes crop.

        `pad` is (before, after) of the last axis, then of the one before it, and so on. The border
        is one value, or by mode what lies inside: mirrored, the outermost element, or repeated.
        """
        if mode not in MODES:
            raise ValueError(f"pad: no such mode: {mode!r}; it must be one of {', '.join(MODES)}.")
        sizes = flat_sizes(pad)
        pairs = list(zip(sizes[::2], sizes[1::2], strict=False))
        if len(sizes) % 2 or len(pairs) > self.ndim:
            sentence = f"pad: sizes do not pair with axes: {sizes} for shape {self.shape}"
            raise ShapeError(f"{sentence}; there must be two an axis, for at most all axes.")
        borders = [(0, 0)] * (self.ndim - len(pairs)) + pairs[::-1]
        if mode == "constant":
            return self._bordered(borders, 0 if value is None else value)
        result = self
        if mode == "circular":
            crops = [(min(before, 0), min(after, 0)) for before, after in borders]
            result = self._cropped(crops)
        for axis, border in enumerate(borders):
            if border != (0, 0):
                result = result._continued(mode, axis, border)
        return result

    def diag(self, diagonal: int = 0) -> Self:
        """Return a matrix's diagonal, or the matrix with a vector as its diagonal."""
        if self.ndim == 2:
            return self.diagonal(diagonal)
        if self.ndim != 1:
            sentence = f"diag: neither a vector nor a matrix: shape {self.shape}"
            raise ShapeError(f"{sentence}; ndim must be 1 or 2.")
        extent = self.shape[0] + abs(diagonal)
        before, after = max(diagonal, 0), max(-diagonal, 0)
        rows = self.pad((before, after)).unsqueeze(0)._expanded(0, extent)
        return rows.tril(diagonal).triu(diagonal)

    def _bordered(self, borders: list[Border], value: Number) -> Self:
        cropped = self._cropped(borders)
        fill = check_number("pad", value, self.dtype)
        front = tuple([max(before, 0) for before, _ in borders])
        back = tuple([max(after, 0) for _, after in borders])
        padded = nodes.pad(cropped.uop, front, back, fill)
        return self._wrap(padded)

    def _cropped(self, borders: list[Border]) -> Self:
        kept = []
        for (before, after), extent in zip(borders, self.shape, strict=True):
            kept_extent = min(before, 0) + extent + min(after, 0)
            if before + extent + after < 0 or kept_extent < 0:
                sentence = f"pad: crops more than there is: {before} and {after} of {extent}"
                raise ShapeError(f"{sentence}; an axis must keep 0 elements or more.")
            kept.append(range(max(-before, 0), extent + min(after, 0)))
        return self._wrap(nodes.take_slices(self.uop, kept))

    def _continued(self, mode: str, axis: int, border: Border) -> Self:
        """Return one axis with a border that continues it."""
        extent = self.shape[axis]
        before, after = (max(each, 0) for each in border)
        most = {"reflect": extent - 1, "circular": extent}.get(mode, before + after)
        if max(before, after) > most or extent == 0:
            sentence = f"pad: the border is wider than its source: {border} of {extent}"
            raise ShapeError(f"{sentence}; {mode!r} reaches {max(most, 0)} elements.")
        first, last = border_ranges(mode, extent, before, after)
        head, tail = self._part(axis, first), self._part(axis, last)
        if mode == "replicate":
            head, tail = head._expanded(axis, before), tail._expanded(axis, after)
        parts = [each for each in (head, self, tail) if each.shape[axis]]
        joined = self._wrap(join([each.uop for each in parts], axis))
        if mode == "circular":
            return joined
        crops = [(0, 0)] * self.ndim
        crops[axis] = (min(border[0], 0), min(border[1], 0))
        return joined._cropped(crops)
