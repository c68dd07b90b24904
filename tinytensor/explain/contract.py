"""Turns a kernel into its numerical contract: how closely its results are fixed, and by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tinytensor.ops.attrs import Combine
from tinytensor.ops.kernel import Kernel
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import BINARY, UNARY, Mark, Op
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass
from tinytensor.schedule.describe import short_dtype

ROUNDED = frozenset((*UNARY, *BINARY)) - {Op.NEG, Op.FLOOR, Op.TRUNC, Op.MAX, Op.MIN}
# What a plan made use of, as it shows in the LINEAR form; docs/numerics.md allows it inside sums.
LICENCES = {
    Op.FMA: "multiply-adds of the sum are rounded once",
    Op.MMA: "matrix instructions may truncate inside the sum",
    Op.WGMMA: "matrix instructions may truncate inside the sum",
}


@dataclass(frozen=True, slots=True)
class NumericalContract:
    """What a kernel promises (docs/numerics.md).

    `accumulators` are the dtypes of its float sums and products; `roundings` what is rounded to a
    narrower float, `functions` what is within 2 ulp, `licences` what the plan makes use of.
    """

    accumulators: tuple[str, ...]
    roundings: tuple[str, ...]
    functions: tuple[str, ...]
    licences: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Return the least strict class of its ops: exact, transcendental or reassociated."""
        if self.accumulators:
            return Mark.REASSOCIATED.value
        return Mark.TRANSCENDENTAL.value if self.functions else Mark.EXACT.value

    def __str__(self) -> str:
        parts = {
            "summed in": self.accumulators,
            "rounded:": self.roundings,
            "within 2 ulp:": self.functions,
            "used:": self.licences,
        }
        told = [f"{words} {', '.join(each)}" for words, each in parts.items() if each]
        return "; ".join([self.kind, *told])


def contract_of(kernel: Kernel, linears: Sequence[Linear]) -> NumericalContract:
    """Read a kernel's contract off its INDEXED form, and its licences off the LINEAR one."""
    nodes = walk((kernel.sink,))
    sums = [node for node in nodes if _is_reassociated(node)]
    functions = [node.op.name.lower() for node in nodes if node.op.mark is Mark.TRANSCENDENTAL]
    is_product = any(node.op is Op.CONTRACT for node in sums)
    made = [each for linear in linears for each in walk(linear.statements)]
    # Matrix instructions on float64 are multiply-adds of that.
    used = {Op.FMA if each.op is Op.MMA and each.dtype.itemsize == 8 else each.op for each in made}
    licences = [sentence for op, sentence in LICENCES.items() if is_product and op in used]
    return NumericalContract(
        accumulators=_once(short_dtype(node.dtype) for node in sums),
        roundings=counted(filter(None, map(_rounding, nodes))),
        functions=_once(functions),
        licences=_once(licences),
    )


def _is_reassociated(node: UOp) -> bool:
    """Whether a node is a sum or product of floats; an extreme is exact in any order."""
    if node.op is Op.REDUCE and node.attrs.combine not in (Combine.ADD, Combine.MUL):
        return False
    return node.op.mark is Mark.REASSOCIATED and node.dtype.is_float


def _rounding(node: UOp) -> str:
    """Say what is rounded to a narrower float: a cast, or an op on halves that widens first."""
    if node.op is Op.CAST:
        source = node.operands[0].dtype
        is_narrower = source.is_float and node.dtype.is_float and source.bits > node.dtype.bits
        return f"{short_dtype(source)} to {short_dtype(node.dtype)}" if is_narrower else ""
    is_rounded = node.dtype.is_narrow and node.op in ROUNDED
    return f"{node.op.name.lower()} in {short_dtype(node.dtype)}" if is_rounded else ""


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def counted(words: Iterable[str]) -> tuple[str, ...]:
    """Return words once each, with how often they occur.

    >>> counted(["add", "mul", "add"])
    ('add x2', 'mul')
    """
    return tuple([f"{word} x{n}" if n > 1 else word for word, n in Counter(words).items()])
