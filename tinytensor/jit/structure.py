"""Turns nests of arguments into tensors and facts, and tensors back into nests of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tinytensor.errors import TraceError
from tinytensor.tensor.base import TensorBase

Nest = Any  # tuples, lists, dicts and dataclasses, as deep as the user likes
Fact = Any  # whatever is compared
Builder = Callable[[Sequence[TensorBase]], Nest]
PLAIN = (int, bool, str, bytes, complex, type(None))


@dataclass(slots=True)
class Flat:
    """A nest laid out: its tensors, the facts about all of it, and what is known by identity."""

    tensors: list[TensorBase] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    objects: list[object] = field(default_factory=list)


def flatten(value: Nest, found: Flat) -> None:
    """Lay out a nest; equal facts mean that the same program may serve.

    Raises: TraceError for an array, whose values nobody could compare at each call.
    """
    if isinstance(value, TensorBase):
        found.facts.append(type(value))
        found.tensors.append(value)
        return
    parts = parts_of(value)
    if parts is None:
        if isinstance(value, np.ndarray):
            sentence = f"jit: an argument is an array: shape {value.shape}"
            raise TraceError(f"{sentence}; it must be a Tensor. Use Tensor(array).")
        found.facts.append(fact_of(value))
        found.objects.append(value)
        return
    keys = tuple(value) if type(value) is dict else len(parts)
    found.facts.append((type(value), keys))
    for part in parts:
        flatten(part, found)


def with_ints(value: Nest, ints: dict[int, int], facts: Iterator[int]) -> Nest:
    """Return a nest with other ints at some facts, by their number in what `flatten` gives."""
    at = next(facts)
    if at in ints:
        return ints[at]
    parts = None if isinstance(value, TensorBase) else parts_of(value)
    if parts is None:
        return value
    return _maker_of(value)([with_ints(part, ints, facts) for part in parts])


def with_tensors(value: Nest, tensors: Iterator[TensorBase]) -> Nest:
    """Return a nest with other tensors, one by one in order, as often as they occur."""
    if isinstance(value, TensorBase):
        return next(tensors)
    parts = parts_of(value)
    if parts is None:
        return value
    return _maker_of(value)([with_tensors(part, tensors) for part in parts])


def fact_of(value: object) -> Fact:
    """Return what is compared of a value that is no nest: numbers by bits, objects by identity."""
    kind = type(value)
    if kind is float:
        return value.hex()  # type: ignore[attr-defined]  # it is a float
    return (kind, value) if kind in PLAIN else (kind, id(value))


def parts_of(value: Nest) -> list[Nest] | None:
    """Return what a nest holds; None for anything else."""
    if isinstance(value, (tuple, list)):
        return list(value)
    if type(value) is dict:
        return list(value.values())
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, each.name) for each in fields(value)]
    return None


def names_in(value: Nest, name: str) -> list[str]:
    """Return the name of each fact about a nest, as one would write it."""
    parts = None if isinstance(value, TensorBase) else parts_of(value)
    if parts is None:
        return [name]
    if isinstance(value, (tuple, list)):
        labels = [f"[{place}]" for place in range(len(parts))]
    elif type(value) is dict:
        labels = [f"[{key!r}]" for key in value]
    else:
        labels = [f".{each.name}" for each in fields(value)]
    found = [name]
    for label, part in zip(labels, parts, strict=True):
        found += names_in(part, f"{name}{label}")
    return found


def tensors_in(value: Nest) -> list[TensorBase]:
    """Return the tensors of a nest of results, each once."""
    if isinstance(value, TensorBase):
        return [value]
    found: dict[int, TensorBase] = {}
    for part in parts_of(value) or []:
        found.update({id(each): each for each in tensors_in(part)})
    return list(found.values())


def builder_of(value: Nest, numbers: dict[int, int]) -> Builder:
    """Return what builds a nest like this one of other tensors; `numbers` are theirs by id."""
    if isinstance(value, TensorBase):
        number = numbers[id(value)]
        return lambda tensors: tensors[number]
    parts = parts_of(value)
    if parts is None:
        return lambda tensors: value
    kind: Any = type(value)  # Any: what builds it if it is one of those below
    places = [numbers.get(id(part)) for part in parts]
    if kind in (tuple, list) and places == [*range(len(numbers))]:
        return kind  # type: ignore[no-any-return]  # it holds the tensors in order
    builders = [builder_of(part, numbers) for part in parts]
    make = _maker_of(value)
    return lambda tensors: make([build(tensors) for build in builders])


def _maker_of(value: Nest) -> Callable[[list[Nest]], Nest]:
    """Return what makes a nest of this kind of its parts."""
    kind: Any = type(value)  # Any: called in one of the ways below
    if kind is dict:
        keys = list(value)
        return lambda parts: dict(zip(keys, parts, strict=True))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return lambda parts: kind(*parts)
    if isinstance(value, (tuple, list)):
        return lambda parts: kind(parts)
    labels = [each.name for each in fields(value)]
    return lambda parts: kind(**dict(zip(labels, parts, strict=True)))
