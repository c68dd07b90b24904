"""Frozen dataclasses that are made quickly, beside those of the standard library."""

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, replace
from typing import ClassVar

import pytest
from meta.tree import PACKAGE, python_sources

from tinytensor import records


def point_of(dataclass: Callable) -> type:
    """A dataclass with a field of each kind."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        kind: ClassVar[str] = "point"
        x: int
        y: float = 2.5
        names: list[str] = field(default_factory=list)

        def sum(self) -> float:
            return self.x + self.y

    return Point


@records.dataclass(frozen=True, slots=True)
class Pair:
    """Two values, to be pickled by name."""

    first: int
    second: str = "b"


@records.dataclass(frozen=True, slots=True)
class Triple(Pair):
    """A pair, and one more."""

    third: int = 3


@records.dataclass(frozen=True, slots=True)
class Empty:
    """Nothing."""


@records.dataclass(frozen=True, slots=True)
class One:
    """One value."""

    value: object


@records.dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """A value that is equal to itself alone."""

    value: int

    def __repr__(self) -> str:
        return "apart"


Own, Usual = point_of(records.dataclass), point_of(dataclasses.dataclass)


@pytest.mark.parametrize(
    "read",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, 2, ["a"]),
        lambda kind: kind(y=1.0, x=2),
        lambda kind: asdict(kind(1)),
        lambda kind: astuple(kind(1)),
        lambda kind: replace(kind(1), x=3),
        lambda kind: kind(1).sum(),
        lambda kind: kind.kind,
        lambda kind: kind.__slots__,
        lambda kind: kind.__match_args__,
        lambda kind: [(each.name, each.type, each.default) for each in fields(kind)],
        lambda kind: kind(1) == kind(1),
        lambda kind: kind(1) == kind(2),
        lambda kind: kind(1) == (1, 2.5, []),
        lambda kind: kind(1).names is kind(1).names,
        lambda kind: copy.deepcopy(kind(1, 2, ["a"])),
    ],
)
def test_it_is_as_the_standard_librarys(read):
    assert repr(read(Own)) == repr(read(Usual))


@pytest.mark.parametrize(
    "act",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4),
        lambda kind: kind(1, z=2),
        lambda kind: hash(kind(1)),
    ],
)
def test_it_refuses_what_the_standard_librarys_refuses(act):
    refusals = []
    for kind in (Own, Usual):
        with pytest.raises((TypeError, AttributeError)) as refusal:
            act(kind)
        refusals.append(refusal)

    own, usual = refusals
    assert own.type is usual.type
    assert str(own.value) == str(usual.value)


@pytest.mark.parametrize("kind", [Own, Usual])
def test_a_field_never_changes(kind):
    with pytest.raises(FrozenInstanceError, match="^cannot assign to field 'x'$"):
        kind(1).x = 2
    with pytest.raises(FrozenInstanceError, match="^cannot delete field 'x'$"):
        del kind(1).x


def test_equal_records_are_one_key():
    assert {Pair(1, "a"): 1}[Pair(1, "a")] == 1
    assert len({Empty(), Empty()}) == 1
    assert len({One((1, 2)), One((1, 2)), One(1)}) == 2


def test_one_field_that_is_unequal_to_itself_is_equal_by_identity():
    nan = float("nan")

    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))


def test_a_derived_record_has_all_fields_and_equals_no_record_of_its_base():
    assert repr(Triple(1, third=4)) == "Triple(first=1, second='b', third=4)"
    assert Triple(1) != Pair(1)
    with pytest.raises(FrozenInstanceError):
        Triple(1).first = 2


def test_without_equality_records_are_compared_by_identity():
    found = Apart(1)

    assert found == found
    assert found != Apart(1)
    assert repr(found) == "apart"


@pytest.mark.parametrize("record", [Pair(1), Triple(1, "c", 5), Empty(), One([1])])
def test_a_record_comes_back_from_a_pickle(record):
    assert pickle.loads(pickle.dumps(record)) == record


def test_the_package_makes_no_frozen_dataclass_in_the_usual_way():
    usual = re.compile(r"^from dataclasses import (.*, )?dataclass\b", re.MULTILINE)
    texts = {source.path: source.text for source in python_sources(PACKAGE)}

    found = [path for path, text in texts.items() if usual.search(text) and "frozen=True" in text]

    assert found == []


def test_a_record_whose_fields_may_change_is_the_standard_librarys():
    @records.dataclass(slots=True)
    class Count:
        """A number."""

        number: int

    count = Count(1)
    count.number = 2

    assert count == Count(2)
