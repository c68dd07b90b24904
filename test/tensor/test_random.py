"""Random tensors: the same bits on every device and in any order, with the distribution asked for.

Seeds are fixed, so a statistical test either always passes or always fails. Its bound is what a
right generator would exceed with a probability of 1e-9.
"""

import math

import numpy as np
import pytest
from schedule.reading import kernels_of

from tinytensor import Generator, Tensor, config, dtypes, initial_seed, manual_seed
from tinytensor.ops.philox import random_bits
from tinytensor.tensor.generator import DEFAULT_SEED

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
COUNT = 2**16
SIGMAS = 6.2  # a normal number is beyond it with a probability below 1e-9
SEED = 11


def generator():
    return Generator().manual_seed(SEED)


MAKERS = {
    "rand": lambda **where: Tensor.rand(3, 67, **where),
    "rand-half": lambda **where: Tensor.rand(201, dtype=dtypes.float16, **where),
    "rand-double": lambda **where: Tensor.rand(201, dtype=dtypes.float64, **where),
    "randn": lambda **where: Tensor.randn(3, 67, **where),
    "randn-bfloat16": lambda **where: Tensor.randn(201, dtype=dtypes.bfloat16, **where),
    "randn-double": lambda **where: Tensor.randn(201, dtype=dtypes.float64, **where),
    "randint": lambda **where: Tensor.randint(-5, 12, (201,), **where),
    "randint-wide": lambda **where: Tensor.randint(-(2**40), 2**40, (201,), **where),
    "0-d": lambda **where: Tensor.rand(**where),
    "empty": lambda **where: Tensor.randn(0, 3, **where),
}


def bits_for(count, draw=0, seed=SEED):
    element = np.arange(count, dtype=np.uint64)
    return random_bits(element, np.uint64(draw), np.uint64(seed))


# Which bits.
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_devices_give_the_same_bits(make):
    compiled = make(generator=generator(), device="CPU").numpy()
    interpreted = make(generator=generator(), device="PYTHON").numpy()

    assert compiled.tobytes() == interpreted.tobytes()


@pytest.mark.parametrize("fuse", [0, 1, 3])
def test_fused_or_not_the_bits_are_the_same(fuse):
    expected = Tensor.rand(100, generator=generator()).numpy() * np.float32(3)

    with config(fuse=fuse):
        found = (Tensor.rand(100, generator=generator()) * 3).numpy()

    assert found.tolist() == expected.tolist()


def test_a_draw_is_taken_by_the_call_not_by_the_computation():
    forward, backward = generator(), generator()
    first, second = (Tensor.rand(9, generator=forward) for _ in range(2))
    early, late = (Tensor.rand(9, generator=backward) for _ in range(2))

    late_values, early_values = late.tolist(), early.tolist()

    assert [first.tolist(), second.tolist()] == [early_values, late_values]


def test_an_element_depends_on_its_place_in_the_row_major_order_alone():
    whole = Tensor.rand(6, 10, generator=generator())
    flat = Tensor.rand(60, generator=generator())

    assert whole[2:4, ::3].T.tolist() == flat.reshape(6, 10)[2:4, ::3].T.tolist()
    assert whole[5, 9].item() == flat.tolist()[-1]


def test_a_value_read_twice_is_the_same():
    x = Tensor.rand(50, generator=generator())
    doubled, plain = x + x, x * 1

    assert doubled.tolist() == (plain * 2).tolist()


def test_other_draws_need_no_other_program():
    source = generator()
    first = kernels_of(Tensor.randn(8, generator=source))
    second = kernels_of(Tensor.randn(8, generator=source))

    assert len(first) == 1
    assert first[0].sink is second[0].sink


# Seeds and draws.
def test_a_seed_repeats_its_sequence():
    manual_seed(5)
    first = [Tensor.rand(4).tolist(), Tensor.randn(4).tolist()]
    manual_seed(5)

    assert [Tensor.rand(4).tolist(), Tensor.randn(4).tolist()] == first


def test_draws_and_seeds_differ():
    source = generator()
    other = Generator().manual_seed(SEED + 1)
    found = [Tensor.rand(4, generator=each).tolist() for each in (source, source, other)]

    assert len({tuple(each) for each in found}) == 3


