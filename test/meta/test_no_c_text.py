"""Emitted C belongs to the emitters and to the instruction rows; nobody else writes any."""

import ast
import re

import pytest
from meta.tree import PACKAGE, Source, docstring_span, python_sources

FREE_OF_C = ("tinytensor/codegen/", "tinytensor/schedule/", "tinytensor/ops/")
WRITERS_OF_C = re.compile(r"tinytensor/codegen/(emit\w*|instructions\w*)(\.py|/)")
TYPES = r"(?:void|float|double|half|int|unsigned|long|char|bool|size_t|u?int\d+_t|__half2?|float4)"
C_TEXT = re.compile(
    rf"\b{TYPES}(?:\s+|\s*\*\s*)(?:restrict\s+)?\w+\s*[=;\[(]"  # a declaration
    r"|#include\b|#pragma\b|#define\b"
    r"|__(?:builtin|global|device|shared|restrict|launch|sync|asm)"
    r"|\bstatic\s+(?:inline|const|void|float|int)\b"
    r"|\basm\s*(?:volatile)?\s*\("
    r"|\bfor\s*\(.*;"
    r"|\bif\s*\(.*\)\s*\{"
    r"|;\s*\}|\{\s*;|;\n"
    rf"|\(\s*(?:const\s+)?{TYPES}\s*\*?\s*\)\s*[\w(]"  # a cast
)


def c_text(source):
    """String literals of a file that read like C, as sentences; docstrings are prose."""
    prose = {line for node in ast.walk(source.tree) for line in docstring_span(node)}
    return [
        f"{source.path}:{node.lineno}: C text: {text!r}"
        for node, text in literals(source.tree)
        if node.lineno not in prose and C_TEXT.search(text)
    ]


def literals(tree):
    """Every string of a file with its text; a placeholder of an f-string reads as one letter."""
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(part) for part in node.values)
            yield (
                node,
                "".join(
                    getattr(part, "value", "x") if is_text(part) else "x" for part in node.values
                ),
            )
    for node in ast.walk(tree):
        if is_text(node) and id(node) not in parts:
            yield node, node.value


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_only_the_emitters_write_c():
    sources = [
        source
        for source in python_sources(PACKAGE)
        if source.path.startswith(FREE_OF_C) and not WRITERS_OF_C.match(source.path)
    ]

    found = [sentence for source in sources for sentence in c_text(source)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'x = "float total = 0;"',
        'x = f"float {name} = {value};"',
        'x = f"{a} = {b};\\n"',
        'x = "#include <math.h>"',
        'x = "__builtin_expect(a, 0)"',
        'x = "static inline"',
        'x = "extern void run(float *a)"',
        'x = f"for (int {i} = 0; {i} < {n}; {i}++) {{"',
        'x = "(float)a"',
        'x = "asm volatile("',
    ],
)
def test_c_text_is_found(text):
    assert len(c_text(Source("a.py", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring may say float x = 1;"""',
        'x = f"add: dtypes differ: {a} and {b}; both must be float or int."',
        'x = "a static shape is required (an int, not a Variable)"',
        'x = f"%{number} = {op} {operands}"',
        'x = "float32", "int", "bool"',
    ],
)
def test_other_text_is_allowed(text):
    assert c_text(Source("a.py", text)) == []


@pytest.mark.parametrize("name", ["emit.py", "emit_c.py", "instructions.py", "emit/loops.py"])
def test_the_emitters_may_write_c(name):
    assert WRITERS_OF_C.match(f"tinytensor/codegen/{name}")


@pytest.mark.parametrize("name", ["plans/loops.py", "plan.py", "plans/emit_rows.py"])
def test_plans_may_not_write_c(name):
    assert not WRITERS_OF_C.match(f"tinytensor/codegen/{name}")
