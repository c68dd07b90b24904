"""Turns facts that differ between two calls into words: why a program does not serve both."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinytensor.jit.facts import ASPECTS
from tinytensor.jit.structure import PLAIN, Fact
from tinytensor.tensor.base import Spec
from tinytensor.tensor.view import View

Key = tuple[Fact, ...]
FLOAT = re.compile(r"-?(0x|inf|nan)")  # as `float.hex` writes it, and no device
ALL = "all of its memory"
GRADIENTS = {"leaf": "True", "cut": "False", "passes": "that of what it sees"}


def told(fact: Fact) -> str:
    """Write a fact as a user knows it."""
    if fact is None:
        return ALL
    if isinstance(fact, type):
        return fact.__name__
    if isinstance(fact, str) and FLOAT.match(fact):
        return str(float.fromhex(fact))
    if not isinstance(fact, tuple):
        return str(fact) or "empty"
    if len(fact) == 2 and isinstance(fact[0], type):
        kind, known = fact
        if kind in PLAIN:
            return repr(known)
        return f"a {kind.__name__} of {known}" if kind in (tuple, list, dict) else _one(kind)
    if len(fact) == 4 and isinstance(fact[0], tuple):
        steps, _, strides, offset = fact
        return f"strides {strides}, offset {offset}" if steps else ALL
    return str(fact)


def _one(kind: type) -> str:
    return f"one {kind.__name__}"


def told_of(name: str, fact: Fact) -> str:
    """Write a fact by its name: what tensors share is known by their numbers alone."""
    aspect = name.rpartition(".")[2]
    if aspect == "alias" and isinstance(fact, tuple) and len(fact) == 2:
        cell, tensor = fact
        return f"tensor {tensor} in memory {cell}"
    if aspect == "requires_grad" and isinstance(fact, str):
        return GRADIENTS.get(fact, fact)
    return told(fact)


def changed(names: Sequence[str], was: Key, key: Key) -> str:
    """Say which facts are others than they were, leaving out what others imply."""
    facts = zip(names, was, key, strict=True)
    pairs = {name: (then, now) for name, then, now in facts if then != now}
    words = {name: [told_of(name, each) for each in pairs[name]] for name in pairs}
    plain = [
        f"{name} is {now}, was {then}"
        for name, (then, now) in words.items()
        if then != now and not _is_told_by_view(pairs[name])
    ]
    others = [f"{name} is another one" for name, (then, now) in words.items() if then == now]
    return ", ".join(plain or others)


def _is_told_by_view(pair: tuple[Fact, Fact]) -> bool:
    """Whether one tensor is a view, which has no gradient of its own, and the other is none."""
    return "passes" in pair and any(isinstance(each, bool) for each in pair)


def restructured(was: Sequence[str], names: Sequence[str]) -> str:
    """Say which arguments came and which went."""
    parts = [f"{each} is given now" for each in _plain(names, was)]
    parts += [f"{each} is no longer given" for each in _plain(was, names)]
    return ", ".join(parts) or "other arguments are given by name"


def _plain(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the names that others lack, without those of tensors' aspects."""
    aspects = {f"{name}.{aspect}" for name in names for aspect in ASPECTS}
    return [name for name in names if name not in others and name not in aspects]


def watched(name: str, then: Fact, now: Fact) -> str:
    """Say what became of something outside of the arguments."""
    if _is_plain(then) and _is_plain(now):
        return f"{name} is {told(now)}, was {told(then)}"
    if isinstance(now, str) and now:
        return f"{name} has changed: {now}"
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        first = next(each[0] for each, other in zip(now, then, strict=True) if each != other)
        return f"{name} has changed: {first}"
    return f"{name} has changed"


def _is_plain(fact: Fact) -> bool:
    is_float = isinstance(fact, str) and FLOAT.match(fact) is not None
    return is_float or (isinstance(fact, tuple) and len(fact) == 2 and fact[0] in PLAIN)


def seen(then: View | None, now: View | None) -> str:
    """Say how a tensor sees its memory that saw it in another way."""
    words = [
        ALL if view is None or view.is_whole else f"strides {view.strides}, offset {view.offset}"
        for view in (now, then)
    ]
    return f"a tensor from outside sees {', saw '.join(words)}"


def kinds(then: Spec, now: Spec) -> str:
    """Say of a cell that it holds values of another kind."""
    words = [
        f"{each.dtype.name} {each.shape} on {each.device}"
        + " that requires a gradient" * each.requires_grad
        for each in (now, then)
    ]
    return f"a tensor from outside is {', was '.join(words)}"
