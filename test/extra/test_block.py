"""The block whose schedule the page reads is chosen differently on another machine."""

import pytest

from extra.examples.block import build
from extra.tour import OPTIONS
from tinytensor.schedule.schedule import schedule
from tinytensor.target import CPU_AVX512, SM90A


@pytest.mark.parametrize(("target", "is_prologue"), [(CPU_AVX512, False), (SM90A, True)])
def test_who_normalizes_depends_on_the_machine(target, is_prologue):
    calls = schedule([build().uop], target, OPTIONS)

    assert ("a" in calls[1].kernel.contraction.prologues) == is_prologue
