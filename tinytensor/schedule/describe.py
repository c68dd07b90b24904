"""Turns a node into the few words by which decisions speak of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinytensor.dtype import DType
from tinytensor.ops.kernel import Decision
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp
from tinytensor.records import dataclass

_TIMES = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3))
_SIZES = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9))
_COUNTS = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))
_FLOATS = {"bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_SHORT = {"float": "f", "int": "i", "uint": "u"}


def short_dtype(dtype: DType) -> str:
    """Return a dtype's short name: f16, bf16, i64, bool.

    >>> from tinytensor.dtype import dtypes
    >>> short_dtype(dtypes.bfloat16)
    'bf16'
    """
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    return f"{_SHORT[dtype.kind]}{dtype.bits}" if dtype.kind in _SHORT else dtype.name


@dataclass(frozen=True, slots=True)
class Draft:
    """A decision whose nodes have no names yet: its reason is in pieces, some of them nodes."""

    kind: str
    subject: UOp
    reason: tuple[str | UOp, ...]

    @property
    def plain_reason(self) -> str:
        """The reason in words, where only one node is spoken of."""
        return "".join([each if isinstance(each, str) else describe(each) for each in self.reason])


def name_nodes(drafts: Sequence[Draft], at: Mapping[UOp, int]) -> list[Decision]:
    """Give nodes names that differ: alike ones are numbered as `at` has them, `add#2 f32[4]`."""
    alike: dict[str, set[UOp]] = {}
    for piece in [each for draft in drafts for each in (draft.subject, *draft.reason)]:
        if isinstance(piece, UOp):
            alike.setdefault(describe(piece), set()).add(piece)
    names: dict[UOp, str] = {}
    for name, nodes in alike.items():
        op, _, rest = name.partition(" ")
        for number, node in enumerate(sorted(nodes, key=at.__getitem__), start=1):
            names[node] = name if len(nodes) == 1 else f"{op}#{number} {rest}"
    return [
        Decision(
            draft.kind,
            names[draft.subject],
            "".join([names[each] if isinstance(each, UOp) else each for each in draft.reason]),
        )
        for draft in drafts
    ]


def describe(node: UOp) -> str:
    """Return an op, its dtype and its shape, as in `add f16[1024,1024]`."""
    name = node.op.name.lower()
    if node.op is Op.REDUCE:
        name = f"reduce[{node.attrs.combine.value}]"
    return f"{name} {short_type(node)}"


def short_type(node: UOp) -> str:
    """Return a node's dtype and shape, as in `f16[1024,1024]`."""
    shape = ",".join(str(extent) for extent in node.shape)
    return f"{short_dtype(node.dtype)}[{shape}]"


def short_time(seconds: float) -> str:
    """Return a time in words, with three digits.

    >>> short_time(1.2345e-6)
    '1.23 us'
    """
    return _in_units(seconds, _TIMES, "s")


def short_size(nbytes: float) -> str:
    """Return a number of bytes in words, with three digits.

    >>> short_size(4_718_592)
    '4.72 MB'
    """
    return _in_units(nbytes, _SIZES, "TB")


def short_count(count: float) -> str:
    """Return a number with three digits, and what stands before its unit.

    >>> short_count(12_582_912) + "flop"
    '12.6 Mflop'
    """
    return _in_units(count, _COUNTS, "T")


def _in_units(value: float, units: Sequence[tuple[str, float]], largest: str) -> str:
    for unit, scale in units:
        if value < 999.5 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / units[-1][1] / 1e3:.3g} {largest}"
