"""The benchmark of a first training step says where its time goes, and how many kernels it has."""

import re

from extra.bench import cold

SMALL = ["--layers=2", "--width=32", "--vocabulary=100", "--length=8"]


def test_both_steps_are_printed_and_the_second_has_no_kernels_of_its_own(capsys):
    cold.main(SMALL)

    text = capsys.readouterr().out
    counts = re.findall(r"step \d: (\d+) kernels were scheduled, (\d+) are distinct", text)
    assert len(counts) == 2
    assert int(counts[0][0]) > int(counts[0][1]) > 0
    assert counts[1] == ("0", "0")
    for stage in ("graph: forward", "schedule: materialize", "lower: plan", "allocate", "launch"):
        assert f"  {stage} " in text
