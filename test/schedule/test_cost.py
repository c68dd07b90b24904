"""A value is stored where that is faster; where the choice turns is computed here from rates."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from schedule.reading import decisions_of, interpreted, kernels_of

from tinytensor import Tensor, config, dtypes
from tinytensor.schedule.cost import Choice, Load, evaluation_seconds
from tinytensor.target import CPU_AVX512, SM80, SM90A, ZEN4


@dataclass(frozen=True)
class Seconds:
    """What one float32 takes by a target's rates; it is moved in cache, or in memory."""

    target: object
    in_memory: bool = False

    @property
    def addition(self):
        return 2 / self.target.rates.flops

    @property
    def exponential(self):
        return self.target.rates.exponential / self.target.rates.functions

    @property
    def read(self):
        return 4 / (self.target.rates.read if self.in_memory else self.target.rates.cache)

    @property
    def write(self):
        return 4 / (self.target.rates.write if self.in_memory else self.target.rates.cache)

    @property
    def launch(self):
        return self.target.rates.launch_seconds


CPU, GPU = Seconds(CPU_AVX512), Seconds(SM90A)
MEMORY_OF_ZEN4 = Seconds(replace(CPU_AVX512, rates=ZEN4), in_memory=True)


def ones(*shape, dtype=dtypes.float32):
    return Tensor(np.ones(shape, np.float32), dtype=dtype)


def exponentials(value, count):
    for _ in range(count):
        value = value.exp()
    return value


def added_to_rows(rows, columns, count=1):
    return ones(rows, columns) + exponentials(ones(columns), count)


def turning_columns(one, rows, functions=1):
    """At how many columns storing the row's functions is as fast as computing them anew.

    Each row moves two floats a column, which hide as much of its arithmetic. Stored, the functions
    that are not hidden are computed and read once a column, after a launch.
    """
    again = functions * one.exponential + one.addition - one.read - one.write
    made = max((functions - most_hidden(one)) * one.exponential, one.read + one.write)
    return one.launch / (rows * again - (made + one.read))


def most_hidden(one):
    return math.floor((one.read + one.write - one.addition) / one.exponential)


