"""Turns a name into an element type: its kind, width, value range, NumPy twin and promotion."""

from __future__ import annotations

import math
import struct
from functools import cache, cached_property
from typing import Final, Literal

import numpy as np

from tinytensor.errors import DTypeError
from tinytensor.records import dataclass

Kind = Literal["bool", "uint", "int", "float", "index", "void"]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type; `lanes` is above 1 only in LINEAR form. Equal means identical.

    It has no slots: what every node asks is found out once and kept.

    Units: `bits` of one lane.
    """

    name: str
    kind: Kind
    bits: int
    lanes: int = 1

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one stored element (of one lane)."""
        return max(1, self.bits // 8)

    @cached_property
    def is_float(self) -> bool:
        """Whether values are floating point."""
        return self.kind == "float"

    @cached_property
    def is_int(self) -> bool:
        """Whether values are integers, signed or not; `bool` is not one."""
        return self.kind in ("int", "uint", "index")

    @cached_property
    def is_half(self) -> bool:
        """Whether arithmetic widens to float32 per op and rounds once."""
        return self.kind == "float" and self.bits == 16

    @cached_property
    def scalar(self) -> DType:
        """The same type with one lane."""
        return self if self.lanes == 1 else BY_NAME[self.name.rpartition("x")[0]]

    def vector(self, lanes: int) -> DType:
        """The same type with that many lanes."""
        return self.scalar if lanes == 1 else _vector(self.scalar, lanes)

    @cached_property
    def min(self) -> int | float:
        """The least value: an integer's, or -inf."""
        if self.kind == "float":
            return -math.inf
        if self.kind == "index":
            return -(2**62)
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @cached_property
    def max(self) -> int | float:
        """The greatest value: an integer's, or inf."""
        if self.kind == "float":
            return math.inf
        if self.kind == "index":
            return 2**62
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1

    @property
    def value_numpy(self) -> np.dtype[np.generic]:
        """The NumPy type that holds its values (bfloat16: float32; index: int64)."""
        return np.dtype(_VALUE_NUMPY[self.scalar.name])

    @property
    def storage_numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of its bytes in memory (bfloat16: uint16)."""
        return np.dtype(np.uint16) if self.scalar.name == "bfloat16" else self.value_numpy

    @property
    def epsilon(self) -> float:
        """The gap between 1 and the next value; 0 for types that are not floating point."""
        return 2.0 ** -MANTISSA_BITS[self.scalar.name] if self.kind == "float" else 0.0


@cache
def _vector(scalar: DType, lanes: int) -> DType:
    return DType(f"{scalar.name}x{lanes}", scalar.kind, scalar.bits, lanes)


class dtypes:  # noqa: N801 - reads as a namespace: dtypes.float32
    """The element types a user may name, and the compiler's own `index` and `void`."""

    bool: Final = DType("bool", "bool", 1)
    uint8: Final = DType("uint8", "uint", 8)
    uint16: Final = DType("uint16", "uint", 16)
    uint32: Final = DType("uint32", "uint", 32)
    uint64: Final = DType("uint64", "uint", 64)
    int8: Final = DType("int8", "int", 8)
    int16: Final = DType("int16", "int", 16)
    int32: Final = DType("int32", "int", 32)
    int64: Final = DType("int64", "int", 64)
    float16: Final = DType("float16", "float", 16)
    bfloat16: Final = DType("bfloat16", "float", 16)
    float32: Final = DType("float32", "float", 32)
    float64: Final = DType("float64", "float", 64)
    half: Final = float16
    float: Final = float32
    double: Final = float64
    short: Final = int16
    int: Final = int32
    long: Final = int64
    # The compiler's own: exact integers of the indexed form, and the type of an effect.
    index: Final = DType("index", "index", 64)
    void: Final = DType("void", "void", 0)


USER_DTYPES: Final = (
    dtypes.bool,
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
)
BY_NAME: Final = {dtype.name: dtype for dtype in (*USER_DTYPES, dtypes.index, dtypes.void)}
MANTISSA_BITS: Final = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
_VALUE_NUMPY: Final = {
    **{dtype.name: dtype.name for dtype in USER_DTYPES},
    **{"bfloat16": "float32", "index": "int64"},
}
_FLOAT_FORMATS: Final = {"float16": "<e", "float32": "<f", "float64": "<d"}


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """Return the element type of a NumPy array's dtype.

    Raises: DTypeError for a NumPy type without a twin (complex, object, strings, dates).
    """
    found = BY_NAME.get(dtype.name)
    if found is None:
        names = ", ".join(each.name for each in USER_DTYPES)
        raise DTypeError(f"dtype: no type for NumPy's {dtype.name}; known are {names}.")
    return found


def encode(dtype: DType, value: bool | int | float) -> int:
    """Return the bits of a value in a type; integers wrap, floats round to nearest even."""
    if dtype.kind == "index":
        return int(value)
    if dtype.kind == "bool":
        return int(bool(value))
    if dtype.is_int:
        return int(value) & ((1 << dtype.bits) - 1)
    if dtype.name == "bfloat16":
        return int(round_to_bfloat16(np.array([value], np.float32)).view(np.uint32)[0]) >> 16
    try:
        packed = struct.pack(_FLOAT_FORMATS[dtype.name], value)
    except OverflowError:  # what rounds to infinity, and integers beyond float64
        packed = struct.pack(_FLOAT_FORMATS[dtype.name], math.inf if value > 0 else -math.inf)
    return int.from_bytes(packed, "little")


def decode(dtype: DType, bits: int) -> bool | int | float:
    """Return the value that bits mean in a type, as a Python number."""
    if dtype.kind == "index":
        return bits
    if dtype.kind == "bool":
        return bool(bits)
    if dtype.is_int:
        sign = 1 << (dtype.bits - 1)
        return (bits ^ sign) - sign if dtype.kind == "int" else bits
    if dtype.name == "bfloat16":
        return decode(dtypes.float32, bits << 16)
    unpacked: float = struct.unpack(
        _FLOAT_FORMATS[dtype.name], bits.to_bytes(dtype.itemsize, "little")
    )[0]
    return unpacked


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to the nearest bfloat16, ties to even, NaN kept quiet; float32 again."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = bits | np.uint32(0x400000)
    kept = np.where(np.isnan(values), quiet, rounded) & np.uint32(0xFFFF0000)
    return kept.astype(np.uint32).view(np.float32)


_ORDER: Final = {"bool": 0, "uint": 1, "int": 1, "float": 2}


@cache
def promote(a: DType, b: DType) -> DType:
    """Return the type both operands of an elementwise op are cast to (PyTorch's table).

    Raises: DTypeError for uint64 with a signed integer, which no integer type covers.
    """
    if a is b:
        return a
    if _ORDER[a.kind] != _ORDER[b.kind]:
        return a if _ORDER[a.kind] > _ORDER[b.kind] else b
    if a.is_float and a.bits == b.bits:
        return dtypes.float32
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise DTypeError(
            f"promote: no integer type covers both: {a.name} and {b.name}; cast one of them first."
        )
    return BY_NAME[f"int{2 * unsigned.bits}"]
