"""Typed static attributes of nodes, validated when a node is built."""

from __future__ import annotations

from enum import Enum, unique
from typing import Any, ClassVar, Protocol

from tinytensor.dtype import DType
from tinytensor.records import dataclass


@unique
class Combine(Enum):
    """The associative operations a reduction folds with."""

    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    ARGMAX = "argmax"
    ARGMIN = "argmin"

    __hash__ = object.__hash__

    def identity(self, dtype: DType) -> int | float:
        """Return what changes nothing that it is folded with; of argmax, the value to begin from.

        >>> from tinytensor.dtype import dtypes
        >>> Combine.MAX.identity(dtypes.int8), Combine.MUL.identity(dtypes.float32)
        (-128, 1)
        """
        whole = {Combine.ADD: 0, Combine.OR: 0, Combine.MUL: 1, Combine.AND: -1}
        least = dtype.min if self in (Combine.MAX, Combine.ARGMAX) else dtype.max
        return whole.get(self, least)


POSITIONS = frozenset((Combine.ARGMAX, Combine.ARGMIN))  # what gives no value, but its place


@dataclass(frozen=True, slots=True)
class ConstAttrs:
    """The bits of a constant in its node's dtype, so that 0.0, -0.0 and NaN never meet."""

    bits: int


@dataclass(frozen=True, slots=True)
class BufferAttrs:
    """One allocation: `serial` is unique, so two equal leaves stay two."""

    serial: int
    shape: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class ShapeAttrs:
    """The result's shape (RESHAPE, EXPAND)."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OrderAttrs:
    """PERMUTE: result axis i is operand axis order[i]."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs:
    """SLICE: along each axis, result element i is operand element begin + i * step.

    `extent` is the result's shape. A negative step walks backwards (a flip).
    """

    begin: tuple[int, ...]
    step: tuple[int, ...]
    extent: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """PAD: elements added before and after, per axis; none is negative."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DetachAttrs:
    """DETACH: 0 ends gradients; any other serial is a place of its own, told apart by it."""

    serial: int

    @property
    def is_differentiable(self) -> bool:
        """Whether the node requires a gradient, or sends it to what does."""
        return self.serial != 0


@dataclass(frozen=True, slots=True)
class CheckAttrs:
    """CHECK: the operation whose indices these are, along which axis, and least <= x < end."""

    who: str
    axis: int
    least: int
    end: int


@dataclass(frozen=True, slots=True)
class GatherAttrs:
    """GATHER: the axes of x along which an index operand says what to read, one for each."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExtentAttrs:
    """IOTA: the number of values, 0 .. extent - 1."""

    extent: int


@dataclass(frozen=True, slots=True)
class VariableAttrs:
    """VARIABLE: which scalar it is, and of an integer its ends."""

    number: int
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """REDUCE: how to fold, and over which axes (TENSOR form; in INDEXED form ranges are operands).

    Reduced axes stay, with extent 1.
    """

    combine: Combine
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceAttrs:
    """COPY: the device the result lives on."""

    device: str


@dataclass(frozen=True, slots=True)
class RunAttrs:
    """RUN: which result this is of what the host runs, deciding on its way what to launch.

    What that is, a subclass says: it is made of whole programs.
    """

    number: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ParamAttrs:
    """PARAM: the kernel's buffer number, and its size in elements."""

    number: int
    elements: int


@dataclass(frozen=True, slots=True)
class RangeAttrs:
    """RANGE: a loop variable 0 .. extent - 1, told apart by its number.

    With an operand that is the extent, known only at launch, `extent` is the most it can be.
    """

    number: int
    extent: int


@dataclass(frozen=True, slots=True)
class ContractAttrs:
    """CONTRACT: numbers of the ranges of each class, and the accumulator's dtype."""

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    accumulate: DType


@dataclass(frozen=True, slots=True)
class EffectAttrs:
    """LINEAR: `order` is unique per effect, so interning never merges two of them."""

    order: int


@dataclass(frozen=True, slots=True)
class AccessAttrs:
    """LINEAR load or store of `valid` leading lanes; other lanes read 0 and are not written."""

    order: int
    valid: int


@dataclass(frozen=True, slots=True)
class LoopAttrs:
    """LINEAR loop: unique order, step of the variable, and how far to unroll (1: not at all)."""

    order: int
    step: int
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class WorkspaceAttrs:
    """LINEAR scratch memory: a region of the launch's workspace.

    Units: `offset_bytes` from its start, `elements` of the node's dtype.
    """

    offset_bytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class LanesAttrs:
    """SHUFFLE: lane i of the result is lane lanes[i] of the operands laid end to end."""

    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallAttrs:
    """CALL: the C library's name for the float64 function, without the suffix of other types."""

    function: str


class Attrs(Protocol):
    """Any of these dataclasses, or of those in `attrs_blocks`; the op table says whose they are."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: what dataclasses keep there is their own
