"""Refuses a node that is not well formed by itself: the one check of every shape rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinytensor.errors import InternalError

if TYPE_CHECKING:
    from tinytensor.ops.uop import UOp


def check(claim: bool, node: UOp, sentence: str) -> None:
    """Raise InternalError with the node's dtype, operands and attrs when a claim does not hold."""
    if not claim:
        operands = ", ".join(f"{each.dtype.name}{each.shape}" for each in node.operands)
        raise InternalError(
            f"{node.op.name.lower()}: {sentence}: dtype {node.dtype.name}, operands ({operands}), "
            f"attrs {node.attrs}."
        )
