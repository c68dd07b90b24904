"""Random orders and choices: the same on every device, each as likely as it should be.

Seeds are fixed, so a statistical test either always passes or always fails. Its bound is what a
right generator would exceed with a probability of 1e-9.
"""

import numpy as np
import pytest

from tinytensor import Generator, Tensor, dtypes

SIGMAS = 6.2  # a normal number is beyond it with a probability below 1e-9
SEED = 12
CHANCES = [0.0, 3.0, 1.0, 0.0, 4.0]  # the last is one half
COUNT = 4000


def generator():
    return Generator().manual_seed(SEED)


def assert_frequency(found, chance, count=COUNT):
    deviation = np.sqrt(chance * (1 - chance) / count)
    assert abs(found / count - chance) < SIGMAS * deviation


# Orders.
@pytest.mark.parametrize("n", [0, 1, 2, 33, 1000])
def test_a_random_order_has_each_number_once(n):
    found = Tensor.randperm(n, generator=generator())

    assert found.dtype is dtypes.int64
    assert sorted(found.tolist()) == list(range(n))


def test_a_random_order_is_no_longer_sorted_and_differs_from_the_next():
    seeded = generator()
    first, second = (Tensor.randperm(1000, generator=seeded).numpy() for _ in range(2))

    # The expected number of fixed points, and of equal ones in two orders, is 1 (Poisson).
    assert (first == np.arange(1000)).sum() < 15
    assert (first == second).sum() < 15


def test_a_random_order_in_another_dtype():
    assert sorted(Tensor.randperm(256, dtype=dtypes.uint8).tolist()) == list(range(256))
    assert Tensor.randperm(5, dtype=dtypes.float16).dtype is dtypes.float16


def test_each_place_is_first_equally_often():
    rows = Tensor.ones(COUNT, 4).multinomial(4, generator=generator()).numpy()

    assert np.sort(rows, 1).tolist() == [[0, 1, 2, 3]] * COUNT
    for place in range(4):
        assert_frequency((rows[:, 0] == place).sum(), 0.25)


# Choices.
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16])
def test_choices_with_replacement_follow_their_chances(dtype):
    chances = Tensor(CHANCES, dtype=dtype)

    found = chances.multinomial(COUNT, replacement=True, generator=generator()).numpy()

    counts = np.bincount(found, minlength=5)
    assert counts[0] == counts[3] == 0
    for place in (1, 2, 4):
        assert_frequency(counts[place], CHANCES[place] / 8)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64])
def test_choices_without_replacement_follow_their_chances(dtype):
    rows = Tensor([CHANCES] * COUNT, dtype=dtype)

    found = rows.multinomial(2, generator=generator()).numpy()

    assert (found[:, 0] != found[:, 1]).all()
    for place in (1, 2, 4):
        assert_frequency((found[:, 0] == place).sum(), CHANCES[place] / 8)
    assert_frequency((np.sort(found, 1) == [1, 4]).all(1).sum(), 3 / 8 * 4 / 5 + 4 / 8 * 3 / 4)


def test_places_without_a_chance_come_last():
    found = Tensor(CHANCES).multinomial(5, generator=generator()).tolist()

    assert sorted(found[:3]) == [1, 2, 4]
    assert sorted(found[3:]) == [0, 3]


def test_the_devices_choose_alike():
    for replacement in (False, True):
        first, second = (
            Tensor(CHANCES, device=device).multinomial(5, replacement, generator=generator())
            for device in ("CPU", "PYTHON")
        )
        assert first.tolist() == second.tolist()
    first, second = (
        Tensor.randperm(100, generator=generator(), device=device) for device in ("CPU", "PYTHON")
    )
    assert first.tolist() == second.tolist()


def test_rows_are_drawn_apart():
    rows = Tensor([[0.0, 1.0], [1.0, 0.0]])

    assert rows.multinomial(3, replacement=True).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert Tensor.zeros(0, 3).multinomial(2).shape == (0, 2)
