"""Programs are compiled side by side while later ones are made; a terminal shows how far it is."""

import os
import sys
import threading

import pytest
from runtime.c_programs import add_program

from tinytensor import progress
from tinytensor.errors import CompileError
from tinytensor.runtime.build import build_all

END = "(end)"
ERASE = "\r\x1b[K"
PATIENCE = 60  # seconds until a test fails that would wait forever


def name_of(program):
    return program.name.encode()


def programs(count):
    return [add_program(number) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_binaries_come_in_the_order_of_their_programs(count):
    assert build_all(name_of, iter(programs(count))) == [name_of(each) for each in programs(count)]


def test_the_first_programs_are_compiled_before_the_last_is_made():
    is_built = threading.Event()
    seen = []

    def build(program):
        is_built.set()
        return name_of(program)

    def make():
        yield from programs(2)
        seen.append(is_built.wait(PATIENCE))
        yield add_program(2)

    assert len(build_all(build, make())) == 3
    assert seen == [True]


def seen_on_a_terminal(build, count, monkeypatch):
    """What a terminal shows while some programs are compiled."""
    near, far = os.openpty()
    with os.fdopen(far, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        build_all(build, programs(count))
        stream.write(END)
    shown = b""
    while not shown.endswith(END.encode()):
        shown += os.read(near, 4096)
    os.close(near)
    return shown.decode().removesuffix(END)


def fail_in_the_middle(program):
    if program.name == add_program(1).name:
        raise CompileError("no")
    return name_of(program)


def test_a_terminal_shows_a_line_that_is_erased_at_the_end(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)

    shown = seen_on_a_terminal(fail_in_the_middle, 3, monkeypatch)

    assert shown.startswith(ERASE)
    assert shown.endswith(f"{ERASE}tinytensor: 3 of 3 kernels are compiled{ERASE}")


def test_a_short_compilation_shows_nothing(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", float("inf"))

    assert seen_on_a_terminal(name_of, 3, monkeypatch) == ""


def test_what_is_no_terminal_stays_silent(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)

    build_all(name_of, programs(3))

    assert capsys.readouterr().err == ""
