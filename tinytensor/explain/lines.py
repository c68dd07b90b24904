"""Turns the provenance of nodes into words: module, line, and the op as the user wrote it."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from tinytensor.errors import Site
from tinytensor.ops.op import ELEMENTWISE, Op
from tinytensor.ops.uop import UOp
from tinytensor.provenance import Provenance

MOST_LETTERS = 48
NUMBER = re.compile(r"\d+")
COMPUTING = frozenset((*ELEMENTWISE, Op.REDUCE, Op.GATHER)) - {Op.CAST}


def provenance_of(
    computed: Sequence[UOp], known: Mapping[UOp, Provenance]
) -> tuple[Provenance, ...]:
    """Return where what a kernel computes comes from, first its fold or else its result.

    Views and casts are no work, and constants are shared by lines that know nothing of each other.
    """
    nodes = [node for node in computed if node.op in COMPUTING and node in known]
    folds = [node for node in nodes if node.op is Op.REDUCE]
    first = [*folds, *nodes[::-1]][:1]
    return tuple(dict.fromkeys(known[node] for node in (*first, *nodes)))


def provenance_words(found: Provenance) -> str:
    """Say where a node comes from: `gradient of blocks.0.up: self.up(..), model.py:56`."""
    module = f"{found.module}: " if found.module else ""
    gradient = "gradient of " * found.is_gradient
    expression = f"{expression_at(found.site)}, " if found.site is not None else ""
    return f"{gradient}{module}{expression}{_place(found)}"


def module_words(found: Provenance) -> str:
    """Name the module that a node comes from, or the line where none ran."""
    return "gradient of " * found.is_gradient + (found.module or _place(found))


def _place(found: Provenance) -> str:
    if found.site is None:
        return "no line of the user's"
    return f"{os.path.basename(found.site.code.co_filename)}:{found.site.line_number()}"


def common_words(
    several: Iterable[Provenance], words: Callable[[Provenance], str] = provenance_words
) -> str:
    """Say where several launches come from, with `*` for a number in which modules differ."""
    alike: dict[str, list[str]] = {}
    for told in dict.fromkeys(map(words, several)):
        alike.setdefault(NUMBER.sub("*", told), []).append(told)
    return "; ".join(map(_with_stars, alike.values()))


def _with_stars(told: Sequence[str]) -> str:
    """Give the words of texts that differ in numbers alone."""
    columns = zip(*map(NUMBER.findall, told), strict=True)
    numbers = iter([each[0] if len({*each}) == 1 else "*" for each in columns])
    return NUMBER.sub(lambda _: next(numbers), told[0])


def expression_at(site: Site) -> str:
    """Return the call at a place as the user wrote it, without its arguments."""
    at = islice(site.code.co_positions(), site.offset_bytes // 2, None)
    first, last, begin, end = next(at)
    if first is None or last is None or begin is None or end is None:
        return ""
    path = site.code.co_filename
    lines = [linecache.getline(path, each).encode() for each in range(first, last + 1)]
    if not all(lines):
        return site.code.co_name
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return shortened(b"".join(lines).decode())


def shortened(text: str) -> str:
    """Leave out the arguments of calls, and what is too long.

    >>> shortened("x + self.down(gelu(y), approximate='tanh')")
    'x + self.down(..)'
    """
    try:
        tree = ast.parse(f"({text})", mode="eval")
    except SyntaxError:  # a statement, such as `x += y`
        return " ".join(text.split())[:MOST_LETTERS]
    told = ast.unparse(_WithoutArguments().visit(tree))
    return told if len(told) <= MOST_LETTERS else f"{told[: MOST_LETTERS - 2]}.."


class _WithoutArguments(ast.NodeTransformer):
    """Puts two dots in place of the arguments of each call."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        function = self.visit(node.func)
        has_any = bool(node.args or node.keywords)
        return ast.Call(function, [ast.Name("..")] * has_any, [])