def test_the_default_sequence_is_that_of_a_fresh_generator():
    manual_seed(DEFAULT_SEED)

    assert Tensor.rand(4).tolist() == Tensor.rand(4, generator=Generator()).tolist()
    assert initial_seed() == DEFAULT_SEED


def test_a_negative_seed_counts_from_the_end():
    assert Generator().manual_seed(-1).initial_seed() == 2**64 - 1


def test_a_seed_from_nowhere_is_known_afterwards():
    source = Generator()
    seed = source.seed()

    again = Generator().manual_seed(seed)

    assert source.initial_seed() == seed
    assert Tensor.rand(4, generator=source).tolist() == Tensor.rand(4, generator=again).tolist()


# Uniform numbers.
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_a_uniform_number_is_the_leading_bits_as_a_fraction(dtype):
    digits = 1 + round(-math.log2(dtype.epsilon))
    found = Tensor.rand(100, dtype=dtype, generator=generator())

    leading = bits_for(100) >> np.uint64(64 - digits)

    assert found.dtype is dtype
    assert found.numpy().astype(np.float64).tolist() == (leading * 2.0**-digits).tolist()


def largest_gap(values, distribution):
    """Kolmogorov and Smirnov's distance of a sample from a distribution function."""
    expected = distribution(np.sort(values))
    steps = np.arange(len(values) + 1) / len(values)
    return max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))


def largest_gap_allowed(count):
    """The distance exceeded with a probability below 2 exp(-2 n d**2) = 1e-9."""
    return math.sqrt(math.log(2 / 1e-9) / (2 * count))


@pytest.mark.parametrize("draw", range(3))
def test_uniform_numbers_are_spread_evenly(draw):
    source = Generator().manual_seed(draw)
    values = Tensor.rand(COUNT, dtype=dtypes.float64, generator=source).numpy()

    assert values.min() >= 0 and values.max() < 1
    assert largest_gap(values, lambda x: x) < largest_gap_allowed(COUNT)


def test_neighbors_and_draws_are_not_correlated():
    source = generator()
    x, y = (Tensor.rand(COUNT, dtype=dtypes.float64, generator=source).numpy() for _ in range(2))
    centered = x - 0.5, y - 0.5

    # The mean of n products of independent numbers of variance 1/12.
    allowed = SIGMAS / 12 / math.sqrt(COUNT - 1)
    assert abs(np.mean(centered[0][1:] * centered[0][:-1])) < allowed
    assert abs(np.mean(centered[0] * centered[1])) < allowed


# Normal numbers.
def normal_share(values):
    return np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in values])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda dtype: dtype.name)
def test_normal_numbers_have_the_normal_distribution(dtype):
    values = Tensor.randn(COUNT, dtype=dtype, generator=generator()).numpy().astype(np.float64)

    assert largest_gap(values, normal_share) < largest_gap_allowed(COUNT)
    # The variances of x, x**2, x**3 and x**4 are 1, 2, 15 and 96.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        allowed = SIGMAS * math.sqrt(variance / COUNT)
        assert abs(np.mean(values**power) - mean) < allowed


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda dtype: dtype.name)
def test_a_normal_number_is_a_coordinate_of_a_random_point(dtype):
    found = Tensor.randn(COUNT, dtype=dtype, generator=generator()).numpy()

    expected = first_coordinates(bits_for(COUNT))
    # In epsilons: the logarithm is within 4, so the distance within 2.5; the angle is within 1, its
    # sine or cosine therefore within 2; the product adds 0.5.
    assert np.all(np.abs(found - expected) <= 5 * dtype.epsilon * np.abs(expected))


def first_coordinates(bits):
    """Box and Muller's numbers in float64."""
    low, high = (bits & np.uint64(2**32 - 1)).astype(np.float64), bits >> np.uint64(32)
    distance = np.sqrt(-2 * np.log((low + 1) / 2**32))
    step = (high & np.uint64(2**30 - 1)).astype(np.float64)
    angle = (step / 2**30 - 0.5) * (math.pi / 2)
    quarter = (high >> np.uint64(30)).astype(np.int64)
    coordinates = [np.cos(angle), np.sin(angle), -np.cos(angle), -np.sin(angle)]
    return distance * np.choose(quarter, coordinates)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda dtype: dtype.name)
