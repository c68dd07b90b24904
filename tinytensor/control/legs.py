"""Turns a graph with RUN nodes into legs of launches; between two the host runs what it decides.

Outside of a program the same is done while values are computed (`realize.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinytensor import realize
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp, buffer, nbytes_of, substitute_all, walk
from tinytensor.records import dataclass
from tinytensor.replay import NOTHING_GIVEN, Given, Replay, Result
from tinytensor.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Leg:
    """A run on the memory of leaves that makes others: launches, or what the host decides.

    `names` are those of its kernels; `replaced` are leaves by the one that is made in their memory.
    """

    run: Callable[[list[Buffer], Given], Sequence[Buffer]]
    reads: tuple[UOp, ...]
    makes: tuple[UOp, ...]
    names: tuple[str, ...]
    replaced: dict[UOp, UOp]


class Legs:
    """Legs with the face of a Replay; the last one alone writes over what a program was given."""

    is_shown = False

    def __init__(
        self, legs: Sequence[Leg], reads: dict[UOp, int], results: dict[UOp, Result]
    ) -> None:
        self.leaves = list(reads.values())
        self.results = tuple(results.values())
        self._legs = legs
        self._reads = list(reads)
        self._makes = list(results)

    def run(self, leaves: Sequence[Buffer], given: Given = NOTHING_GIVEN) -> list[Buffer]:
        """Run all legs; return the memory of the results, those `given` by number."""
        held = dict(zip(self._reads, leaves, strict=True))
        last = self._legs[-1]
        places = {last.makes.index(self._makes[n]): memory for n, memory in given.items()}
        for leg in self._legs:
            memories = [held[each] for each in leg.reads]
            results = leg.run(memories, places if leg is last else NOTHING_GIVEN)
            held.update(zip(leg.makes, results, strict=True))
        return [held[each] for each in self._makes]

    def names(self) -> tuple[str, ...]:
        """Return the names of the kernels of all legs, and who decides between."""
        return tuple([name for each in self._legs for name in each.names])

    def told(self) -> str:
        """Say in a phrase how they start."""
        return f"{len(self._legs)} legs"


def prepare(
    roots: Sequence[UOp], replaceable: dict[UOp, UOp], device: str
) -> tuple[Replay | Legs, list[UOp]]:
    """Do what realize.prepare does, also where the host has to decide something on the way."""
    order = walk(roots)
    decided = [each for each in order if each.op is Op.RUN]
    if not decided:
        return realize.prepare(roots, replaceable, device)
    known: dict[UOp, UOp] = {}
    legs: list[Leg] = []
    for node in decided:
        if node not in known:
            legs += _launches(node.operands, {}, known, device)
            legs.append(_decision(node, decided, known))
    legs += _launches(roots, replaceable, known, device)
    return _numbered(legs, roots, order, known), order


def _decision(node: UOp, decided: Sequence[UOp], known: dict[UOp, UOp]) -> Leg:
    """Return what gives all results of one control, and put them among the known."""
    control = node.attrs.control
    asked = [each for each in decided if each.operands == node.operands]
    asked = [each for each in asked if each.attrs.control is control]
    inputs = map(realize.contents_of, node.operands)
    reads = tuple([known.get(each, each) for each in inputs])
    makes = [buffer(each.dtype, each.shape, control.device) for each in asked]
    numbers = [each.attrs.number for each in asked]

    def run(memories: list[Buffer], given: Given) -> list[Buffer]:
        results = control.run(memories, numbers)
        return [results[number] for number in numbers]

    known.update(zip(asked, makes, strict=True))
    return Leg(run, reads, tuple(makes), (control.who,), {})


def _launches(
    roots: Sequence[UOp], replaceable: dict[UOp, UOp], known: dict[UOp, UOp], device: str
) -> list[Leg]:
    """Return what computes those roots that lie in no memory yet, and put them among the known."""
    contents = tuple(map(realize.contents_of, roots))
    reached = substitute_all(contents, known)
    wanted = {node: root for root, node in zip(contents, reached, strict=True)}
    wanted = {node: root for node, root in wanted.items() if node.op is not Op.BUFFER}
    if not wanted:
        return []
    places = {}
    for node, root in wanted.items():
        if root in replaceable:
            places[node] = replaceable[root]
    replay, order = realize.prepare(list(wanted), places, device)
    makes = [buffer(node.dtype, node.shape, device) for node in wanted]
    known.update(zip(wanted.values(), makes, strict=True))
    reads = tuple([order[each] for each in replay.leaves])
    replaced = {}
    for made, each in zip(makes, replay.results, strict=True):
        if each.replaced is not None:
            replaced[made] = order[each.replaced]
    return [Leg(replay.run, reads, tuple(makes), replay.names(), replaced)]


def _numbered(
    legs: Sequence[Leg], roots: Sequence[UOp], order: Sequence[UOp], known: dict[UOp, UOp]
) -> Legs:
    """Number what legs read and make as the walk of the whole graph does."""
    numbers = {node: number for number, node in enumerate(order)}
    made = {leaf for leg in legs for leaf in leg.makes}
    reads: dict[UOp, int] = {}
    for leg in legs:
        outer = [leaf for leaf in leg.reads if leaf not in made]
        reads.update({leaf: numbers[leaf] for leaf in outer})
    replaced = legs[-1].replaced
    results = {}
    for root in roots:
        leaf = known[root]
        place = numbers[replaced[leaf]] if leaf in replaced else None
        name = f"a result of {root.op.name.lower()}"
        results[leaf] = Result(numbers[root], nbytes_of(root), name, place)
    return Legs(legs, reads, results)
