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
    def is_narrow(self) -> bool:
        """Whether arithmetic widens to float32 per op and rounds once."""
        return self.kind == "float" and self.bits < 32

    @cached_property
    def is_half(self) -> bool:
        """Whether it is a narrow float of 16 bits."""
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
        """The NumPy type that holds its values (index: int64); its own for each narrow width."""
        return np.dtype(_VALUE_NUMPY[self.scalar.name])

    @property
    def storage_numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of its bytes in memory (bfloat16: uint16; float8: uint8)."""
        is_unknown = self.is_narrow and self.scalar.name != "float16"
        return np.dtype(f"uint{self.bits}") if is_unknown else self.value_numpy

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
    float8_e4m3fn: Final = DType("float8_e4m3fn", "float", 8)
    float8_e5m2: Final = DType("float8_e5m2", "float", 8)
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
    *(dtypes.float8_e4m3fn, dtypes.float8_e5m2),
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
)
BY_NAME: Final = {dtype.name: dtype for dtype in (*USER_DTYPES, dtypes.index, dtypes.void)}


@dataclass(frozen=True, slots=True)
class NarrowFormat:
    """How a float lies within float32: so many bits of mantissa, and another bias.

    Bits without a sign that are `special` or more are no finite number; from `limit` on a number
    becomes `overflow`.
    """

    mantissa: int
    bias: int
    special: int
    overflow: int
    nan: int
    limit: float


NARROW_FORMATS: Final = {
    "float8_e4m3fn": NarrowFormat(3, 7, 0x7F, 0x7E, 0x7F, 464.0),
    "float8_e5m2": NarrowFormat(2, 15, 0x7C, 0x7C, 0x7F, 61440.0),
    "float16": NarrowFormat(10, 15, 0x7C00, 0x7C00, 0x7E00, 65520.0),
}
MANTISSA_BITS: Final = {
    **{name: each.mantissa for name, each in NARROW_FORMATS.items()},
    **{"bfloat16": 7, "float32": 23, "float64": 52},
}
_VALUE_NUMPY: Final = {
    **{dtype.name: dtype.name for dtype in USER_DTYPES},
    **{"bfloat16": "float32", "index": "int64"},
    **{"float8_e4m3fn": "float32", "float8_e5m2": "float16"},
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
        return _encode_float(dtype, value)
    except OverflowError:  # what rounds to infinity, and integers beyond float64
        return _encode_float(dtype, math.inf if value > 0 else -math.inf)


def _encode_float(dtype: DType, value: int | float) -> int:
    if dtype.bits == 8:
        return int(float8_bits(np.array([float(value)]), dtype)[0])
    return int.from_bytes(struct.pack(_FLOAT_FORMATS[dtype.name], value), "little")


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
    if dtype.is_float and dtype.bits == 8:
        return float(float8_values(np.array([bits]), dtype)[0])
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


@cache
def _float8_table(dtype: DType) -> np.ndarray:
    """Return the values of the 256 bit patterns, in float64."""
    shape = NARROW_FORMATS[dtype.scalar.name]
    exponent, fraction = np.divmod(np.arange(128), 1 << shape.mantissa)
    digits = fraction + np.where(exponent > 0, 1 << shape.mantissa, 0)
    values = np.ldexp(digits, np.maximum(exponent, 1) - shape.bias - shape.mantissa)
    values[shape.special :] = np.nan
    if shape.overflow == shape.special:
        values[shape.special] = np.inf
    return np.concatenate([values, -values])


def float8_values(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """Return what bits mean in a float of 8 bits."""
    return np.asarray(_float8_table(dtype)[bits], dtype.value_numpy)


def float8_bits(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Round floats to a float of 8 bits, once, ties to even."""
    shape = NARROW_FORMATS[dtype.scalar.name]
    finite = _float8_table(dtype)[: shape.special]
    middles = np.append((finite[:-1] + finite[1:]) / 2, shape.limit)
    magnitude = np.abs(values.astype(np.float64))
    bits = np.searchsorted(middles, magnitude)  # the lower of two at their middle
    is_tie = magnitude == middles[np.minimum(bits, len(middles) - 1)]
    rounded = np.minimum(bits + (is_tie & (bits % 2 == 1)), shape.overflow)
    kept = np.where(np.isnan(magnitude), shape.nan, rounded)
    return np.asarray(kept | np.signbit(values) * 0x80, np.uint8)


_ORDER: Final = {"bool": 0, "uint": 1, "int": 1, "float": 2}


@cache
def promote(a: DType, b: DType) -> DType:
    """Return the type both operands of an elementwise op are cast to (PyTorch's table).

    Raises: DTypeError for uint64 with a signed integer, which no integer type covers, and for a
    float of 8 bits with any other type.
    """
    if a is b:
        return a
    if (a.is_float and a.bits == 8) or (b.is_float and b.bits == 8):
        raise DTypeError(
            f"promote: no dtype is common to floats of 8 bits and others: {a.name} and {b.name}; "
            "cast one of them first."
        )
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
