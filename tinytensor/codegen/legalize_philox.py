"""Turns PHILOX into the integer arithmetic of its ten rounds."""

from __future__ import annotations

from tinytensor.ops.op import Op
from tinytensor.ops.philox import KEY_STEPS, MULTIPLIERS, ROUNDS
from tinytensor.ops.uop import UOp, binary
from tinytensor.target import Target

WORD = 2**32 - 1


def legalize_philox(node: UOp, target: Target) -> UOp:
    """Write the rounds with words of 32 bits in lanes of 64, where a product has both its halves.

    Always legal: it is what the op means (ops/philox.py).
    """
    element, draw, key = node.operands
    a, b, c, d = _low(element), _high(element), _low(draw), _high(draw)
    first, second = _low(key), _high(key)
    for number in range(ROUNDS):
        if number:
            first, second = _low(first + KEY_STEPS[0]), _low(second + KEY_STEPS[1])
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b = _high(right) ^ b ^ first, _low(right)
        c, d = _high(left) ^ d ^ second, _low(left)
    return a | binary(Op.SHL, b, 32)


def _low(x: UOp) -> UOp:
    return x & WORD


def _high(x: UOp) -> UOp:
    return binary(Op.SHR, x, 32)
