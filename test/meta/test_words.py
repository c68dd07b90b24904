"""Names and words: no banned name, American spelling, nothing that ties the text to one machine."""

import ast
import re
from pathlib import PurePosixPath

import pytest
from meta.tree import PACKAGE, ROOT, Source, python_sources, written_texts

PYTORCH_NAMES = {"data", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros"}
BRITISH = re.compile(
    r"(colou?r(?<!color)|behaviour|neighbour|favour|honour|centre|fibre|catalogue|modell|labell"
    r"|cancell(?!ation)|anal[yo]?yse|paralleli[s]e|"
    r"(final|general|initial|linear|material|minim|maxim|normal|optim|organ|quant|random|real"
    r"|recogn|serial|special|summar|synchron|token|vector|visual|categor|custom|factor)"
    r"is(e[drs]?|ing|ation)(_|$))"
)
MACHINE = re.compile(
    r"/w[o]rk/|/t[m]p/brief|/r[o]ot/|/h[o]me/\w|p[y]pi\.|pythonh[o]sted|registry\.n[p]m"
)


def banned_names():
    """The whole names and the beginnings that docs/vocabulary.md bans."""
    text = (ROOT / "docs/vocabulary.md").read_text("utf-8")
    listed = re.findall(r"`(\w+)`", text.partition("\nBanned as")[2].partition("\nNames that")[0])
    listed = [name for name in listed if name != "_"]
    beginnings = tuple(name for name in listed if name.endswith("_"))
    return {name for name in listed if name not in beginnings}, beginnings


def identifiers(source):
    """(name, line) of all that a file names: itself, functions, classes, arguments, values."""
    found = [(PurePosixPath(source.path).stem, 1)]
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append((node.name, node.lineno))
        elif isinstance(node, ast.arg):
            found.append((node.arg, node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append((node.id, node.lineno))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.append((node.attr, node.lineno))
    return found


def name_violations(source):
    names, beginnings = banned_names()
    found = []
    for name, line in identifiers(source):
        bare = name.strip("_").lower()
        if bare in PYTORCH_NAMES:
            continue
        if bare in names or bare.startswith(beginnings):
            found.append(f"{source.path}:{line}: the name {name} is banned")
        if BRITISH.search(bare):
            found.append(f"{source.path}:{line}: {name} is spelled the British way")
    return found


def machine_words(text):
    """The words of a text that hold on one machine only: absolute paths, package hosts."""
    return MACHINE.findall(text)


def test_no_name_is_banned():
    sources = python_sources(PACKAGE, "test", "extra")

    found = [sentence for source in sources for sentence in name_violations(source)]

    assert not found, "\n".join(found)


def test_no_text_is_tied_to_one_machine():
    found = {path: machine_words(text) for path, text in written_texts()}

    assert {path: words for path, words in found.items() if words} == {}


def test_the_vocabulary_page_lists_the_banned_names():
    names, beginnings = banned_names()

    assert names == {
        "utils",
        "helpers",
        "common",
        "misc",
        "core",
        "manager",
        "data",
        "info",
        "tmp",
    }
    assert beginnings == ("handle_", "process_", "do_", "new_", "old_")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ops/utils.py", ""),
        ("a.py", "def process_graph(): pass"),
        ("a.py", "class Manager: pass"),
        ("a.py", "def f(info): pass"),
        ("a.py", "tmp = 1"),
        ("a.py", "for _, old_value in []: pass"),
        ("a.py", "self.core = 1"),
        ("a.py", "def optimise_loops(): pass"),
        ("a.py", "neighbours = 1"),
        ("a.py", "class Normalisation: pass"),
        ("a.py", "def is_materialised(): pass"),
        ("a.py", "colours = 1"),
    ],
)
def test_a_banned_or_british_name_is_found(path, text):
    assert len(name_violations(Source(path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def f(data, dim, mask): pass",
        "cores, information, document, renew_all, raised, color = range(6)",
        "otherwise, precise, optimistic, realistic = range(4)",
        "x = utils.common",
    ],
)
def test_other_names_are_allowed(text):
    assert name_violations(Source("a.py", text)) == []


@pytest.mark.parametrize(
    "word", ["/work" + "/main", "https://pypi" + ".org/simple", "/root" + "/x"]
)
def test_a_word_of_one_machine_is_found(word):
    assert len(machine_words(f"see {word} for more")) == 1
