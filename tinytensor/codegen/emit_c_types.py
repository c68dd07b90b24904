"""Turns dtypes and the bits of constants into C types and C literals."""

from __future__ import annotations

import math
from typing import Literal

from tinytensor.dtype import DType, decode, dtypes
from tinytensor.records import dataclass

CKind = Literal["f", "i", "u", "b"]

SCALARS = {
    ("b", 8): "_Bool",
    ("f", 32): "float",
    ("f", 64): "double",
    ("i", 8): "signed char",
    ("i", 16): "short",
    ("i", 32): "int",
    ("i", 64): "long long",
    ("u", 8): "unsigned char",
    ("u", 16): "unsigned short",
    ("u", 32): "unsigned",
    ("u", 64): "unsigned long long",
}
SUFFIXES = {("i", 64): "ll", ("u", 32): "u", ("u", 64): "ull"}
KINDS: dict[str, CKind] = {"uint": "u", "int": "i", "float": "f", "bool": "u"}
LEAST_MASK_BITS = 8
GREATEST_MASK_BITS = 64


@dataclass(frozen=True, slots=True)
class CType:
    """A C type: f float, i signed, u unsigned, b a scalar truth value. Units: `bits` of one lane.

    A vector of bools is a mask: signed integers, all bits of a lane set or none.
    """

    kind: CKind
    bits: int
    lanes: int = 1

    @property
    def short(self) -> str:
        """A word for it within names: f32x16."""
        word = "bool" if self.kind == "b" else f"{self.kind}{self.bits}"
        return f"{word}x{self.lanes}" if self.lanes > 1 else word

    @property
    def name(self) -> str:
        """How C spells it."""
        return self.short if self.lanes > 1 else SCALARS[self.kind, self.bits]

    @property
    def scalar(self) -> CType:
        """The type of one lane."""
        return CType(self.kind, self.bits)

    @property
    def nbytes(self) -> int:
        """Bytes of all lanes."""
        return self.bits // 8 * self.lanes

    def of_kind(self, kind: CKind) -> CType:
        """Return the type of equal shape that is another kind of number."""
        return CType(kind, self.bits, self.lanes)


def storage_type(dtype: DType) -> CType:
    """Return the type of a dtype's elements in memory: halves by their bits, bools as bytes."""
    kind = "u" if dtype.is_narrow else KINDS[dtype.kind]
    return CType(kind, max(LEAST_MASK_BITS, dtype.bits), dtype.lanes)


def mask_type(lanes: int, bits: int) -> CType:
    """Return the type of a bool of that many lanes; masks are as wide as what they were made of."""
    return CType("b", LEAST_MASK_BITS) if lanes == 1 else CType("i", bits, lanes)


def declare_vector(ctype: CType, loose: str) -> str:
    """Declare a vector type; a `_loose` one for memory that is aligned like one element only."""
    aligned = f", aligned({ctype.bits // 8}), may_alias" if loose else ""
    attributes = f"vector_size({ctype.nbytes}){aligned}"
    return f"typedef {ctype.scalar.name} {ctype.short}{loose} __attribute__(({attributes}));"


def constant_text(dtype: DType, bits: int) -> str:
    """Write a scalar constant, bit for bit."""
    if dtype is dtypes.bool:
        return str(bits)
    if dtype.is_narrow:
        return f"0x{bits:0{dtype.bits // 4}x}"
    if dtype.is_float:
        return _float_text(dtype, bits)
    value = int(decode(dtype, bits))
    suffix = SUFFIXES.get((KINDS[dtype.kind], dtype.bits), "")
    if dtype.kind == "int" and dtype.bits >= 32 and value == dtype.min:
        return f"(-{-(value + 1)}{suffix} - 1)"  # its magnitude alone does not fit
    return f"{value}{suffix}"


def _float_text(dtype: DType, bits: int) -> str:
    value = float(decode(dtype, bits))
    suffix = "f" if dtype is dtypes.float32 else ""
    sign = "-" if bits >> (dtype.bits - 1) else ""
    if math.isnan(value):
        payload = bits & ((1 << (dtype.bits - 1)) - 1)
        quiet = 1 << (22 if dtype is dtypes.float32 else 51)
        builtin = "nan" if payload & quiet else "nans"
        return f'{sign}__builtin_{builtin}{suffix}("0x{payload & (quiet - 1):x}")'
    if math.isinf(value):
        return f"{sign}__builtin_inf{suffix}()"
    if value.is_integer() and abs(value) < 2**24:
        return f"{sign}{abs(int(value))}.0{suffix}"
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}{suffix}"
