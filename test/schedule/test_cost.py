"""A value is stored where that is faster; where the choice turns is computed here by hand."""

from dataclasses import replace

import numpy as np
import pytest
from schedule.reading import decisions_of, interpreted, kernels_of

from tinytensor import Tensor, config, dtypes
from tinytensor.schedule.cost import Choice, Load, evaluation_seconds
from tinytensor.target import CPU_AVX512, SM80, SM90A

# Seconds of CPU_AVX512: 4 bytes in cache 0.04 ns, an addition 0.00833 ns, an exponential 0.25 ns,
# a launch 1 us. Of SM90A: 0.727, 0.0333 and 0.256 ps, and 2 us.


def ones(*shape, dtype=dtypes.float32):
    return Tensor(np.ones(shape, np.float32), dtype=dtype)


def exponentials(value, count):
    for _ in range(count):
        value = value.exp()
    return value


def added_to_rows(rows, columns, count=1):
    return ones(rows, columns) + exponentials(ones(columns), count)


# A kernel moves 0.08 ns for each of its elements, which hide 0.08 ns of its arithmetic. Recomputed:
# rows * (0.25 + 0.0083 - 0.08) = 0.1783 ns * rows for each column. Stored: 0.25 + 0.04 ns for each
# column, and 1000 ns.
@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [
        (8, 870, 1),  # 1241 and 1252 ns
        (8, 890, 2),  # 1270 and 1258 ns
        (7, 1000, 1),  # 1248 and 1290 ns
        (8, 1000, 2),  # 1427 and 1290 ns
    ],
)
def test_on_a_cpu_the_choice_turns_with_size_and_with_expansion(rows, columns, count):
    assert len(kernels_of(added_to_rows(rows, columns))) == count


# Recomputed: 8 * 0.2564 + 0.0333 - 2 * 0.7273 = 0.6301 ps for each element, 512 for each column.
# Stored: 8 * 0.2564 + 0.7273 = 2.778 ps for each column, and 2000 ns.
@pytest.mark.parametrize(
    ("columns", "functions", "count"),
    [
        (6200, 8, 1),  # 2000 and 2017 ns
        (6300, 8, 2),  # 2033 and 2018 ns
        (6300, 5, 1),  # five exponentials are hidden by what is moved
    ],
)
def test_on_a_gpu_the_choice_turns_with_size_and_with_functions(columns, functions, count):
    value = added_to_rows(512, columns, functions)

    assert len(kernels_of(value, target=SM90A)) == count


def read_by(readers, elements, functions):
    value = exponentials(ones(elements), functions)
    return [value * float(number + 2) for number in range(readers)]


# From TT_FUSE=2 on these readers would be one kernel.
# Two readers of 6000 elements; each writes them, 240 ns. Recomputed, one exponential: twice
# 6000 * 0.2583 - 240 = 1310 ns; two: 2810 ns. Stored: 1500 or 3000 ns and a launch of 1000 ns, and
# twice 240 ns to read.
@pytest.mark.parametrize(
    ("readers", "functions", "is_stored"),
    [
        (2, 1, False),  # 2620 and 2980 ns
        (2, 2, True),  # 5620 and 4480 ns
        (3, 1, True),  # 3930 and 3220 ns
    ],
)
def test_on_a_cpu_the_choice_turns_with_functions_and_with_readers(readers, functions, is_stored):
    stored = decisions_of(*read_by(readers, 6000, functions), kind="store", fuse=1)

    assert any(each.startswith("store exp") for each in stored) == is_stored


# Four readers of 1.2e6 elements, 4.8 MB, 873 ns to move. Recomputed, eight exponentials: four times
# 2502 - 873 ns; ten: four times 3117 - 873. Stored: 2462 or 3077 ns, 2000, and four times 873.
@pytest.mark.parametrize(
    ("functions", "is_stored"),
    [
        (8, False),  # 6516 and 7953 ns
        (10, True),  # 8976 and 8568 ns
    ],
)
def test_on_a_gpu_the_choice_turns_with_functions(functions, is_stored):
    values = read_by(4, 1_200_000, functions)
    stored = decisions_of(*values, kind="store", fuse=1, target=SM90A)

    assert any(each.startswith("store exp") for each in stored) == is_stored


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 2),
        ({"functions": 40e9}, 1),  # exponentials are hidden by what is moved
        ({"launch_seconds": 1e-3}, 1),
        ({"cache": 20e9}, 1),  # 0.4 ns for each element hide 0.26 ns of its arithmetic
    ],
    ids=str,
)
def test_the_choice_turns_with_the_rates_of_a_target(change, count):
    target = replace(CPU_AVX512, rates=replace(CPU_AVX512.rates, **change))

    assert len(kernels_of(added_to_rows(8, 1000), target=target)) == count


# A panel of k = 1024 has 192 columns, so 193 take two, and each element of a is computed twice.
# Recomputed: 8192 * (0.25 ns, and 0.08 to lay it out) = 2.7 us for each panel. Stored: 3.05 us.
@pytest.mark.parametrize(("n", "is_prologue"), [(192, True), (193, False)])
def test_on_a_cpu_a_factor_is_computed_once_for_each_panel(n, is_prologue):
    last = kernels_of(ones(8, 1024).exp() @ ones(1024, n))[-1]

    assert last.contraction.prologue_a == is_prologue


