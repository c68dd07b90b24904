"""Walks a LINEAR form's statements and writes lines of C, in the dialect that a subclass speaks."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tinytensor.codegen.emit import find_inlined
from tinytensor.codegen.emit_c_types import CType, storage_type
from tinytensor.codegen.emit_c_values import Value, ValueEmitter
from tinytensor.dtype import dtypes
from tinytensor.ops.bounds import bounds_of
from tinytensor.ops.linear import Linear
from tinytensor.ops.op import Op
from tinytensor.ops.uop import UOp

INLINED_CHARACTERS = 60  # a longer expression gets a name
LINE_CHARACTERS = 100
SCALARS = {"q": "long long", "d": "double"}

# Any: each dialect's functions take its own writer.
Statement = Callable[[Any, UOp], None]


class StatementWriter(ABC):
    """Walks the statements; knows what each node in sight is called."""

    statements: ClassVar[dict[Op, Statement]]
    nameless: ClassVar[frozenset[Op]]

    def __init__(self, linear: Linear, values: ValueEmitter) -> None:
        self.linear = linear
        self.values = values
        self.lines: list[str] = []
        self.scopes: list[dict[UOp, Value]] = [{}]
        self.inlined = find_inlined(linear.statements)
        self.counts: dict[str, int] = {}

    def write_body(self) -> None:
        """Write every statement."""
        for position, node in enumerate(self.linear.statements):
            if node.op in self.statements:
                self.statements[node.op](self, node)
                continue
            value = self.value(node)
            is_inlined = position in self.inlined and len(value.text) <= INLINED_CHARACTERS
            if self.keeps_text(node, value, is_inlined):
                self.bind(node, value)
            else:
                self.declare(node, value)

    def value(self, node: UOp) -> Value:
        """Write a value that is one expression."""
        operands = [self.find(each) for each in node.operands]
        if node.op is Op.LOAD:
            return self.load(node, *operands)
        if node.op is Op.READ:
            return self.read(*operands)
        if node.op is Op.PARAM:
            return Value(f"p{node.attrs.number}", storage_type(node.dtype))
        if node.op is Op.EXTENT:
            return Value("extent", storage_type(node.dtype))
        if node.op is Op.VARIABLE:
            return self.variable(node)
        return self.values.emit(node, operands)

    @abstractmethod
    def load(self, node: UOp, buffer: Value, index: Value, guard: Value | None = None) -> Value:
        """Write a load."""

    def read(self, register: Value) -> Value:
        """Write what a register holds."""
        return register

    def scalars(self) -> list[str]:
        """Write the params that scalars come in."""
        return [f"{SCALARS[kind]} scalar{at}" for at, kind in enumerate(self.linear.scalars)]

    def variable(self, node: UOp) -> Value:
        """Write a scalar in its dtype."""
        ctype, name = self.values.type_of(node.dtype), f"scalar{node.attrs.number}"
        text = f"{name} != 0" if node.dtype is dtypes.bool else f"({self.spell(ctype)}){name}"
        return Value(text, ctype, is_atom=False)

    def pragma(self, unroll: int) -> str:
        """Write what asks the compiler to unroll the loop that follows; empty for nothing."""
        return ""

    def spell(self, ctype: CType) -> str:
        """Return the dialect's name of a type."""
        return ctype.name

    def keeps_text(self, node: UOp, value: Value, is_inlined: bool) -> bool:
        """Whether a value needs no name: its text serves, or a load filled a variable."""
        is_filled = node.op is Op.LOAD and value.text.isidentifier()
        return is_inlined or is_filled or node.op in self.nameless

    def find(self, node: UOp) -> Value:
        """Return what a node in sight is called."""
        return next(scope[node] for scope in reversed(self.scopes) if node in scope)

    def bind(self, node: UOp, value: Value) -> None:
        """Let a node be known by an expression from here to the end of its block."""
        self.scopes[-1][node] = value

    def name(self, letter: str) -> str:
        """Return a fresh name."""
        count = self.counts.get(letter, 0)
        self.counts[letter] = count + 1
        return f"{letter}{count}"

    def line(self, text: str) -> None:
        """Append a line at the current depth, broken where it is long."""
        self.lines += wrap(text, "    " * len(self.scopes))

    def declare(self, node: UOp, value: Value) -> Value:
        """Give a value a name."""
        named = Value(self.name("v"), value.ctype)
        self.line(f"{self.spell(value.ctype)} {named.text} = {value.text};")
        self.bind(node, named)
        return named

    def open_block(self, head: str) -> None:
        """Write the line that opens a block, and go inside."""
        self.line(f"{head} {{")
        self.scopes.append({})

    def close_block(self) -> None:
        """Leave the innermost block."""
        self.scopes.pop()


def wrap(text: str, indent: str) -> list[str]:
    """Break a line of C where it is too long."""
    if len(indent) + len(text) <= LINE_CHARACTERS:
        return [indent + text]
    return textwrap.wrap(
        text,
        LINE_CHARACTERS,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _loop(e: StatementWriter, node: UOp) -> None:
    begin, end = (e.find(each) for each in node.operands)
    step = node.attrs.step
    pragma = e.pragma(node.attrs.unroll)
    if pragma:
        e.line(pragma)
    overflows = int(bounds_of(node.operands[1])[1]) + step > node.dtype.max
    ctype = CType("i", 64) if overflows else storage_type(node.dtype)
    name = e.name("i")
    advance = f"{name}++" if step == 1 else f"{name} += {step}"
    limit = f"{name} < {end.operand}"
    e.open_block(f"for ({ctype.name} {name} = {begin.text}; {limit}; {advance})")
    e.scopes[-2][node] = Value(name, ctype)


def close(e: StatementWriter, node: UOp) -> None:
    """Close a block."""
    e.close_block()
    e.line("}")


def _if(e: StatementWriter, node: UOp) -> None:
    cond = e.find(node.operands[0])
    e.bind(node, cond)
    e.open_block(f"if ({cond.text})")


def _else(e: StatementWriter, node: UOp) -> None:
    e.close_block()
    e.open_block("} else")


CONTROL: dict[Op, Statement] = {
    Op.LOOP: _loop,
    Op.ENDLOOP: close,
    Op.IF: _if,
    Op.ELSE: _else,
    Op.ENDIF: close,
}
