"""Random programs over sizes known only at launch, against the interpreter at each fixed size.

Values are small integers, so that every order of summation gives the same bits.
"""

import numpy as np
import pytest

from tinytensor import Tensor, Variable, mark_dynamic, planning

COLUMNS = 6
SIZES = (7, 1, 16, 33, 4)
PROGRAMS = 24


def small(x):
    """Keep sums exact, whatever was done."""
    return x.clamp(-4, 4)


# Each takes a tensor of some axes and gives one of other axes: {ndim: [(name, function)]}.
STEPS = {
    1: [
        ("+ position", lambda x: small(x + Tensor.arange(x.shape[0], device=x.device) % 3)),
        ("column", lambda x: x.unsqueeze(1).expand(-1, 3)),
        ("row", lambda x: x.reshape(1, -1)),
        ("outer", lambda x: small(x.unsqueeze(1) * x.unsqueeze(0))),
        ("twice", lambda x: Tensor.cat([x, -x], 0)),
        ("reverse", lambda x: x.flip(0)),
        ("inner", lambda x: small(x.sum(0, keepdim=True) - x)),
    ],
    2: [
        ("relu", lambda x: x.relu() - 1),
        ("turn", lambda x: x.T),
        ("flat", lambda x: x.reshape(-1)),
        ("rows", lambda x: small(x.sum(1))),
        ("columns", lambda x: small(x.sum(0))),
        ("centered", lambda x: small(x - x.max(1, keepdim=True)[0])),
        ("gram", lambda x: small(x @ x.T)),
        ("inner", lambda x: small(x.T @ x)),
        ("twice", lambda x: Tensor.cat([x, x * 2], 0)),
        ("beside", lambda x: small(Tensor.cat([x, x - 1], 1))),
        ("every second", lambda x: x[::2]),
        ("without the first", lambda x: Tensor.cat([x[1:], x[:1]], 0)),
        ("flip", lambda x: x.flip(1)),
        ("triangle", lambda x: x.tril()),
        ("mean", lambda x: small((x.sum(0) * x.shape[0]).unsqueeze(0) + x)),
        ("lift", lambda x: x.unsqueeze(1).expand(-1, 2, -1)),
        ("padded", lambda x: Tensor.cat([x * 0, x], 0) + 1),
        ("where", lambda x: x.where(x > 0, x + 3)),
        ("places", lambda x: x.argmax(0).float().unsqueeze(0) + x),
    ],
    3: [
        ("flat", lambda x: x.reshape(x.shape[0], -1)),
        ("joined", lambda x: x.reshape(-1, x.shape[2])),
        ("folded", lambda x: small(x.sum(1))),
        ("turned", lambda x: x.transpose(0, 1)[0]),
        ("batched", lambda x: small(x @ x.transpose(1, 2))),
    ],
}
MOST_ELEMENTS = 30_000


class Program:
    """Steps that a seed chooses by the number of axes alone, so that they fit every size."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.names = []
        self.steps = []
        x = Tensor(operand(7), device="PYTHON")
        for _ in range(int(rng.integers(2, 7))):
            name, step = STEPS[x.ndim][int(rng.integers(len(STEPS[x.ndim])))]
            y = step(x)
            grows = (y.numel() / x.numel()) ** 2
            if y.numel() * grows > MOST_ELEMENTS or y.ndim not in STEPS:
                continue
            self.names.append(name)
            self.steps.append(step)
            x = y

    def run(self, x):
        for step in self.steps:
            x = step(x)
        return x

    def __repr__(self):
        return " -> ".join(self.names)


def operand(rows):
    values = np.arange(rows * COLUMNS) * 5 % 9 - 4
    return values.reshape(rows, COLUMNS).astype(np.float32)


def assert_serves_every_size(seed):
    program, n = Program(seed), Variable("n", 1, 64)
    for rows in SIZES:
        result = program.run(mark_dynamic(Tensor(operand(rows)), 0, n))
        wanted = program.run(Tensor(operand(rows), device="PYTHON"))

        assert result.shape == wanted.shape, f"{program}, {rows} rows, seed {seed}"
        same = np.array_equal(result.numpy(), wanted.numpy())
        assert same, f"{program}, {rows} rows, seed {seed}"


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_a_random_program_has_the_bits_of_each_fixed_size(number):
    assert_serves_every_size(number)


@pytest.mark.fuzz
@pytest.mark.parametrize("start", range(1000, 1600, 50))
def test_many_random_programs_have_the_bits_of_each_fixed_size(start):
    for seed in range(start, start + 50):
        assert_serves_every_size(seed)


def test_most_random_programs_are_one_family():
    planning._FAMILIES.clear()
    for seed in range(PROGRAMS):
        program, n = Program(seed), Variable("n", 1, 64)
        for rows in SIZES:
            program.run(mark_dynamic(Tensor(operand(rows), device="PYTHON"), 0, n)).realize()

    families = [len(each) for each in planning._FAMILIES.values()]
    assert sum(families) <= 1.25 * len(families), families