def test_a_normal_half_is_the_float32_number_rounded(dtype):
    half = Tensor.randn(500, dtype=dtype, generator=generator())
    wide = Tensor.randn(500, generator=generator())

    assert half.tolist() == wide.to(dtype).tolist()


# Integers.
def test_integers_are_spread_evenly():
    values = Tensor.randint(-3, 7, (COUNT,), generator=generator()).numpy()
    counts = np.bincount(values + 3, minlength=10)

    assert values.min() == -3 and values.max() == 6
    deviation = math.sqrt(COUNT * 0.1 * 0.9)
    assert np.all(np.abs(counts - COUNT / 10) < SIGMAS * deviation)


@pytest.mark.parametrize("count", [1, 3, 10, 2**31 + 5, 2**32])
def test_an_integer_is_the_high_half_of_bits_times_count(count):
    found = Tensor.randint(count, (50,), generator=generator())

    assert found.tolist() == [int(each) * count >> 64 for each in bits_for(50)]


def test_beyond_32_bits_an_integer_is_a_remainder():
    low, high = -(2**63), 2**63 - 1
    found = Tensor.randint(low, high, (50,), generator=generator())

    assert found.tolist() == [low + int(each) % (high - low) for each in bits_for(50)]


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int16, dtypes.float32], ids=str)
def test_integers_come_in_any_dtype(dtype):
    found = Tensor.randint(0, 100, (9,), dtype=dtype, generator=generator())

    assert found.dtype is dtype
    assert found.tolist() == Tensor.randint(0, 100, (9,), generator=generator()).tolist()


# What is made of them.
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_trials_succeed_with_their_probability(p):
    deviation = math.sqrt(COUNT * p * (1 - p))
    by_number = Tensor.zeros(COUNT).bernoulli(p, generator=generator())
    by_tensor = Tensor.full((COUNT,), p).bernoulli(generator=generator())

    for found in (by_number, by_tensor):
        assert set(found.tolist()) == {0.0, 1.0}
        assert abs(found.numpy().sum() - COUNT * p) < SIGMAS * deviation


def test_certain_trials_are_certain():
    chances = Tensor([0.0, 1.0, -1.0, 2.0, math.nan] * 40)

    assert chances.bernoulli().tolist() == [0.0, 1.0, 0.0, 1.0, 0.0] * 40
    assert Tensor.zeros(99).bernoulli(1.0).tolist() == [1.0] * 99
    assert Tensor.zeros(99, dtype=dtypes.int32).bernoulli(0.0).tolist() == [0] * 99


def test_dropout_keeps_some_and_scales_them():
    x = Tensor.full((COUNT,), 3.0)
    manual_seed(SEED)

    dropped = x.dropout(0.25).numpy()

    assert set(dropped.tolist()) == {0.0, 4.0}
    deviation = math.sqrt(COUNT * 0.25 * 0.75)
    assert abs(np.sum(dropped == 0) - COUNT / 4) < SIGMAS * deviation


def test_dropout_of_a_half_rounds_the_scale_and_the_product():
    x = Tensor.full((64,), 3.0, dtype=dtypes.float16)

    found = set(x.dropout(0.3).tolist())

    assert found == {0.0, float(np.float16(3) * np.float16(1 / 0.7))}


def test_dropout_does_nothing_outside_training():
    x = Tensor([1.0, math.nan])

    assert x.dropout(0.5, training=False) is x
    assert x.dropout(0.0) is x
    assert Tensor([1.0, -2.0, 3.0]).dropout(1.0).tolist() == [0.0, 0.0, 0.0]


def test_like_another_tensor():
    x = Tensor.zeros(2, 3, dtype=dtypes.float64, device="PYTHON")

    uniform, normal = x.rand_like(), x.randn_like(dtype=dtypes.float16)
    whole = x.randint_like(0, 4)

    assert [each.dtype.name for each in (uniform, normal, whole)] == [
        *("float64", "float16", "float64")
    ]
    assert {each.device for each in (uniform, normal, whole)} == {"PYTHON"}
    assert {each.shape for each in (uniform, normal, whole)} == {(2, 3)}