# 2048 * 1024 elements, once for each 128 columns. Recomputed: 0.5378 us each time. Stored: 8.39 MB
# twice, 3.05 us, and 2 us.
@pytest.mark.parametrize(("n", "is_prologue"), [(1152, True), (1280, False)])
def test_on_a_gpu_a_factor_is_computed_once_for_each_tile(n, is_prologue):
    last = kernels_of(ones(2048, 1024).exp() @ ones(1024, n), target=SM90A)[-1]

    assert last.contraction.prologue_a == is_prologue


# With a computed factor a product of halves of 2 * 2048 * 1024 * 1024 operations takes 11.3 us on
# an H200, not 5.4; to store the factor takes 3.5 us. An A100 computes it as fast.
@pytest.mark.parametrize(("target", "is_prologue"), [(SM80, True), (SM90A, False)])
def test_halves_are_stored_where_a_computed_factor_slows_a_product_down(target, is_prologue):
    a, b = ones(2048, 1024, dtype=dtypes.float16), ones(1024, 1024, dtype=dtypes.float16)

    last = kernels_of((a * 2.0) @ b, target=target)[-1]

    assert last.contraction.prologue_a == is_prologue


# The loss and the gradient read 4096 exponentials, in kernels of their own.
@pytest.mark.parametrize(("functions", "kind"), [(1e6, "store"), (1e15, "recompute")])
def test_what_a_gradient_needs_again_is_the_same_choice(functions, kind):
    target = replace(CPU_AVX512, rates=replace(CPU_AVX512.rates, functions=functions))
    x = Tensor(np.ones((64, 64), np.float32), requires_grad=True)
    loss = x.exp().square().sum()
    loss.backward()

    told = decisions_of(loss, x.grad, target=target, fuse=1)  # rows apart

    assert {each.split()[0] for each in told if " exp f32[64,64]" in each} == {kind}


def read_again_after(products):
    """What an exponential is read for at once, some products later, and the exponential again."""
    x, y = ones(64, 64), ones(64, 64)
    wave = exponentials(x, 4)
    result = wave @ y
    for _ in range(products):
        result = result @ y
    return result + wave


# 16 kB move in 0.328 us, eight times as long is the price of holding them.
@pytest.mark.parametrize(("products", "price"), [(1, "1.31 us"), (2, "2.62 us"), (3, "2.62 us")])
def test_what_is_read_later_pays_for_its_memory(products, price):
    (told,) = [
        each for each in decisions_of(read_again_after(products), kind="store") if "exp" in each
    ]

    assert f"({price} for holding it)" in told


def test_values_do_not_depend_on_the_choice(monkeypatch):
    found = []
    for verify, is_stored in ((0, False), (1, True)):  # another key, so it is scheduled anew
        monkeypatch.setattr(Choice, "is_stored", property(lambda _, stored=is_stored: stored))
        x = Tensor(np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7))
        y = (x.exp() @ x.T.tanh()) + x.exp().sum(1) * x.T[:5, :5].sin()
        with config(verify=verify):
            found.append(y.numpy())

    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], interpreted(y)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        # 30 us against 3 us; without the launch 2 us, so 28 us for 4 kB, a launch for 4 / 28 kB.
        (
            Choice(2e-6, 1e-6, 1e-6, 30e-6, kernels=2, nbytes=4000),
            "storing takes 3 us, recomputing 30 us; recomputed below 143 B.",
        ),
        # What is stored within one kernel needs no launch of its own.
        (
            Choice(2e-6, 0.0, 0.0, 4e-6, kernels=2, nbytes=4000),
            "storing takes 2 us, recomputing 4 us; the kernels that read it share its rows.",
        ),
        # 1.5 us against 2.1; without the launch 1.1, so a launch for 4 / 0.4 kB.
        (
            Choice(2e-6, 1e-6, 0.1e-6, 1.5e-6, kernels=2, nbytes=4000),
            "recomputing takes 1.5 us, storing 2.1 us; stored above 10 kB.",
        ),
        # Each of 2 readers gains 0.3 us; 7 gain more than the 2 us of making, 6 less.
        (
            Choice(2e-6, 1e-6, 1e-6, 1.6e-6, kernels=2, nbytes=4000),
            "recomputing takes 1.6 us, storing 3 us; stored from 7 readers on.",
        ),
        # 4 us to hold it are more than what recomputing takes longer; a third reader changes that.
        (
            Choice(2e-6, 1e-6, 1e-6, 6e-6, kernels=2, nbytes=4000, holding=4e-6),
            "recomputing takes 6 us, storing 7 us (4 us for holding it); stored from 3 readers on.",
        ),
        (
            Choice(2e-6, 1e-6, 1e-6, 1e-6, kernels=2, nbytes=4000),
            "recomputing takes 1 us, storing 3 us; reading it would take as long.",
        ),
    ],
    ids=["stored", "rows", "size", "readers", "holding", "never"],
)
def test_a_choice_says_what_would_change_it(choice, text):
    assert str(choice) == text


@pytest.mark.parametrize(("name", "share"), [("exp", 0.65), ("sin", 1.5), ("tanh", 1.7)])
def test_a_function_is_priced_in_units_of_which_an_exponential_takes_some(name, share):
    rates = replace(CPU_AVX512.rates, functions=2e9, exponential=0.65)
    node = getattr(ones(4), name)().uop

    seconds = evaluation_seconds(node, replace(CPU_AVX512, rates=rates))

    assert seconds == pytest.approx(share / 2e9, rel=1e-12)


def test_arithmetic_and_memory_overlap():
    load = Load(3.0, 1.0) + Load(0.0, 1.5)

    assert load.seconds == 3.0
