"""Every sentence that tells users of a mistake is compared by a test."""

import ast

from meta.tree import python_sources

INTERNAL = ("ops", "codegen", "schedule")  # folders that meet checked graphs alone
UNREACHED = {  # and why no test meets the sentence
    "tinytensor/grad.py": "every op on floats has a rule today",
    "tinytensor/runtime/cuda/nvrtc.py": "needs a broken NVRTC",
    "tinytensor/runtime/device.py": "speaks to authors of devices",
}
SHORTEST = 12  # letters between two values; less would occur anywhere


def strings_of(tree):
    return [node.value for node in ast.walk(tree) if is_string(node)]


def is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def raisers(source):
    """The functions that raise an error themselves."""
    functions = [each for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef)]
    return [each for each in functions if any(isinstance(x, ast.Raise) for x in ast.walk(each))]


def sentences(source):
    """The longest part of each text with values in it that a raising function writes."""
    for function in raisers(source):
        for node in ast.walk(function):
            if isinstance(node, ast.JoinedStr):
                parts = [each.value for each in node.values if is_string(each)]
                longest = max(parts, key=len, default="").strip(" :;.")
                if len(longest) >= SHORTEST:
                    yield longest


def test_every_message_is_compared():
    tests = [each for each in python_sources("test") if "/fuzz/" not in each.path]
    compared = "\n".join(text for each in tests for text in strings_of(each.tree))
    users = [
        each for each in python_sources("tinytensor") if each.path.split("/")[1] not in INTERNAL
    ]

    missing = {
        each.path: sorted(set(found))
        for each in users
        if each.path not in UNREACHED
        if (found := [text for text in sentences(each) if text not in compared])
    }

    assert missing == {}
