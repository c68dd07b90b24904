"""The architecture as a test: which part of the package may import which."""

import ast

import pytest
from meta.tree import PACKAGE, Source, python_sources

# Each line may import the lines above it, and its own.
LEVELS = (
    ("records", "errors", "config", "lazy", "dtype", "target", "progress", "timing"),
    ("ops",),
    ("schedule", "codegen", "runtime"),
    (
        *("captures", "realize", "planning", "replay", "report", "program_cache", "schedule_cache"),
        *("provenance", "tracing", "tune", "variable", "families", "structure"),
    ),
    ("tensor", "grad"),
    (
        *("functions", "control", "jit", "nn", "linalg", "special", "array_api", "distributed"),
        *("interop", "optim"),
    ),
    ("explain", "profile", "selfcheck"),
    ("__init__", "__main__"),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
# These meet in the records of `ops` and never import one another.
APART = {"schedule", "codegen", "runtime"}
LATE_IMPORTERS = {"tinytensor/lazy.py"}
LATE_CALLS = {"import_module", "__import__"}


def module_name(path):
    """tinytensor/ops/uop.py -> tinytensor.ops.uop; a package's __init__.py -> its package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def part_of(module):
    """The part a module belongs to: the name below the package."""
    return module.split(".")[1] if "." in module else "__init__"


def imports_of(source, modules, at_run_time=False):
    """The modules of the package that a file imports, each with its line.

    With `at_run_time` those that only the type checker sees are left out.
    """
    skipped = type_only(source.tree) if at_run_time else set()
    found = []
    for node in ast.walk(source.tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = absolute_origin(source, node)
            names = (f"{origin}.{alias.name}" for alias in node.names)
            found += [(name if name in modules else origin, node.lineno) for name in names]
    return [(name, line) for name, line in found if name.split(".")[0] == PACKAGE]


def type_only(tree):
    """The nodes under `if TYPE_CHECKING:`."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    checked = [block for block in blocks if getattr(block.test, "id", "") == "TYPE_CHECKING"]
    return {node for block in checked for inner in block.body for node in ast.walk(inner)}


def absolute_origin(source, node):
    """The module that a `from` import names, with leading dots resolved."""
    if node.level == 0:
        return node.module
    folders = source.path.split("/")[: -node.level]
    return ".".join(folders + ([node.module] if node.module else []))


def layer_violations(sources):
    """Imports that point up or sideways, as sentences."""
    modules = {module_name(source.path) for source in sources}
    found = []
    for source in sources:
        importer = part_of(module_name(source.path))
        if importer not in LEVEL:
            found.append(f"{source.path}: {importer} has no place in LEVELS")
            continue
        for imported, line in imports_of(source, modules):
            if not may_import(importer, part_of(imported)):
                found.append(f"{source.path}:{line}: {importer} must not import {imported}")
    return found


def may_import(importer, imported):
    if importer == imported:
        return True
    if importer in APART and imported in APART:
        return False
    return LEVEL.get(imported, len(LEVELS)) <= LEVEL[importer]


def import_cycle(sources):
    """One cycle of modules that import each other as they load, in order; empty if none."""
    modules = {module_name(source.path) for source in sources}
    edges = {
        module_name(source.path): [name for name, _ in imports_of(source, modules, True)]
        for source in sources
    }
    finished = set()
    for start in edges:
        trail = [(start, iter(edges[start]))]
        while trail and start not in finished:
            following = next((name for name in trail[-1][1] if name not in finished), None)
            names = [name for name, _ in trail]
            if following is None:
                finished.add(trail.pop()[0])
            elif following in names:
                return [*names[names.index(following) :], following]
            else:
                trail.append((following, iter(edges.get(following, ()))))
    return []


def hidden_imports(source):
    """Imports inside functions, star imports and late import calls, as sentences."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = {
        id(node)
        for function in ast.walk(source.tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if id(node) in inner:
                found.append(f"{source.path}:{node.lineno}: an import inside a function")
            if any(alias.name == "*" for alias in node.names):
                found.append(f"{source.path}:{node.lineno}: a star import")
        elif isinstance(node, ast.Call) and called_name(node) in LATE_CALLS:
            found.append(f"{source.path}:{node.lineno}: a late import outside lazy.py")
    return found


def called_name(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def sample(path, text):
    return Source(f"tinytensor/{path}", text)


def test_every_import_points_down():
    found = layer_violations(python_sources(PACKAGE))

    assert not found, "\n".join(found)


def test_modules_do_not_import_each_other_in_a_circle():
    circle = import_cycle(python_sources(PACKAGE))

    assert not circle, " -> ".join(circle)


def test_late_imports_go_through_lazy():
    sources = [s for s in python_sources(PACKAGE) if s.path not in LATE_IMPORTERS]

    found = [sentence for source in sources for sentence in hidden_imports(source)]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("config.py", "import tinytensor.ops.uop"),
        ("ops/uop.py", "from tinytensor.schedule import order"),
        ("ops/uop.py", "from ..schedule import order"),
        ("schedule/order.py", "from tinytensor.runtime.device import Device"),
        ("nn/layers.py", "from tinytensor import Tensor"),
        ("ops/uop.py", "def f():\n    from tinytensor.tensor.tensor import Tensor"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_found(path, text):
    assert len(layer_violations([sample(path, text)])) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ops/uop.py", "from tinytensor.ops.op import Op\nimport numpy"),
        ("ops/uop.py", "from . import op\nfrom ..dtype import float32"),
        ("__main__.py", "import tinytensor"),
    ],
)
def test_an_import_that_points_down_is_allowed(path, text):
    assert layer_violations([sample(path, text)]) == []


def test_a_part_without_a_place_is_found():
    assert layer_violations([sample("shelf.py", "")]) == [
        "tinytensor/shelf.py: shelf has no place in LEVELS"
    ]


def test_a_circle_of_three_is_found():
    circle = [
        sample("ops/a.py", "import tinytensor.ops.b"),
        sample("ops/b.py", "from tinytensor.ops import c"),
        sample("ops/c.py", "from . import a"),
        sample("ops/d.py", "from . import a"),
    ]

    names = import_cycle(circle)

    assert names == ["tinytensor.ops.a", "tinytensor.ops.b", "tinytensor.ops.c", "tinytensor.ops.a"]


def test_an_import_for_types_alone_makes_no_circle_but_counts_as_a_layer():
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tinytensor.tensor"
    pair = [sample("ops/a.py", guarded), sample("tensor/__init__.py", "import tinytensor.ops.a")]

    assert import_cycle(pair) == []
    assert len(layer_violations(pair)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import json",
        "from math import *",
        "import importlib\nimportlib.import_module('json')",
    ],
)
def test_a_hidden_import_is_found(text):
    assert len(hidden_imports(sample("ops/uop.py", text))) == 1
