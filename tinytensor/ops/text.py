"""Turns a graph, a Kernel or a Linear into text, one node a line, and reads such text back.

A line is `%3 = ADD float32 %1 %2 name=value ..`; what follows a `#` is for the reader. Constants
are written by their bits, so that every NaN comes back. Kernels and Linears begin with a header.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from tinytensor.dtype import BY_NAME, DType
from tinytensor.errors import InternalError
from tinytensor.ops.attrs import Attrs, Combine
from tinytensor.ops.extents import index_with
from tinytensor.ops.kernel import Contraction, Decision, Kernel, Param
from tinytensor.ops.linear import Grid, Linear
from tinytensor.ops.op import CLOSERS, OPENERS, Op
from tinytensor.ops.uop import UOp, walk

Names = dict[UOp, str]
Nodes = dict[str, UOp]
Shown = UOp | Sequence[UOp] | Kernel | Linear
INDENT = "  "
MOST_NUMBERS = 4096


# Words: index expressions as attrs and programs hold them.
def word_of(node: UOp) -> str:
    """Return the text of a node without spaces or commas."""
    return show(node).encode().hex()


@lru_cache(maxsize=MOST_NUMBERS)
def numbers_at(words: tuple[str, ...], scalars: tuple[float, ...]) -> tuple[int, ...]:
    """Return the values of index expressions in a launch with those scalars."""
    return tuple([index_with(parse_node(bytes.fromhex(word).decode()), scalars) for word in words])


# Writing.
def show(shown: Shown) -> str:
    """Return the text of a node, of several roots, of a Kernel or of a Linear."""
    if isinstance(shown, Kernel):
        return "\n".join(_kernel_lines(shown))
    if isinstance(shown, Linear):
        return "\n".join(_linear_lines(shown))
    roots = (shown,) if isinstance(shown, UOp) else tuple(shown)
    nodes = walk(roots)
    names = name_nodes(nodes)
    lines = [show_node(node, names) for node in nodes]
    return "\n".join(["graph", *lines, " ".join(["return", *[names[root] for root in roots]])])


def name_nodes(nodes: Iterable[UOp]) -> Names:
    """Number nodes in order of first appearance: %0, %1, .."""
    return {node: f"%{number}" for number, node in enumerate(dict.fromkeys(nodes))}


def show_node(node: UOp, names: Names) -> str:
    """Return the line of one node."""
    operands = [names[each] for each in node.operands]
    words = [names[node], "=", node.op.name, node.dtype.name, *operands, *_attrs_words(node.attrs)]
    if node.op is Op.CONST and node.dtype.kind == "float":
        words.append(f"# {node.value}")
    return " ".join(words)


def _attrs_words(attrs: Attrs | None) -> list[str]:
    if attrs is None:
        return []
    fields = dataclasses.fields(attrs)
    return [f"{field.name}={_show_value(getattr(attrs, field.name))}" for field in fields]


def _show_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(str, value))})"
    if isinstance(value, Combine):
        return value.value
    return value.name if isinstance(value, DType) else str(value)


def _kernel_lines(kernel: Kernel) -> list[str]:
    facts = kernel.contraction
    seeds = (*kernel.ranges, kernel.sink, *([] if facts is None else [facts.node]))
    nodes = walk(seeds)
    names = name_nodes(nodes)
    kind = " instanced" if kernel.instanced else ""
    lines = [f"kernel {kernel.name} {kernel.index_dtype.name}{kind}"]
    lines += _param_lines(kernel.params)
    lines += [
        f"decision {json.dumps([each.kind, each.subject, each.reason])}"
        for each in kernel.decisions
    ]
    lines += [show_node(node, names) for node in nodes]
    if facts is not None:
        lines.append(_contraction_line(facts, names))
    lines.append(" ".join(["ranges", *[names[each] for each in kernel.ranges]]))
    return [*lines, f"return {names[kernel.sink]}"]


def _param_lines(params: Sequence[Param]) -> list[str]:
    access = {True: "written", False: "read"}
    return [f"param {each.dtype.name} {each.elements} {access[each.written]}" for each in params]


def _contraction_line(facts: Contraction, names: Names) -> str:
    words = ["contraction", names[facts.node]]
    for field in ("batch", "m", "n", "k"):
        ranges: tuple[UOp, ...] = getattr(facts, field)
        words.append(f"{field}={','.join([names[each] for each in ranges])}")
    words.append(f"prologue={facts.prologues}")
    return " ".join(words)


def _linear_lines(linear: Linear) -> list[str]:
    names = name_nodes(walk(linear.statements))
    header = f"linear {linear.name} {linear.workspace_bytes}"
    lines = [header, *_grid_lines(linear.grid), *_param_lines(linear.params)]
    lines += [f"scalars {linear.scalars}"] if linear.scalars else []
    depth = 0
    for node in linear.statements:
        depth -= node.op in CLOSERS
        lines.append(INDENT * depth + show_node(node, names))
        depth += node.op in OPENERS
    return lines


def _grid_lines(grid: Grid | None) -> list[str]:
    if grid is None:
        return []
    lines = [f"grid {_show_value(grid.blocks)} {grid.threads} {grid.shared_bytes} {grid.resident}"]
    if grid.across is not None:
        lines.append(f"across {json.dumps(show(grid.across))}")
    return lines


# Reading.
def parse(text: str) -> tuple[UOp, ...] | Kernel | Linear:
    """Read what `show` wrote: the same roots (as a tuple), Kernel or Linear.

    Raises: InternalError for a text it cannot read, with the line.
    """
    reader = _Reader()
    for line in text.splitlines():
        words = line.partition(" # ")[0].split()
        try:
            reader.read(words, line)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise InternalError(f"parse: the line makes no sense: {line.strip()!r}.") from error
    return reader.finish()


def parse_node(text: str) -> UOp:
    """Read what `show` wrote of one node."""
    roots = parse(text)
    if not (isinstance(roots, tuple) and len(roots) == 1):
        raise InternalError(f"parse: it is no single node: {text!r}.")
    return roots[0]


def _text_after(line: str) -> str:
    text: str = json.loads(line.partition(" ")[2])
    return text


class _Reader:
    """What has been read so far."""

    def __init__(self) -> None:
        self.header: list[str] = ["graph"]
        self.nodes: Nodes = {}
        self.statements: list[UOp] = []
        self.params: list[Param] = []
        self.decisions: list[Decision] = []
        self.ranges: tuple[UOp, ...] = ()
        self.roots: tuple[UOp, ...] = ()
        self.contraction: Contraction | None = None
        self.grid: Grid | None = None
        self.scalars = ""

    def read(self, words: list[str], line: str) -> None:
        """Take in one line."""
        if not words:
            return
        first, rest = words[0], words[1:]
        if first.startswith("%"):
            self.nodes[first] = _parse_node(words, self.nodes)
            self.statements.append(self.nodes[first])
        elif first == "decision":
            self.decisions.append(Decision(*json.loads(line.partition(" ")[2])))
        elif first == "param":
            self.params.append(Param(_parse_dtype(rest[0]), int(rest[1]), rest[2] == "written"))
        elif first == "grid":
            threads, shared_bytes, resident = [int(each) for each in rest[1:]]
            self.grid = Grid(_parse_blocks(rest[0]), threads, shared_bytes, resident)
        elif first == "scalars":
            self.scalars = rest[0]
        elif first == "across" and self.grid is not None:
            self.grid = dataclasses.replace(self.grid, across=parse_node(_text_after(line)))
        elif first == "contraction":
            self.contraction = _parse_contraction(rest, self.nodes)
        elif first == "ranges":
            self.ranges = tuple([self.nodes[name] for name in rest])
        elif first == "return":
            self.roots = tuple([self.nodes[name] for name in rest])
        elif first in ("graph", "kernel", "linear"):
            self.header = words
        else:
            raise ValueError(first)

    def finish(self) -> tuple[UOp, ...] | Kernel | Linear:
        """Return what the lines said."""
        params = tuple(self.params)
        if self.header[0] == "linear":
            _, name, workspace_bytes = self.header
            statements = tuple(self.statements)
            needs = (int(workspace_bytes), self.grid, self.scalars)
            return Linear(name, params, statements, *needs)
        if self.header[0] == "kernel":
            _, name, index, *kind = self.header
            told = (self.contraction, _parse_dtype(index), tuple(self.decisions), bool(kind))
            return Kernel(name, self.roots[0], self.ranges, params, *told)
        return self.roots


def _parse_node(words: Sequence[str], nodes: Nodes) -> UOp:
    _, equals, op_name, dtype_name, *rest = words
    if equals != "=":
        raise ValueError(equals)
    op = Op[op_name]
    operands = [nodes[word] for word in rest if word.startswith("%")]
    pairs = [word.split("=", 1) for word in rest if not word.startswith("%")]
    attrs = _parse_attrs(op, dict(pairs)) if pairs else None
    return UOp(op, _parse_dtype(dtype_name), tuple(operands), attrs)


def _parse_attrs(op: Op, values: dict[str, str]) -> Attrs:
    if op.attrs_type is None:
        raise ValueError(op.name)
    kinds = op.attrs_type.__annotations__
    parsed = {name: PARSE_VALUE[kinds[name]](value) for name, value in values.items()}
    attrs: Attrs = op.attrs_type(**parsed)
    return attrs


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple([int(number) for number in text.strip("()").split(",") if number])


def _parse_blocks(text: str) -> tuple[int, int, int]:
    x, y, z = _parse_numbers(text)
    return x, y, z


def _parse_dtype(name: str) -> DType:
    if name in BY_NAME:
        return BY_NAME[name]
    scalar, _, lanes = name.rpartition("x")
    return BY_NAME[scalar].vector(int(lanes))


PARSE_VALUE: dict[str, Callable[[str], Any]] = {  # Any: one type per kind of field
    "int": int,
    "bool": {"True": True, "False": False}.__getitem__,
    "str": str,
    "tuple[int, ...]": _parse_numbers,
    "tuple[str, ...]": lambda text: tuple([each for each in text.strip("()").split(",") if each]),
    "Combine": Combine,
    "DType": _parse_dtype,
}


def _parse_contraction(words: Sequence[str], nodes: Nodes) -> Contraction:
    fields = dict([word.split("=", 1) for word in words[1:]])
    batch, m, n, k = [
        tuple([nodes[name] for name in fields[field].split(",") if name])
        for field in ("batch", "m", "n", "k")
    ]
    return Contraction(nodes[words[0]], batch, m, n, k)
