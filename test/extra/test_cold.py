"""The benchmark of a first training step says where its time goes, and how many kernels it has."""

import re

from extra.bench import cold
from extra.bench.sections import CALLED, Sections
from tinytensor import Tensor

SMALL = ["--layers=2", "--width=32", "--vocabulary=100", "--length=8"]


def test_both_steps_are_printed_and_the_second_has_no_kernels_of_its_own(capsys):
    cold.main(SMALL)

    text = capsys.readouterr().out
    counts = re.findall(r"step \d: (\d+) kernels were scheduled, (\d+) are distinct", text)
    assert len(counts) == 2
    assert int(counts[0][0]) > int(counts[0][1]) > 0
    assert counts[1] == ("0", "0")


def test_a_section_does_not_count_what_another_one_takes():
    sections = Sections()

    with sections.watch_package(), sections.section("all"):
        (Tensor([1.0, 2.0]) * 3.0).realize()

    assert sections.times["run"].calls == 1
    assert {"all", "schedule: materialize"} <= sections.times.keys() <= {"all", *CALLED}
