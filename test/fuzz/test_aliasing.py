"""Random programs of views and writes read what NumPy's do, fused or not, read in any order."""

from itertools import zip_longest

import numpy as np
import pytest
from fuzz.alias_programs import Grower, Run, Seen, Step, mirror_of, show, shrink

import tinytensor
from tinytensor import config

IN_THE_SUITE = 300
ALL = 5000
NOTHING = Seen(Step("end", ""))


def look(x, how):
    """Shape, dtype and layout of a tensor, and its values read in one of several ways."""
    if how == "realize":
        x.realize()
    x = x.detach() if x.requires_grad and how != "tolist" else x
    values = np.array(x.tolist() if how == "tolist" else x.numpy(), x.dtype.name).reshape(x.shape)
    layout = (x.stride(), x.storage_offset(), x.is_contiguous())
    return (x.shape, x.dtype.name, *layout), values


def difference(ours, theirs, facts, licenses=()):
    """Say where two runs of one program showed something else; empty if nowhere.

    What follows a refusal that is licensed is not compared.
    """
    for mine, other in zip_longest(ours, theirs, fillvalue=NOTHING):
        if any(each in other.error or each in mine.error for each in licenses):
            return ""
        if mine.step != other.step:
            refusal = mine if mine.error else other
            return f"only one refuses: {refusal.step.line}: {refusal.error}"
        if mine.facts[:facts] != other.facts[:facts] or bool(mine.error) != bool(other.error):
            return f"{mine.step.line}: {mine.error or mine.facts}, not {other.error or other.facts}"
        if not np.array_equal(mine.values, other.values):
            return f"{mine.step.line}:\n{mine.values}\nnot\n{other.values}"
    return ""


def fault_of(steps, device, fuse):
    """Compare with NumPy a run that reads as the program says and one that reads at the end."""
    expected = mirror_of(steps).seen
    with config(device=device, fuse=fuse):
        found = difference(Run(tinytensor, look).take_all(steps), expected, 2)
        if found:
            return found
        last = [each for each in steps if each.kind == "read"][::-1]
        late = [each for each in steps if each.kind != "read"] + last
        return difference(Run(tinytensor, look).take_all(late), mirror_of(late).seen, 2)


def check(seed, device, fuse):
    steps = Grower(seed).steps
    if fault_of(steps, device, fuse):
        steps = shrink(steps, lambda each: fault_of(each, device, fuse))
        pytest.fail(f"seed {seed}\n{show(steps)}\n{fault_of(steps, device, fuse)}")


@pytest.mark.parametrize("first", range(0, IN_THE_SUITE, 20))
def test_programs_that_write_agree_with_numpy(first):
    for seed in range(first, first + 20):
        check(seed, "PYTHON", seed % 4)


def test_programs_that_write_agree_with_numpy_when_compiled(default_device):
    for seed in range(8):
        check(seed, default_device, seed % 4)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(IN_THE_SUITE, ALL, 100))
def test_many_programs_that_write_agree_with_numpy(first):
    for seed in range(first, first + 100):
        check(seed, "PYTHON", seed % 4)
