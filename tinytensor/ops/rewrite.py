"""Applies named rules to a graph, operands first, until none applies."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeVar

from tinytensor.errors import InternalError
from tinytensor.ops.op import Op
from tinytensor.ops.pattern import Operation, Pattern, match, may_match
from tinytensor.ops.uop import UOp, walk
from tinytensor.records import dataclass

Result = Callable[..., UOp]
Claim = Callable[..., bool]
Measure = tuple[int, ...]
T = TypeVar("T")
Key = tuple[Op, tuple[Op, ...]]
LATER = ("*",)  # before= this: before every later rule of the set
VISITS_AT_LEAST = 10_000


def by_name(function: Callable[..., T]) -> Callable[[dict[str, UOp]], T]:
    """Return a function of matched nodes, of which it takes those that its parameters name."""
    names = tuple(inspect.signature(function).parameters)
    return lambda found: function(*[found[name] for name in names])


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A named rewrite. `legal` and `result` take the pattern's variables, or `node`, by name.

    A result that is the matched node itself declines. `before` names later rules of the same set
    that may claim the same node, which this one then takes.
    """

    name: str
    pattern: Operation
    legal: Callable[[dict[str, UOp]], bool] | None
    result: Callable[[dict[str, UOp]], UOp]
    before: tuple[str, ...]

    def apply(self, node: UOp) -> UOp | None:
        """Return what takes the node's place: itself when declined, None when it does not match."""
        found: dict[str, UOp] = {}
        if not match(self.pattern, node, found):
            return None
        found["node"] = node
        if self.legal is not None and not self.legal(found):
            return node
        return self.result(found)


@dataclass(slots=True, eq=False)
class RuleSet:
    """Rules in the order they are tried, with the order under which each makes its node smaller."""

    name: str
    measure: Callable[[UOp], Measure]
    rules: list[Rule] = field(default_factory=list)
    _candidates: dict[Key, tuple[Rule, ...]] = field(default_factory=dict)

    def rule(
        self, pattern: Pattern, legal: Claim | None = None, before: Sequence[str] = ()
    ) -> Callable[[Result], Result]:
        """Enter the decorated function as a rule of this set.

        Raises: InternalError when the rule's docstring states no law.
        """
        assert isinstance(pattern, Operation), "a rule's pattern begins with an op"

        def enter(result: Result) -> Result:
            condition = by_name(legal) if legal is not None else None
            _check_law(result)
            made = Rule(result.__name__, pattern, condition, by_name(result), tuple(before))
            self.rules.append(made)
            self._candidates.clear()
            return result

        return enter

    def candidates(self, node: UOp) -> tuple[Rule, ...]:
        """Return the rules that a node's op and its operands' ops admit."""
        key = (node.op, tuple([each.op for each in node.operands]))
        found = self._candidates.get(key)
        if found is None:
            found = tuple(rule for rule in self.rules if may_match(rule.pattern, *key))
            if len(key[1]) <= 3:
                self._candidates[key] = found
        return found


def _check_law(result: Result) -> None:
    """Refuse a rule whose docstring has no sentence that begins with its legality."""
    text = inspect.getdoc(result) or ""
    laws = [line for line in text.splitlines() if line.startswith(("Legal when", "Always legal"))]
    if "->" not in text.partition("\n")[0] or not laws:
        raise InternalError(
            f"rule {result.__name__}: its docstring states no law: {text!r}; "
            "`before  ->  after`, then `Legal when` or `Always legal` was required."
        )


def join(name: str, *sets: RuleSet) -> RuleSet:
    """Return one set that tries the rules of several, those of the first set first."""
    return RuleSet(name, sets[0].measure, [rule for each in sets for rule in each.rules])


def rewrite(roots: Sequence[UOp], rules: RuleSet) -> tuple[UOp, ...]:
    """Return the roots with every node rewritten until no rule of the set applies to it.

    Raises: InternalError naming a rule when the set does not come to an end.
    Cost: linear in the graph; nodes that several users share are rewritten once.
    """
    return RuleRewriter(rules).run(roots)


class Rewriter(ABC):
    """One run over graphs; it remembers each node's result and counts its visits."""

    last = "no rule"  # what was applied last
    visits_per_node = 100  # an orderly set needs about three; only an endless one comes near

    def __init__(self) -> None:
        self.visits = 0
        self._done: dict[UOp, UOp] = {}
        self._becomes: dict[UOp, UOp] = {}  # a node -> what `apply` made of it

    @abstractmethod
    def apply(self, node: UOp) -> UOp:
        """Return what takes a node's place, its operands being settled: itself when it stays."""

    def run(self, roots: Sequence[UOp]) -> tuple[UOp, ...]:
        """Return the roots, rewritten."""
        limit = self.visits + VISITS_AT_LEAST + self.visits_per_node * len(walk(roots))
        stack = list(reversed(roots))
        while stack:
            node = stack.pop()
            if node in self._done:
                continue
            self.visits += 1
            if self.visits > limit:
                raise InternalError(
                    f"rewrite: no end: {self.last} at {node!r} "
                    f"after {self.visits} visits; every result must be smaller than its node."
                )
            stack.extend(self._visit(node))
        return tuple([self._done[root] for root in roots])

    def _visit(self, node: UOp) -> list[UOp]:
        """Settle a node, or return what to settle first, the most urgent last."""
        target = self._becomes.get(node)
        if target is None:
            waiting = [each for each in node.operands if each not in self._done]
            if waiting:
                return [node, *reversed(waiting)]
            target = node.replace(tuple([self._done[each] for each in node.operands]))
            if target is node:
                target = self.apply(node)
            if target is node:
                self._done[node] = node
                return []
            self._becomes[node] = target
        if target in self._done:
            self._done[node] = self._done[target]
            return []
        return [node, target]


class RuleRewriter(Rewriter):
    """A run of a set of rules."""

    def __init__(self, rules: RuleSet) -> None:
        super().__init__()
        self.rules = rules

    def apply(self, node: UOp) -> UOp:
        """Return the result of the first rule that applies, or the node."""
        for rule in self.rules.candidates(node):
            result = rule.apply(node)
            if result is not None and result is not node:
                self.last = f"rule {rule.name} of {self.rules.name}"
                return result
        return node