@pytest.mark.parametrize(("beyond", "count"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("rows", [7, 8])
def test_on_a_cpu_the_choice_turns_with_size_and_with_expansion(rows, beyond, count):
    columns = math.floor(turning_columns(CPU, rows)) + beyond

    assert len(kernels_of(added_to_rows(rows, columns))) == count


@pytest.mark.parametrize(("beyond", "count"), [(0, 1), (1, 2)])
def test_on_a_gpu_the_choice_turns_with_size(beyond, count):
    columns = math.floor(turning_columns(GPU, 512, functions=8)) + beyond

    assert len(kernels_of(added_to_rows(512, columns, 8), target=SM90A)) == count


def test_functions_that_hide_behind_memory_are_recomputed():
    assert most_hidden(GPU) > 1
    assert len(kernels_of(added_to_rows(512, 6300, most_hidden(GPU)), target=SM90A)) == 1


def read_by(readers, elements, functions):
    value = exponentials(ones(elements), functions)
    return [value * float(number + 2) for number in range(readers)]


def read_by_sums(elements, functions=1):
    """Two sums of other rows, that have no kernel in common."""
    value = exponentials(ones(elements, elements), functions)
    return [value.sum(0), value.sum(1)]


def kept(readers, elements, functions, one):
    """Whether storing functions is faster than computing them in each of some readers.

    Each reader multiplies and writes: what it moves hides its arithmetic.
    """
    made = functions * one.exponential
    reader = max(one.addition, one.write)
    again = max(made + one.addition, one.read + one.write) - reader
    read = max(one.addition, one.read + one.write) - reader
    stored = elements * max(made, one.read + one.write) + one.launch
    return stored + readers * elements * read < readers * elements * again


CPU_READERS = [(2, 6000, 1), (2, 6000, 2), (3, 6000, 1)]
GPU_READERS = [(4, 1_200_000, 8), (4, 1_200_000, 10)]


# From TT_FUSE=2 on these readers would be one kernel.
@pytest.mark.parametrize(
    ("one", "program"),
    [*[(CPU, each) for each in CPU_READERS], *[(GPU, each) for each in GPU_READERS]],
)
def test_the_choice_turns_with_functions_and_with_readers(one, program):
    told = decisions_of(*read_by(*program), kind="store", fuse=1, target=one.target)

    assert any(each.startswith("store exp") for each in told) == kept(*program, one)


@pytest.mark.parametrize(("programs", "one"), [(CPU_READERS, CPU), (GPU_READERS, GPU)])
def test_these_programs_lie_on_both_sides(programs, one):
    assert {kept(*each, one) for each in programs} == {False, True}


# 4.2 M exponentials read by two sums, one thread of Zen 4, 2026-11-30: recomputed 1.55 ms, stored
# 1.68.
@pytest.mark.parametrize(("faster_writes", "is_stored"), [(1, False), (2, True)])
def test_what_is_written_to_memory_pays_the_rate_of_writing(faster_writes, is_stored):
    rates = replace(ZEN4, write=ZEN4.write * faster_writes)
    one = replace(MEMORY_OF_ZEN4, target=replace(CPU_AVX512, rates=rates))
    stored = max(one.exponential, one.read + one.write) + 2 * (one.read - one.addition)

    told = decisions_of(*read_by_sums(2048), kind="store", fuse=1, target=one.target)

    assert (stored < 2 * one.exponential) == is_stored
    assert any(each.startswith("store exp") for each in told) == is_stored


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


# A panel of k = 1024 holds as many columns as fill three quarters of L2. With one column more there
# are two panels, and each element of a is computed and laid out twice.
PANEL_COLUMNS = CPU_AVX512.l2_bytes * 3 // 4 // (1024 * 4)


@pytest.mark.parametrize(("n", "is_prologue"), [(PANEL_COLUMNS, True), (PANEL_COLUMNS + 1, False)])
def test_on_a_cpu_a_factor_is_computed_once_for_each_panel(n, is_prologue):
    again = CPU.exponential + CPU.read + CPU.write
    stored = CPU.exponential + CPU.launch / (8 * 1024)  # reading is hidden by the product

    last = kernels_of(ones(8, 1024).exp() @ ones(1024, n))[-1]

    assert again < stored < 2 * again
    assert ("a" in last.contraction.prologues) == is_prologue


# 2048 * 1024 elements, computed once for each tile; stored, they are read, written and launched.
MOST_TILES = math.floor((GPU.read + GPU.write + GPU.launch / (2048 * 1024)) / GPU.exponential)


@pytest.mark.parametrize(("tiles", "is_prologue"), [(MOST_TILES, True), (MOST_TILES + 1, False)])
def test_on_a_gpu_a_factor_is_computed_once_for_each_tile(tiles, is_prologue):
    product = ones(2048, 1024).exp() @ ones(1024, tiles * SM90A.tile)

    last = kernels_of(product, target=SM90A)[-1]

    assert ("a" in last.contraction.prologues) == is_prologue


# With a computed factor a product of halves of 2 * 2048 * 1024 * 1024 operations takes 11.3 us on
# an H200, not 5.4; to store the factor takes 3.5 us. An A100 computes it as fast.
@pytest.mark.parametrize(("target", "is_prologue"), [(SM80, True), (SM90A, False)])
def test_halves_are_stored_where_a_computed_factor_slows_a_product_down(target, is_prologue):
    a, b = ones(2048, 1024, dtype=dtypes.float16), ones(1024, 1024, dtype=dtypes.float16)

    last = kernels_of((a * 2.0) @ b, target=target)[-1]

    assert ("a" in last.contraction.prologues) == is_prologue


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


# The price is eight times copying 16 kB; half of it for what is read one rank later.
@pytest.mark.parametrize(("products", "share"), [(1, 0.5), (2, 1.0), (3, 1.0)])
def test_what_is_read_later_pays_for_its_memory(products, share):
    price = share * 8 * 64 * 64 * 4 / CPU_AVX512.rates.copy

    (told,) = [
        each for each in decisions_of(read_again_after(products), kind="store") if "exp" in each
    ]

    assert f"; holding it for later readers {price * 1e6:.3g} us)" in told


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
            "storing takes 3 us (making it 2 us, 1 us of it the launch; reading it adds 1 us; "
            "holding it for later readers 0 ns), recomputing 30 us; recomputed below 143 B of it "
            "(here 4 kB), since its launch takes as long at any size.",
        ),
        # What is stored within one kernel needs no launch of its own.
        (
            Choice(2e-6, 0.0, 0.0, 4e-6, kernels=2, nbytes=4000),
            "storing takes 2 us (making it 2 us), recomputing 4 us; no launch and no memory, for "
            "the kernels that read it fold its rows in one.",
        ),
        # 1.5 us against 2.1; without the launch 1.1, so a launch for 4 / 0.4 kB.
        (
            Choice(2e-6, 1e-6, 0.1e-6, 1.5e-6, kernels=2, nbytes=4000),
            "recomputing takes 1.5 us, storing 2.1 us (making it 2 us, 1 us of it the launch; "
            "reading it adds 100 ns; holding it for later readers 0 ns); stored above 10 kB of it "
            "(here 4 kB), since its launch takes as long at any size.",
        ),
        # Each of 2 readers gains 0.3 us; 7 gain more than the 2 us of making, 6 less.
        (
            Choice(2e-6, 1e-6, 1e-6, 1.6e-6, kernels=2, nbytes=4000),
            "recomputing takes 1.6 us, storing 3 us (making it 2 us, 1 us of it the launch; "
            "reading it adds 1 us; holding it for later readers 0 ns); each reader saves 300 ns, "
            "so stored from 7 readers on.",
        ),
        # 4 us to hold it are more than what recomputing takes longer; a third reader changes that.
        (
            Choice(2e-6, 1e-6, 1e-6, 6e-6, kernels=2, nbytes=4000, holding=4e-6),
            "recomputing takes 6 us, storing 7 us (making it 2 us, 1 us of it the launch; reading "
            "it adds 1 us; holding it for later readers 4 us); each reader saves 2.5 us, so stored "
            "from 3 readers on.",
        ),
        (
            Choice(2e-6, 1e-6, 1e-6, 1e-6, kernels=2, nbytes=4000),
            "recomputing takes 1 us, storing 3 us (making it 2 us, 1 us of it the launch; reading "
            "it adds 1 us; holding it for later readers 0 ns); reading it would take as long as "
            "computing it, at any size.",
        ),
        # What rounding leaves is no gain.
        (
            Choice(2e-6, 1e-6, 1e-6, math.nextafter(1e-6, 1), kernels=2, nbytes=4000),
            "recomputing takes 1 us, storing 3 us (making it 2 us, 1 us of it the launch; reading "
            "it adds 1 us; holding it for later readers 0 ns); reading it would take as long as "
            "computing it, at any size.",
        ),
        # Its reader computes for longer than it moves; 30 - 1 us grow with 4 kB, the launch is 1.
        (
            Choice(2e-6, 1e-6, 0.0, 30e-6, kernels=1, nbytes=4000),
            "storing takes 2 us (making it 2 us, 1 us of it the launch; reading it adds 0 ns, "
            "hidden behind computing; holding it for later readers 0 ns), recomputing 30 us; "
            "recomputed below 138 B of it (here 4 kB), since its launch takes as long at any size.",
        ),
    ],
    ids=["stored", "rows", "size", "readers", "holding", "never", "rounded", "hidden"],
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
