import timeit

import pytest

from tinytensor import errors
from tinytensor.errors import Site, caller_site

ASK = """
from tinytensor.errors import caller_site

def ask(depth):
    return ask(depth - 1) if depth else caller_site()
"""


def ask_from_inside(depth):
    """Call caller_site through frames that belong to a module of the package."""
    names = {"__name__": "tinytensor.tensor.sample"}
    exec(ASK, names)
    return names["ask"](depth)


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (errors.ShapeError, (RuntimeError, ValueError)),
        (errors.DTypeError, (RuntimeError, TypeError)),
        (errors.DeviceError, (RuntimeError,)),
        (errors.IndexOutOfRange, (IndexError,)),
        (errors.CompileError, (RuntimeError,)),
        (errors.InternalError, (RuntimeError,)),
    ],
)
def test_an_error_is_caught_as_what_pytorch_raises(error, bases):
    assert issubclass(error, (errors.TinyTensorError,))
    assert all(issubclass(error, base) for base in bases)


def test_the_caller_s_line_is_named():
    site = caller_site()  # this line

    path, line, source = site.describe().rsplit(":", 2)

    assert path == __file__
    assert source == " site = caller_site()  # this line"
    assert int(line) == test_the_caller_s_line_is_named.__code__.co_firstlineno + 1


def test_frames_inside_the_package_are_skipped():
    site = ask_from_inside(depth=5)

    assert site.code is ask_from_inside.__code__


def test_a_package_with_a_longer_name_is_a_caller():
    names = {"__name__": "tinytensor_models"}
    exec("from tinytensor.errors import caller_site\nsite = caller_site()", names)

    assert names["site"].code.co_name == "<module>"


def test_the_line_of_a_call_that_spans_several_is_that_of_the_call():
    site = [
        1,
        caller_site(),
    ][1]

    first = test_the_line_of_a_call_that_spans_several_is_that_of_the_call.__code__.co_firstlineno
    assert site.line_number() == first + 3


def test_a_place_whose_source_is_gone_has_only_its_line():
    code = compile("\n\nx = 1", "gone.py", "exec")

    assert Site(code, 2).describe() == "gone.py:3"


def test_a_site_costs_about_a_microsecond():
    shortest = min(timeit.repeat(caller_site, number=10_000, repeat=5)) / 10_000

    assert shortest < 10e-6  # ten times what is expected, so that a busy machine passes
