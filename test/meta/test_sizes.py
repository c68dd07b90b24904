"""How long files and functions are, how deep they nest, and what each part of the package spends.

Run as a program it prints the table of parts.
"""

import ast
import re
from collections import Counter

from meta.tree import PACKAGE, Source, python_sources

FILE_LINES = 500
FUNCTION_LINES = 40
DEPTH = 4
# docs/decisions/code-budget.md says why these five are counted as they are.
BUDGETS = {
    "compiler and runtime": 12050,
    "CUDA target": 8100,
    "checking machinery": 2660,
    "jit, explain and profile": 3390,
    "Tensor, gradients, nn and interop": 10050,
}
CHECKS = re.compile(
    r"tinytensor/(ops/(interpret|verify|text|fold|philox|block_|uniform)|schedule/check)"
)
CUDA = re.compile(
    r"tinytensor/(runtime/cuda/"
    r"|codegen/(\w*cuda|instructions_hopper|legalize_(lanes|tiles)|double_fragments|block_builder"
    r"|simplify_linear)"
    r"|codegen/plans/(\w*cuda|block_|amounts|inside|pack_rows|positions|spread|team|alignment)"
    r"|ops/(tile|fragments|infer_blocks|attrs_blocks))"
)
APART = {"checks": "checking machinery", "cuda": "CUDA target"}
COMPILER = {
    *("ops", "schedule", "codegen", "runtime", "realize", "planning", "replay"),
    *("program_cache", "schedule_cache", "captures", "families", "structure", "tune"),
}
AROUND = {"jit", "tracing", "provenance", "variable", "explain", "profile", "progress", "report"}
BASE = {"records", "errors", "config", "lazy", "dtype", "target", "timing"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def size_violations(source):
    """Files and functions that are too long, and functions that nest too deep, as sentences."""
    found = []
    if len(source.code_lines) > FILE_LINES:
        found.append(f"{source.path}: {len(source.code_lines)} code lines, over {FILE_LINES}")
    for function in (node for node in ast.walk(source.tree) if isinstance(node, FUNCTIONS)):
        where = f"{source.path}:{function.lineno}: {function.name}"
        lines, depth = body_lines(source, function), 1 + nesting(function)
        if lines > FUNCTION_LINES:
            found.append(f"{where} has {lines} code lines, over {FUNCTION_LINES}")
        if depth > DEPTH:
            found.append(f"{where} is {depth} deep, over {DEPTH}")
    return found


def body_lines(source, function):
    """The code lines of a function's statements: its signature and docstring do not count."""
    span = range(function.body[0].lineno, function.end_lineno + 1)
    return len(source.code_lines.intersection(span))


def nesting(node):
    """How many blocks lie around a function's innermost statement; `elif` adds none."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        opens = isinstance(child, (*BLOCKS, *FUNCTIONS)) and not is_elif(node, child)
        deepest = max(deepest, opens + nesting(child))
    return deepest


def is_elif(outer, inner):
    return (
        isinstance(outer, ast.If)
        and isinstance(inner, ast.If)
        and outer.orelse == [inner]
        and inner.col_offset == outer.col_offset
    )


def part_of(path):
    """tinytensor/ops/uop.py -> ops; what only checks or serves one target stands apart."""
    if CHECKS.match(path):
        return "checks"
    if CUDA.match(path):
        return "cuda"
    return path.removesuffix(".py").split("/")[1]


def budget_of(part):
    if part in COMPILER | BASE:
        return "compiler and runtime"
    if part in AROUND:
        return "jit, explain and profile"
    return APART.get(part, "Tensor, gradients, nn and interop")


def lines_by_part(sources):
    spent = Counter()
    for source in sources:
        spent[part_of(source.path)] += len(source.code_lines)
    return spent


def overspent(spent):
    """The budgets that are exceeded, each with what was spent."""
    by_budget = Counter()
    for part, lines in spent.items():
        by_budget[budget_of(part)] += lines
    return {name: lines for name, lines in by_budget.items() if lines > BUDGETS[name]}


def size_table(sources):
    spent = lines_by_part(sources)
    rows = [f"{part:12} {lines:6}  {budget_of(part)}" for part, lines in sorted(spent.items())]
    return "\n".join([*rows, f"{'total':12} {spent.total():6}"])


def test_files_and_functions_are_short_and_shallow():
    found = [sentence for source in python_sources(PACKAGE) for sentence in size_violations(source)]

    assert not found, "\n".join(found)


def test_no_part_spends_more_than_its_budget():
    sources = python_sources(PACKAGE)
    print(size_table(sources))

    assert overspent(lines_by_part(sources)) == {}


def test_blank_lines_comments_and_docstrings_are_no_code():
    text = '"""One.\n\ntwo"""\n\n# three\nx = """four\n\nsix"""\n\n\ndef f():\n    """Say."""\n'

    assert Source("a.py", text).code_lines == {6, 7, 8, 11}


def test_a_long_function_is_found():
    text = "def f(\n    x,\n):\n" + "    x += 1\n" * 41

    assert size_violations(Source("a.py", text)) == ["a.py:1: f has 41 code lines, over 40"]


def test_a_long_file_is_found():
    assert size_violations(Source("a.py", "x = 1\n" * 501)) == ["a.py: 501 code lines, over 500"]


def test_four_blocks_in_a_function_are_too_deep():
    text = (
        "def f(x):\n    for a in x:\n        if a:\n            with a:\n"
        "                while a:\n                    pass\n"
    )

    assert size_violations(Source("a.py", text)) == ["a.py:1: f is 5 deep, over 4"]


def test_a_chain_of_elif_is_one_block():
    text = "def f(x):\n    if x:\n        pass\n" + "    elif x:\n        pass\n" * 9

    assert nesting(Source("a.py", text).tree.body[0]) == 1


def test_a_budget_that_is_exceeded_is_found():
    limit = BUDGETS["compiler and runtime"]

    assert overspent({"ops": limit - 4000, "schedule": 4001, "tensor": 10000}) == {
        "compiler and runtime": limit + 1
    }
    assert overspent({"ops": limit - 4000, "schedule": 4000, "tensor": 10000}) == {}


if __name__ == "__main__":
    print(size_table(python_sources(PACKAGE)))
