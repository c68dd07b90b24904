"""Turns counters and a key into random bits with NumPy: the generator Philox4x32-10.

Source: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)

Array = np.ndarray[Any, Any]  # any shape, and an unsigned type


def random_bits(element: Array, draw: Array, key: Array) -> Array:
    """Return words 0 and 1 of Philox4x32-10, word 0 in the low half.

    The operands are uint64; the counter's words are those of `element` and then those of `draw`,
    the lower first.
    """
    outer = _words(element)
    inner = _words(draw)
    keys = _words(key)
    for number in range(ROUNDS):
        steps = np.multiply(number, KEY_STEPS).astype(np.uint32)
        from_outer = _words(_product(outer[0], MULTIPLIERS[0]))
        from_inner = _words(_product(inner[0], MULTIPLIERS[1]))
        mixed = from_inner[1] ^ outer[1]
        other = from_outer[1] ^ inner[1]
        outer = mixed ^ (keys[0] + steps[0]), from_inner[0]
        inner = other ^ (keys[1] + steps[1]), from_outer[0]
    high = outer[1].astype(np.uint64)
    return np.asarray(outer[0] | high << np.uint64(32))


def _words(values: Array) -> tuple[Array, Array]:
    """Return the low and the high halves of uint64 values."""
    high = values >> np.uint64(32)
    return values.astype(np.uint32), high.astype(np.uint32)


def _product(word: Array, multiplier: int) -> Array:
    return word.astype(np.uint64) * np.uint64(multiplier)
