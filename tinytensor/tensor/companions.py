"""Remembers values that the next step of an optimizer computes along with its own.

A loss that was differentiated and the running statistics of a batch are made of what a gradient
is made of. Computed later, they would compute all of that again.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from tinytensor.tensor.base import TensorBase

# By identity, because tensors do not compare as wholes; who dies is not computed.
_COMPANIONS: WeakValueDictionary[int, TensorBase] = WeakValueDictionary()


def accompany(tensor: TensorBase) -> None:
    """Let the next step compute a tensor's value, too."""
    _COMPANIONS[id(tensor)] = tensor


def is_companion(tensor: TensorBase) -> bool:
    """Tell whether a tensor waits for the next step."""
    return _COMPANIONS.get(id(tensor)) is tensor


def take_companions() -> list[TensorBase]:
    """Return the tensors that still live and wait, which wait no more."""
    waiting = list(_COMPANIONS.values())
    _COMPANIONS.clear()
    return waiting
