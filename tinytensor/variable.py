"""Sizes and places that are known only when a program runs, so that it serves them all."""

from __future__ import annotations

import operator
from weakref import WeakValueDictionary

from tinytensor.errors import ValueOutOfRange
from tinytensor.ops.size import bind, size_of
from tinytensor.ops.uop import UOp

LARGEST = 2**31 - 1


class Variable:
    """A number between two ends: one program is made for all of its values.

    Bound to a value it can be used like an int, in shapes, slices and arithmetic. Kernels are given
    the value at each launch. Wherever Python itself needs the number, or a branch depends on it
    that the ends do not decide, a program serves only values for which that is the same.

    >>> n = Variable("n", 1, 4096)
    >>> n.bind(5) + 1
    6
    """

    __slots__ = ("_bound", "max", "min", "multiple_of", "name")

    def __init__(self, name: str, min: int, max: int, multiple_of: int = 1) -> None:
        ends = (operator.index(min), operator.index(max))
        if not 0 <= ends[0] <= ends[1] <= LARGEST or multiple_of < 1:
            sentence = f"variable: {name!r} has no such values: {min} to {max}, of {multiple_of}"
            raise ValueOutOfRange(f"{sentence}; 0 <= min <= max, and multiple_of must be above 0.")
        self.name = name
        self.min, self.max = ends
        self.multiple_of = multiple_of
        self._bound: WeakValueDictionary[int, UOp] = WeakValueDictionary()

    def __repr__(self) -> str:
        multiple = f", multiple_of={self.multiple_of}" if self.multiple_of > 1 else ""
        return f"Variable({self.name!r}, {self.min}, {self.max}{multiple})"

    def bind(self, value: int) -> int:
        """Return the variable with a value, to be used like an int."""
        value = operator.index(value)
        if not self.min <= value <= self.max or value % self.multiple_of:
            sentence = f"variable: not a value of {self!r}: {value}"
            raise ValueOutOfRange(f"{sentence}; it must be between the ends, and a multiple.")
        step = self.multiple_of
        variable = self._bound.get(value)
        if variable is None:
            variable = bind(-(-self.min // step), self.max // step, value // step)
            self._bound[value] = variable
        return size_of(variable * step, {variable: value // step})
