"""Turns the numbers of a kernel into scalars of its launch, so that one program serves many."""

from __future__ import annotations

import math
from dataclasses import replace

from tinytensor.dtype import dtypes
from tinytensor.ops.attrs import VariableAttrs
from tinytensor.ops.kernel import Decision, Kernel
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, substitute, walk
from tinytensor.records import dataclass

REASON = "another kernel differs in them alone, so they are given at launch."


@dataclass(frozen=True, slots=True)
class Numbered:
    """A kernel and the scalars that its launches are given, by number."""

    kernel: Kernel
    scalars: tuple[float, ...] = ()


def take_out_numbers(kernel: Kernel) -> Numbered:
    """Return a kernel with a VARIABLE in place of each number that makes no better code.

    That is none in a contraction, whose register tile leaves no room for them: 1024 x 1024 products
    times a number took 37 ms in place of 21 (one core of an AMD EPYC with AVX-512, 2026-11-29).
    """
    nodes = walk((kernel.sink,))
    ops = {node.op for node in nodes}
    clips = [each for node in nodes if node.op in (Op.MAX, Op.MIN) for each in node.operands]
    numbers = [node for node in nodes if _is_plain(node) and node not in clips]
    if not numbers or not ops.isdisjoint((Op.CONTRACT, Op.VARIABLE)):
        return Numbered(kernel)
    variables = {
        node: UOp(Op.VARIABLE, node.dtype, (), VariableAttrs(at)) for at, node in enumerate(numbers)
    }
    sink = substitute(kernel.sink, variables)
    decision = Decision("share", f"{len(numbers)} number{'s' * (len(numbers) > 1)}", REASON)
    bare = replace(kernel, sink=sink, decisions=(*kernel.decisions, decision))
    return Numbered(bare, tuple([float(node.value) for node in numbers]))


def _is_plain(node: UOp) -> bool:
    """Whether a node is a float that is neither 0 nor a power of two: code need not know it.

    Only a bound of MAX and MIN is better known, as it is no NaN.
    """
    if node.op is not Op.CONST or node.dtype not in (dtypes.float32, dtypes.float64):
        return False
    fraction, _ = math.frexp(node.value)
    return math.isfinite(fraction) and abs(fraction) not in (0.0, 0.5)
